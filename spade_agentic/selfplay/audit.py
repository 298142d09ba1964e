"""The training signal, audited on every batch. A breach is an event with a name (``audit_breach``), and a metric.

:data:`CHECKS` names the checks and says what each of them requires. They look at what the learner was given and at what it
reported; nothing is computed by a model, so they cost little. They are written without the functions that make the batch
(their formulas are repeated here on purpose), so that a fault there does not excuse itself.
"""

from __future__ import annotations

import math
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal

import structlog

from spade_agentic.hooks.kinds import TrainSequence
from spade_agentic.hooks.records import Arm, Draft, Environment, Play, Program, Role, Segment, Trajectory
from spade_agentic.learning.advantages import AGENT_EPS
from spade_agentic.rollout.episode import with_hint
from spade_agentic.rollout.seeding import INSTANCE_SEEDS

from .batch import consumed_plays, owner_of

__all__ = ["CHECKS", "DRIFT_BAND", "LENGTH_BAND", "MISMATCH_TOLERANCE", "RATIO_TOLERANCE", "Reserved", "audit_step"]

Reserved = Callable[[Program], str | None]
"""Why a program is kept for evaluation; ``None`` where it may be trained on."""

CHECKS: Mapping[str, str] = {
    "hinted_tokens": "every trained token is one of a plain, living play of this step or of a due draft, where it was sampled",
    "mask": "what is trained is what the policy sampled: a token has a weight version if and only if its mask is true",
    "arms": "hinted plays saw the hint of their environment, and plain plays did not",
    "instances": "plays of one environment and seed, in both arms, begin with the same observation",
    "agent_advantages": "plays have the standardised advantage of their group, and none that has one is left out",
    "designer_advantages": "drafts have their reward minus their group's mean, refused ones less than 0, and none is left out",
    "designer_refusals": "the refused drafts of a round weigh no more than its admitted ones",
    "tokens": "the learner trained as many tokens as it was given",
    "agent_ratio": "where the weights that sampled are those that train, engine and learner agree about the agent",
    "designer_ratio": "where the weights that sampled are those that train, engine and learner agree about the designer",
    "agent_mismatch": "where the weights that sampled are those that train, each of the agent's tokens is as likely in both",
    "designer_mismatch": "the same for the designer",
    "agent_drift": "where older weights sampled, they still explain the agent's typical token",
    "designer_drift": "where older weights sampled, they still explain the designer's typical token",
    "designer_gradient": "drafts that earned differently have a gradient",
    "length": "plays that are trained are as long as plays that were issued",
    "heldout": "no reserved program and no held-out instance is played",
}
"""What each check requires, by name."""

RATIO_TOLERANCE = 0.02
"""How far the mean of pi_prox / pi_rollout may be from 1 where both are the same weights (kernels differ, bf16 is coarse)."""

MISMATCH_TOLERANCE = 2e-3
"""In nats, of KL(rollout || prox) where both are the same weights. The embedded engine in float32 stays at 1e-12, one that
answers from old keys and values reaches 3.5e-3; what bfloat16 kernels reach is not measured yet.

The mean ratio alone shows tokens, masks and temperatures that are not the sampled ones; but under whatever distribution the
tokens were really drawn from, its expectation is 1, so a wrong distribution shows only in how far the ratios scatter.
"""

DRIFT_BAND = (0.5, 2.0)
"""The median of pi_prox / pi_rollout where older weights sampled: near 1 after a few updates, far off for a wrong token."""

LENGTH_BAND = (0.8, 1.25)
"""Mean length of consumed plays over that of issued ones."""

_ADVANTAGE_TOLERANCE = 1e-4
_EQUAL_RETURNS = 1e-9
_HINT_START = 32
"""Characters of a hint that tell it from anything else; a chat format may rewrite what comes later (special tokens, spaces)."""

_Finding = tuple[str, float, bool]
"""Check, its value, and whether it holds."""


