"""The support desk's kinds of goal."""

from __future__ import annotations

import random

from spade_agentic import Skill, ToolCall

from ..kit import ANSWER, GIVE_UP, Alternative, Drawn, Step, call, slips
from ..patterns import Kinds, after_check, choose_tool, do_to_all, report, revive
from .env import DEVICE_KINDS, TEAMS, Support

DEVICES = Kinds("devices", "device", DEVICE_KINDS)


# --- tickets -----------------------------------------------------------------------------------------------------------


@Support.goal(
    skills=(Skill.STATE_MODIFICATION,), tools=("list_tickets", "merge_tickets"), calls=2, vague=("target", "agreed"),
    hint="list_tickets, then merge_tickets: source is the one that goes away, target the one that stays.",
    phrasings=(
        "Merge the {source} ticket of {who} into the {target} ticket.",
        "For {who}, keep the {target} ticket and merge the {source} ticket into it.",
        "{who} wants one ticket: {target} stays, {source} goes into it.",
        "Let the {target} ticket of {who} take in the {source} ticket.",
    ),
)
def merge_tickets(env: Support, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    source, target = rng.sample(list(env.owned("tickets", customer)), 2)

    def plan(who: str) -> list[Step]:
        first, second = (source, target) if who == customer else list(env.owned("tickets", who))[:2]
        swapped = call("merge_tickets", source=second, target=first)
        return [Step(call("merge_tickets", source=first, target=second), "argument_role", slips(swapped))]

    tickets = env.state["tickets"]
    slots = {"who": env.customer_text(customer), "source": tickets[source]["topic"], "target": tickets[target]["topic"]}
    done = lambda: env.state["tickets"][source]["status"] == "merged"
    return Drawn(slots, done, env.for_customer(customer, "list_tickets", plan))


@Support.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.STATE_MODIFICATION), tools=("list_tickets", "assign_ticket", "escalate_ticket"),
    calls=2, vague=("topic", "agreed"),
    hint="list_tickets, then assign_ticket on the one with the topic that is named.",
    phrasings=(
        "Give the {topic} ticket of {who} to {team}.",
        "The {topic} ticket of {who} belongs to {team}.",
        "Let {team} work on the {topic} ticket of {who}.",
        "{who} needs {team} for the {topic} ticket.",
    ),
)
def assign_ticket(env: Support, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("tickets", customer)))
    team = rng.choice(TEAMS)

    def plan(who: str) -> list[Step]:
        own = env.chosen_first("tickets", who, chosen)
        right, *misplaced = (call("assign_ticket", ticket=key, team=team) for key in own)
        return [Step(right, "near_synonym", slips(call("escalate_ticket", ticket=own[0]), *misplaced))]

    slots = {"who": env.customer_text(customer), "topic": env.state["tickets"][chosen]["topic"], "team": team}
    done = lambda: env.state["tickets"][chosen]["team"] == team
    return Drawn(slots, done, env.for_customer(customer, "list_tickets", plan))


@Support.goal(
    skills=(Skill.TOOL_SELECTION, Skill.DATA_RETRIEVAL), tools=("list_tickets", "assign_ticket", "escalate_ticket"),
    calls=2, vague=("topic", "agreed"),
    hint="list_tickets, then escalate_ticket on the one with the topic that is named.",
    phrasings=(
        "{who} is angry about the {topic} ticket and wants the boss.",
        "The boss shall see the {topic} ticket of {who}.",
        "Take the {topic} ticket of {who} to the boss.",
        "The {topic} ticket of {who} is a matter for the boss.",
    ),
)
def escalate_ticket(env: Support, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("tickets", customer)))

    def plan(who: str) -> list[Step]:
        own = env.chosen_first("tickets", who, chosen)
        right, *misplaced = (call("escalate_ticket", ticket=key) for key in own)
        return [Step(right, "near_synonym", slips(call("assign_ticket", ticket=own[0], team=TEAMS[0]), *misplaced))]

    slots = {"who": env.customer_text(customer), "topic": env.state["tickets"][chosen]["topic"]}
    done = lambda: env.state["tickets"][chosen]["team"] == "manager"
    return Drawn(slots, done, env.for_customer(customer, "list_tickets", plan))


@Support.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_tickets", "reply_ticket", "close_ticket"),
    calls=3, vague=("topic", "agreed"),
    hint="list_tickets, reply_ticket on the one with the topic that is named, then close_ticket on the same one.",
    phrasings=(
        "Close the {topic} ticket of {who}.",
        "The {topic} ticket of {who} is settled; close it.",
        "{who} is happy: the {topic} ticket can be closed.",
        "For {who}, shut the {topic} ticket.",
    ),
)
def close_ticket(env: Support, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("tickets", customer)))

    def plan(who: str) -> list[Step]:
        target, other, *_ = env.chosen_first("tickets", who, chosen)
        close = call("close_ticket", ticket=target)
        careless = (Alternative(close, "again"), *slips(call("reply_ticket", ticket=other)))
        return [
            Step(call("reply_ticket", ticket=target), "precondition", careless),
            Step(close, "go_on", (GIVE_UP, *slips(call("close_ticket", ticket=other)))),
        ]

    slots = {"who": env.customer_text(customer), "topic": env.state["tickets"][chosen]["topic"]}
    done = lambda: env.state["tickets"][chosen]["status"] == "closed"
    return Drawn(slots, done, env.for_customer(customer, "list_tickets", plan))


