"""Banking's kinds of goal."""

from __future__ import annotations

import random

from spade_agentic import Skill

from ..kit import ANSWER, GIVE_UP, Alternative, Drawn, Step, call, slips
from ..patterns import Kinds, after_check, choose_tool, do_to_all, report, revive
from .env import ACCOUNT_KINDS, CARD_KINDS, Banking

ACCOUNTS = Kinds("accounts", "account", ACCOUNT_KINDS)
CARDS = Kinds("cards", "card", CARD_KINDS)


def _balances(env: Banking, **expected: int) -> bool:
    return all(env.state["accounts"][key]["balance"] == value for key, value in expected.items())


# --- money -------------------------------------------------------------------------------------------------------------


@Banking.goal(
    skills=(Skill.STATE_MODIFICATION,), tools=("list_accounts", "move_money"), calls=2, vague=("amount", "the agreed sum"),
    hint="list_accounts, then move_money: source is where the money is taken from, target where it goes.",
    phrasings=(
        "Move {amount} from {source} to {target} for {who}.",
        "For {who}, put {amount} into {target}, taken from {source}.",
        "{who} wants {target} to get {amount} out of {source}.",
        "Take {amount} out of {source} and add it to {target} for {who}.",
    ),
)
def move_own(env: Banking, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    source, target = rng.sample(ACCOUNT_KINDS, 2)
    amount = rng.randint(11, 39)

    def plan(who: str) -> list[Step]:
        ids = env.owned_by("accounts", who)
        right = call("move_money", source=ids[source], amount=amount, target=ids[target])
        return [Step(right, "argument_role", slips(call("move_money", source=ids[target], amount=amount, target=ids[source])))]

    ids = env.owned_by("accounts", customer)
    after = {key: env.state["accounts"][key]["balance"] + sign * amount for key, sign in ((ids[source], -1), (ids[target], 1))}
    slots = {"who": env.customer_text(customer), "source": source, "target": target, "amount": amount}
    return Drawn(slots, lambda: _balances(env, **after), env.for_customer(customer, "list_accounts", plan))


@Banking.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.TOOL_SELECTION), tools=("list_accounts", "pay_customer", "move_money"), calls=2,
    vague=("amount", "the agreed sum"),
    hint="list_accounts, then pay_customer from the account of the kind that is named.",
    phrasings=(
        "Pay {amount} to customer {payee} from the {source} of {who}.",
        "{who} owes customer {payee} {amount}; pay it from {source}.",
        "Customer {payee} shall get {amount} from the {source} of {who}.",
        "Send {amount} from the {source} of {who} to customer {payee}.",
    ),
)
def pay_person(env: Banking, rng: random.Random) -> Drawn:
    customer, payee = env.claim_customer(rng), env.claim_customer(rng)
    source, other = rng.sample(ACCOUNT_KINDS, 2)
    amount = rng.randint(11, 39)

    def plan(who: str) -> list[Step]:
        ids = env.owned_by("accounts", who)
        wrong = (
            call("move_money", source=ids[source], amount=amount, target=ids[other]),
            call("pay_customer", source=ids[other], customer=payee, amount=amount),
        )
        return [Step(call("pay_customer", source=ids[source], customer=payee, amount=amount), "near_synonym", slips(*wrong))]

    paying = env.owned_by("accounts", customer)[source]
    after = {paying: env.state["accounts"][paying]["balance"] - amount}
    slots = {"who": env.customer_text(customer), "payee": payee, "source": source, "amount": amount}
    return Drawn(slots, lambda: _balances(env, **after), env.for_customer(customer, "list_accounts", plan))


