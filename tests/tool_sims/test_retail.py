"""Retail's tools: what they show, change and refuse."""

from __future__ import annotations

from typing import Any

import pytest

from spade_agentic import ToolError
from spade_agentic_sims.kit import all_tools, build_env, get_domain
from spade_agentic_sims.people import PeopleEnv
from spade_agentic_sims.retail import Retail


class Shop(Retail):
    """All tools, no request of its own."""

    chain = ("tell_boxes",)

    @classmethod
    def exposed_tools(cls) -> frozenset[str]:
        return frozenset(dir(cls))


@pytest.fixture
def shop() -> Shop:
    env = Shop()
    env.reset(seed=3)
    return env


def owned(env: Shop, table: str, index: int = 0) -> list[str]:
    """Ids of the records of one customer."""
    return list(env.owned(table, list(env.state["customers"])[index]))


def item_that_is(env: Shop, status: str, *, short: int = 0) -> str:
    """An item that has been given this status."""
    item = owned(env, "items")[0]
    env.state["items"][item] |= {"status": status, "short": short}
    return item


def points(env: Shop, purse: str) -> int:
    return int(env.state["purses"][purse]["points"])


def refused(env: Shop, message: str, name: str, /, **arguments: Any) -> None:
    before = {table: str(records) for table, records in env.state.items() if table != "breaches"}
    with pytest.raises(ToolError, match=message):
        env.call_tool(name, arguments)
    assert {table: str(records) for table, records in env.state.items() if table != "breaches"} == before


def test_lists_show_only_what_belongs_to_the_customer(shop: Shop) -> None:
    customer = next(iter(shop.state["customers"]))
    for tool, table, count in (("list_items", "items", 3), ("list_purses", "purses", 2), ("list_plans", "plans", 2)):
        rows = shop.call_tool(tool, {"customer": customer})
        assert [row["id"] for row in rows] == owned(shop, table)
        assert len(rows) == count
        assert all("customer" not in row for row in rows)
        refused(shop, "no such id", tool, customer="C000")


def test_a_booked_item_is_packed_then_sent(shop: Shop) -> None:
    item = item_that_is(shop, "booked")
    refused(shop, "not packed, breach recorded", "send_item", item=item)
    assert shop.call_tool("pack_item", {"item": item}) == "ok"
    refused(shop, "item is packed", "pack_item", item=item)
    assert shop.call_tool("send_item", {"item": item}) == "ok"
    assert shop.state["items"][item]["status"] == "sent"
    refused(shop, "item is sent", "send_item", item=item)
    assert shop.state["breaches"] == 1


def test_an_item_that_is_short_of_stamps_is_sent_once_it_has_them_all(shop: Shop) -> None:
    item = item_that_is(shop, "packed", short=12)
    refused(shop, "short by 12$", "send_item", item=item)
    for count in (13, 0, -1):
        refused(shop, "not the count", "add_stamps", item=item, count=count)
    assert shop.call_tool("add_stamps", {"item": item, "count": 5}) == "ok"
    refused(shop, "short by 7$", "send_item", item=item)
    assert shop.call_tool("add_stamps", {"item": item, "count": 7}) == "ok"
    refused(shop, "not the count", "add_stamps", item=item, count=1)
    assert shop.call_tool("send_item", {"item": item}) == "ok"


@pytest.mark.parametrize(
    ("tool", "before", "after"), [("unpack_item", "packed", "shelved"), ("recall_item", "sent", "recalled")]
)
def test_how_an_item_is_called_off_depends_on_where_it_is(shop: Shop, tool: str, before: str, after: str) -> None:
    others = {"booked", "packed", "sent", "home"} - {before}
    for status in sorted(others):
        refused(shop, f"item is not {before}, breach", tool, item=item_that_is(shop, status))
    assert shop.state["breaches"] == len(others)
    item = item_that_is(shop, before)
    assert shop.call_tool(tool, {"item": item}) == "ok"
    assert shop.state["items"][item]["status"] == after


@pytest.mark.parametrize(("tool", "after"), [("swap_item", "swapped"), ("collect_item", "collected")])
def test_what_the_customer_has_at_home_is_swapped_or_collected_once(shop: Shop, tool: str, after: str) -> None:
    refused(shop, "item is sent", tool, item=item_that_is(shop, "sent"))
    item = item_that_is(shop, "home")
    assert shop.call_tool(tool, {"item": item}) == "ok"
    refused(shop, f"item is {after}", "swap_item", item=item)
    refused(shop, f"item is {after}", "collect_item", item=item)
    assert shop.state["breaches"] == 0


def test_a_price_needs_a_checked_coupon_of_that_customer(shop: Shop) -> None:
    item = owned(shop, "items")[0]
    one, two, *_ = shop.state["customers"]
    assert shop.call_tool("check_coupon", {"customer": two}) == "ok"
    refused(shop, "coupon not checked, breach", "set_price", item=item, price=20)
    shop.call_tool("check_coupon", {"customer": one})
    refused(shop, "positive", "set_price", item=item, price=0)
    assert shop.call_tool("set_price", {"item": item, "price": 20}) == "ok"
    assert shop.state["items"][item]["price"] == 20


