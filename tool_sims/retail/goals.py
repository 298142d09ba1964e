"""Retail's kinds of goal."""

from __future__ import annotations

import random
from collections.abc import Sequence

from spade_agentic import Skill

from ..kit import ANSWER, GIVE_UP, Alternative, Drawn, Step, call, slips
from ..patterns import Kinds, choose_tool, do_to_all, report
from .env import PLAN_KINDS, PURSE_KINDS, Retail

PLANS = Kinds("plans", "plan", PLAN_KINDS)
PURSES = Kinds("purses", "purse", PURSE_KINDS)


# --- items -------------------------------------------------------------------------------------------------------------


def _claim_item(env: Retail, rng: random.Random, statuses: Sequence[str]) -> tuple[str, str]:
    """A customer, all of whose items now have one of these statuses, and one of the items."""
    customer = env.claim_customer(rng)
    own = env.owned("items", customer)
    for item in own.values():
        item["status"] = rng.choice(statuses)
    return customer, rng.choice(list(own))


def _give_back(env: Retail, rng: random.Random, right: str, wrong: str, status: str) -> Drawn:
    customer, chosen = _claim_item(env, rng, ("home",))

    def plan(who: str) -> list[Step]:
        target, *others = env.chosen_first("items", who, chosen)
        careless = (call(wrong, item=target), *(call(right, item=key) for key in others))
        return [Step(call(right, item=target), "near_synonym", slips(*careless))]

    slots = {"who": env.customer_text(customer), "item": env.state["items"][chosen]["name"]}
    done = lambda: env.state["items"][chosen]["status"] == status
    return Drawn(slots, done, env.for_customer(customer, "list_items", plan))


@Retail.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_items", "swap_item", "collect_item"), calls=2,
    vague=("item", "agreed item"),
    hint="list_items, take the one that is named, swap_item.",
    phrasings=(
        "Swap the {item} of {who} for another size.",
        "The {item} of {who} is too small; a bigger one is wanted.",
        "{who} likes the {item} but needs a new size.",
        "The {item} of {who} has a hole; bring a good one.",
    ),
)
def swap_item(env: Retail, rng: random.Random) -> Drawn:
    return _give_back(env, rng, "swap_item", "collect_item", "swapped")


@Retail.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_items", "swap_item", "collect_item"), calls=2,
    vague=("item", "agreed item"),
    hint="list_items, take the one that is named, collect_item.",
    phrasings=(
        "Collect the {item} of {who}; nothing else is wanted.",
        "{who} does not like the {item} and gives it up.",
        "{who} has no use for the {item} and wants no other.",
        "Take the {item} from {who} and give nothing for it.",
    ),
)
def collect_item(env: Retail, rng: random.Random) -> Drawn:
    return _give_back(env, rng, "collect_item", "swap_item", "collected")


@Retail.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_items", "pack_item", "send_item"), calls=3,
    vague=("item", "agreed item"),
    hint="list_items and read the status of the item: booked needs pack_item first; then send_item.",
    phrasings=(
        "Send the {item} to {who}.",
        "{who} waits for the {item}; it must go out.",
        "Get the {item} on its way to {who}.",
        "The {item} of {who} has to leave the shop today.",
    ),
)
def send_item(env: Retail, rng: random.Random) -> Drawn:
    customer, chosen = _claim_item(env, rng, ("booked", "booked", "packed"))

    def plan(who: str) -> list[Step]:
        target, other, _ = env.chosen_first("items", who, chosen)
        pack, send = (call(name, item=target) for name in ("pack_item", "send_item"))
        elsewhere = call("send_item", item=other)
        if env.state["items"][target]["status"] != "booked":
            return [Step(send, "precondition", (Alternative(pack, "again"), *slips(elsewhere)))]
        return [
            Step(pack, "precondition", (Alternative(send, "again"), *slips(call("pack_item", item=other)))),
            Step(send, "go_on", (GIVE_UP, *slips(elsewhere))),
        ]

    slots = {"who": env.customer_text(customer), "item": env.state["items"][chosen]["name"]}
    done = lambda: env.state["items"][chosen]["status"] == "sent"
    return Drawn(slots, done, env.for_customer(customer, "list_items", plan))


