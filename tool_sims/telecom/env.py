"""Telecom: customers with lines, packs, bills and gear."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from spade_agentic import ToolError, tool

from ..kit import register_domain
from ..people import PeopleEnv

__all__ = ["GEAR_KINDS", "LINE_KINDS", "MONTHS", "PACK_KINDS", "Telecom"]

LINE_KINDS = ("mobile", "home")
PACK_KINDS = ("data", "talk")
GEAR_KINDS = ("modem", "antenna")
MONTHS = ("january", "february", "march", "april", "june", "july", "august", "october")


@register_domain
class Telecom(PeopleEnv):
    """Twelve customers; each has two lines, two packs, three bills and two pieces of gear."""

    domain: ClassVar[str] = "telecom"
    system: ClassVar[str] = "You work at a phone company. Do what is asked, then answer done."
    mend_tool: ClassVar[str] = "enter_pin"
    belongings: ClassVar[tuple[str, ...]] = ("lines", "packs", "bills", "gear")

    def add_belongings(self, rng: random.Random, state: dict[str, Any], customer: str) -> None:
        for kind, speed in zip(rng.sample(LINE_KINDS, 2), rng.sample(range(11, 40), 2), strict=True):
            line = {"customer": customer, "kind": kind, "speed": speed, "status": "active", "forward": "", "rests": 0}
            state["lines"][self.belonging_id(kind, customer)] = line
        for kind, left in zip(rng.sample(PACK_KINDS, 2), rng.sample(range(31, 47), 2), strict=True):
            pack = {"customer": customer, "kind": kind, "left": left, "lent": 0}
            state["packs"][self.belonging_id(kind, customer)] = pack
        for month, amount in zip(rng.sample(MONTHS, 3), rng.sample(range(11, 100), 3), strict=True):
            bill = {"customer": customer, "month": month, "amount": amount, "status": "open"}
            state["bills"][self.belonging_id(month, customer)] = bill
        for kind in rng.sample(GEAR_KINDS, 2):
            state["gear"][self.belonging_id(kind, customer)] = {"customer": customer, "kind": kind, "status": "active"}

    # -- reading

    @tool
    def list_lines(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's lines."""
        return self.listing("lines", customer, "speed", "status")

    @tool
    def list_packs(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's packs."""
        return self.listing("packs", customer, "left")

    @tool
    def list_bills(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's bills."""
        return self.listing("bills", customer, "amount", "status")

    @tool
    def list_gear(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's gear."""
        return self.listing("gear", customer, "status")

    # -- lines

    def _active_line(self, line: str) -> dict[str, Any]:
        found = self.record("lines", line)
        if found["status"] != "active":
            raise ToolError(f"line is {found['status']}")
        return found

    def _mend_line(self, line: str, status: str) -> str:
        found = self.record("lines", line)
        if found["status"] != status:
            raise self.breach(f"line is not {status}")
        found["status"] = "active"
        return "ok"

    @tool
    def suspend_line(self, line: str) -> str:
        """Let a line rest for a while."""
        found = self._active_line(line)
        found["status"] = "suspended"
        found["rests"] += 1
        return "ok"

    @tool
    def end_line(self, line: str) -> str:
        """End a line for good."""
        self._active_line(line)["status"] = "ended"
        return "ok"

    @tool
    def resume_line(self, line: str) -> str:
        """Let a suspended line work again."""
        return self._mend_line(line, "suspended")

    @tool
    def repair_line(self, line: str) -> str:
        """Send someone to mend a broken line."""
        return self._mend_line(line, "broken")

    @tool
    def release_line(self, line: str) -> str:
        """Take the lock off a locked line."""
        return self._mend_line(line, "locked")

    @tool
    def port_line(self, line: str) -> str:
        """Hand a line over; it must be active."""
        found = self.record("lines", line)
        if found["status"] == "locked":
            raise self.breach("line is locked")
        self._active_line(line)["status"] = "ported"
        return "ok"

    @tool
    def forward_line(self, source: str, target: str) -> str:
        """Send a line's calls to another line."""
        first, second = self._active_line(source), self._active_line(target)
        if source == target or first["customer"] != second["customer"]:
            raise ToolError("needs two lines of one customer")
        first["forward"] = target
        return "ok"

    @tool
    def check_coverage(self, customer: str) -> str:
        """Check the network at a customer's place."""
        self.record("customers", customer)
        self.checked.add(customer)
        return "ok"

    @tool
    def set_speed(self, line: str, speed: int) -> str:
        """Set a line's speed; coverage must be checked."""
        found = self._active_line(line)
        if found["customer"] not in self.checked:
            raise self.breach("coverage not checked")
        if speed <= 0:
            raise ToolError("speed must be positive")
        found["speed"] = speed
        return "ok"

    # -- packs

    def _hand_units(self, pack: str, amount: int, customer: str) -> dict[str, Any]:
        found = self.record("packs", pack)
        self.record("customers", customer)
        if found["customer"] == customer:
            raise ToolError("needs another customer")
        if amount <= 0:
            raise ToolError("amount must be positive")
        if found["left"] < amount:
            raise ToolError(f"short by {amount - found['left']}")
        found["left"] -= amount
        self.record("packs", self.owned_by("packs", customer)[found["kind"]])["left"] += amount
        return found

    @tool
    def give_units(self, pack: str, amount: int, customer: str) -> str:
        """Give another customer units of a pack."""
        self._hand_units(pack, amount, customer)
        return "ok"

    @tool
    def lend_units(self, pack: str, amount: int, customer: str) -> str:
        """Lend another customer units; they come back."""
        self._hand_units(pack, amount, customer)["lent"] += amount
        return "ok"

    @tool
    def add_units(self, pack: str, amount: int) -> str:
        """Add new units to a pack."""
        found = self.record("packs", pack)
        if amount <= 0:
            raise ToolError("amount must be positive")
        found["left"] += amount
        return "ok"

    # -- bills and gear

    def _open_bill(self, bill: str) -> dict[str, Any]:
        found = self.record("bills", bill)
        if found["status"] == "paid":
            raise self.breach("bill is paid")
        if found["status"] != "open":
            raise ToolError(f"bill is {found['status']}")
        return found

    @tool
    def waive_bill(self, bill: str) -> str:
        """Drop an open bill; nothing is to pay."""
        self._open_bill(bill)["status"] = "waived"
        return "ok"

    @tool
    def delay_bill(self, bill: str) -> str:
        """Give more time for an open bill."""
        self._open_bill(bill)["status"] = "delayed"
        return "ok"

    @tool
    def repay_bill(self, bill: str) -> str:
        """Give the money of a paid bill back."""
        found = self.record("bills", bill)
        if found["status"] != "paid":
            raise self.breach("bill is not paid")
        found["status"] = "repaid"
        return "ok"

    def _settle_gear(self, gear: str, status: str) -> str:
        found = self.record("gear", gear)
        if found["status"] != "active":
            raise ToolError(f"gear is {found['status']}")
        found["status"] = status
        return "ok"

    @tool
    def reset_gear(self, gear: str) -> str:
        """Start gear anew; the customer keeps it."""
        return self._settle_gear(gear, "reset")

    @tool
    def swap_gear(self, gear: str) -> str:
        """Send new gear for the old one."""
        return self._settle_gear(gear, "swapped")

    @tool
    def enter_pin(self) -> str:
        """Enter the pin after a session expired."""
        return "ok"
