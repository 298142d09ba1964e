"""Smart home's kinds of goal."""

from __future__ import annotations

import random

from spade_agentic import Skill

from ..kit import ANSWER, GIVE_UP, Alternative, Drawn, Step, call, slips
from ..patterns import Kinds, after_check, choose_tool, do_to_all, report, revive
from .env import BATTERY_KINDS, DOOR_KINDS, HEATER_KINDS, LAMP_KINDS, SmartHome

LAMPS = Kinds("lamps", "lamp", LAMP_KINDS)
DOORS = Kinds("doors", "door", DOOR_KINDS)
HEATERS = Kinds("heaters", "heater", HEATER_KINDS)


# --- lamps -------------------------------------------------------------------------------------------------------------


@SmartHome.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_lamps", "sleep_lamp", "remove_lamp"), calls=2,
    vague=("kind", "agreed"),
    hint="list_lamps, then sleep_lamp on the lamp of the kind that is named.",
    phrasings=(
        "Keep the {kind} lamp of {who} dark tonight.",
        "{who} sleeps early; the {kind} lamp may shine again tomorrow.",
        "No light from the {kind} lamp of {who} until the morning.",
        "For {who}, let the {kind} lamp rest for one night.",
    ),
)
def sleep_lamp(env: SmartHome, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, LAMPS, right="sleep_lamp", wrong="remove_lamp", status="asleep")


@SmartHome.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_lamps", "sleep_lamp", "remove_lamp"), calls=2,
    vague=("kind", "agreed"),
    hint="list_lamps, then remove_lamp on the lamp of the kind that is named.",
    phrasings=(
        "Take the {kind} lamp of {who} out for good.",
        "{who} never wants to see the {kind} lamp again.",
        "The {kind} lamp of {who} goes to the scrap yard.",
        "{who} gives the {kind} lamp away.",
    ),
)
def remove_lamp(env: SmartHome, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, LAMPS, right="remove_lamp", wrong="sleep_lamp", status="removed")


@SmartHome.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_lamps", "sleep_lamp", "remove_lamp"), calls=3,
    vague=("what", "the agreed lamps"),
    hint="list_lamps, then sleep_lamp on every lamp of the list.",
    phrasings=(
        "Keep {what} of {who} dark tonight.",
        "{who} sleeps early and wants {what} to shine again tomorrow.",
        "No light from {what} of {who} until the morning.",
        "For {who}, let {what} rest for one night.",
    ),
)
def sleep_both(env: SmartHome, rng: random.Random) -> Drawn:
    return do_to_all(env, rng, LAMPS, right="sleep_lamp", wrong="remove_lamp", status="asleep")


@SmartHome.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_lamps", "tighten_bulb", "change_bulb"), calls=2,
    vague=("kind", "agreed"),
    hint="list_lamps and read the status of the lamp: loose needs tighten_bulb, burnt needs change_bulb.",
    phrasings=(
        "The {kind} lamp of {who} gives no light; mend that.",
        "{who} sits in the dark beside the {kind} lamp.",
        "Let the {kind} lamp of {who} shine again.",
        "{who} needs light from the {kind} lamp.",
    ),
)
def mend_lamp(env: SmartHome, rng: random.Random) -> Drawn:
    return revive(
        env, rng, LAMPS, mended=("on",),
        tools={"loose": ("tighten_bulb", "change_bulb"), "burnt": ("change_bulb", "tighten_bulb")},
    )  # fmt: skip


