"""The blueprint designer: what it asks the policy, and what becomes of the answer."""

from __future__ import annotations

import pytest

from spade_agentic import DesignRequest, FinishReason, MemoryEntry, PluginManager, RunConfig, Skill
from spade_agentic.hooks.manager import BuildContext
from spade_agentic.testing import Scripted, ScriptedPolicy, check_designer
from spade_agentic_plugins.blueprint import (
    DEFAULT_DOMAINS,
    BlueprintDesigner,
    BlueprintOptions,
    offer_for,
    prompt_messages,
    read_blueprint,
)
from spade_agentic_sims.kit import Mods, chain_skills, get_domain

PLAIN = "domain: banking\nskill: tool_selection\ngoals: freeze_card"


def request(seed: int = 1, skill: Skill = Skill.TOOL_SELECTION, **fields) -> DesignRequest:
    return DesignRequest("d1", skill, round_index=2, slot=3, attempt=1, seed=seed, **fields)


def entry(source: str, win_rate: float | None, *, admitted: bool = True) -> MemoryEntry:
    return MemoryEntry("m", Skill.TOOL_SELECTION, source, win_rate, 0.2, admitted, 1)


async def test_a_blueprint_becomes_a_program_with_all_that_was_asked() -> None:
    policy = ScriptedPolicy([PLAIN])
    draft = await BlueprintDesigner().design(request(), policy)
    assert draft.refusal is None
    assert draft.program is not None
    assert draft.program.origin["goals"] == ["freeze_card"]
    assert (draft.draft_id, draft.round_index, draft.slot, draft.attempt) == ("d1", 2, 3, 1)
    assert draft.trajectory is policy.trajectory
    assert draft.text == PLAIN


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("no idea", "malformed"),
        (PLAIN.replace("freeze_card", "fly"), "unknown_goal"),
        ("domain: banking\nskill: state_modification\ngoals: freeze_card", "skill_mismatch"),
        (Scripted(PLAIN, FinishReason.LENGTH), "truncated"),
        (Scripted(PLAIN, FinishReason.ABORT), "truncated"),
    ],
)
async def test_a_bad_answer_is_a_refused_draft_with_its_tokens(answer, code: str) -> None:
    policy = ScriptedPolicy([answer])
    draft = await BlueprintDesigner().design(request(), policy)
    assert draft.program is None
    assert draft.refusal is not None
    assert (draft.refusal.gate, draft.refusal.code) == ("blueprint", code)
    assert draft.trajectory is policy.trajectory
    assert draft.trajectory.sampled_tokens > 0


async def test_a_domain_that_the_run_does_not_have_is_refused() -> None:
    draft = await BlueprintDesigner(("support",)).design(request(), ScriptedPolicy([PLAIN]))
    assert draft.refusal is not None
    assert draft.refusal.code == "unknown_domain"


def test_the_designer_keeps_the_contract() -> None:
    check_designer(lambda folder: BlueprintDesigner())


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"\n{PLAIN}\n",
        f"<think>hide: id might be hard</think>{PLAIN}",
        f"Here it is:\n```\n{PLAIN}\n```\nGood luck!",
        f"```yaml\nold: one\n```\n```yaml\n{PLAIN}\n```",
    ],
)
def test_the_blueprint_is_found_within_a_completion(text: str) -> None:
    assert read_blueprint(text) == PLAIN


def test_domains_are_the_runs_unless_options_name_them(manager: PluginManager) -> None:
    factory = manager.factories("env_designer")["blueprint"]
    context = BuildContext(run_dir=None, run_seed=0, config=RunConfig(), manager=manager)
    assert factory.build(BlueprintOptions(), context).domains == tuple(ref.name for ref in RunConfig().tool_sims)
    assert factory.build(BlueprintOptions(domains=("support",)), context).domains == ("support",)


# --- the prompt ----------------------------------------------------------------------------------------------------------


def test_an_offer_depends_on_the_seed_alone_and_differs_between_seeds() -> None:
    offers = [offer_for(request(seed)) for seed in range(40)]
    assert offers == [offer_for(request(seed)) for seed in range(40)]
    assert {offer.domain for offer in offers} == set(DEFAULT_DOMAINS)
    assert len(set(offers)) > 30


@pytest.mark.parametrize("skill", list(Skill))
def test_an_offer_has_goals_that_train_the_skill(skill: Skill) -> None:
    for seed in range(20):
        offer = offer_for(request(seed, skill))
        assert len(set(offer.goals)) == len(offer.goals) == 8
        assert any(skill in chain_skills(offer.domain, [name], Mods()) for name in offer.goals)
        assert set(offer.goals) <= set(get_domain(offer.domain).goal_kinds)


def test_the_prompt_lists_the_goals_with_their_tools() -> None:
    system, user = prompt_messages(request(3))
    offer = offer_for(request(3))
    assert (system["role"], user["role"]) == ("system", "user")
    assert f"domain: {offer.domain}\nskill: tool_selection\n" in user["content"]
    for name in offer.goals:
        assert f"{name}: {', '.join(get_domain(offer.domain).goal_kinds[name].tools)}" in user["content"]
    assert len(system["content"]) + len(user["content"]) < 1_600


@pytest.mark.parametrize(
    ("rate", "verdict"), [(None, "refused"), (0.0, "too hard"), (0.1, "too hard"), (0.5, "good"), (0.9, "too easy")]
)
def test_what_was_remembered_is_told_with_how_it_went(rate: float | None, verdict: str) -> None:
    _, user = prompt_messages(request(3, seeds=(entry(PLAIN + "\nhide: id", rate),)))
    assert user["content"].endswith(f"{verdict}: domain: banking; goals: freeze_card; hide: id")


def test_the_counter_example_and_the_document_are_told_too() -> None:
    fields = {"counter_example": entry(PLAIN, 0.0), "document": "word " * 100}
    _, user = prompt_messages(request(3, **fields))
    assert "too hard: domain: banking; goals: freeze_card" in user["content"]
    assert user["content"].count("word") == 40


def test_what_never_was_a_blueprint_is_not_repeated() -> None:
    _, user = prompt_messages(request(3, seeds=(entry("class World: ...", None, admitted=False),)))
    assert "World" not in user["content"]
