"""Banking: customers with accounts, cards and payments."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from spade_agentic import ToolError, tool

from ..kit import register_domain
from ..people import PeopleEnv
from ..pools import SHOPS

__all__ = ["ACCOUNT_KINDS", "CARD_KINDS", "Banking"]

ACCOUNT_KINDS = ("checking", "savings")
CARD_KINDS = ("debit", "credit")


@register_domain
class Banking(PeopleEnv):
    """Twelve customers; each has two accounts, two cards and three payments."""

    domain: ClassVar[str] = "banking"
    system: ClassVar[str] = "You work at a bank. Do what is asked, then answer done."
    mend_tool: ClassVar[str] = "renew_session"
    belongings: ClassVar[tuple[str, ...]] = ("accounts", "cards", "payments")

    def add_belongings(self, rng: random.Random, state: dict[str, Any], customer: str) -> None:
        balances = rng.sample(range(40, 70), 2)
        for kind, balance in zip(rng.sample(ACCOUNT_KINDS, 2), balances, strict=True):
            account = {"customer": customer, "kind": kind, "balance": balance, "open": True}
            state["accounts"][self.belonging_id(kind, customer)] = account
        for kind, limit in zip(rng.sample(CARD_KINDS, 2), rng.sample(range(10, 40), 2), strict=True):
            card = {"customer": customer, "kind": kind, "limit": limit, "status": "active"}
            state["cards"][self.belonging_id(kind, customer)] = card
        for shop in rng.sample(SHOPS, 3):
            payment = {"customer": customer, "shop": shop, "amount": rng.randint(11, 99), "status": "booked"}
            state["payments"][self.belonging_id(shop, customer)] = payment

    # -- reading

    @tool
    def list_accounts(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's accounts."""
        self.record("customers", customer)
        accounts = self.owned("accounts", customer).items()
        return [{"id": key, "balance": item["balance"]} for key, item in accounts if item["open"]]

    @tool
    def list_cards(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's cards."""
        return self.listing("cards", customer, "limit", "status")

    @tool
    def list_payments(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's card payments."""
        return self.listing("payments", customer, "amount")

    # -- money

    def _open_account(self, account: str) -> dict[str, Any]:
        found = self.record("accounts", account)
        if not found["open"]:
            raise ToolError("account is closed")
        return found

    def _transfer(self, source: dict[str, Any], target: dict[str, Any], amount: int) -> str:
        if amount <= 0:
            raise ToolError("amount must be positive")
        if source["balance"] < amount:
            raise ToolError(f"short by {amount - source['balance']}")
        source["balance"] -= amount
        target["balance"] += amount
        return "ok"

    @tool
    def move_money(self, source: str, amount: int, target: str) -> str:
        """Move money between one customer's accounts."""
        first, second = self._open_account(source), self._open_account(target)
        if source == target or first["customer"] != second["customer"]:
            raise ToolError("needs two accounts of one customer")
        return self._transfer(first, second, amount)

    @tool
    def pay_customer(self, source: str, customer: str, amount: int) -> str:
        """Pay another customer from an account."""
        first = self._open_account(source)
        self.record("customers", customer)
        if first["customer"] == customer:
            raise ToolError("needs another customer")
        return self._transfer(first, self.record("accounts", self.owned_by("accounts", customer)["checking"]), amount)

    @tool
    def close_account(self, account: str) -> str:
        """Close an account; it must be empty."""
        found = self._open_account(account)
        if found["balance"]:
            raise self.breach("account not empty")
        found["open"] = False
        return "ok"

    # -- cards

    @tool
    def freeze_card(self, card: str) -> str:
        """Stop a card for a while."""
        found = self.record("cards", card)
        if found["status"] != "active":
            raise ToolError("card is not active")
        found["status"] = "frozen"
        return "ok"

    @tool
    def cancel_card(self, card: str) -> str:
        """End a card for good."""
        found = self.record("cards", card)
        if found["status"] == "cancelled":
            raise ToolError("card is cancelled")
        found["status"] = "cancelled"
        return "ok"

    @tool
    def unfreeze_card(self, card: str) -> str:
        """Let a frozen card work again."""
        found = self.record("cards", card)
        if found["status"] != "frozen":
            raise self.breach("card is not frozen")
        found["status"] = "active"
        return "ok"

    @tool
    def replace_card(self, card: str) -> str:
        """Send a new card for a cancelled one."""
        found = self.record("cards", card)
        if found["status"] != "cancelled":
            raise self.breach("card is not cancelled")
        found["status"] = "replaced"
        return "ok"

    @tool
    def verify_customer(self, customer: str) -> str:
        """Check who a customer is."""
        self.record("customers", customer)
        self.checked.add(customer)
        return "ok"

    @tool
    def set_limit(self, card: str, limit: int) -> str:
        """Set a card's limit; customer must be verified."""
        found = self.record("cards", card)
        if found["customer"] not in self.checked:
            raise self.breach("customer not verified")
        if limit <= 0:
            raise ToolError("limit must be positive")
        found["limit"] = limit
        return "ok"

    # -- payments

    def _settle(self, payment: str, status: str) -> str:
        found = self.record("payments", payment)
        if found["status"] != "booked":
            raise ToolError(f"payment is {found['status']}")
        found["status"] = status
        return "ok"

    @tool
    def refund_payment(self, payment: str) -> str:
        """Give a payment back; the shop agrees."""
        return self._settle(payment, "refunded")

    @tool
    def dispute_payment(self, payment: str) -> str:
        """Contest a payment the customer never made."""
        return self._settle(payment, "disputed")

    @tool
    def renew_session(self) -> str:
        """Renew an expired session."""
        return "ok"