@SmartHome.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.STATE_MODIFICATION), tools=("list_lamps", "set_level"), calls=2,
    vague=("model", "agreed"),
    hint="list_lamps, then set_level on the lamp that is to change, to the level of the other one, read from the list.",
    phrasings=(
        "Make the {kind} lamp of {who} as bright as the {model} lamp.",
        "{who} likes the {model} lamp; the {kind} lamp must be just as bright.",
        "The {kind} lamp of {who} shall shine the way the {model} lamp does.",
        "For {who}, bring the {kind} lamp to where the {model} lamp is.",
    ),
)
def match_level(env: SmartHome, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    kind, model = rng.sample(LAMP_KINDS, 2)

    def level(lamp: str) -> int:
        return int(env.state["lamps"][lamp]["level"])

    def plan(who: str) -> list[Step]:
        own = env.owned_by("lamps", who)
        right = call("set_level", lamp=own[kind], level=level(own[model]))
        wrong_way = call("set_level", lamp=own[model], level=level(own[kind]))
        no_change = call("set_level", lamp=own[kind], level=level(own[kind]))
        return [Step(right, "right_field", slips(wrong_way, no_change))]

    lamp, bright = (env.owned_by("lamps", customer)[name] for name in (kind, model))
    slots = {"who": env.customer_text(customer), "kind": kind, "model": model}
    done = lambda: level(lamp) == level(bright)
    return Drawn(slots, done, env.for_customer(customer, "list_lamps", plan))


@SmartHome.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_lamps", "log_answer"), calls=2, vague=("kind", "agreed"),
    hint="list_lamps, then log_answer with the lamp of the kind that is named and its level.",
    phrasings=(
        "How bright is the {kind} lamp of {who}? Log it.",
        "Log the level of the {kind} lamp of {who}.",
        "{who} asks how bright the {kind} lamp is; log it.",
        "At which level does the {kind} lamp of {who} shine? Log the answer.",
    ),
)
def tell_level(env: SmartHome, rng: random.Random) -> Drawn:
    return report(env, rng, LAMPS, field="level")


# --- doors and heaters -------------------------------------------------------------------------------------------------


@SmartHome.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_doors", "shut_door", "lock_door"), calls=3,
    vague=("kind", "agreed"),
    hint="list_doors; if the door is open shut_door on it; then lock_door.",
    phrasings=(
        "Lock the {kind} door of {who}.",
        "Nobody may come in by the {kind} door of {who}.",
        "{who} is away: see that the {kind} door is locked.",
        "Make the {kind} door of {who} safe for the night.",
    ),
)
def lock_door(env: SmartHome, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(DOOR_KINDS, 2)
    door = env.owned_by("doors", customer)[kind]
    env.state["doors"][door]["status"] = "open" if rng.random() < 0.65 else "shut"

    def plan(who: str) -> list[Step]:
        own = env.owned_by("doors", who)
        shut, lock = (call(name, door=own[kind]) for name in ("shut_door", "lock_door"))
        elsewhere = Alternative(call("lock_door", door=own[other]))
        if env.state["doors"][own[kind]]["status"] != "open":
            return [Step(lock, "precondition", (Alternative(shut, "again"), elsewhere))]
        return [
            Step(shut, "precondition", (Alternative(lock, "again"), *slips(call("shut_door", door=own[other])))),
            Step(lock, "go_on", (GIVE_UP, elsewhere)),
        ]

    slots = {"who": env.customer_text(customer), "kind": kind}
    done = lambda: env.state["doors"][door]["status"] == "locked"
    return Drawn(slots, done, env.for_customer(customer, "list_doors", plan))


@SmartHome.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_doors", "shut_door", "lock_door"), calls=3,
    vague=("what", "the agreed doors"),
    hint="list_doors and read their status: lock_door on every one that is shut, and only on those.",
    phrasings=(
        "See that {what} of {who} cannot be opened.",
        "{who} goes to bed; nobody may come in by {what}.",
        "Lock {what} of {who} where that is still to do.",
        "Make {what} of {who} safe for the night.",
    ),
)
def lock_all(env: SmartHome, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    statuses = rng.choice((("shut", "shut"), ("shut", "locked"), ("locked", "shut")))
    for item, status in zip(env.owned("doors", customer).values(), statuses, strict=True):
        item["status"] = status

    def plan(who: str) -> list[Step]:
        own = env.owned("doors", who)
        todo = [key for key, item in own.items() if item["status"] == "shut"]
        locked = [key for key in own if key not in todo]
        steps = []
        for index, key in enumerate(todo):
            futile = (call("shut_door", door=key), *(call("lock_door", door=other) for other in locked))
            careless = (GIVE_UP, *(Alternative(item, "again") for item in futile))
            steps.append(Step(call("lock_door", door=key), "go_on" if index else "branch", careless))
        return steps

    slots = {"who": env.customer_text(customer), "what": "all doors"}
    done = lambda: all(item["status"] == "locked" for item in env.owned("doors", customer).values())
    return Drawn(slots, done, env.for_customer(customer, "list_doors", plan))


@SmartHome.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_doors", "oil_door", "thaw_door"), calls=2,
    vague=("kind", "agreed"),
    hint="list_doors and read the status of the door: stuck needs oil_door, frozen needs thaw_door.",
    phrasings=(
        "The {kind} door of {who} does not move; help.",
        "{who} cannot get out by the {kind} door.",
        "Let the {kind} door of {who} move again.",
        "Free the {kind} door of {who}.",
    ),
)
def free_door(env: SmartHome, rng: random.Random) -> Drawn:
    return revive(
        env, rng, DOORS, mended=("shut",),
        tools={"stuck": ("oil_door", "thaw_door"), "frozen": ("thaw_door", "oil_door")},
    )  # fmt: skip


