"""Telecom's kinds of goal."""

from __future__ import annotations

import random

from spade_agentic import Skill

from ..kit import GIVE_UP, Alternative, Drawn, Step, call, slips
from ..patterns import Kinds, after_check, choose_tool, do_to_all, revive
from .env import GEAR_KINDS, LINE_KINDS, PACK_KINDS, Telecom

GEAR = Kinds("gear", "gear", GEAR_KINDS)
LINES = Kinds("lines", "line", LINE_KINDS)


def _has_status(env: Telecom, table: str, **expected: str) -> bool:
    return all(env.state[table][key]["status"] == status for key, status in expected.items())


# --- lines and gear: rest or end, start anew or exchange -----------------------------------------------------------------


@Telecom.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_lines", "suspend_line", "end_line"), calls=2,
    vague=("kind", "agreed"),
    hint="list_lines, then suspend_line on the line of the kind that is named.",
    phrasings=(
        "Let the {kind} line of {who} rest for a while.",
        "{who} is away this summer and wants the {kind} line back later.",
        "The {kind} line of {who} shall sleep until the return.",
        "{who} can do without the {kind} line for some weeks.",
    ),
)
def suspend_line(env: Telecom, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, LINES, right="suspend_line", wrong="end_line", status="suspended")


@Telecom.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_lines", "suspend_line", "end_line"), calls=2,
    vague=("kind", "agreed"),
    hint="list_lines, then end_line on the line of the kind that is named.",
    phrasings=(
        "End the {kind} line of {who} for good.",
        "{who} will never need the {kind} line again.",
        "The {kind} line of {who} shall be no more.",
        "{who} gives up the {kind} line for ever.",
    ),
)
def end_line(env: Telecom, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, LINES, right="end_line", wrong="suspend_line", status="ended")


@Telecom.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_lines", "suspend_line", "end_line"), calls=3,
    vague=("what", "the agreed lines"),
    hint="list_lines, then suspend_line on every line of the list.",
    phrasings=(
        "Let {what} of {who} rest for a while.",
        "{who} is away this summer and wants {what} back later.",
        "Let {what} of {who} sleep until the return.",
        "{who} can do without {what} for some weeks.",
    ),
)
def suspend_both(env: Telecom, rng: random.Random) -> Drawn:
    return do_to_all(env, rng, LINES, right="suspend_line", wrong="end_line", status="suspended")


@Telecom.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_gear", "reset_gear", "swap_gear"), calls=2,
    vague=("kind", "agreed"),
    hint="list_gear, then reset_gear on the one of the kind that is named.",
    phrasings=(
        "Start the {kind} of {who} anew.",
        "{who} keeps the {kind} but it must start again.",
        "Turn the {kind} of {who} off and on.",
        "The {kind} of {who} hangs and needs a fresh start.",
    ),
)
def reset_gear(env: Telecom, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, GEAR, right="reset_gear", wrong="swap_gear", status="reset")


@Telecom.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_gear", "reset_gear", "swap_gear"), calls=2,
    vague=("kind", "agreed"),
    hint="list_gear, then swap_gear on the one of the kind that is named.",
    phrasings=(
        "Send {who} another {kind} for the old one.",
        "The {kind} of {who} is worn out; a new one must come.",
        "{who} wants a new {kind}.",
        "Exchange the {kind} of {who}.",
    ),
)
def swap_gear(env: Telecom, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, GEAR, right="swap_gear", wrong="reset_gear", status="swapped")


# --- lines: what their status says, what must come first -----------------------------------------------------------------


@Telecom.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_lines", "resume_line", "repair_line"), calls=2,
    vague=("kind", "agreed"),
    hint="list_lines and read the status of the line: suspended needs resume_line, broken needs repair_line.",
    phrasings=(
        "{who} needs the {kind} line to work again.",
        "Bring the {kind} line of {who} back to life.",
        "The {kind} line of {who} is dead; mend that.",
        "Let {who} call with the {kind} line again.",
    ),
)
def revive_line(env: Telecom, rng: random.Random) -> Drawn:
    return revive(
        env, rng, LINES, mended=("active",),
        tools={"suspended": ("resume_line", "repair_line"), "broken": ("repair_line", "resume_line")},
    )  # fmt: skip