@Banking.goal(
    skills=(Skill.ERROR_RECOVERY, Skill.API_ORCHESTRATION), tools=("list_accounts", "pay_customer", "move_money"), calls=4,
    vague=("amount", "the agreed sum"),
    hint=(
        "list_accounts, pay_customer from the account that is named; "
        "it is short: move_money into it by what is short, then pay."
    ),
    phrasings=(
        "Pay {amount} to customer {payee} from the {source} of {who}; fill it from {other} if short.",
        "{who} owes customer {payee} {amount}: pay from {source}, fill from {other} if short.",
        "From the {source} of {who} pay customer {payee} {amount}. If short, fill from {other}.",
        "Customer {payee} shall get {amount} from the {source} of {who}; if short use {other} to fill it.",
    ),
)
def top_up_pay(env: Banking, rng: random.Random) -> Drawn:
    customer, payee = env.claim_customer(rng), env.claim_customer(rng)
    source, other = rng.sample(ACCOUNT_KINDS, 2)
    short = rng.randint(11, 29)
    ids = env.owned_by("accounts", customer)
    amount = env.state["accounts"][ids[source]]["balance"] + short

    def plan(who: str) -> list[Step]:
        own = env.owned_by("accounts", who)
        pay = call("pay_customer", source=own[source], customer=payee, amount=amount)
        if who != customer:
            return [Step(pay)]
        elsewhere = call("pay_customer", source=own[other], customer=payee, amount=short)
        swapped = call("move_money", source=own[source], amount=short, target=own[other])
        eager = call("move_money", source=own[other], amount=amount, target=own[source])
        return [
            Step(pay, "account_kind", (Alternative(eager, "again"),)),
            Step(
                call("move_money", source=own[other], amount=short, target=own[source]), "recover",
                (Alternative(pay, "again"), GIVE_UP, *slips(swapped), Alternative(elsewhere, (Step(ANSWER),))),
            ),
            Step(pay, "go_on", (GIVE_UP,)),
        ]  # fmt: skip

    after = {ids[source]: 0, ids[other]: env.state["accounts"][ids[other]]["balance"] - short}
    slots = {"who": env.customer_text(customer), "payee": payee, "source": source, "other": other, "amount": amount}
    return Drawn(slots, lambda: _balances(env, **after), env.for_customer(customer, "list_accounts", plan))