@SmartHome.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.API_ORCHESTRATION), tools=("list_heaters", "check_windows", "set_heat"), calls=3,
    vague=("heat", "the agreed number"),
    hint="list_heaters, check_windows, then set_heat on the heater of the kind that is named.",
    phrasings=(
        "Set the {kind} heater of {who} to {heat}.",
        "{who} is cold and wants the {kind} heater at {heat}.",
        "Let the {kind} heater of {who} run at {heat}.",
        "For {who}, turn the {kind} heater to {heat}.",
    ),
)
def set_heat(env: SmartHome, rng: random.Random) -> Drawn:
    return after_check(env, rng, HEATERS, check="check_windows", tool="set_heat", value_name="heat", field="heat")


# --- batteries ---------------------------------------------------------------------------------------------------------


@SmartHome.goal(
    skills=(Skill.STATE_MODIFICATION,), tools=("list_batteries", "move_charge"), calls=2, vague=("amount", "some agreed"),
    hint="list_batteries, then move_charge: source is the battery that gives, target the one that gets.",
    phrasings=(
        "Move {amount} of charge from {source} to {target} for {who}.",
        "{who} wants the {target} battery to get {amount} out of {source}.",
        "For {who}, fill {target} with {amount} of the {source} charge.",
        "Let the {source} battery of {who} give {amount} to {target}.",
    ),
)
def move_charge(env: SmartHome, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    source, target = rng.sample(BATTERY_KINDS, 2)
    amount = rng.randint(11, 29)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("batteries", who)
        right = call("move_charge", source=own[source], amount=amount, target=own[target])
        swapped = call("move_charge", source=own[target], amount=amount, target=own[source])
        return [Step(right, "argument_role", slips(swapped))]

    getting = env.owned_by("batteries", customer)[target]
    after = env.state["batteries"][getting]["charge"] + amount
    slots = {"who": env.customer_text(customer), "source": source, "target": target, "amount": amount}
    done = lambda: env.state["batteries"][getting]["charge"] == after
    return Drawn(slots, done, env.for_customer(customer, "list_batteries", plan))


def _use_charge(env: SmartHome, rng: random.Random, right: str, wrong: str, field: str) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(BATTERY_KINDS, 2)
    amount = rng.randint(11, 29)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("batteries", who)
        careless = (call(wrong, battery=own[kind], amount=amount), call(right, battery=own[other], amount=amount))
        return [Step(call(right, battery=own[kind], amount=amount), "near_synonym", slips(*careless))]

    battery = env.owned_by("batteries", customer)[kind]
    slots = {"who": env.customer_text(customer), "kind": kind, "amount": amount}
    done = lambda: env.state["batteries"][battery][field] == amount
    return Drawn(slots, done, env.for_customer(customer, "list_batteries", plan))


@SmartHome.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_batteries", "charge_car", "heat_water"), calls=2,
    vague=("amount", "some agreed"),
    hint="list_batteries, then charge_car from the battery of the kind that is named.",
    phrasings=(
        "Charge the car of {who} with {amount} from {kind}.",
        "{who} drives to town and takes {amount} of {kind} charge along.",
        "Let {who} drive on {amount} from the {kind} battery.",
        "{who} has a long road ahead; put in {amount} from {kind}.",
    ),
)
def charge_car(env: SmartHome, rng: random.Random) -> Drawn:
    return _use_charge(env, rng, "charge_car", "heat_water", "driven")


