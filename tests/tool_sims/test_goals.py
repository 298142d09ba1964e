"""What every kind of goal of every domain must offer, and what the domains hold."""

from __future__ import annotations

import string
from collections import Counter

import pytest
from sim_worlds import DOMAINS, REPORTS, as_text, decisions, follow, tells

from spade_agentic import Skill
from spade_agentic_sims.kit import MAX_TOOLS, Mods, all_tools, build_env, chain_skills, draw_chain, get_domain

KINDS = [(domain, kind) for domain in DOMAINS for kind in sorted(get_domain(domain).goal_kinds)]
each_kind = pytest.mark.parametrize(("domain", "name"), KINDS)
each_domain = pytest.mark.parametrize("domain", DOMAINS)
DECISIONS = {
    "account_kind", "argument_role", "branch", "finish_or_more", "go_on", "look_up_first", "near_synonym", "pick_among_hits",
    "pick_by_field", "precondition", "recover", "right_field",
}  # fmt: skip
"""The kinds of decision that a warm start knows."""


@each_domain
def test_a_domain_has_at_least_eight_tools_and_ten_kinds_of_goal(domain: str) -> None:
    assert len(all_tools(get_domain(domain))) >= 8
    assert len(get_domain(domain).goal_kinds) >= 12


@each_domain
def test_tables_are_of_realistic_size(domain: str) -> None:
    env = build_env(domain, (REPORTS[domain],))
    env.reset(seed=1)
    tables = {name: table for name, table in env.state.items() if isinstance(table, dict) and name != "answers"}
    assert len(tables) >= 4
    assert all(10 <= len(table) <= 50 for table in tables.values())


@each_domain
def test_ids_share_no_digits_within_an_instance(domain: str) -> None:
    env = build_env(domain, (REPORTS[domain],))
    for seed in range(20):
        env.reset(seed=seed)
        ids = [key for name, table in env.state.items() if isinstance(table, dict) for key in table]
        assert len({key[1:] for key in ids}) == len(ids)


@each_domain
def test_names_are_unique_and_last_names_are_not(domain: str) -> None:
    env = build_env(domain, (REPORTS[domain],))
    for seed in range(20):
        env.reset(seed=seed)
        names = [item["name"] for item in env.state["customers"].values()]
        assert len(set(names)) == len(names)
        assert min(Counter(name.split()[-1] for name in names).values()) >= 2


@each_domain
def test_every_skill_is_reachable(domain: str) -> None:
    plain = {skill for name in get_domain(domain).goal_kinds for skill in chain_skills(domain, [name], Mods())}
    assert plain == set(Skill)


@each_domain
@pytest.mark.parametrize("skill", list(Skill))
def test_a_chain_can_be_drawn_for_every_skill_and_length(domain: str, skill: Skill) -> None:
    import random

    for length in (1, 2, 3):
        chain = draw_chain(random.Random(length), domain, length, skill=skill)
        assert skill in chain_skills(domain, chain.goals, chain.mods)


@each_kind
def test_phrasings_are_four_different_ones_with_the_same_slots(domain: str, name: str) -> None:
    kind = get_domain(domain).goal_kinds[name]
    slots = [{field for _, field, _, _ in string.Formatter().parse(text) if field} for text in kind.phrasings]
    assert len(set(kind.phrasings)) == len(kind.phrasings) >= 4
    assert all(found == slots[0] for found in slots)
    assert {"who", kind.vague[0]} <= slots[0]


@each_kind
def test_every_phrasing_is_drawn(domain: str, name: str) -> None:
    kind = get_domain(domain).goal_kinds[name]
    env = build_env(domain, (name,))
    literal = [[part for part, *_ in string.Formatter().parse(text) if part.strip()] for text in kind.phrasings]
    found = set()
    for seed in range(80):
        text = env.reset(seed=seed)[0]
        found |= {
            index for index, parts in enumerate(literal) if all(part.strip().lower() in text.lower() for part in parts)
        }
    assert found == set(range(len(kind.phrasings)))


@each_kind
def test_a_hint_names_the_tools_of_the_solution_in_their_order(domain: str, name: str) -> None:
    kind = get_domain(domain).goal_kinds[name]
    env = build_env(domain, (name,))
    for seed in range(10):
        env.reset(seed=seed)
        calls = [item["name"] for item in env.probe()["solution"][0]]
        assert all(tells(kind.hint, tool) for tool in calls), calls
        places = [kind.hint.index(tool) for tool in dict.fromkeys(calls)]
        assert places == sorted(places)


@each_kind
def test_the_shown_tools_are_those_that_the_kind_lists(domain: str, name: str) -> None:
    kind = get_domain(domain).goal_kinds[name]
    assert build_env(domain, (name,)).exposed_tools() == set(kind.tools)
    assert set(kind.tools) <= set(all_tools(get_domain(domain)))


@each_kind
def test_the_solution_needs_no_more_calls_than_the_kind_says(domain: str, name: str) -> None:
    most = 0
    env = build_env(domain, (name,))
    for seed in range(40):
        env.reset(seed=seed)
        most = max(most, len(env.probe()["solution"][0]))
    assert most == get_domain(domain).goal_kinds[name].calls


@each_kind
def test_there_is_a_decision_and_its_alternatives_differ_from_the_right_action(domain: str, name: str) -> None:
    env = build_env(domain, (name,), Mods(hide_id=True))
    for seed in range(10):
        steps = decisions(env, seed)
        assert {"look_up_first", "pick_among_hits"} <= {step.decision for step in steps}
        assert {step.decision for step in steps} <= DECISIONS
        assert len(steps) >= 4
        for step in steps[:-1]:
            wrong = [as_text(item.action) for item in step.alternatives]
            assert as_text(step.call) not in wrong
            assert len(set(wrong)) == len(wrong)


@each_domain
def test_the_kinds_of_decision_are_many(domain: str) -> None:
    found = set()
    for name in get_domain(domain).goal_kinds:
        for seed in range(4):
            found |= {step.decision for step in decisions(build_env(domain, (name,), Mods(hide_id=True)), seed)}
    assert len(found) >= 10


@each_kind
def test_a_hidden_secret_is_told_nowhere(domain: str, name: str) -> None:
    kind = get_domain(domain).goal_kinds[name]
    env = build_env(domain, (name,), Mods(hide_secret=True))
    for seed in range(5):
        text = env.reset(seed=seed)[0]
        assert kind.vague[1] in text


@each_kind
def test_a_play_is_short(domain: str, name: str) -> None:
    """Prompts must stay small for small models: tools, request and observations of a play, in characters."""
    env = build_env(domain, (name,), Mods(hide_id=True))
    for seed in range(5):
        played = follow(env, seed)
        size = len(played.first) + sum(len(as_text(e.action)) + len(e.observation) for e in played.exchanges)
        assert size < 1_200
        assert all(len(e.observation) < 300 for e in played.exchanges)


@each_domain
def test_distractors_are_the_same_for_every_seed_and_bounded(domain: str) -> None:
    name = sorted(get_domain(domain).goal_kinds)[0]
    plain, more = (build_env(domain, (name,), Mods(distract=count)).exposed_tools() for count in (0, 4))
    assert plain < more
    assert len(more) == min(MAX_TOOLS, len(plain) + 4)
    assert get_domain(domain).mend_tool not in more
    assert more == build_env(domain, (name,), Mods(distract=4)).exposed_tools()