@Banking.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.STATE_MODIFICATION), tools=("list_accounts", "move_money"), calls=2,
    vague=("source", "the agreed account"),
    hint="list_accounts, then move_money with the whole balance of the source, read from the list.",
    phrasings=(
        "Move everything from {source} to {target} for {who}.",
        "Empty the {source} of {who} into {target}.",
        "For {who}, put all that is in {source} into {target}.",
        "{who} wants {target} to get the whole {source}.",
    ),
)
def sweep(env: Banking, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    source, target = rng.sample(ACCOUNT_KINDS, 2)

    def plan(who: str) -> list[Step]:
        own = env.owned_by("accounts", who)
        first, second = (env.state["accounts"][own[kind]]["balance"] for kind in (source, target))
        wrong = (
            call("move_money", source=own[target], amount=second, target=own[source]),
            call("move_money", source=own[target], amount=first, target=own[source]),
            call("move_money", source=own[source], amount=second, target=own[target]),
        )
        return [Step(call("move_money", source=own[source], amount=first, target=own[target]), "right_field", slips(*wrong))]

    ids = env.owned_by("accounts", customer)
    slots = {"who": env.customer_text(customer), "source": source, "target": target}
    return Drawn(slots, lambda: _balances(env, **{ids[source]: 0}), env.for_customer(customer, "list_accounts", plan))


@Banking.goal(
    skills=(Skill.API_ORCHESTRATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_accounts", "move_money", "close_account"),
    calls=3, vague=("kind", "agreed"),
    hint="list_accounts; if the account is not empty move_money all of it to the other one; then close_account.",
    phrasings=(
        "Close the {kind} account of {who}.",
        "{who} needs no {kind} account any more; close it.",
        "For {who}, shut the {kind} account.",
        "The {kind} account of {who} must be closed.",
    ),
)
def close_account(env: Banking, rng: random.Random) -> Drawn:
    customer = env.claim_customer(rng)
    kind, other = rng.sample(ACCOUNT_KINDS, 2)
    ids = env.owned_by("accounts", customer)
    if rng.random() < 0.35:
        env.state["accounts"][ids[kind]]["balance"] = 0

    def plan(who: str) -> list[Step]:
        own = env.owned_by("accounts", who)
        balance, left = (env.state["accounts"][own[name]]["balance"] for name in (kind, other))
        close = call("close_account", account=own[kind])
        emptied = call("move_money", source=own[kind], amount=balance, target=own[other])
        wrong_way = call("move_money", source=own[other], amount=left, target=own[kind])
        wrong = Alternative(call("close_account", account=own[other]))
        if not balance:
            return [Step(close, "precondition", (Alternative(wrong_way, "again"), wrong))]
        return [
            Step(emptied, "precondition", (Alternative(close, "again"), Alternative(wrong_way, "again"))),
            Step(close, "go_on", (GIVE_UP, wrong)),
        ]

    def done() -> bool:
        return not env.state["accounts"][ids[kind]]["open"]

    slots = {"who": env.customer_text(customer), "kind": kind}
    return Drawn(slots, done, env.for_customer(customer, "list_accounts", plan))


# --- cards -------------------------------------------------------------------------------------------------------------


@Banking.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_cards", "freeze_card", "cancel_card"), calls=2,
    vague=("kind", "agreed"),
    hint="list_cards, then freeze_card on the card of the kind that is named.",
    phrasings=(
        "Pause the {kind} card of {who}.",
        "{who} mislaid the {kind} card; stop it until it is found.",
        "Stop the {kind} card of {who} for a while.",
        "{who} travels; hold the {kind} card until the return.",
    ),
)
def freeze_card(env: Banking, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, CARDS, right="freeze_card", wrong="cancel_card", status="frozen")


@Banking.goal(
    skills=(Skill.TOOL_SELECTION, Skill.STATE_MODIFICATION), tools=("list_cards", "freeze_card", "cancel_card"), calls=2,
    vague=("kind", "agreed"),
    hint="list_cards, then cancel_card on the card of the kind that is named.",
    phrasings=(
        "End the {kind} card of {who} for good.",
        "The {kind} card of {who} was stolen; it must never work again.",
        "{who} gives up the {kind} card for ever.",
        "Stop the {kind} card of {who} for good.",
    ),
)
def cancel_card(env: Banking, rng: random.Random) -> Drawn:
    return choose_tool(env, rng, CARDS, right="cancel_card", wrong="freeze_card", status="cancelled")


@Banking.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.MULTI_STEP_WORKFLOWS), tools=("list_cards", "freeze_card", "cancel_card"), calls=3,
    vague=("what", "the agreed cards"),
    hint="list_cards, then freeze_card on every card of the list.",
    phrasings=(
        "Pause {what} of {who}.",
        "{who} mislaid {what}; stop them until they are found.",
        "Stop {what} of {who} for a while.",
        "{who} travels; hold {what} until the return.",
    ),
)
def freeze_both(env: Banking, rng: random.Random) -> Drawn:
    return do_to_all(env, rng, CARDS, right="freeze_card", wrong="cancel_card", status="frozen")


@Banking.goal(
    skills=(Skill.STATE_MODIFICATION, Skill.API_ORCHESTRATION), tools=("list_cards", "verify_customer", "set_limit"), calls=3,
    vague=("limit", "the agreed limit"),
    hint="list_cards, verify_customer, then set_limit on the card of the kind that is named.",
    phrasings=(
        "Set the limit of the {kind} card of {who} to {limit}.",
        "{who} wants {limit} as limit of the {kind} card.",
        "Give the {kind} card of {who} a limit of {limit}.",
        "For {who}, change the {kind} card to a limit of {limit}.",
    ),
)
def set_limit(env: Banking, rng: random.Random) -> Drawn:
    return after_check(env, rng, CARDS, check="verify_customer", tool="set_limit", value_name="limit", field="limit")


