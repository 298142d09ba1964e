"""The blueprint grammar: what is a blueprint, what it means, and why a text is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from spade_agentic import Skill
from spade_agentic_plugins.blueprint import DEFAULT_DOMAINS, Blueprint, BlueprintError, compile_blueprint, parse_blueprint
from spade_agentic_plugins.blueprint.grammar import MAX_DISTRACT, MAX_TURNS
from spade_agentic_sims.kit import Mods, chain_skills, default_turns, get_domain, needed_tools

PLAIN = "domain: banking\nskill: tool_selection\ngoals: freeze_card"


@st.composite
def blueprints(draw: st.DrawFn) -> Blueprint:
    domain = draw(st.sampled_from(DEFAULT_DOMAINS))
    names = sorted(get_domain(domain).goal_kinds)
    goals = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
    hide_id = draw(st.booleans())
    tools = sorted(needed_tools(get_domain(domain), goals, Mods(hide_id=hide_id)))
    fault = draw(st.none() | st.sampled_from(tools))
    mods = Mods(
        hide_id=hide_id,
        hide_secret=draw(st.booleans()),
        fault=fault,
        fault_always=fault is not None and draw(st.booleans()),
        distract=draw(st.integers(0, MAX_DISTRACT)),
        turns=draw(st.none() | st.integers(1, MAX_TURNS)),
        leak=draw(st.booleans()),
    )
    skill = draw(st.sampled_from(sorted(chain_skills(domain, goals, mods))))
    return Blueprint(domain, skill, goals, mods)


@given(blueprints())
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read_back(blueprint: Blueprint) -> None:
    assert parse_blueprint(blueprint.text()) == blueprint


@given(blueprints(), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=150, deadline=None)
def test_order_of_keys_and_spaces_mean_nothing(blueprint: Blueprint, random, spaced: bool) -> None:
    lines = blueprint.lines()
    random.shuffle(lines)
    if spaced:
        lines = [f"  {line.replace(': ', ' :   ').replace(',', ' ,')}  " for line in lines]
    again = parse_blueprint("\n" + "\n".join(lines) + "\n")
    assert again == blueprint
    assert compile_blueprint(again).canonical_hash == compile_blueprint(blueprint).canonical_hash


@given(blueprints())
@settings(max_examples=80, deadline=None)
def test_a_program_carries_its_blueprint(blueprint: Blueprint) -> None:
    program = compile_blueprint(blueprint)
    assert parse_blueprint(program.origin["blueprint"]) == blueprint
    assert program.skill == blueprint.skill
    assert (program.origin["domain"], program.origin["goals"]) == (blueprint.domain, list(blueprint.goals))
    compile(program.source, "world", "exec")


@given(st.text(max_size=700))
@settings(max_examples=200, deadline=None)
def test_any_other_text_is_refused_with_a_code_and_never_crashes(text: str) -> None:
    with pytest.raises(BlueprintError) as caught:
        parse_blueprint(text)
    assert caught.value.code.isidentifier()


@given(blueprints(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_blueprint_is_a_blueprint_or_is_refused(blueprint: Blueprint, data: st.DataObject) -> None:
    text = blueprint.text()
    cut = data.draw(st.integers(0, len(text)))
    damaged = text[:cut] + data.draw(st.text(max_size=3)) + text[cut + data.draw(st.integers(0, 9)) :]
    try:
        found = parse_blueprint(damaged)
    except BlueprintError:
        return
    assert parse_blueprint(found.text()) == found


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "malformed"),
        ("   \n ", "malformed"),
        (PLAIN + "\n" + "#" * 600, "malformed"),
        ("Sure, here is a world!", "malformed"),
        (PLAIN + "\nhide", "malformed"),
        (PLAIN + "\nhide:", "malformed"),
        (PLAIN + "\nhide: names", "malformed"),
        (PLAIN + "\nhide: id, id", "malformed"),
        (PLAIN + "\ndistract: two", "malformed"),
        (PLAIN + "\nturns: -3", "malformed"),
        (PLAIN + "\nturns: ²", "malformed"),
        (PLAIN + "\nleak: maybe", "malformed"),
        (PLAIN + "\nfault: freeze_card sometimes", "malformed"),
        (PLAIN + "\ncolour: red", "unknown_key"),
        (PLAIN + "\ngoals: freeze_card", "repeated_key"),
        ("domain: banking\nskill: tool_selection", "missing_key"),
        (PLAIN.replace("banking", "gardening"), "unknown_domain"),
        (PLAIN.replace("banking", "kit"), "unknown_domain"),
        (PLAIN.replace("banking", "smart_home"), "reserved_domain"),
        ("domain: smart_home\nskill: tool_selection\ngoals: set_heat", "reserved_domain"),
        (PLAIN.replace("tool_selection", "flying"), "unknown_skill"),
        (PLAIN.replace("freeze_card", "rob_bank"), "unknown_goal"),
        (PLAIN + ",", "unknown_goal"),
        (PLAIN + ", freeze_card" * 3, "too_many_goals"),
        (PLAIN + "\nfault: hammer", "unknown_tool"),
        (PLAIN + "\nfault: renew_session", "unknown_tool"),
        (PLAIN + "\nfault: move_money", "unused_fault"),
        (PLAIN + "\nfault: find_customer", "unused_fault"),
        (PLAIN + "\ndistract: 5", "out_of_range"),
        (PLAIN + "\nturns: 0", "out_of_range"),
        (PLAIN + "\nturns: 33", "out_of_range"),
        (PLAIN + "\nturns: 99999", "out_of_range"),
        (PLAIN.replace("tool_selection", "error_recovery"), "skill_not_trained"),
    ],
)
def test_every_fault_of_a_text_has_its_code(text: str, code: str) -> None:
    with pytest.raises(BlueprintError) as caught:
        parse_blueprint(text)
    assert caught.value.code == code
    assert caught.value.detail


def test_a_modifier_makes_a_skill_trained() -> None:
    text = PLAIN.replace("tool_selection", "error_recovery") + "\nfault: list_cards"
    assert parse_blueprint(text).skill is Skill.ERROR_RECOVERY


# --- equal worlds --------------------------------------------------------------------------------------------------------


def canonical(text: str) -> str:
    return compile_blueprint(parse_blueprint(text)).canonical_hash


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PLAIN, PLAIN + "\nleak: no"),
        (PLAIN, PLAIN + "\ndistract: 0"),
        (PLAIN, PLAIN.replace("tool_selection", "state_modification")),
        (PLAIN + "\nhide: id, secret", PLAIN + "\nhide: secret, id"),
        (PLAIN + "\nturns: 9", PLAIN + "\nturns: 09"),
        (PLAIN, f"{PLAIN}\nturns: {default_turns('banking', ['freeze_card'], Mods())}"),
    ],
)
def test_equivalent_blueprints_have_one_canonical_hash(first: str, second: str) -> None:
    assert canonical(first) == canonical(second)


@pytest.mark.parametrize(
    "change",
    [
        "\nhide: id", "\nhide: secret", "\nfault: list_cards", "\nfault: list_cards always", "\ndistract: 1", "\nturns: 9",
        "\nleak: yes", ", freeze_card", ", cancel_card",
    ],
)  # fmt: skip
def test_different_worlds_have_different_hashes(change: str) -> None:
    assert canonical(PLAIN) != canonical(PLAIN + change)
    assert canonical(PLAIN + ", cancel_card") != canonical(PLAIN.replace("freeze_card", "cancel_card, freeze_card"))


def test_distractors_without_room_make_no_new_world() -> None:
    full = "domain: banking\nskill: tool_selection\ngoals: pay_person, freeze_card, revive_card"
    shown = [compile_blueprint(parse_blueprint(f"{full}\ndistract: {count}")) for count in (1, 2, 3, 4)]
    room = 8 - len(needed_tools(get_domain("banking"), ("pay_person", "freeze_card", "revive_card"), Mods()))
    assert room == 0
    assert len({program.canonical_hash for program in shown}) == 1
    assert shown[0].canonical_hash == canonical(full)