def audit_step(
    version: int, plays: Sequence[Play], drafts: Sequence[Draft], batch: Sequence[TrainSequence], trained: Mapping[str, float],
    *, environments: Iterable[Environment] = (), reserved: Reserved = lambda program: None,
    agent_group: Literal["instance", "environment"] = "instance", text_of: Callable[[Sequence[int]], str] | None = None,
) -> dict[str, float]:
    """Check one step's batch. ``drafts`` are those that were due, ``environments`` those that were played.

    ``trained`` are the learner's metrics; what a learner does not report (``trained_tokens``, a role's ``ratio_mean``,
    ``mismatch_kl``, ``ratio_p50`` and ``signal``) cannot be checked: the metric of that check is missing then, and
    ``audit/unchecked`` counts it. ``text_of`` decodes token ids; without it nobody can say what a prompt held, and ``arms``
    is left out.

    Returns ``audit/CHECK`` for each check that had something to look at, ``audit/breach/CHECK`` = 1 for each that does not
    hold, and always ``audit/breaches`` and ``audit/unchecked``.
    """
    environments = list(environments)
    trajectories = {draft.draft_id: draft.trajectory for draft in drafts if draft.trajectory is not None}
    trajectories |= {play.play_id: play.trajectory for play in consumed_plays(plays)}
    reported, unchecked = _reported(version, batch, trajectories, trained)
    findings = [
        *_foreign(batch, trajectories),
        *_masks(version, batch, trajectories),
        *_arms(plays, environments, text_of),
        *_instances(plays),
        *_agent_advantages(batch, plays, agent_group),
        *_designer_advantages(batch, drafts),
        *_refusals(batch, drafts),
        *reported,
        *_lengths(plays),
        *_heldout(plays, environments, reserved),
    ]
    metrics = {f"audit/{check}": value for check, value, _ in findings}
    breaches = [(check, value) for check, value, held in findings if not held]
    for check, value in breaches:
        structlog.get_logger("spade_agentic").warning(
            "audit_breach", id=f"step-{version + 1:06d}", step=version + 1, check=check, value=value, required=CHECKS[check]
        )
        metrics[f"audit/breach/{check}"] = 1.0
    return metrics | {"audit/breaches": len(breaches), "audit/unchecked": unchecked}


# --- which tokens --------------------------------------------------------------------------------------------------------


def _foreign(batch: Sequence[TrainSequence], trajectories: Mapping[str, Trajectory]) -> list[_Finding]:
    """Trained tokens that are not those of a plain play or a draft, at the place where they were sampled."""
    foreign = sum(sum(s.mask) for s in batch if not _is_of(s, trajectories.get(owner_of(s))))
    return [("hinted_tokens", foreign, foreign == 0)]


def _is_of(sequence: TrainSequence, trajectory: Trajectory | None) -> bool:
    if trajectory is None or trajectory.role is not sequence.role:
        return False
    number = int(sequence.sequence_id.rpartition("#")[2])
    if number >= len(trajectory.segments):
        return False
    segment = trajectory.segments[number]
    return (
        tuple(segment.token_ids) == sequence.token_ids
        and tuple(segment.mask) == sequence.mask
        and tuple(segment.logprobs) == sequence.rollout_logprobs
    )


def _masks(version: int, batch: Sequence[TrainSequence], trajectories: Mapping[str, Trajectory]) -> list[_Finding]:
    """Tokens of what is trained whose mask and weight version contradict each other, or whose weights are still to come."""
    owners = {owner_of(s) for s in batch}
    wrong = sum(
        mask != (0 <= sampled_by <= version)
        for owner, trajectory in trajectories.items() if owner in owners
        for segment in trajectory.segments
        for mask, sampled_by in zip(segment.mask, segment.versions, strict=True)
    )
    return [("mask", wrong, wrong == 0)]


def _arms(
    plays: Sequence[Play], environments: Iterable[Environment], text_of: Callable[[Sequence[int]], str] | None
) -> list[_Finding]:
    """Plays whose first prompt, as text, says the opposite of their arm. Plays of an instance share prompts: one look each."""
    if text_of is None:
        return []
    marks = {e.env_id: _plain_text(with_hint("", e.hint[:_HINT_START]).rstrip()) for e in environments if e.hint}
    looked: dict[tuple[int, ...], str] = {}
    wrong = 0
    for play in plays:
        if play.env_id in marks and play.trajectory.segments:
            prompt = _prompt(play.trajectory.segments[0])
            if prompt not in looked:
                looked[prompt] = _plain_text(text_of(prompt))
            wrong += (marks[play.env_id] in looked[prompt]) != (play.arm is Arm.HINTED)
    return [("arms", wrong, wrong == 0)]