# --- devices -----------------------------------------------------------------------------------------------------------


@Support.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_devices", "lock_device", "wipe_device"), calls=2,
    vague=("kind", "agreed"),
    hint="list_devices, then lock_device on the one of the kind that is named.",
    phrasings=(
        "{who} mislaid the {kind}; make it safe but keep the data.",
        "Make the {kind} of {who} safe until it is found.",
        "The {kind} of {who} is left at home; nobody may use it today.",
        "{who} wants nobody to use the {kind} for a while.",
    ),
)
def lock_device(env: Support, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, DEVICES, right="lock_device", wrong="wipe_device", status="locked")


@Support.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_devices", "lock_device", "wipe_device"), calls=2,
    vague=("kind", "agreed"),
    hint="list_devices, then wipe_device on the one of the kind that is named.",
    phrasings=(
        "{who} sells the {kind}; make it safe, no data may stay.",
        "The {kind} of {who} was stolen; its data must go.",
        "Clear all data from the {kind} of {who}.",
        "{who} gives the {kind} away and wants the data gone.",
    ),
)
def wipe_device(env: Support, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, DEVICES, right="wipe_device", wrong="lock_device", status="wiped")


@Support.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_devices", "lock_device", "wipe_device"),
    calls=3, vague=("what", "the agreed devices"),
    hint="list_devices, then lock_device on every device of the list.",
    phrasings=(
        "{who} mislaid {what}; make them safe but keep the data.",
        "Make {what} of {who} safe until they are found.",
        "{who} left {what} at home; nobody may use them today.",
        "{who} wants nobody to use {what} for a while.",
    ),
)
def lock_both(env: Support, rng: random.Random) -> Drawn:
    return do_to_all(env, rng, DEVICES, right="lock_device", wrong="wipe_device", status="locked")


@Support.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_devices", "unlock_device", "replace_device"),
    calls=2, vague=("kind", "agreed"),
    hint="list_devices and read the status of the device: locked needs unlock_device, broken needs replace_device.",
    phrasings=(
        "{who} needs a {kind} that works again.",
        "Make the {kind} of {who} usable again.",
        "The {kind} of {who} does not work; mend that.",
        "Get {who} a working {kind}.",
    ),
)
def revive_device(env: Support, rng: random.Random) -> Drawn:
    return revive(
        env, rng, DEVICES, mended=("active", "replaced"),
        tools={"locked": ("unlock_device", "replace_device"), "broken": ("replace_device", "unlock_device")},
    )  # fmt: skip


@Support.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.API_ORCHESTRATION), tools=("list_devices", "check_receipt", "set_warranty"),
    calls=3, vague=("months", "the agreed number of"),
    hint="list_devices, check_receipt, then set_warranty on the device of the kind that is named.",
    phrasings=(
        "Set the warranty of the {kind} of {who} to {months} months.",
        "{who} gets {months} months of warranty on the {kind}.",
        "Give the {kind} of {who} a warranty of {months} months.",
        "For {who}, change the {kind} to {months} months of warranty.",
    ),
)
def set_warranty(env: Support, rng: random.Random) -> Drawn:
    return after_check(
        env, rng, DEVICES, check="check_receipt", tool="set_warranty", value_name="months", field="warranty"
    )


@Support.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_devices", "log_answer"), calls=2, vague=("kind", "agreed"),
    hint="list_devices, then log_answer with the device of the kind that is named and its warranty.",
    phrasings=(
        "How long is the warranty of the {kind} of {who}? Log it.",
        "Log the {kind} warranty of {who}.",
        "What warranty has the {kind} of {who}? Log the answer.",
        "{who} asks for the warranty of the {kind}; log it.",
    ),
)
def report_warranty(env: Support, rng: random.Random) -> Drawn:
    return report(env, rng, DEVICES, field="warranty")


# --- orders ------------------------------------------------------------------------------------------------------------


@Support.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_orders", "log_answer"), calls=2, vague=("item", "agreed item"),
    hint="list_orders, then log_answer with the order of the item that is named and its price.",
    phrasings=(
        "What did the {item} of {who} cost? Log it.",
        "Log the {item} price of {who}.",
        "What did {who} pay for the {item}? Log the answer.",
        "{who} asks for the price of the {item}; log it.",
    ),
)
def report_price(env: Support, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("orders", customer)))

    def plan(who: str) -> list[Step]:
        either = env.chosen_first("orders", who, chosen)
        right, wrong = (call("log_answer", record=key, value=env.state["orders"][key]["price"]) for key in either)
        return [Step(right, "right_field", (*slips(wrong), GIVE_UP))]

    order = env.state["orders"][chosen]
    slots = {"who": env.customer_text(customer), "item": order["item"]}
    done = lambda: env.state["answers"].get(chosen) == order["price"]
    return Drawn(slots, done, env.for_customer(customer, "list_orders", plan))