def test_points_shift_between_purses_of_one_customer(shop: Shop) -> None:
    (source, target), foreign = owned(shop, "purses"), owned(shop, "purses", 1)[0]
    before = points(shop, source), points(shop, target)
    assert shop.call_tool("shift_points", {"source": source, "amount": 10, "target": target}) == "ok"
    assert (points(shop, source), points(shop, target)) == (before[0] - 10, before[1] + 10)
    refused(shop, "one customer", "shift_points", source=source, amount=10, target=foreign)
    refused(shop, "one customer", "shift_points", source=source, amount=10, target=source)
    refused(shop, "positive", "shift_points", source=source, amount=0, target=target)
    refused(shop, "short by 7$", "shift_points", source=source, amount=points(shop, source) + 7, target=target)


@pytest.mark.parametrize(("tool", "field"), [("spend_points", "spent"), ("donate_points", "given")])
def test_points_that_are_spent_or_donated_leave_the_purse(shop: Shop, tool: str, field: str) -> None:
    purse = owned(shop, "purses")[0]
    before = points(shop, purse)
    refused(shop, "short by 9$", tool, purse=purse, amount=before + 9)
    refused(shop, "positive", tool, purse=purse, amount=-1)
    assert shop.call_tool(tool, {"purse": purse, "amount": 12}) == "ok"
    purses = shop.state["purses"][purse]
    assert (purses["points"], purses[field], purses["spent"] + purses["given"]) == (before - 12, 12, 12)


def test_the_life_of_a_plan(shop: Shop) -> None:
    plan = owned(shop, "plans")[0]
    refused(shop, "not paused, breach", "resume_plan", plan=plan)
    refused(shop, "not ended, breach", "restart_plan", plan=plan)
    for tool, status in (("pause_plan", "paused"), ("resume_plan", "active"), ("end_plan", "ended")):
        assert shop.call_tool(tool, {"plan": plan}) == "ok"
        assert shop.state["plans"][plan]["status"] == status
    refused(shop, "not active", "pause_plan", plan=plan)
    refused(shop, "is ended", "end_plan", plan=plan)
    assert shop.call_tool("restart_plan", {"plan": plan}) == "ok"
    assert shop.state["plans"][plan]["status"] == "active"


def test_a_paused_plan_can_be_ended(shop: Shop) -> None:
    plan = owned(shop, "plans")[0]
    shop.call_tool("pause_plan", {"plan": plan})
    assert shop.call_tool("end_plan", {"plan": plan}) == "ok"


def test_an_answer_may_be_about_any_belonging(shop: Shop) -> None:
    for table in ("items", "purses", "plans"):
        assert shop.call_tool("log_answer", {"record": owned(shop, table)[0], "value": 5}) == "ok"
    refused(shop, "no such record", "log_answer", record="C000", value=5)


def test_opening_the_till_is_harmless(shop: Shop) -> None:
    before = str(shop.state)
    assert shop.call_tool("open_till", {}) == "ok"
    assert str(shop.state) == before


@pytest.mark.parametrize("other", ["banking", "support"])
def test_no_other_domain_has_a_tool_or_goal_of_this_name(other: str) -> None:
    shared = set(all_tools(PeopleEnv))
    assert set(all_tools(Retail)) & set(all_tools(get_domain(other))) == shared
    assert not set(Retail.goal_kinds) & set(get_domain(other).goal_kinds)


def test_the_numbers_of_a_listing_are_below_a_hundred_and_differ(shop: Shop) -> None:
    fields = (("list_items", "price"), ("list_purses", "points"), ("list_plans", "boxes"))
    for seed in range(20):
        shop.reset(seed=seed)
        for tool, field in fields:
            for customer in shop.state["customers"]:
                numbers = [row[field] for row in shop.call_tool(tool, {"customer": customer})]
                assert len(set(numbers)) == len(numbers)
                assert all(10 < number < 100 for number in numbers)


def test_a_payment_that_is_short_costs_more_than_either_purse_has() -> None:
    """So that neither purse pays alone, and the other one can always fill up what is short."""
    env = build_env("retail", ("fill_and_spend",))
    for seed in range(50):
        env.reset(seed=seed)
        spend, fill = (step.call.arguments for step in env.goals[0].steps[1:3])
        have = {key: env.state["purses"][key]["points"] for key in (spend["purse"], fill["source"])}
        assert max(have.values()) < spend["amount"] < 100
        assert spend["amount"] - have[spend["purse"]] == fill["amount"] <= have[fill["source"]]
        assert fill["amount"] not in have.values()


@pytest.mark.parametrize("goal", ["send_item", "call_off", "revive_plan"])
def test_the_status_decides_between_two_solutions(goal: str) -> None:
    env = build_env("retail", (goal,))
    found = set()
    for seed in range(30):
        env.reset(seed=seed)
        found.add(tuple(item["name"] for item in env.probe()["solution"][0][1:]))
    assert len(found) == 2