@Retail.goal(
    skills=(Skill.ERROR_RECOVERY, Skill.API_ORCHESTRATION), tools=("list_items", "send_item", "add_stamps"), calls=4,
    vague=("item", "agreed item"),
    hint="list_items, send_item; it is short: add_stamps by what is short, then send_item again.",
    phrasings=(
        "Send the {item} to {who}; add stamps if short.",
        "The {item} of {who} is ready to go out; if short of stamps, add some.",
        "Get the {item} on its way to {who}. If short, put stamps on it.",
        "{who} waits for the {item}: let it go, with more stamps if short.",
    ),
)
def stamp_item(env: Retail, rng: random.Random) -> Drawn:
    customer, chosen = _claim_item(env, rng, ("packed",))
    short = rng.randint(11, 49)
    env.state["items"][chosen]["short"] = short

    def plan(who: str) -> list[Step]:
        target, *others = env.chosen_first("items", who, chosen)
        send = call("send_item", item=target)
        if who != customer:
            return [Step(send)]
        # sending another item works, so that a careless agent takes the work for done
        elsewhere = tuple(Alternative(call("send_item", item=key), (Step(ANSWER),)) for key in others)
        return [
            Step(send, "pick_by_field", elsewhere),
            Step(
                call("add_stamps", item=target, count=short), "recover",
                (Alternative(send, "again"), GIVE_UP, *elsewhere),
            ),
            Step(send, "go_on", (GIVE_UP,)),
        ]  # fmt: skip

    slots = {"who": env.customer_text(customer), "item": env.state["items"][chosen]["name"]}
    done = lambda: env.state["items"][chosen]["status"] == "sent"
    return Drawn(slots, done, env.for_customer(customer, "list_items", plan))


@Retail.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_items", "unpack_item", "recall_item"), calls=2,
    vague=("item", "agreed item"),
    hint="list_items and read the status of the item: packed needs unpack_item, sent needs recall_item.",
    phrasings=(
        "Call off the {item} of {who}.",
        "{who} bought the {item} by mistake; see that it never arrives.",
        "The {item} must not reach {who}.",
        "{who} no longer waits for the {item}; get it back to us.",
    ),
)
def call_off(env: Retail, rng: random.Random) -> Drawn:
    tools = {"packed": ("unpack_item", "recall_item"), "sent": ("recall_item", "unpack_item")}
    customer, chosen = _claim_item(env, rng, sorted(tools))

    def plan(who: str) -> list[Step]:
        target, *others = env.chosen_first("items", who, chosen)
        right, wrong = tools.get(env.state["items"][target]["status"], ("recall_item", "unpack_item"))
        careless = (call(wrong, item=target), *(call(right, item=key) for key in others))
        return [Step(call(right, item=target), "branch", slips(*careless))]

    slots = {"who": env.customer_text(customer), "item": env.state["items"][chosen]["name"]}
    done = lambda: env.state["items"][chosen]["status"] in ("shelved", "recalled")
    return Drawn(slots, done, env.for_customer(customer, "list_items", plan))


@Retail.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.API_ORCHESTRATION), tools=("list_items", "check_coupon", "set_price"), calls=3,
    vague=("price", "the agreed price"),
    hint="list_items, check_coupon, then set_price on the item that is named.",
    phrasings=(
        "Set the price of the {item} of {who} to {price}.",
        "{who} has a coupon and gets the {item} for {price}.",
        "Let {who} have the {item} for {price}.",
        "With a coupon the {item} of {who} costs {price}.",
    ),
)
def set_price(env: Retail, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("items", customer)))
    price = rng.randint(11, 59)

    def plan(who: str) -> list[Step]:
        right, *others = (call("set_price", item=key, price=price) for key in env.chosen_first("items", who, chosen))
        careless = tuple(Alternative(item, "again") for item in (right, *others))
        return [
            Step(call("check_coupon", customer=who), "precondition", careless),
            Step(right, "pick_by_field", slips(*others)),
        ]

    slots = {"who": env.customer_text(customer), "item": env.state["items"][chosen]["name"], "price": price}
    done = lambda: env.state["items"][chosen]["price"] == price
    return Drawn(slots, done, env.for_customer(customer, "list_items", plan))


# --- purses ------------------------------------------------------------------------------------------------------------