def _settle_order(env: Support, rng: random.Random, right: str, wrong: str, status: str) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("orders", customer)))
    if status == "returned":
        env.state["orders"][chosen]["status"] = "shipped"

    def plan(who: str) -> list[Step]:
        own = env.chosen_first("orders", who, chosen)
        settled, *misplaced = (call(right, order=key) for key in own)
        mistaken = call(wrong, order=own[0])
        failed: Alternative = Alternative(mistaken, "again") if status == "returned" else Alternative(mistaken)
        return [Step(settled, "near_synonym", (failed, *slips(*misplaced)))]

    slots = {"who": env.customer_text(customer), "item": env.state["orders"][chosen]["item"]}
    done = lambda: env.state["orders"][chosen]["status"] == status
    return Drawn(slots, done, env.for_customer(customer, "list_orders", plan))


@Support.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION), tools=("list_orders", "cancel_order", "return_order"), calls=2,
    vague=("item", "agreed item"),
    hint="list_orders, take the one of the item that is named, cancel_order.",
    phrasings=(
        "{who} no longer wants the {item} that is still to be sent.",
        "Do not send the {item} of {who}.",
        "The {item} of {who} is not to be sent any more.",
        "{who} ordered the {item} by mistake; do not send it.",
    ),
)
def cancel_order(env: Support, rng: random.Random) -> Drawn:
    return _settle_order(env, rng, "cancel_order", "return_order", "cancelled")


@Support.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION), tools=("list_orders", "cancel_order", "return_order"), calls=2,
    vague=("item", "agreed item"),
    hint="list_orders, take the one of the item that is named, return_order.",
    phrasings=(
        "{who} got the {item} and sends it back.",
        "The {item} of {who} came back.",
        "Take back the {item} of {who}.",
        "{who} brought the {item} back.",
    ),
)
def return_order(env: Support, rng: random.Random) -> Drawn:
    return _settle_order(env, rng, "return_order", "cancel_order", "returned")


@Support.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.STATE_MODIFICATION), tools=("list_orders", "credit_order"), calls=2,
    vague=("item", "agreed item"),
    hint="list_orders, then credit_order with the whole price of the order, read from the list.",
    phrasings=(
        "Give {who} all the money back for the {item}.",
        "The {item} of {who} shall cost nothing.",
        "{who} gets the whole price of the {item} back.",
        "Make the {item} free for {who}.",
    ),
)
def credit_order(env: Support, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("orders", customer)))

    def plan(who: str) -> list[Step]:
        target, other, *_ = env.chosen_first("orders", who, chosen)
        price, others_price = (env.state["orders"][key]["price"] for key in (target, other))
        wrong = [call("credit_order", order=other, amount=others_price)]
        if others_price < price:
            wrong.append(call("credit_order", order=target, amount=others_price))
        return [Step(call("credit_order", order=target, amount=price), "right_field", slips(*wrong))]

    order = env.state["orders"][chosen]
    slots = {"who": env.customer_text(customer), "item": order["item"]}
    done = lambda: env.state["orders"][chosen]["credit"] == order["price"]
    return Drawn(slots, done, env.for_customer(customer, "list_orders", plan))


@Support.goal(
    skills=(Skill.ERROR_RECOVERY, Skill.API_ORCHESTRATION), tools=("list_orders", "ship_order", "restock_order"), calls=4,
    vague=("item", "agreed item"),
    hint="list_orders, ship_order; it is short: restock_order by what is short, then ship_order again.",
    phrasings=(
        "Send {who} the {item}; restock it if short.",
        "{who} waits for the {item}: send it, restock if short.",
        "Ship the {item} of {who}. If short, restock.",
        "The {item} of {who} must go out; if short restock it.",
    ),
)
def ship_order(env: Support, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("orders", customer)))
    short = rng.randint(11, 79)
    env.state["orders"][chosen]["short"] = short

    def plan(who: str) -> list[Step]:
        target, other, *_ = env.chosen_first("orders", who, chosen)
        ship = call("ship_order", order=target)
        if who != customer:
            return [Step(ship)]
        wrong = _wrong_end(call("ship_order", order=other))
        careless = (Alternative(ship, "again"), GIVE_UP, *wrong)
        return [
            Step(ship, "pick_by_field", wrong),
            Step(call("restock_order", order=target, count=short), "recover", careless),
            Step(ship, "go_on", (GIVE_UP,)),
        ]

    slots = {"who": env.customer_text(customer), "item": env.state["orders"][chosen]["item"]}
    done = lambda: env.state["orders"][chosen]["status"] == "shipped"
    return Drawn(slots, done, env.for_customer(customer, "list_orders", plan))


def _wrong_end(wrong: ToolCall) -> tuple[Alternative, ...]:
    """A wrong call that succeeds, so that a careless agent takes the work for done."""
    return (Alternative(wrong, (Step(ANSWER),)),)
