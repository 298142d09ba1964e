"""Banking's tools: what they show, change and refuse."""

from __future__ import annotations

from typing import Any

import pytest

from spade_agentic import ToolError
from spade_agentic_sims.banking import Banking


class Bank(Banking):
    """All tools, no request of its own."""

    chain = ("report_limit",)

    @classmethod
    def exposed_tools(cls) -> frozenset[str]:
        return frozenset(dir(cls))


@pytest.fixture
def bank() -> Bank:
    env = Bank()
    env.reset(seed=3)
    return env


def owned(env: Bank, table: str, customer: str) -> list[str]:
    return list(env.owned(table, customer))


def first_two(env: Bank) -> tuple[str, str]:
    one, two, *_ = env.state["customers"]
    return one, two


def balance(env: Bank, account: str) -> int:
    return int(env.state["accounts"][account]["balance"])


def refused(env: Bank, message: str, name: str, /, **arguments: Any) -> None:
    before = {table: str(records) for table, records in env.state.items() if table != "breaches"}
    with pytest.raises(ToolError, match=message):
        env.call_tool(name, arguments)
    assert {table: str(records) for table, records in env.state.items() if table != "breaches"} == before


def test_a_search_shows_all_namesakes_and_no_one_else(bank: Bank) -> None:
    one, _ = first_two(bank)
    first, last = bank.state["customers"][one]["name"].split()
    hits = bank.call_tool("find_customer", {"customer": f"{first} {last}"})
    assert 2 <= len(hits) <= 3
    assert all(hit["name"].endswith(last) for hit in hits)
    assert bank.call_tool("find_customer", {"customer": last}) == hits
    assert bank.call_tool("find_customer", {"customer": "Nobody"}) == bank.call_tool("find_customer", {"customer": ""}) == []


def test_lists_show_only_what_belongs_to_the_customer(bank: Bank) -> None:
    one, _ = first_two(bank)
    for tool, table, count in (("list_accounts", "accounts", 2), ("list_cards", "cards", 2), ("list_payments", "payments", 3)):
        rows = bank.call_tool(tool, {"customer": one})
        assert [row["id"] for row in rows] == owned(bank, table, one)
        assert len(rows) == count
        refused(bank, "no such id", tool, customer="C000")


def test_money_moves_between_accounts_of_one_customer(bank: Bank) -> None:
    one, two = first_two(bank)
    (source, target), foreign = owned(bank, "accounts", one), owned(bank, "accounts", two)[0]
    before = balance(bank, source), balance(bank, target)
    assert bank.call_tool("move_money", {"source": source, "target": target, "amount": 10}) == "ok"
    assert (balance(bank, source), balance(bank, target)) == (before[0] - 10, before[1] + 10)
    refused(bank, "one customer", "move_money", source=source, target=foreign, amount=10)
    refused(bank, "one customer", "move_money", source=source, target=source, amount=10)
    refused(bank, "positive", "move_money", source=source, target=target, amount=0)


def test_an_error_says_by_how_much_an_account_is_short(bank: Bank) -> None:
    one, two = first_two(bank)
    source, target = owned(bank, "accounts", one)
    refused(bank, "short by 7$", "move_money", source=source, target=target, amount=balance(bank, source) + 7)
    refused(bank, "short by 9$", "pay_customer", source=source, customer=two, amount=balance(bank, source) + 9)


def test_a_payment_arrives_in_the_other_customers_checking(bank: Bank) -> None:
    one, two = first_two(bank)
    source, target = owned(bank, "accounts", one)[0], bank.owned_by("accounts", two)["checking"]
    before = balance(bank, target)
    assert bank.call_tool("pay_customer", {"source": source, "customer": two, "amount": 12}) == "ok"
    assert balance(bank, target) == before + 12
    refused(bank, "another customer", "pay_customer", source=source, customer=one, amount=12)


def test_only_an_empty_account_is_closed(bank: Bank) -> None:
    one, _ = first_two(bank)
    source, target = owned(bank, "accounts", one)
    refused(bank, "not empty, breach recorded", "close_account", account=source)
    bank.call_tool("move_money", {"source": source, "target": target, "amount": balance(bank, source)})
    assert bank.call_tool("close_account", {"account": source}) == "ok"
    assert [row["id"] for row in bank.call_tool("list_accounts", {"customer": one})] == [target]
    refused(bank, "closed", "move_money", source=target, target=source, amount=1)
    assert bank.state["breaches"] == 1


def test_the_life_of_a_card(bank: Bank) -> None:
    one, _ = first_two(bank)
    card = owned(bank, "cards", one)[0]
    refused(bank, "not frozen, breach", "unfreeze_card", card=card)
    refused(bank, "not cancelled, breach", "replace_card", card=card)
    for tool, status in (("freeze_card", "frozen"), ("unfreeze_card", "active"), ("cancel_card", "cancelled")):
        assert bank.call_tool(tool, {"card": card}) == "ok"
        assert bank.state["cards"][card]["status"] == status
    refused(bank, "not active", "freeze_card", card=card)
    refused(bank, "is cancelled", "cancel_card", card=card)
    assert bank.call_tool("replace_card", {"card": card}) == "ok"


def test_a_limit_needs_a_verified_customer(bank: Bank) -> None:
    one, _ = first_two(bank)
    card = owned(bank, "cards", one)[0]
    refused(bank, "not verified, breach", "set_limit", card=card, limit=500)
    assert bank.call_tool("verify_customer", {"customer": one}) == "ok"
    refused(bank, "positive", "set_limit", card=card, limit=0)
    assert bank.call_tool("set_limit", {"card": card, "limit": 500}) == "ok"
    assert bank.state["cards"][card]["limit"] == 500


@pytest.mark.parametrize(("tool", "status"), [("refund_payment", "refunded"), ("dispute_payment", "disputed")])
def test_a_payment_is_settled_once(bank: Bank, tool: str, status: str) -> None:
    payment = next(iter(bank.state["payments"]))
    assert bank.call_tool(tool, {"payment": payment}) == "ok"
    refused(bank, f"payment is {status}", "refund_payment", payment=payment)
    refused(bank, f"payment is {status}", "dispute_payment", payment=payment)


def test_answers_are_numbers(bank: Bank) -> None:
    one = next(iter(bank.state["cards"]))
    assert bank.call_tool("log_answer", {"record": one, "value": 5}) == "ok"
    refused(bank, "value", "log_answer", record=one, value="5")
    refused(bank, "no such record", "log_answer", record="C000", value=5)
    assert bank.call_tool("renew_session", {}) == "ok"
