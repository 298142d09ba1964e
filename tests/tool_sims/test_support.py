"""The support desk's tools: what they show, change and refuse."""

from __future__ import annotations

from typing import Any

import pytest

from spade_agentic import ToolError
from spade_agentic_sims.support import Support


class Desk(Support):
    """All tools, no request of its own."""

    chain = ("report_price",)

    @classmethod
    def exposed_tools(cls) -> frozenset[str]:
        return frozenset(dir(cls))


@pytest.fixture
def desk() -> Desk:
    env = Desk()
    env.reset(seed=3)
    return env


def owned(env: Desk, table: str, index: int = 0) -> list[str]:
    """Ids of the records of one customer."""
    return list(env.owned(table, list(env.state["customers"])[index]))


def refused(env: Desk, message: str, name: str, /, **arguments: Any) -> None:
    before = {table: str(records) for table, records in env.state.items() if table != "breaches"}
    with pytest.raises(ToolError, match=message):
        env.call_tool(name, arguments)
    assert {table: str(records) for table, records in env.state.items() if table != "breaches"} == before


def test_lists_show_only_what_belongs_to_the_customer(desk: Desk) -> None:
    customer = next(iter(desk.state["customers"]))
    for tool, table, count in (("list_tickets", "tickets", 3), ("list_devices", "devices", 2), ("list_orders", "orders", 2)):
        rows = desk.call_tool(tool, {"customer": customer})
        assert [row["id"] for row in rows] == owned(desk, table)
        assert len(rows) == count
        refused(desk, "no such id", tool, customer="C000")


def test_a_ticket_goes_to_a_team_or_to_the_manager(desk: Desk) -> None:
    ticket = owned(desk, "tickets")[0]
    assert desk.call_tool("assign_ticket", {"ticket": ticket, "team": "accounts"}) == "ok"
    assert desk.state["tickets"][ticket]["team"] == "accounts"
    assert desk.call_tool("escalate_ticket", {"ticket": ticket}) == "ok"
    assert desk.state["tickets"][ticket]["team"] == "manager"
    refused(desk, "team", "assign_ticket", ticket=ticket, team="sales")


def test_the_schema_offers_the_teams(desk: Desk) -> None:
    schema = next(item["function"] for item in desk.tools() if item["function"]["name"] == "assign_ticket")
    assert schema["parameters"]["properties"]["team"]["enum"] == ["hardware", "accounts"]


def test_tickets_of_one_customer_are_merged(desk: Desk) -> None:
    (first, second, _), foreign = owned(desk, "tickets"), owned(desk, "tickets", 1)[0]
    refused(desk, "one customer", "merge_tickets", source=first, target=foreign)
    refused(desk, "one customer", "merge_tickets", source=first, target=first)
    assert desk.call_tool("merge_tickets", {"source": first, "target": second}) == "ok"
    assert desk.state["tickets"][second]["status"] == "open"
    refused(desk, "ticket is merged", "merge_tickets", source=second, target=first)
    customer = next(iter(desk.state["customers"]))
    assert first not in [row["id"] for row in desk.call_tool("list_tickets", {"customer": customer})]


def test_a_ticket_is_closed_after_an_answer_only(desk: Desk) -> None:
    ticket = owned(desk, "tickets")[0]
    refused(desk, "no answer, breach recorded", "close_ticket", ticket=ticket)
    assert desk.call_tool("reply_ticket", {"ticket": ticket}) == "ok"
    assert desk.call_tool("close_ticket", {"ticket": ticket}) == "ok"
    refused(desk, "ticket is closed", "reply_ticket", ticket=ticket)
    assert desk.state["breaches"] == 1


def test_the_life_of_a_device(desk: Desk) -> None:
    device, other = owned(desk, "devices")
    refused(desk, "not locked, breach", "unlock_device", device=device)
    refused(desk, "not broken, breach", "replace_device", device=device)
    for tool, status in (("lock_device", "locked"), ("unlock_device", "active"), ("wipe_device", "wiped")):
        assert desk.call_tool(tool, {"device": device}) == "ok"
        assert desk.state["devices"][device]["status"] == status
    refused(desk, "not active", "lock_device", device=device)
    desk.state["devices"][other]["status"] = "broken"
    assert desk.call_tool("replace_device", {"device": other}) == "ok"
    assert desk.state["devices"][other]["status"] == "replaced"


def test_a_warranty_needs_checked_receipts_of_that_customer(desk: Desk) -> None:
    device = owned(desk, "devices")[0]
    one, two, *_ = desk.state["customers"]
    assert desk.call_tool("check_receipt", {"customer": two}) == "ok"
    refused(desk, "receipts not checked, breach", "set_warranty", device=device, months=50)
    desk.call_tool("check_receipt", {"customer": one})
    refused(desk, "positive", "set_warranty", device=device, months=-1)
    assert desk.call_tool("set_warranty", {"device": device, "months": 50}) == "ok"
    assert desk.state["devices"][device]["warranty"] == 50


def test_an_order_that_is_short_is_sent_after_restocking_exactly_that(desk: Desk) -> None:
    order = owned(desk, "orders")[0]
    desk.state["orders"][order]["short"] = 12
    refused(desk, "short by 12$", "ship_order", order=order)
    refused(desk, "not the count", "restock_order", order=order, count=13)
    assert desk.call_tool("restock_order", {"order": order, "count": 12}) == "ok"
    assert desk.call_tool("ship_order", {"order": order}) == "ok"
    refused(desk, "order is shipped", "ship_order", order=order)
    refused(desk, "order is shipped", "cancel_order", order=order)
    assert desk.call_tool("return_order", {"order": order}) == "ok"
    refused(desk, "order is returned", "return_order", order=order)


def test_a_credit_is_at_most_the_price(desk: Desk) -> None:
    order = owned(desk, "orders")[0]
    price = desk.state["orders"][order]["price"]
    refused(desk, "at most the price", "credit_order", order=order, amount=price + 1)
    refused(desk, "positive", "credit_order", order=order, amount=0)
    assert desk.call_tool("credit_order", {"order": order, "amount": price - 1}) == "ok"
    refused(desk, "at most the price", "credit_order", order=order, amount=2)
    assert desk.call_tool("credit_order", {"order": order, "amount": 1}) == "ok"


def test_signing_in_is_harmless(desk: Desk) -> None:
    assert desk.call_tool("sign_in", {}) == "ok"