@Banking.goal(
    skills=(Skill.TOOL_SELECTION, Skill.API_ORCHESTRATION), tools=("list_cards", "unfreeze_card", "replace_card"), calls=2,
    vague=("kind", "agreed"),
    hint="list_cards and read the status of the card: frozen needs unfreeze_card, cancelled needs replace_card.",
    phrasings=(
        "{who} needs a {kind} card that works again.",
        "Make the {kind} card of {who} usable again.",
        "The {kind} card of {who} does not work; mend that.",
        "Get {who} a working {kind} card.",
    ),
)
def revive_card(env: Banking, rng: random.Random) -> Drawn:
    return revive(
        env, rng, CARDS, mended=("active", "replaced"),
        tools={"frozen": ("unfreeze_card", "replace_card"), "cancelled": ("replace_card", "unfreeze_card")},
    )  # fmt: skip


# --- payments and answers -------------------------------------------------------------------------------------------------


def _settle(env: Banking, rng: random.Random, right: str, wrong: str, status: str) -> Drawn:
    customer = env.claim_customer(rng)
    chosen = rng.choice(list(env.owned("payments", customer)))
    shop = env.state["payments"][chosen]["shop"]

    def plan(who: str) -> list[Step]:
        target, *others = env.chosen_first("payments", who, chosen)
        careless = (call(wrong, payment=target), *(call(right, payment=item) for item in others))
        return [Step(call(right, payment=target), "near_synonym", slips(*careless))]

    slots = {"who": env.customer_text(customer), "shop": shop}
    done = lambda: env.state["payments"][chosen]["status"] == status
    return Drawn(slots, done, env.for_customer(customer, "list_payments", plan))


@Banking.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION), tools=("list_payments", "refund_payment", "dispute_payment"), calls=2,
    vague=("shop", "agreed"),
    hint="list_payments, take the one at the shop that is named, refund_payment.",
    phrasings=(
        "Give {who} back the {shop} payment; the shop agrees.",
        "The {shop} agrees that {who} gets the money back.",
        "{who} returned the goods to the {shop}; give the money back.",
        "Refund what {who} paid at the {shop}.",
    ),
)
def refund(env: Banking, rng: random.Random) -> Drawn:
    return _settle(env, rng, "refund_payment", "dispute_payment", "refunded")


@Banking.goal(
    skills=(Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION), tools=("list_payments", "refund_payment", "dispute_payment"), calls=2,
    vague=("shop", "agreed"),
    hint="list_payments, take the one at the shop that is named, dispute_payment.",
    phrasings=(
        "{who} never paid at the {shop}; contest it.",
        "The {shop} payment of {who} is a fraud.",
        "{who} does not know the {shop} payment and contests it.",
        "Someone else made the {shop} payment of {who}.",
    ),
)
def dispute(env: Banking, rng: random.Random) -> Drawn:
    return _settle(env, rng, "dispute_payment", "refund_payment", "disputed")


@Banking.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_accounts", "log_answer"), calls=2, vague=("kind", "agreed"),
    hint="list_accounts, then log_answer with the account of the kind that is named and its balance.",
    phrasings=(
        "How much is in the {kind} account of {who}? Log it.",
        "Log the {kind} balance of {who}.",
        "What {kind} balance has {who}? Log the answer.",
        "{who} asks for the {kind} balance; log it.",
    ),
)
def report_balance(env: Banking, rng: random.Random) -> Drawn:
    return report(env, rng, ACCOUNTS, field="balance")


@Banking.goal(
    skills=(Skill.DATA_RETRIEVAL,), tools=("list_cards", "log_answer"), calls=2, vague=("kind", "agreed"),
    hint="list_cards, then log_answer with the card of the kind that is named and its limit.",
    phrasings=(
        "What is the limit of the {kind} card of {who}? Log it.",
        "Log the {kind} card limit of {who}.",
        "How much may {who} spend with the {kind} card? Log the answer.",
        "{who} asks for the {kind} card limit; log it.",
    ),
)
def report_limit(env: Banking, rng: random.Random) -> Drawn:
    return report(env, rng, CARDS, field="limit")