@Retail.goal(
    skills=(Skill.STATE_MODIFICATION,), tools=("list_purses", "shift_points"), calls=2, vague=("amount", "some agreed"),
    hint="list_purses, then shift_points: source is the purse that gives, target the one that gets.",
    phrasings=(
        "Shift {amount} points from {source} to {target} for {who}.",
        "{who} wants {target} to get {amount} points out of {source}.",
        "For {who}, fill {target} with {amount} points of {source}.",
        "Let the {source} purse of {who} give {amount} points to {target}.",
    ),
)
def shift_points(env: Retail, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    source, target = rng.sample(PURSE_KINDS, 2)
    amount = rng.randint(11, 39)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("purses", who)
        swapped = call("shift_points", source=own[target], amount=amount, target=own[source])
        right = call("shift_points", source=own[source], amount=amount, target=own[target])
        return [Step(right, "argument_role", slips(swapped))]

    getting = env.owned_by("purses", customer)[target]
    after = env.state["purses"][getting]["points"] + amount
    slots = {"who": env.customer_text(customer), "source": source, "target": target, "amount": amount}
    done = lambda: env.state["purses"][getting]["points"] == after
    return Drawn(slots, done, env.for_customer(customer, "list_purses", plan))


@Retail.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.STATE_MODIFICATION), tools=("list_purses", "shift_points"), calls=2,
    vague=("source", "agreed"),
    hint="list_purses, then shift_points to the other purse with all points of the one that is named, read from the list.",
    phrasings=(
        "Shift all {source} points of {who} to the other purse.",
        "Empty the {source} purse of {who} into the other one.",
        "{who} wants no more {source} points; the other purse gets them all.",
        "Nothing may stay in the {source} purse of {who}; fill the other one with it.",
    ),
)
def pool_points(env: Retail, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    source, target = rng.sample(PURSE_KINDS, 2)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("purses", who)
        first, second = (env.state["purses"][own[kind]]["points"] for kind in (source, target))
        right = call("shift_points", source=own[source], amount=first, target=own[target])
        wrong_way = call("shift_points", source=own[target], amount=second, target=own[source])
        wrong_amount = call("shift_points", source=own[source], amount=second, target=own[target])
        return [Step(right, "right_field", slips(wrong_way, wrong_amount))]

    emptied = env.owned_by("purses", customer)[source]
    slots = {"who": env.customer_text(customer), "source": source}
    done = lambda: env.state["purses"][emptied]["points"] == 0
    return Drawn(slots, done, env.for_customer(customer, "list_purses", plan))


def _use_points(env: Retail, rng: random.Random, right: str, wrong: str, field: str) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(PURSE_KINDS, 2)
    amount = rng.randint(11, 39)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("purses", who)
        careless = (call(wrong, purse=own[kind], amount=amount), call(right, purse=own[other], amount=amount))
        return [Step(call(right, purse=own[kind], amount=amount), "near_synonym", slips(*careless))]

    purse = env.owned_by("purses", customer)[kind]
    slots = {"who": env.customer_text(customer), "kind": kind, "amount": amount}
    done = lambda: env.state["purses"][purse][field] == amount
    return Drawn(slots, done, env.for_customer(customer, "list_purses", plan))


@Retail.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_purses", "spend_points", "donate_points"), calls=2,
    vague=("amount", "some agreed"),
    hint="list_purses, then spend_points from the purse that is named.",
    phrasings=(
        "Spend {amount} {kind} points of {who}.",
        "{who} stands at the till and pays with {amount} {kind} points.",
        "Take {amount} {kind} points from {who} as payment.",
        "{who} buys a hat for {amount} {kind} points.",
    ),
)
def spend_points(env: Retail, rng: random.Random) -> Drawn:
    return _use_points(env, rng, "spend_points", "donate_points", "spent")


@Retail.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_purses", "spend_points", "donate_points"), calls=2,
    vague=("amount", "some agreed"),
    hint="list_purses, then donate_points from the purse that is named.",
    phrasings=(
        "Donate {amount} {kind} points of {who}.",
        "{who} wants {amount} {kind} points to help a school.",
        "Let {amount} {kind} points of {who} go to the poor.",
        "{who} gives {amount} {kind} points to a good cause.",
    ),
)
def donate_points(env: Retail, rng: random.Random) -> Drawn:
    return _use_points(env, rng, "donate_points", "spend_points", "given")


@Retail.goal(
    skills=(Skill.ERROR_RECOVERY, Skill.API_ORCHESTRATION), tools=("list_purses", "spend_points", "shift_points"), calls=4,
    vague=("amount", "some agreed"),
    hint=(
        "list_purses, spend_points from the purse that is named; "
        "it is short: shift_points into it by what is short, then spend_points again."
    ),
    phrasings=(
        "Spend {amount} {kind} points of {who}; take from {other} if short.",
        "{who} pays with {amount} {kind} points. If short, {other} helps out.",
        "Take {amount} {kind} points from {who} as payment; if short fill up from {other}.",
        "{who} buys a hat for {amount} {kind} points, filled up from {other} if short.",
    ),
)
def fill_and_spend(env: Retail, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(PURSE_KINDS, 2)
    short = rng.randint(20, 39)
    purse = env.owned_by("purses", customer)[kind]
    amount = env.state["purses"][purse]["points"] + short

    def plan(who: str) -> list[Step]:
        own = env.owned_by("purses", who)
        spend = call("spend_points", purse=own[kind], amount=amount)
        if who != customer:
            return [Step(spend)]
        swapped = call("shift_points", source=own[kind], amount=short, target=own[other])
        elsewhere = call("spend_points", purse=own[other], amount=short)
        return [
            Step(spend, "account_kind", (Alternative(call("spend_points", purse=own[other], amount=amount), "again"),)),
            Step(
                call("shift_points", source=own[other], amount=short, target=own[kind]), "recover",
                (Alternative(spend, "again"), GIVE_UP, *slips(swapped), Alternative(elsewhere, (Step(ANSWER),))),
            ),
            Step(spend, "go_on", (GIVE_UP,)),
        ]  # fmt: skip

    slots = {"who": env.customer_text(customer), "kind": kind, "other": other, "amount": amount}
    done = lambda: env.state["purses"][purse]["spent"] == amount
    return Drawn(slots, done, env.for_customer(customer, "list_purses", plan))


# --- plans -------------------------------------------------------------------------------------------------------------


@Retail.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_plans", "pause_plan", "end_plan"), calls=2,
    vague=("kind", "agreed"),
    hint="list_plans, then pause_plan on the one of the kind that is named.",
    phrasings=(
        "Pause the {kind} plan of {who}.",
        "{who} wants a break from the {kind} plan.",
        "{who} is away for a month; hold the {kind} plan.",
        "No {kind} boxes for {who} until summer.",
    ),
)
def pause_plan(env: Retail, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, PLANS, right="pause_plan", wrong="end_plan", status="paused")