@SmartHome.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_batteries", "charge_car", "heat_water"), calls=2,
    vague=("amount", "some agreed"),
    hint="list_batteries, then heat_water from the battery of the kind that is named.",
    phrasings=(
        "Heat the water of {who} with {amount} from {kind}.",
        "{who} wants a bath; use {amount} of {kind} charge.",
        "Let {who} shower on {amount} from the {kind} battery.",
        "{who} has dishes to wash; put in {amount} from {kind}.",
    ),
)
def heat_water(env: SmartHome, rng: random.Random) -> Drawn:
    return _use_charge(env, rng, "heat_water", "charge_car", "bathed")


@SmartHome.goal(
    skills=(Skill.ERROR_RECOVERY, Skill.API_ORCHESTRATION), tools=("list_batteries", "charge_car", "buy_charge"), calls=4,
    vague=("amount", "some agreed"),
    hint=(
        "list_batteries, charge_car from the battery of the kind that is named; "
        "it is short: buy_charge for it by what is short, then charge_car again."
    ),
    phrasings=(
        "Charge the car of {who} with {amount} from {kind}; buy if short.",
        "{who} drives on {amount} from the {kind} battery. If short, buy some.",
        "Let {who} take {amount} of {kind} charge along and buy what is short.",
        "{who} has a long road ahead: {amount} from {kind}, bought if short.",
    ),
)
def top_up_drive(env: SmartHome, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(BATTERY_KINDS, 2)
    short = rng.randint(16, 29)  # so that the other battery is short of the whole amount as well
    battery = env.owned_by("batteries", customer)[kind]
    amount = env.state["batteries"][battery]["charge"] + short

    def plan(who: str) -> list[Step]:
        own = env.owned_by("batteries", who)
        drive, wrong = (call("charge_car", battery=own[name], amount=amount) for name in (kind, other))
        if who != customer:
            return [Step(drive)]
        less = call("charge_car", battery=own[kind], amount=amount - short)
        elsewhere = call("buy_charge", battery=own[other], amount=short)
        return [
            Step(drive, "account_kind", (Alternative(wrong, "again"),)),
            Step(
                call("buy_charge", battery=own[kind], amount=short), "recover",
                (
                    Alternative(drive, "again"), GIVE_UP, Alternative(less, (Step(ANSWER),)),
                    Alternative(elsewhere, (Step(drive),)),
                ),
            ),
            Step(drive, "go_on", (GIVE_UP,)),
        ]  # fmt: skip

    slots = {"who": env.customer_text(customer), "kind": kind, "amount": amount}
    done = lambda: env.state["batteries"][battery]["driven"] == amount
    return Drawn(slots, done, env.for_customer(customer, "list_batteries", plan))


# --- routines ----------------------------------------------------------------------------------------------------------


def _claim_routine(env: SmartHome, rng: random.Random) -> tuple[str, str]:
    customer = env.claim_customer(rng)
    return customer, rng.choice(list(env.owned("routines", customer)))


def _one_routine(
    env: SmartHome, customer: str, chosen: str, right: str, wrong: str, *, decision: str = "near_synonym"
) -> Drawn:
    def plan(who: str) -> list[Step]:
        target, *others = env.chosen_first("routines", who, chosen)
        careless = (call(wrong, routine=target), *(call(right, routine=key) for key in others))
        return [Step(call(right, routine=target), decision, slips(*careless))]

    status = {"skip_routine": "skipped", "delete_routine": "deleted", "halt_routine": "halted"}[right]
    slots = {"who": env.customer_text(customer), "name": env.state["routines"][chosen]["name"]}
    done = lambda: env.state["routines"][chosen]["status"] == status
    return Drawn(slots, done, env.for_customer(customer, "list_routines", plan))


@SmartHome.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION), tools=("list_routines", "skip_routine", "delete_routine"), calls=2,
    vague=("name", "agreed"),
    hint="list_routines, take the one that is named, skip_routine.",
    phrasings=(
        "Leave the {name} routine of {who} out this once.",
        "{who} does without the {name} routine today.",
        "No {name} routine for {who} this time.",
        "The {name} routine of {who} may pause until the next time.",
    ),
)
def skip_routine(env: SmartHome, rng: random.Random) -> Drawn:
    return _one_routine(env, *_claim_routine(env, rng), "skip_routine", "delete_routine")