@Telecom.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_lines", "release_line", "port_line"), calls=3,
    vague=("kind", "agreed"),
    hint="list_lines; if the line is locked release_line on it; then port_line.",
    phrasings=(
        "Hand the {kind} line of {who} over to another company.",
        "{who} leaves us and takes the {kind} line along.",
        "The {kind} line of {who} moves to another company.",
        "Let {who} keep the {kind} line at another company.",
    ),
)
def port_line(env: Telecom, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(LINE_KINDS, 2)
    line = env.owned_by("lines", customer)[kind]
    if rng.random() < 0.65:
        env.state["lines"][line]["status"] = "locked"

    def plan(who: str) -> list[Step]:
        own = env.owned_by("lines", who)
        release, port = (call(name, line=own[kind]) for name in ("release_line", "port_line"))
        wrong = Alternative(call("port_line", line=own[other]))
        if env.state["lines"][own[kind]]["status"] == "active":
            return [Step(port, "precondition", (Alternative(release, "again"), wrong))]
        return [
            Step(release, "precondition", (Alternative(port, "again"), *slips(call("release_line", line=own[other])))),
            Step(port, "go_on", (GIVE_UP, wrong)),
        ]

    slots = {"who": env.customer_text(customer), "kind": kind}
    return Drawn(slots, lambda: _has_status(env, "lines", **{line: "ported"}), env.for_customer(customer, "list_lines", plan))


@Telecom.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.API_ORCHESTRATION), tools=("list_lines", "check_coverage", "set_speed"), calls=3,
    vague=("speed", "the agreed number"),
    hint="list_lines, check_coverage, then set_speed on the line of the kind that is named.",
    phrasings=(
        "Set the speed of the {kind} line of {who} to {speed}.",
        "{who} wants the {kind} line to be as fast as {speed}.",
        "Let the {kind} line of {who} run at {speed}.",
        "For {who}, bring the {kind} line up to {speed}.",
    ),
)
def set_speed(env: Telecom, rng: random.Random) -> Drawn:
    return after_check(env, rng, LINES, check="check_coverage", tool="set_speed", value_name="speed", field="speed")


@Telecom.goal(
    skills=(Skill.STATE_MODIFICATION,), tools=("list_lines", "forward_line"), calls=2, vague=("target", "agreed"),
    hint="list_lines, then forward_line: source is the line that is called, target the one that rings.",
    phrasings=(
        "Send the calls of the {source} line of {who} to the {target} line.",
        "{who} wants the {target} line to ring when {source} is called.",
        "Let the {target} line of {who} take the calls of the {source} line.",
        "Whoever calls the {source} line of {who} shall reach the {target} line.",
    ),
)
def forward_line(env: Telecom, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    source, target = rng.sample(LINE_KINDS, 2)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("lines", who)
        swapped = call("forward_line", source=own[target], target=own[source])
        return [Step(call("forward_line", source=own[source], target=own[target]), "argument_role", slips(swapped))]

    ids = env.owned_by("lines", customer)
    slots = {"who": env.customer_text(customer), "source": source, "target": target}
    done = lambda: env.state["lines"][ids[source]]["forward"] == ids[target]
    return Drawn(slots, done, env.for_customer(customer, "list_lines", plan))


# --- packs -------------------------------------------------------------------------------------------------------------


def _holds(env: Telecom, pack: str, left: int, lent: int = 0) -> bool:
    found = env.state["packs"][pack]
    return (found["left"], found["lent"]) == (left, lent)


def _hand_units(env: Telecom, rng: random.Random, right: str, wrong: str) -> Drawn:
    customer, friend = env.claim_customer(rng), env.claim_customer(rng)
    kind, other = rng.sample(PACK_KINDS, 2)
    amount = rng.randint(11, 29)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("packs", who)
        careless = (
            call(wrong, pack=own[kind], amount=amount, customer=friend),
            call(right, pack=own[other], amount=amount, customer=friend),
        )
        return [Step(call(right, pack=own[kind], amount=amount, customer=friend), "near_synonym", slips(*careless))]

    pack = env.owned_by("packs", customer)[kind]
    left, lent = env.state["packs"][pack]["left"] - amount, amount if right == "lend_units" else 0
    slots = {"who": env.customer_text(customer), "friend": friend, "kind": kind, "amount": amount}
    return Drawn(slots, lambda: _holds(env, pack, left, lent), env.for_customer(customer, "list_packs", plan))


@Telecom.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.TOOL_SELECTION), tools=("list_packs", "give_units", "lend_units"), calls=2,
    vague=("amount", "the agreed number"),
    hint="list_packs, then give_units from the pack of the kind that is named.",
    phrasings=(
        "Give {amount} from the {kind} pack of {who} to customer {friend} for good.",
        "{who} makes customer {friend} a gift of {amount} from the {kind} pack.",
        "Customer {friend} gets {amount} from the {kind} pack of {who} and keeps them.",
        "From the {kind} pack of {who} let customer {friend} have {amount} for ever.",
    ),
)
def give_units(env: Telecom, rng: random.Random) -> Drawn:
    return _hand_units(env, rng, "give_units", "lend_units")


