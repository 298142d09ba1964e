"""The phone company's tools: what they show, change and refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spade_agentic import ToolError
from spade_agentic_sims.demonstrate import demonstrate
from spade_agentic_sims.kit import Alternative, Step, build_env
from spade_agentic_sims.telecom import Telecom


class Company(Telecom):
    """All tools, no request of its own."""

    chain = ("report_bill",)

    @classmethod
    def exposed_tools(cls) -> frozenset[str]:
        return frozenset(dir(cls))


@pytest.fixture
def company() -> Company:
    env = Company()
    env.reset(seed=3)
    return env


def owned(env: Company, table: str, index: int = 0) -> list[str]:
    """Ids of the records of one customer."""
    return list(env.owned(table, list(env.state["customers"])[index]))


def refused(env: Company, message: str, name: str, /, **arguments: Any) -> None:
    """The call fails with this message and changes nothing; only a message that says so records a breach."""
    before = {table: str(records) for table, records in env.state.items() if table != "breaches"}
    breaches = env.state["breaches"] + ("breach" in message)
    with pytest.raises(ToolError, match=message):
        env.call_tool(name, arguments)
    assert {table: str(records) for table, records in env.state.items() if table != "breaches"} == before
    assert env.state["breaches"] == breaches


def test_lists_show_only_what_belongs_to_the_customer(company: Company) -> None:
    customer = next(iter(company.state["customers"]))
    shown = {"lines": ["speed", "status"], "packs": ["left"], "bills": ["amount", "status"], "gear": ["status"]}
    for table, count in (("lines", 2), ("packs", 2), ("bills", 3), ("gear", 2)):
        rows = company.call_tool(f"list_{table}", {"customer": customer})
        assert len(rows) == count
        assert rows == [
            {"id": key, **{name: company.state[table][key][name] for name in shown[table]}} for key in owned(company, table)
        ]
        refused(company, "no such id", f"list_{table}", customer="C000")


def test_every_number_is_below_a_hundred_even_when_a_pack_is_doubled(company: Company) -> None:
    for seed in range(30):
        company.reset(seed=seed)
        assert all(2 * pack["left"] < 100 for pack in company.state["packs"].values())
        assert all(0 < line["speed"] < 100 for line in company.state["lines"].values())
        assert all(0 < bill["amount"] < 100 for bill in company.state["bills"].values())


def test_a_line_that_rests_can_be_resumed_and_not_be_ended(company: Company) -> None:
    line = owned(company, "lines")[0]
    assert company.call_tool("suspend_line", {"line": line}) == "ok"
    refused(company, "line is suspended", "suspend_line", line=line)
    refused(company, "line is suspended", "end_line", line=line)
    assert company.call_tool("resume_line", {"line": line}) == "ok"
    assert company.state["lines"][line]["status"] == "active"


def test_a_line_that_rested_needlessly_does_not_look_untouched(company: Company) -> None:
    line = owned(company, "lines")[0]
    before = dict(company.state["lines"][line])
    company.call_tool("suspend_line", {"line": line})
    company.call_tool("resume_line", {"line": line})
    assert company.state["lines"][line] != before


def test_a_line_is_ended_once(company: Company) -> None:
    line = owned(company, "lines")[0]
    assert company.call_tool("end_line", {"line": line}) == "ok"
    assert company.state["lines"][line]["status"] == "ended"
    for tool in ("suspend_line", "end_line", "port_line"):
        refused(company, "line is ended", tool, line=line)


@pytest.mark.parametrize(
    ("tool", "status"), [("resume_line", "suspended"), ("repair_line", "broken"), ("release_line", "locked")]
)
def test_what_mends_a_line_depends_on_its_status(company: Company, tool: str, status: str) -> None:
    line = owned(company, "lines")[0]
    for other in {"active", "suspended", "broken", "locked"} - {status}:
        company.state["lines"][line]["status"] = other
        refused(company, f"not {status}, breach recorded", tool, line=line)
    company.state["lines"][line]["status"] = status
    assert company.call_tool(tool, {"line": line}) == "ok"
    assert company.state["lines"][line]["status"] == "active"


def test_a_locked_line_is_released_before_it_is_handed_over(company: Company) -> None:
    line = owned(company, "lines")[0]
    company.state["lines"][line]["status"] = "locked"
    refused(company, "line is locked, breach recorded", "port_line", line=line)
    assert company.call_tool("release_line", {"line": line}) == "ok"
    assert company.call_tool("port_line", {"line": line}) == "ok"
    refused(company, "line is ported", "port_line", line=line)


def test_calls_go_from_the_source_to_the_target(company: Company) -> None:
    (first, second), foreign = owned(company, "lines"), owned(company, "lines", 1)[0]
    refused(company, "one customer", "forward_line", source=first, target=foreign)
    refused(company, "one customer", "forward_line", source=first, target=first)
    assert company.call_tool("forward_line", {"source": first, "target": second}) == "ok"
    assert [company.state["lines"][line]["forward"] for line in (first, second)] == [second, ""]
    company.call_tool("end_line", {"line": second})
    refused(company, "line is ended", "forward_line", source=first, target=second)


def test_a_speed_needs_the_coverage_of_that_customer(company: Company) -> None:
    line = owned(company, "lines")[0]
    one, two, *_ = company.state["customers"]
    assert company.call_tool("check_coverage", {"customer": two}) == "ok"
    refused(company, "coverage not checked, breach recorded", "set_speed", line=line, speed=50)
    company.call_tool("check_coverage", {"customer": one})
    refused(company, "positive", "set_speed", line=line, speed=0)
    assert company.call_tool("set_speed", {"line": line, "speed": 50}) == "ok"
    assert company.state["lines"][line]["speed"] == 50
    refused(company, "no such id", "check_coverage", customer="C000")


@pytest.mark.parametrize(("tool", "lent"), [("give_units", 0), ("lend_units", 12)])
def test_units_arrive_in_the_other_customers_pack_of_that_kind(company: Company, tool: str, lent: int) -> None:
    one, two, *_ = company.state["customers"]
    packs = company.state["packs"]
    for kind, pack in company.owned_by("packs", one).items():
        target = company.owned_by("packs", two)[kind]
        before = packs[pack]["left"], packs[target]["left"]
        assert company.call_tool(tool, {"pack": pack, "amount": 12, "customer": two}) == "ok"
        assert (packs[pack]["left"], packs[target]["left"]) == (before[0] - 12, before[1] + 12)
        assert (packs[pack]["lent"], packs[target]["lent"]) == (lent, 0)
        refused(company, "another customer", tool, pack=pack, amount=1, customer=one)
        refused(company, "positive", tool, pack=pack, amount=-1, customer=two)
        refused(company, "no such id in customers", tool, pack=pack, amount=1, customer="C000")


@pytest.mark.parametrize("tool", ["give_units", "lend_units"])
def test_a_pack_that_is_short_is_given_exactly_what_is_missing(company: Company, tool: str) -> None:
    pack, two = owned(company, "packs")[0], list(company.state["customers"])[1]
    amount = company.state["packs"][pack]["left"] + 17
    refused(company, "short by 17$", tool, pack=pack, amount=amount, customer=two)
    assert company.call_tool("add_units", {"pack": pack, "amount": 17}) == "ok"
    assert company.call_tool(tool, {"pack": pack, "amount": amount, "customer": two}) == "ok"
    assert company.state["packs"][pack]["left"] == 0
    refused(company, "positive", "add_units", pack=pack, amount=0)


@pytest.mark.parametrize(("tool", "status"), [("waive_bill", "waived"), ("delay_bill", "delayed")])
def test_an_open_bill_is_settled_once(company: Company, tool: str, status: str) -> None:
    bill = owned(company, "bills")[0]
    assert company.call_tool(tool, {"bill": bill}) == "ok"
    assert company.state["bills"][bill]["status"] == status
    refused(company, f"bill is {status}", "waive_bill", bill=bill)
    refused(company, f"bill is {status}", "delay_bill", bill=bill)
    refused(company, "not paid, breach recorded", "repay_bill", bill=bill)


def test_a_paid_bill_is_only_paid_back(company: Company) -> None:
    bill = owned(company, "bills")[0]
    refused(company, "not paid, breach recorded", "repay_bill", bill=bill)
    company.state["bills"][bill]["status"] = "paid"
    refused(company, "bill is paid, breach recorded", "waive_bill", bill=bill)
    refused(company, "bill is paid, breach recorded", "delay_bill", bill=bill)
    assert company.call_tool("repay_bill", {"bill": bill}) == "ok"
    assert company.state["bills"][bill]["status"] == "repaid"
    refused(company, "bill is repaid", "waive_bill", bill=bill)


@pytest.mark.parametrize(("tool", "status"), [("reset_gear", "reset"), ("swap_gear", "swapped")])
def test_gear_is_started_anew_or_exchanged_and_not_both(company: Company, tool: str, status: str) -> None:
    gear = owned(company, "gear")[0]
    assert company.call_tool(tool, {"gear": gear}) == "ok"
    assert company.state["gear"][gear]["status"] == status
    refused(company, f"gear is {status}", "reset_gear", gear=gear)
    refused(company, f"gear is {status}", "swap_gear", gear=gear)


def test_an_answer_is_logged_for_any_record(company: Company) -> None:
    for table in ("lines", "packs", "bills", "gear"):
        record = owned(company, table)[0]
        assert company.call_tool("log_answer", {"record": record, "value": 5}) == "ok"
        assert company.state["answers"][record] == 5
    refused(company, "no such record", "log_answer", record="C000", value=5)
    assert company.call_tool("enter_pin", {}) == "ok"


def careless_once() -> Callable[[Step], Alternative | None]:
    """Take the first alternative of the first decision, and decide right from then on."""
    left = [1]
    return lambda step: step.alternatives[0] if left and left.pop() else None


def test_giving_from_the_other_pack_is_refused_as_well() -> None:
    """Else the careless try would empty that pack, and the world could not be won any more by who thinks again."""
    env = build_env("telecom", ("top_up_give",))
    for seed in range(60):
        played = demonstrate(env, seed=seed, choose=careless_once())
        assert "short by" in played.exchanges[1].observation
        assert played.exchanges[1].action != played.exchanges[2].action
        assert played.won


def test_a_line_that_is_handed_over_is_locked_in_some_worlds_only() -> None:
    env = build_env("telecom", ("port_line",))
    calls = set()
    for seed in range(40):
        env.reset(seed=seed)
        calls.add(tuple(item["name"] for item in env.probe()["solution"][0]))
    assert calls == {("list_lines", "port_line"), ("list_lines", "release_line", "port_line")}


@pytest.mark.parametrize("goal", ["revive_line", "clear_bill"])
def test_both_ways_of_a_branch_are_met_and_the_wrong_one_is_a_breach(goal: str) -> None:
    env = build_env("telecom", (goal,))
    ways = set()
    for seed in range(40):
        played = demonstrate(env, seed=seed, choose=lambda step: step.alternatives[0] if step.decision == "branch" else None)
        ways.add(env.goals[0].steps[-1].call.name)
        assert "breach recorded" in played.exchanges[1].observation
        assert not played.won
    assert len(ways) == 2