@SmartHome.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION), tools=("list_routines", "skip_routine", "delete_routine"), calls=2,
    vague=("name", "agreed"),
    hint="list_routines, take the one that is named, delete_routine.",
    phrasings=(
        "Delete the {name} routine of {who}.",
        "{who} will never need the {name} routine again.",
        "Drop the {name} routine of {who} for ever.",
        "The {name} routine of {who} has had its day.",
    ),
)
def delete_routine(env: SmartHome, rng: random.Random) -> Drawn:
    return _one_routine(env, *_claim_routine(env, rng), "delete_routine", "skip_routine")


@SmartHome.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_routines", "skip_routine", "halt_routine"), calls=2,
    vague=("name", "agreed"),
    hint="list_routines and read the status of the routine: ready needs skip_routine, running needs halt_routine.",
    phrasings=(
        "{who} wants quiet: no {name} routine now.",
        "The {name} routine disturbs {who}; see to it.",
        "Spare {who} the {name} routine now.",
        "The {name} routine of {who} must not go on or start now.",
    ),
)
def stop_routine(env: SmartHome, rng: random.Random) -> Drawn:
    customer, chosen = _claim_routine(env, rng)
    tools = {"ready": ("skip_routine", "halt_routine"), "running": ("halt_routine", "skip_routine")}
    for routine in env.owned("routines", customer).values():
        routine["status"] = rng.choice(sorted(tools))
    return _one_routine(env, customer, chosen, *tools[env.state["routines"][chosen]["status"]], decision="branch")


@SmartHome.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_routines", "skip_routine", "delete_routine"),
    calls=3, vague=("name", "agreed"),
    hint="list_routines, skip_routine on the one that is left out once, then delete_routine on the one that is never needed.",
    phrasings=(
        "{who} does without the {name} routine today and never needs the {other} routine again.",
        "Leave the {name} routine of {who} out this once and drop the {other} routine for ever.",
        "Delete the {other} routine of {who}; the {name} routine may pause until the next time.",
        "For {who}, no {name} routine this time and no {other} routine ever again.",
    ),
)
def clear_two(env: SmartHome, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    once, ever = rng.sample(list(env.owned("routines", customer)), 2)

    def plan(who: str) -> list[Step]:
        first, second = (once, ever) if who == customer else list(env.owned("routines", who))[:2]
        swapped = slips(call("skip_routine", routine=second), call("delete_routine", routine=first))
        return [
            Step(call("skip_routine", routine=first), "near_synonym", swapped),
            Step(call("delete_routine", routine=second), "go_on", (GIVE_UP, *slips(call("skip_routine", routine=second)))),
        ]

    name, other = (env.state["routines"][key]["name"] for key in (once, ever))
    slots = {"who": env.customer_text(customer), "name": name, "other": other}
    done = lambda: (env.state["routines"][once]["status"], env.state["routines"][ever]["status"]) == ("skipped", "deleted")
    return Drawn(slots, done, env.for_customer(customer, "list_routines", plan))


@SmartHome.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_routines", "log_answer"), calls=2, vague=("name", "agreed"),
    hint="list_routines, then log_answer with the routine that is named and its minutes.",
    phrasings=(
        "How long is the {name} routine of {who}? Log it.",
        "Log the minutes of the {name} routine of {who}.",
        "{who} asks how long the {name} routine takes; log it.",
        "How many minutes has the {name} routine of {who}? Write it down.",
    ),
)
def tell_minutes(env: SmartHome, rng: random.Random) -> Drawn:
    customer, chosen = _claim_routine(env, rng)

    def plan(who: str) -> list[Step]:
        own = env.chosen_first("routines", who, chosen)
        right, *wrong = (call("log_answer", record=key, value=env.state["routines"][key]["minutes"]) for key in own)
        return [Step(right, "right_field", (*slips(*wrong), GIVE_UP))]

    routine = env.state["routines"][chosen]
    slots = {"who": env.customer_text(customer), "name": routine["name"]}
    done = lambda: env.state["answers"].get(chosen) == routine["minutes"]
    return Drawn(slots, done, env.for_customer(customer, "list_routines", plan))
