"""Smart home's tools: what they show, change and refuse."""

from __future__ import annotations

from typing import Any

import pytest

from spade_agentic import ToolError
from spade_agentic_sims.kit import all_tools, build_env, get_domain
from spade_agentic_sims.people import PeopleEnv
from spade_agentic_sims.smart_home import SmartHome


class House(SmartHome):
    """All tools, no request of its own."""

    chain = ("tell_minutes",)

    @classmethod
    def exposed_tools(cls) -> frozenset[str]:
        return frozenset(dir(cls))


@pytest.fixture
def house() -> House:
    env = House()
    env.reset(seed=3)
    return env


def owned(env: House, table: str, index: int = 0) -> list[str]:
    """Ids of the records of one customer."""
    return list(env.owned(table, list(env.state["customers"])[index]))


def thing_that_is(env: House, table: str, status: str) -> str:
    """A record of a table that has been given this status."""
    key = owned(env, table)[0]
    env.state[table][key]["status"] = status
    return key


def charge(env: House, battery: str) -> int:
    return int(env.state["batteries"][battery]["charge"])


def refused(env: House, message: str, name: str, /, **arguments: Any) -> None:
    before = {table: str(records) for table, records in env.state.items() if table != "breaches"}
    with pytest.raises(ToolError, match=message):
        env.call_tool(name, arguments)
    assert {table: str(records) for table, records in env.state.items() if table != "breaches"} == before


@pytest.mark.parametrize(
    ("table", "count"), [("lamps", 2), ("doors", 2), ("heaters", 2), ("batteries", 2), ("routines", 3)]
)
def test_lists_show_only_what_belongs_to_the_customer(house: House, table: str, count: int) -> None:
    rows = house.call_tool(f"list_{table}", {"customer": next(iter(house.state["customers"]))})
    assert [row["id"] for row in rows] == owned(house, table)
    assert len(rows) == count
    assert all("customer" not in row for row in rows)
    refused(house, "no such id", f"list_{table}", customer="C000")


@pytest.mark.parametrize(("tool", "after"), [("sleep_lamp", "asleep"), ("remove_lamp", "removed")])
def test_a_lamp_that_is_on_is_put_to_sleep_or_removed_once(house: House, tool: str, after: str) -> None:
    lamp = thing_that_is(house, "lamps", "on")
    assert house.call_tool(tool, {"lamp": lamp}) == "ok"
    assert house.state["lamps"][lamp]["status"] == after
    for again in ("sleep_lamp", "remove_lamp"):
        refused(house, f"lamp is {after}", again, lamp=lamp)
    refused(house, f"lamp is {after}", "set_level", lamp=lamp, level=20)


def test_a_level_is_between_one_and_ninety_nine(house: House) -> None:
    lamp = owned(house, "lamps")[0]
    for level in (0, 100, -1):
        refused(house, "1 to 99", "set_level", lamp=lamp, level=level)
    assert house.call_tool("set_level", {"lamp": lamp, "level": 99}) == "ok"
    assert house.state["lamps"][lamp]["level"] == 99


@pytest.mark.parametrize(
    ("tool", "table", "before", "after"),
    [
        ("tighten_bulb", "lamps", "loose", "on"), ("change_bulb", "lamps", "burnt", "on"),
        ("oil_door", "doors", "stuck", "shut"), ("thaw_door", "doors", "frozen", "shut"),
        ("halt_routine", "routines", "running", "halted"),
    ],
)  # fmt: skip
def test_what_is_wrong_decides_what_mends_it(house: House, tool: str, table: str, before: str, after: str) -> None:
    argument = {"lamps": "lamp", "doors": "door", "routines": "routine"}[table]
    refused(house, f"not {before}, breach", tool, **{argument: thing_that_is(house, table, after)})
    key = thing_that_is(house, table, before)
    assert house.call_tool(tool, {argument: key}) == "ok"
    assert house.state[table][key]["status"] == after
    assert house.state["breaches"] == 1


def test_an_open_door_is_shut_then_locked(house: House) -> None:
    door = thing_that_is(house, "doors", "open")
    refused(house, "door is open, breach recorded", "lock_door", door=door)
    assert house.call_tool("shut_door", {"door": door}) == "ok"
    refused(house, "door is shut", "shut_door", door=door)
    assert house.call_tool("lock_door", {"door": door}) == "ok"
    refused(house, "door is locked", "lock_door", door=door)
    refused(house, "door is locked", "shut_door", door=door)
    assert house.state["breaches"] == 1


def test_heat_needs_checked_windows_of_that_customer(house: House) -> None:
    heater = owned(house, "heaters")[0]
    one, two, *_ = house.state["customers"]
    assert house.call_tool("check_windows", {"customer": two}) == "ok"
    refused(house, "windows not checked, breach", "set_heat", heater=heater, heat=50)
    house.call_tool("check_windows", {"customer": one})
    refused(house, "1 to 99", "set_heat", heater=heater, heat=0)
    assert house.call_tool("set_heat", {"heater": heater, "heat": 50}) == "ok"
    assert house.state["heaters"][heater]["heat"] == 50