def _prompt(segment: Segment) -> tuple[int, ...]:
    sampled = segment.mask.index(True) if any(segment.mask) else len(segment)
    return tuple(segment.token_ids[:sampled])


def _plain_text(text: str) -> str:
    """Tokenizers may normalise what they read."""
    return unicodedata.normalize("NFC", text)


def _instances(plays: Sequence[Play]) -> list[_Finding]:
    """Instances whose plays did not all begin alike. A play that never began says nothing."""
    seen: dict[tuple[str, int], set[str]] = defaultdict(set)
    for play in plays:
        if not play.void:
            seen[play.env_id, play.seed].add(play.first_observation)
    differing = sum(len(texts) > 1 for texts in seen.values())
    return [("instances", differing, differing == 0)]


# --- how much each of them pulls -------------------------------------------------------------------------------------------


def _given(batch: Sequence[TrainSequence], role: Role) -> dict[str, set[float]]:
    """The advantages with which each play or draft is in the batch."""
    given: dict[str, set[float]] = defaultdict(set)
    for sequence in batch:
        if sequence.role is role:
            given[owner_of(sequence)].add(sequence.advantage)
    return given


def _agent_advantages(
    batch: Sequence[TrainSequence], plays: Sequence[Play], group: Literal["instance", "environment"]
) -> list[_Finding]:
    given = _given(batch, Role.AGENT)
    groups: dict[Hashable, list[Play]] = defaultdict(list)
    for play in consumed_plays(plays):
        groups[(play.env_id, play.seed) if group == "instance" else play.env_id].append(play)
    wrong = 0
    for members in groups.values():
        returns = [play.reward for play in members]
        mean = math.fsum(returns) / len(returns)
        spread = math.sqrt(math.fsum((r - mean) ** 2 for r in returns) / len(returns))
        silent = max(returns) - min(returns) <= _EQUAL_RETURNS
        wrong += sum(
            bool(given[p.play_id]) if silent else not _all_near(given[p.play_id], (p.reward - mean) / (spread + AGENT_EPS))
            for p in members
        )
    return [("agent_advantages", wrong, wrong == 0)]


def _all_near(given: set[float], expected: float) -> bool:
    return bool(given) and all(abs(value - expected) <= _ADVANTAGE_TOLERANCE * max(1.0, abs(expected)) for value in given)


def _designer_advantages(batch: Sequence[TrainSequence], drafts: Sequence[Draft]) -> list[_Finding]:
    """Of a draft that is alone in its group only that it is there can be said: whom it is compared with is not in the batch."""
    given = _given(batch, Role.DESIGNER)
    wrong = 0
    groups: dict[Hashable, list[tuple[str, float]]] = defaultdict(list)
    for draft in drafts:
        if draft.trajectory is None or draft.trajectory.sampled_tokens == 0:
            continue
        if draft.refusal is not None:
            wrong += any(value >= 0.0 for value in given[draft.draft_id])
        elif draft.reward is not None:
            groups[draft.skill, draft.round_index].append((draft.draft_id, draft.reward))
    for members in groups.values():
        mean = math.fsum(reward for _, reward in members) / len(members)
        alone = len(members) == 1
        wrong += sum(not (given[name] if alone else _all_near(given[name], reward - mean)) for name, reward in members)
    return [("designer_advantages", wrong, wrong == 0)]


def _refusals(batch: Sequence[TrainSequence], drafts: Sequence[Draft]) -> list[_Finding]:
    """The largest share that refusals have in what a round's drafts pull, over rounds in which something was rewarded."""
    draft_of = {draft.draft_id: draft for draft in drafts}
    rewarded = {d.round_index for d in drafts if d.refusal is None and d.reward is not None}
    pull: dict[int, list[float]] = {index: [0.0, 0.0] for index in rewarded}
    for sequence in batch:
        draft = draft_of.get(owner_of(sequence))
        if sequence.role is Role.DESIGNER and draft is not None and draft.round_index in rewarded:
            refused = draft.refusal is not None
            pull[draft.round_index][refused] += sum(sequence.mask) * abs(sequence.advantage) * sequence.weight
    shares = [refused / (admitted + refused) for admitted, refused in pull.values() if admitted + refused > 0.0]
    return [("designer_refusals", max(shares), max(shares) <= 0.5 + _ADVANTAGE_TOLERANCE)] if shares else []


