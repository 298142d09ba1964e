"""Goals that recur in every domain: on one of a customer's records, told apart by their kinds.

A domain gives the table, the tools and the words; what is drawn, how it is done and what a careless agent would do instead is
the same everywhere and stands here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spade_agentic import ToolCall

from .kit import GIVE_UP, Alternative, Drawn, Step, call, slips
from .people import PeopleEnv

__all__ = ["Kinds", "after_check", "choose_tool", "do_to_all", "report", "revive"]


@dataclass(frozen=True, slots=True)
class Kinds:
    """A table of which every customer has one record of each kind, and the argument that names a record to a tool."""

    table: str
    argument: str
    kinds: tuple[str, str]

    @property
    def reader(self) -> str:
        """The tool that lists them."""
        return f"list_{self.table}"

    def act(self, tool: str, record: str, **more: object) -> ToolCall:
        return call(tool, **{self.argument: record}, **more)


def choose_tool(env: PeopleEnv, rng: random.Random, of: Kinds, *, right: str, wrong: str, status: str) -> Drawn:
    """One record and one of two tools that sound alike; the right one leaves ``status``."""
    customer = env.claim_customer(rng)
    kind, other = rng.sample(of.kinds, 2)

    def plan(who: str) -> list[Step]:
        own = env.owned_by(of.table, who)
        careless = (of.act(wrong, own[kind]), of.act(right, own[other]), of.act(wrong, own[other]))
        return [Step(of.act(right, own[kind]), "near_synonym", slips(*careless))]

    record = env.owned_by(of.table, customer)[kind]
    slots = {"who": env.customer_text(customer), "kind": kind}
    done = lambda: env.state[of.table][record]["status"] == status
    return Drawn(slots, done, env.for_customer(customer, of.reader, plan))


def do_to_all(env: PeopleEnv, rng: random.Random, of: Kinds, *, right: str, wrong: str, status: str) -> Drawn:
    """:func:`choose_tool` for both records of a customer, in the order of the list; the slot is ``what``."""
    customer = env.claim_customer(rng)

    def plan(who: str) -> list[Step]:
        first, second = env.owned(of.table, who)
        return [
            Step(of.act(right, first), "near_synonym", slips(of.act(wrong, first))),
            Step(of.act(right, second), "go_on", (GIVE_UP, *slips(of.act(wrong, second)))),
        ]

    slots = {"who": env.customer_text(customer), "what": f"both {of.table}"}
    done = lambda: all(item["status"] == status for item in env.owned(of.table, customer).values())
    return Drawn(slots, done, env.for_customer(customer, of.reader, plan))


def revive(
    env: PeopleEnv, rng: random.Random, of: Kinds, *, tools: Mapping[str, tuple[str, str]], mended: Sequence[str]
) -> Drawn:
    """A record that does not work: its status says which tool mends it. ``tools``: right and wrong one by status."""
    customer = env.claim_customer(rng)
    kind, other = rng.sample(of.kinds, 2)
    record = env.owned_by(of.table, customer)[kind]
    status = env.state[of.table][record]["status"] = rng.choice(sorted(tools))
    right, wrong = tools[status]

    def plan(who: str) -> list[Step]:
        own = env.owned_by(of.table, who)
        return [Step(of.act(right, own[kind]), "branch", slips(of.act(wrong, own[kind]), of.act(right, own[other])))]

    slots = {"who": env.customer_text(customer), "kind": kind}
    done = lambda: env.state[of.table][record]["status"] in mended
    return Drawn(slots, done, env.for_customer(customer, of.reader, plan))


def after_check(
    env: PeopleEnv, rng: random.Random, of: Kinds, *, check: str, tool: str, value_name: str, field: str
) -> Drawn:
    """A number to be set in ``field`` of one record, which ``tool`` takes as ``value_name``, once ``check`` was called."""
    customer = env.claim_customer(rng)
    kind, other = rng.sample(of.kinds, 2)
    value = rng.randint(41, 90)

    def plan(who: str) -> list[Step]:
        own = env.owned_by(of.table, who)
        right, wrong = (of.act(tool, own[name], **{value_name: value}) for name in (kind, other))
        careless = (Alternative(right, "again"), Alternative(wrong, "again"))
        return [
            Step(call(check, customer=who), "precondition", careless),
            Step(right, "account_kind", slips(wrong)),
        ]

    record = env.owned_by(of.table, customer)[kind]
    slots = {"who": env.customer_text(customer), "kind": kind, value_name: value}
    done = lambda: env.state[of.table][record][field] == value
    return Drawn(slots, done, env.for_customer(customer, of.reader, plan))


def report(env: PeopleEnv, rng: random.Random, of: Kinds, *, field: str) -> Drawn:
    """A number of one record, to be logged."""
    customer = env.claim_customer(rng)
    kind, other = rng.sample(of.kinds, 2)

    def plan(who: str) -> list[Step]:
        own = env.owned_by(of.table, who)
        right, wrong = (
            call("log_answer", record=own[name], value=env.state[of.table][own[name]][field]) for name in (kind, other)
        )
        return [Step(right, "right_field", (*slips(wrong), GIVE_UP))]

    record = env.owned_by(of.table, customer)[kind]
    value = env.state[of.table][record][field]
    slots = {"who": env.customer_text(customer), "kind": kind}
    done = lambda: env.state["answers"].get(record) == value
    return Drawn(slots, done, env.for_customer(customer, of.reader, plan))