def test_charge_moves_between_batteries_of_one_customer_that_have_it_and_have_room(house: House) -> None:
    (source, target), foreign = owned(house, "batteries"), owned(house, "batteries", 1)[0]
    before = charge(house, source), charge(house, target)
    assert house.call_tool("move_charge", {"source": source, "amount": 10, "target": target}) == "ok"
    assert (charge(house, source), charge(house, target)) == (before[0] - 10, before[1] + 10)
    refused(house, "one customer", "move_charge", source=source, amount=10, target=foreign)
    refused(house, "one customer", "move_charge", source=source, amount=10, target=source)
    refused(house, "positive", "move_charge", source=source, amount=0, target=target)
    short = charge(house, source) + 1
    refused(house, "short by 1$", "move_charge", source=source, amount=short, target=target)
    house.state["batteries"][target]["charge"] = 95
    refused(house, "no room for 1$", "move_charge", source=source, amount=5, target=target)


@pytest.mark.parametrize(("tool", "field"), [("charge_car", "driven"), ("heat_water", "bathed")])
def test_charge_that_is_used_leaves_the_battery(house: House, tool: str, field: str) -> None:
    battery = owned(house, "batteries")[0]
    before = charge(house, battery)
    refused(house, "short by 9$", tool, battery=battery, amount=before + 9)
    refused(house, "positive", tool, battery=battery, amount=-1)
    assert house.call_tool(tool, {"battery": battery, "amount": 12}) == "ok"
    found = house.state["batteries"][battery]
    assert (found["charge"], found[field], found["driven"] + found["bathed"]) == (before - 12, 12, 12)


def test_charge_is_bought_as_far_as_there_is_room(house: House) -> None:
    battery = owned(house, "batteries")[0]
    room = 99 - charge(house, battery)
    refused(house, "no room for 2$", "buy_charge", battery=battery, amount=room + 2)
    refused(house, "positive", "buy_charge", battery=battery, amount=0)
    assert house.call_tool("buy_charge", {"battery": battery, "amount": room}) == "ok"
    assert charge(house, battery) == 99


@pytest.mark.parametrize(("tool", "after"), [("skip_routine", "skipped"), ("delete_routine", "deleted")])
def test_a_ready_routine_is_left_out_and_a_running_one_is_a_breach(house: House, tool: str, after: str) -> None:
    refused(house, "routine is running, breach", tool, routine=thing_that_is(house, "routines", "running"))
    routine = thing_that_is(house, "routines", "ready")
    assert house.call_tool(tool, {"routine": routine}) == "ok"
    for again in ("skip_routine", "delete_routine"):
        refused(house, f"routine is {after}", again, routine=routine)
    assert house.state["breaches"] == 1


def test_an_answer_may_be_about_any_belonging(house: House) -> None:
    for table in house.belongings:
        assert house.call_tool("log_answer", {"record": owned(house, table)[0], "value": 5}) == "ok"
    refused(house, "no such record", "log_answer", record="C000", value=5)


def test_waking_the_hub_is_harmless(house: House) -> None:
    before = str(house.state)
    assert house.call_tool("wake_hub", {}) == "ok"
    assert str(house.state) == before


@pytest.mark.parametrize("other", ["banking", "support", "retail", "telecom"])
def test_no_other_domain_has_a_tool_or_goal_of_this_name(other: str) -> None:
    shared = set(all_tools(PeopleEnv))
    assert set(all_tools(SmartHome)) & set(all_tools(get_domain(other))) == shared
    assert not set(SmartHome.goal_kinds) & set(get_domain(other).goal_kinds)


def test_the_numbers_of_a_listing_are_below_a_hundred_and_differ(house: House) -> None:
    fields = {"lamps": "level", "heaters": "heat", "batteries": "charge", "routines": "minutes"}
    for seed in range(20):
        house.reset(seed=seed)
        for table, field in fields.items():
            for customer in house.state["customers"]:
                numbers = [row[field] for row in house.call_tool(f"list_{table}", {"customer": customer})]
                assert len(set(numbers)) == len(numbers)
                assert all(10 < number < 100 for number in numbers)


def test_a_drive_that_is_short_costs_more_than_either_battery_has() -> None:
    """So that neither battery is enough alone, and what is bought fits in."""
    env = build_env("smart_home", ("top_up_drive",))
    for seed in range(50):
        env.reset(seed=seed)
        drive, buy = (step.call.arguments for step in env.goals[0].steps[1:3])
        owner = env.state["batteries"][drive["battery"]]["customer"]
        have = {key: item["charge"] for key, item in env.owned("batteries", owner).items()}
        assert max(have.values()) < drive["amount"] < 100
        assert drive["amount"] - have[drive["battery"]] == buy["amount"]


@pytest.mark.parametrize("goal", ["lock_door", "lock_all", "mend_lamp", "free_door", "stop_routine"])
def test_the_status_decides_between_two_solutions(goal: str) -> None:
    env = build_env("smart_home", (goal,))
    found = set()
    for seed in range(30):
        env.reset(seed=seed)
        found.add(tuple(item["name"] for item in env.probe()["solution"][0][1:]))
    assert len(found) == 2


def test_only_doors_that_are_shut_are_locked() -> None:
    env = build_env("smart_home", ("lock_all",))
    for seed in range(30):
        env.reset(seed=seed)
        reader, *locks = env.probe()["solution"][0]
        doors = env.owned("doors", reader["arguments"]["customer"])
        assert [item["arguments"]["door"] for item in locks] == [key for key, door in doors.items() if door["status"] == "shut"]