@Telecom.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.TOOL_SELECTION), tools=("list_packs", "give_units", "lend_units"), calls=2,
    vague=("amount", "the agreed number"),
    hint="list_packs, then lend_units from the pack of the kind that is named.",
    phrasings=(
        "Lend {amount} from the {kind} pack of {who} to customer {friend}.",
        "{who} helps customer {friend} out with {amount} from the {kind} pack for a while.",
        "Customer {friend} gets {amount} from the {kind} pack of {who} and brings them back.",
        "From the {kind} pack of {who} let customer {friend} have {amount} until next week.",
    ),
)
def lend_units(env: Telecom, rng: random.Random) -> Drawn:
    return _hand_units(env, rng, "lend_units", "give_units")


@Telecom.goal(
    skills=(Skill.ERROR_RECOVERY, Skill.API_ORCHESTRATION), tools=("list_packs", "give_units", "add_units"), calls=4,
    vague=("amount", "the agreed number"),
    hint=(
        "list_packs, give_units from the pack of the kind that is named; "
        "it is short: add_units to it by what is short, then give_units again."
    ),
    phrasings=(
        "Give {amount} from the {kind} pack of {who} to customer {friend}; add to it if short.",
        "Customer {friend} shall get {amount} from the {kind} pack of {who}. If short, add to it.",
        "{who} hands customer {friend} {amount} from the {kind} pack; add what is short.",
        "From the {kind} pack of {who} let customer {friend} have {amount}; if short add to it.",
    ),
)
def top_up_give(env: Telecom, rng: random.Random) -> Drawn:
    customer, friend = env.claim_customer(rng), env.claim_customer(rng)
    kind, other = rng.sample(PACK_KINDS, 2)
    short = rng.randint(16, 29)  # so that the other pack is short of the whole amount as well
    pack = env.owned_by("packs", customer)[kind]
    amount = env.state["packs"][pack]["left"] + short

    def plan(who: str) -> list[Step]:
        own = env.owned_by("packs", who)
        give, wrong = (call("give_units", pack=own[name], amount=amount, customer=friend) for name in (kind, other))
        if who != customer:
            return [Step(give)]
        eager = call("add_units", pack=own[kind], amount=amount)
        elsewhere = call("add_units", pack=own[other], amount=short)
        return [
            Step(give, "account_kind", (Alternative(wrong, "again"),)),
            Step(
                call("add_units", pack=own[kind], amount=short), "recover",
                (Alternative(give, "again"), GIVE_UP, *slips(eager), Alternative(elsewhere, (Step(give),))),
            ),
            Step(give, "go_on", (GIVE_UP,)),
        ]  # fmt: skip

    slots = {"who": env.customer_text(customer), "friend": friend, "kind": kind, "amount": amount}
    return Drawn(slots, lambda: _holds(env, pack, 0), env.for_customer(customer, "list_packs", plan))


@Telecom.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.STATE_MODIFICATION), tools=("list_packs", "add_units"), calls=2,
    vague=("kind", "agreed"),
    hint="list_packs, then add_units to the pack of the kind that is named: as many as are left in it.",
    phrasings=(
        "Double the {kind} pack of {who}.",
        "Add as much to the {kind} pack of {who} as is left in it.",
        "{who} wants the {kind} pack to hold twice as much.",
        "Make the {kind} pack of {who} twice as big.",
    ),
)
def double_pack(env: Telecom, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(PACK_KINDS, 2)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("packs", who)
        first, second = (env.state["packs"][own[name]]["left"] for name in (kind, other))
        wrong = (
            call("add_units", pack=own[other], amount=second),
            call("add_units", pack=own[kind], amount=second),
            call("add_units", pack=own[other], amount=first),
        )
        return [Step(call("add_units", pack=own[kind], amount=first), "right_field", slips(*wrong))]

    pack = env.owned_by("packs", customer)[kind]
    left = 2 * env.state["packs"][pack]["left"]
    slots = {"who": env.customer_text(customer), "kind": kind}
    return Drawn(slots, lambda: _holds(env, pack, left), env.for_customer(customer, "list_packs", plan))


# --- bills -------------------------------------------------------------------------------------------------------------


def _claim_bill(env: Telecom, rng: random.Random) -> tuple[str, str]:
    customer = env.claim_customer(rng)
    return customer, rng.choice(list(env.owned("bills", customer)))


def _one_bill(env: Telecom, customer: str, chosen: str, right: str, wrong: str, *, decision: str = "near_synonym") -> Drawn:
    def plan(who: str) -> list[Step]:
        target, *others = env.chosen_first("bills", who, chosen)
        careless = (call(wrong, bill=target), *(call(right, bill=key) for key in others))
        return [Step(call(right, bill=target), decision, slips(*careless))]

    status = {"waive_bill": "waived", "delay_bill": "delayed", "repay_bill": "repaid"}[right]
    slots = {"who": env.customer_text(customer), "month": env.state["bills"][chosen]["month"]}
    return Drawn(slots, lambda: _has_status(env, "bills", **{chosen: status}), env.for_customer(customer, "list_bills", plan))


@Telecom.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION), tools=("list_bills", "waive_bill", "delay_bill"), calls=2,
    vague=("month", "agreed"),
    hint="list_bills, take the one of the month that is named, waive_bill.",
    phrasings=(
        "{who} need not pay the {month} bill.",
        "Drop the {month} bill of {who}.",
        "Forget the {month} bill of {who}.",
        "Nothing is to pay on the {month} bill of {who}.",
    ),
)
def waive_bill(env: Telecom, rng: random.Random) -> Drawn:
    return _one_bill(env, *_claim_bill(env, rng), "waive_bill", "delay_bill")


