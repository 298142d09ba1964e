"""Retail: a shop whose customers have items, purses of points and plans."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from spade_agentic import ToolError, tool

from ..kit import register_domain
from ..people import PeopleEnv

__all__ = ["CLOTHES", "PLAN_KINDS", "PURSE_KINDS", "STATUSES", "Retail"]

CLOTHES = ("belt", "boots", "coat", "dress", "gloves", "jacket", "scarf", "shirt", "skirt", "sweater")
PURSE_KINDS = ("gift", "bonus")
PLAN_KINDS = ("coffee", "flower")
STATUSES = ("booked", "packed", "sent", "home")
"""What becomes of an item that the customer keeps, in order."""


@register_domain
class Retail(PeopleEnv):
    """Twelve customers; each has three items, two purses and two plans."""

    domain: ClassVar[str] = "retail"
    system: ClassVar[str] = "You work at a shop. Do what is asked, then answer done."
    mend_tool: ClassVar[str] = "open_till"
    belongings: ClassVar[tuple[str, ...]] = ("items", "purses", "plans")

    def add_belongings(self, rng: random.Random, state: dict[str, Any], customer: str) -> None:
        for name, price in zip(rng.sample(CLOTHES, 3), rng.sample(range(60, 100), 3), strict=True):
            item = {"customer": customer, "name": name, "price": price, "status": rng.choice(STATUSES), "short": 0}
            state["items"][self.belonging_id(name, customer)] = item
        for kind, points in zip(rng.sample(PURSE_KINDS, 2), rng.sample(range(40, 60), 2), strict=True):
            purse = {"customer": customer, "kind": kind, "points": points, "spent": 0, "given": 0}
            state["purses"][self.belonging_id(kind, customer)] = purse
        for kind, boxes in zip(rng.sample(PLAN_KINDS, 2), rng.sample(range(11, 40), 2), strict=True):
            plan = {"customer": customer, "kind": kind, "boxes": boxes, "status": "active"}
            state["plans"][self.belonging_id(kind, customer)] = plan

    # -- reading

    @tool
    def list_items(self, customer: str) -> list[dict[str, Any]]:
        """Show what a customer bought."""
        return self.listing("items", customer, "price", "status")

    @tool
    def list_purses(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's purses of points."""
        return self.listing("purses", customer, "points")

    @tool
    def list_plans(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's plans."""
        return self.listing("plans", customer, "boxes", "status")

    # -- items

    def _settle(self, item: str, before: str, after: str) -> str:
        found = self.record("items", item)
        if found["status"] != before:
            raise ToolError(f"item is {found['status']}")
        found["status"] = after
        return "ok"

    @tool
    def pack_item(self, item: str) -> str:
        """Pack an item that is booked."""
        return self._settle(item, "booked", "packed")

    @tool
    def send_item(self, item: str) -> str:
        """Send an item out; it must be packed."""
        found = self.record("items", item)
        if found["status"] == "booked":
            raise self.breach("item not packed")
        if found["short"]:
            raise ToolError(f"short by {found['short']}")
        return self._settle(item, "packed", "sent")

    @tool
    def add_stamps(self, item: str, count: int) -> str:
        """Add the stamps that an item lacks."""
        found = self.record("items", item)
        if not 0 < count <= found["short"]:
            raise ToolError("not the count that is short")
        found["short"] -= count
        return "ok"

    @tool
    def unpack_item(self, item: str) -> str:
        """Put a packed item back on the shelf."""
        found = self.record("items", item)
        if found["status"] != "packed":
            raise self.breach("item is not packed")
        found["status"] = "shelved"
        return "ok"

    @tool
    def recall_item(self, item: str) -> str:
        """Call an item back that was sent."""
        found = self.record("items", item)
        if found["status"] != "sent":
            raise self.breach("item is not sent")
        found["status"] = "recalled"
        return "ok"

    @tool
    def swap_item(self, item: str) -> str:
        """Take an item back and give another."""
        return self._settle(item, "home", "swapped")

    @tool
    def collect_item(self, item: str) -> str:
        """Take an item back for good."""
        return self._settle(item, "home", "collected")

    @tool
    def check_coupon(self, customer: str) -> str:
        """Check a customer's coupon."""
        self.record("customers", customer)
        self.checked.add(customer)
        return "ok"

    @tool
    def set_price(self, item: str, price: int) -> str:
        """Set an item's price; coupon must be checked."""
        found = self.record("items", item)
        if found["customer"] not in self.checked:
            raise self.breach("coupon not checked")
        if price <= 0:
            raise ToolError("price must be positive")
        found["price"] = price
        return "ok"

    # -- purses

    def _take_points(self, purse: str, amount: int) -> dict[str, Any]:
        found = self.record("purses", purse)
        if amount <= 0:
            raise ToolError("amount must be positive")
        if found["points"] < amount:
            raise ToolError(f"short by {amount - found['points']}")
        found["points"] -= amount
        return found

    @tool
    def shift_points(self, source: str, amount: int, target: str) -> str:
        """Shift points between one customer's purses."""
        first, second = self.record("purses", source), self.record("purses", target)
        if source == target or first["customer"] != second["customer"]:
            raise ToolError("needs two purses of one customer")
        self._take_points(source, amount)
        second["points"] += amount
        return "ok"

    @tool
    def spend_points(self, purse: str, amount: int) -> str:
        """Take points as payment for a purchase."""
        self._take_points(purse, amount)["spent"] += amount
        return "ok"

    @tool
    def donate_points(self, purse: str, amount: int) -> str:
        """Give points away to a good cause."""
        self._take_points(purse, amount)["given"] += amount
        return "ok"

    # -- plans

    @tool
    def pause_plan(self, plan: str) -> str:
        """Stop a plan for a while."""
        found = self.record("plans", plan)
        if found["status"] != "active":
            raise ToolError("plan is not active")
        found["status"] = "paused"
        return "ok"

    @tool
    def end_plan(self, plan: str) -> str:
        """Stop a plan for good."""
        found = self.record("plans", plan)
        if found["status"] == "ended":
            raise ToolError("plan is ended")
        found["status"] = "ended"
        return "ok"

    @tool
    def resume_plan(self, plan: str) -> str:
        """Let a paused plan go on."""
        found = self.record("plans", plan)
        if found["status"] != "paused":
            raise self.breach("plan is not paused")
        found["status"] = "active"
        return "ok"

    @tool
    def restart_plan(self, plan: str) -> str:
        """Start an ended plan anew."""
        found = self.record("plans", plan)
        if found["status"] != "ended":
            raise self.breach("plan is not ended")
        found["status"] = "active"
        return "ok"

    @tool
    def open_till(self) -> str:
        """Open the till after a session expired."""
        return "ok"