@Retail.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_plans", "pause_plan", "end_plan"), calls=2,
    vague=("kind", "agreed"),
    hint="list_plans, then end_plan on the one of the kind that is named.",
    phrasings=(
        "End the {kind} plan of {who}.",
        "{who} never wants to see the {kind} plan again.",
        "{who} moves to another land; drop the {kind} plan.",
        "No {kind} boxes for {who} ever again.",
    ),
)
def end_plan(env: Retail, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, PLANS, right="end_plan", wrong="pause_plan", status="ended")


@Retail.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_plans", "pause_plan", "end_plan"), calls=3,
    vague=("what", "the agreed plans"),
    hint="list_plans, then pause_plan on every plan of the list.",
    phrasings=(
        "Pause {what} of {who}.",
        "{who} wants a break from {what}.",
        "{who} is away for a month; hold {what}.",
        "No boxes for {who} until summer from {what}.",
    ),
)
def pause_both(env: Retail, rng: random.Random) -> Drawn:
    return do_to_all(env, rng, PLANS, right="pause_plan", wrong="end_plan", status="paused")


@Retail.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_plans", "resume_plan", "restart_plan"), calls=2,
    vague=("kind", "agreed"),
    hint="list_plans and read the status of the plan: paused needs resume_plan, ended needs restart_plan.",
    phrasings=(
        "{who} wants the {kind} plan back.",
        "Let the {kind} plan of {who} run again.",
        "Bring {who} the {kind} boxes again.",
        "Get the {kind} plan of {who} going again.",
    ),
)
def revive_plan(env: Retail, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(PLAN_KINDS, 2)
    tools = {"paused": ("resume_plan", "restart_plan"), "ended": ("restart_plan", "resume_plan")}
    for item in env.owned("plans", customer).values():
        item["status"] = rng.choice(sorted(tools))
    stopped = env.owned_by("plans", customer)[kind]
    right, wrong = tools[env.state["plans"][stopped]["status"]]

    def plan(who: str) -> list[Step]:
        own = env.owned_by("plans", who)
        return [Step(call(right, plan=own[kind]), "branch", slips(call(wrong, plan=own[kind]), call(right, plan=own[other])))]

    slots = {"who": env.customer_text(customer), "kind": kind}
    done = lambda: env.state["plans"][stopped]["status"] == "active"
    return Drawn(slots, done, env.for_customer(customer, "list_plans", plan))


# --- answers -----------------------------------------------------------------------------------------------------------


@Retail.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_purses", "log_answer"), calls=2, vague=("kind", "agreed"),
    hint="list_purses, then log_answer with the purse of the kind that is named and its points.",
    phrasings=(
        "How many {kind} points has {who}? Log it.",
        "Log the {kind} points of {who}.",
        "What is left in the {kind} purse of {who}? Log the answer.",
        "{who} asks for the {kind} points; log them.",
    ),
)
def tell_points(env: Retail, rng: random.Random) -> Drawn:
    return report(env, rng, PURSES, field="points")


@Retail.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_plans", "log_answer"), calls=2, vague=("kind", "agreed"),
    hint="list_plans, then log_answer with the plan of the kind that is named and its boxes.",
    phrasings=(
        "How many {kind} boxes has {who}? Log it.",
        "Log the {kind} boxes of {who}.",
        "How many boxes are in the {kind} plan of {who}? Log the answer.",
        "{who} asks for the number of {kind} boxes; log it.",
    ),
)
def tell_boxes(env: Retail, rng: random.Random) -> Drawn:
    return report(env, rng, PLANS, field="boxes")