@Telecom.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION), tools=("list_bills", "waive_bill", "delay_bill"), calls=2,
    vague=("month", "agreed"),
    hint="list_bills, take the one of the month that is named, delay_bill.",
    phrasings=(
        "{who} will pay the {month} bill later.",
        "Give {who} more time for the {month} bill.",
        "The {month} bill of {who} can wait.",
        "{who} has no money for the {month} bill this week.",
    ),
)
def delay_bill(env: Telecom, rng: random.Random) -> Drawn:
    return _one_bill(env, *_claim_bill(env, rng), "delay_bill", "waive_bill")


@Telecom.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_bills", "waive_bill", "delay_bill"), calls=3,
    vague=("month", "agreed"),
    hint="list_bills, waive_bill on the one that need not be paid, then delay_bill on the one that can wait.",
    phrasings=(
        "{who} need not pay the {month} bill and will pay the {later} bill later.",
        "Drop the {month} bill of {who} and give more time for the {later} bill.",
        "The {later} bill of {who} can wait; forget the {month} bill.",
        "For {who}, nothing is to pay on the {month} bill and the {later} bill can wait.",
    ),
)
def settle_two(env: Telecom, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    dropped, later = rng.sample(list(env.owned("bills", customer)), 2)

    def plan(who: str) -> list[Step]:
        first, second = (dropped, later) if who == customer else list(env.owned("bills", who))[:2]
        swapped = slips(call("delay_bill", bill=first), call("waive_bill", bill=second))
        return [
            Step(call("waive_bill", bill=first), "near_synonym", swapped),
            Step(call("delay_bill", bill=second), "go_on", (GIVE_UP, *slips(call("waive_bill", bill=second)))),
        ]

    first, second = (env.state["bills"][key]["month"] for key in (dropped, later))
    slots = {"who": env.customer_text(customer), "month": first, "later": second}
    done = lambda: _has_status(env, "bills", **{dropped: "waived", later: "delayed"})
    return Drawn(slots, done, env.for_customer(customer, "list_bills", plan))


@Telecom.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_bills", "waive_bill", "repay_bill"), calls=2,
    vague=("month", "agreed"),
    hint="list_bills and read the status of the bill: open needs waive_bill, paid needs repay_bill.",
    phrasings=(
        "The {month} bill of {who} is our mistake; make it good.",
        "Let the {month} bill cost {who} nothing.",
        "{who} must not bear the {month} bill.",
        "The {month} bill of {who} was wrong; mend that.",
    ),
)
def clear_bill(env: Telecom, rng: random.Random) -> Drawn:
    customer, chosen = _claim_bill(env, rng)
    tools = {"open": ("waive_bill", "repay_bill"), "paid": ("repay_bill", "waive_bill")}
    for bill in env.owned("bills", customer).values():
        bill["status"] = rng.choice(sorted(tools))
    return _one_bill(env, customer, chosen, *tools[env.state["bills"][chosen]["status"]], decision="branch")


@Telecom.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_bills", "log_answer"), calls=2, vague=("month", "agreed"),
    hint="list_bills, then log_answer with the bill of the month that is named and its amount.",
    phrasings=(
        "How high is the {month} bill of {who}? Log it.",
        "Log the {month} bill amount of {who}.",
        "What must {who} pay on the {month} bill? Write it down.",
        "{who} asks for the {month} bill amount; log it.",
    ),
)
def report_bill(env: Telecom, rng: random.Random) -> Drawn:
    customer, chosen = _claim_bill(env, rng)

    def plan(who: str) -> list[Step]:
        own = env.chosen_first("bills", who, chosen)
        right, *wrong = (call("log_answer", record=key, value=env.state["bills"][key]["amount"]) for key in own)
        return [Step(right, "right_field", (*slips(*wrong), GIVE_UP))]

    bill = env.state["bills"][chosen]
    slots = {"who": env.customer_text(customer), "month": bill["month"]}
    done = lambda: env.state["answers"].get(chosen) == bill["amount"]
    return Drawn(slots, done, env.for_customer(customer, "list_bills", plan))