# --- what the learner reports -----------------------------------------------------------------------------------------------


def _reported(
    version: int, batch: Sequence[TrainSequence], trajectories: Mapping[str, Trajectory], trained: Mapping[str, float]
) -> tuple[list[_Finding], int]:
    """The checks of the learner's metrics, and how many of them it gives no metric for."""
    found = [*_tokens(batch, trained), *_gradient(batch, trained)]
    for role in Role:
        found += _ratio(role, version, batch, trajectories, trained)
    return [finding for finding in found if finding is not None], found.count(None)


def _tokens(batch: Sequence[TrainSequence], trained: Mapping[str, float]) -> list[_Finding | None]:
    if not batch:
        return []
    count = trained.get("trained_tokens")
    return [None if count is None else ("tokens", count, count == sum(sum(s.mask) for s in batch))]


def _ratio(
    role: Role, version: int, batch: Sequence[TrainSequence], trajectories: Mapping[str, Trajectory],
    trained: Mapping[str, float],
) -> list[_Finding | None]:
    mine = [trajectories[owner_of(s)] for s in batch if s.role is role and owner_of(s) in trajectories]
    if not mine:
        return []
    if any(_sampled_by_others(version, trajectory) for trajectory in mine):
        median = trained.get(f"{role.value}/ratio_p50")
        low, high = DRIFT_BAND
        return [None if median is None else (f"{role.value}_drift", median, low <= median <= high)]
    mean, apart = (trained.get(f"{role.value}/{name}") for name in ("ratio_mean", "mismatch_kl"))
    return [
        None if mean is None else (f"{role.value}_ratio", mean, abs(mean - 1.0) <= RATIO_TOLERANCE),
        None if apart is None else (f"{role.value}_mismatch", apart, apart <= MISMATCH_TOLERANCE),
    ]


def _sampled_by_others(version: int, trajectory: Trajectory) -> bool:
    """Whether other weights than those that train sampled any of it. A version below 0 is no weights at all (``mask``)."""
    return any(v not in (version, -1) for segment in trajectory.segments for v in segment.versions)


def _gradient(batch: Sequence[TrainSequence], trained: Mapping[str, float]) -> list[_Finding | None]:
    drafts = [s for s in batch if s.role is Role.DESIGNER]
    if not drafts:
        return []
    signal = trained.get("designer/signal")
    if signal is None:
        return [None]
    # Drafts that all earned the same have nothing to say this time, and silence refusals (which never weigh more than
    # they do); a difference that moves nothing is a fault of ours.
    return [("designer_gradient", signal, signal > 0.0 or all(s.advantage * s.weight == 0.0 for s in drafts))]


# --- which plays -------------------------------------------------------------------------------------------------------------


def _lengths(plays: Sequence[Play]) -> list[_Finding]:
    """Asynchrony favours short plays."""
    issued = [play for play in plays if play.arm is Arm.PLAIN and play.trajectory.sampled_tokens > 0]
    consumed = consumed_plays(issued)
    if not consumed:
        return []
    length, whole = _length(consumed), _length(issued)
    low, high = LENGTH_BAND
    return [
        ("length_consumed", length, True),
        ("length_issued", whole, True),
        ("length", length / whole, low <= length / whole <= high),
    ]


def _length(plays: Sequence[Play]) -> float:
    return math.fsum(play.trajectory.sampled_tokens for play in plays) / len(plays)


def _heldout(plays: Sequence[Play], environments: Iterable[Environment], reserved: Reserved) -> list[_Finding]:
    kept = {e.env_id for e in environments if reserved(e.program) is not None}
    count = sum(play.env_id in kept or play.seed >= INSTANCE_SEEDS for play in plays)
    return [("heldout", count, count == 0)]
