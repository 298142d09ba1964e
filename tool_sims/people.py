"""What every domain with customers shares: names, a search that returns namesakes, and records that belong to someone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from spade_agentic import ToolCall, ToolError, tool

from .kit import Alternative, SimEnv, Step, call
from .pools import FIRST_NAMES, LAST_NAMES

__all__ = ["PeopleEnv"]

NAMESAKES = (3, 3, 2, 2, 2)
"""Customers per last name."""


class PeopleEnv(SimEnv):
    """Twelve customers, found by name among namesakes.

    A domain sets ``belongings``, whose records have a field ``customer``, and writes :meth:`add_belongings`.
    Ids say what a record is: customer ``Rosa57`` has that first name, and ``Savings57`` belongs to her.
    """

    belongings: ClassVar[tuple[str, ...]]
    """The tables of what customers have."""
    look_up_tool: ClassVar[str] = "find_customer"
    look_up_hint: ClassVar[str] = "find_customer by name; take the hit with the right first name."

    def add_belongings(self, rng: random.Random, state: dict[str, Any], customer: str) -> None:
        """Add the records of one customer to the tables of ``state``."""
        raise NotImplementedError

    @staticmethod
    def belonging_id(kind: str, customer: str) -> str:
        """The id of the one record of this kind that belongs to a customer."""
        return f"{kind.capitalize()}{''.join(filter(str.isdigit, customer))}"

    def seed_records(self, rng: random.Random) -> dict[str, Any]:
        state: dict[str, Any] = {"customers": {}, **{table: {} for table in self.belongings}, "answers": {}}
        for last, count in zip(rng.sample(LAST_NAMES, len(NAMESAKES)), NAMESAKES, strict=True):
            for first in rng.sample(FIRST_NAMES, count):
                customer = self.new_id(first)
                state["customers"][customer] = {"name": f"{first} {last}"}
                self.add_belongings(rng, state, customer)
        return state

    # -- reading

    def owned(self, table: str, customer: str) -> dict[str, dict[str, Any]]:
        """The records of one customer, by id, in a fixed order."""
        return {key: item for key, item in self.state[table].items() if item["customer"] == customer}

    def owned_by(self, table: str, customer: str, field: str = "kind") -> dict[str, str]:
        """Ids of one customer's records by one of their fields."""
        return {item[field]: key for key, item in self.owned(table, customer).items()}

    def chosen_first(self, table: str, customer: str, chosen: str) -> list[str]:
        """Ids of one customer's records, ``chosen`` first; whoever looks at the wrong customer takes the first of the list."""
        return sorted(self.owned(table, customer), key=lambda key: key != chosen)

    def listing(self, table: str, customer: str, *fields: str) -> list[dict[str, Any]]:
        """What a tool shows of one customer's records: ids and these fields. Raises :class:`ToolError` for no customer."""
        self.record("customers", customer)
        return [{"id": key, **{name: item[name] for name in fields}} for key, item in self.owned(table, customer).items()]

    @tool
    def find_customer(self, customer: str) -> list[dict[str, Any]]:
        """Search customers by name."""
        last = customer.split()[-1:]
        hits = [(key, item["name"]) for key, item in self.state["customers"].items() if item["name"].split()[-1:] == last]
        return [{"id": key, "name": name} for key, name in hits[:3]]

    @tool
    def log_answer(self, record: str, value: int) -> str:
        """Log the number that was asked for."""
        if not any(record in self.state[table] for table in self.belongings):
            raise ToolError("no such record")
        self.state["answers"][record] = value
        return "ok"

    # -- for goals

    def claim_customer(self, rng: random.Random) -> str:
        """A customer whom no other goal of this chain touches."""
        return self.claim(rng, list(self.state["customers"]))

    def customer_text(self, customer: str) -> str:
        """How an instruction names a customer: by id, or by name where ids are hidden."""
        return f"customer {self.state['customers'][customer]['name'] if self.mods.hide_id else customer}"

    def for_customer(self, customer: str, reader: str, plan: Callable[[str], Sequence[Step]]) -> list[Step]:
        """Find the customer if need be, read their records with the tool ``reader``, then do ``plan(customer)``.

        Acting on a namesake is the alternative: an agent that reads the wrong customer's records goes on with them.
        """
        rest = list(plan(customer))
        if not self.mods.hide_id:
            return [Step(call(reader, customer=customer)), *rest]
        name = self.state["customers"][customer]["name"]
        hits = [item["id"] for item in self.find_customer(name)]
        wrong = tuple(
            Alternative(call(reader, customer=other), tuple(plan(other))) for other in hits if other != customer
        )
        careless: ToolCall = call(reader, customer=name)
        return [
            Step(call("find_customer", customer=name), "look_up_first", (Alternative(careless, "again"),)),
            Step(call(reader, customer=customer), "pick_among_hits", wrong),
            *rest,
        ]
