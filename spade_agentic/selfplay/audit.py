"""The training signal, audited on every batch. A breach is an event with a name (``audit_breach``) and a metric.

The checks:

``hinted_tokens``                   nothing but plain, living plays of this step and due drafts is trained, token for token
``agent_ratio``, ``designer_ratio`` where the weights that sampled are those that train, trainer and engine agree
``designer_gradient``               drafts that earned differently have a gradient
``length``                          plays that are trained are as long as plays that were issued (asynchrony favours short ones)
``heldout``                         no reserved program and no held-out instance is played
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from spade_agentic.hooks.kinds import TrainSequence
from spade_agentic.hooks.records import Arm, Draft, Environment, Play, Program, Role, Trajectory
from spade_agentic.rollout.seeding import INSTANCE_SEEDS

from .batch import consumed_plays, owner_of

__all__ = ["LENGTH_BAND", "RATIO_TOLERANCE", "Reserved", "audit_step"]

Reserved = Callable[[Program], str | None]
"""Why a program is kept for evaluation; ``None`` where it may be trained on."""

RATIO_TOLERANCE = 0.02
"""How far the mean of pi_prox / pi_rollout may be from 1 where both are the same weights (kernels differ, bf16 is coarse)."""

LENGTH_BAND = (0.8, 1.25)
"""Mean length of consumed plays over that of issued ones."""


def audit_step(
    version: int, plays: Sequence[Play], drafts: Sequence[Draft], batch: Sequence[TrainSequence], trained: Mapping[str, float],
    *, environments: Iterable[Environment] = (), reserved: Reserved = lambda program: None,
) -> dict[str, float]:
    """Check one step's batch. ``drafts`` are those that were due, ``environments`` those that were played.

    ``trained`` are the learner's metrics; a learner that does not report a role's ``ratio_mean`` or ``signal`` cannot be
    checked for it, and the metric of that check is missing then. Returns ``audit/...``, ``audit/breaches`` always.
    """
    trajectories = {draft.draft_id: draft.trajectory for draft in drafts if draft.trajectory is not None}
    trajectories |= {play.play_id: play.trajectory for play in consumed_plays(plays)}
    findings = [
        *_foreign(batch, trajectories),
        *_ratios(version, batch, trajectories, trained),
        *_gradient(batch, trained),
        *_lengths(plays),
        *_heldout(plays, environments, reserved),
    ]
    metrics = {f"audit/{check}": value for check, value, _ in findings}
    breaches = [(check, value) for check, value, held in findings if not held]
    for check, value in breaches:
        structlog.get_logger("spade_agentic").warning(
            "audit_breach", id=f"step-{version + 1:06d}", step=version + 1, check=check, value=value
        )
    return metrics | {"audit/breaches": len(breaches)}


_Finding = tuple[str, float, bool]
"""Check, its value, and whether it holds."""


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
    return tuple(segment.token_ids) == sequence.token_ids and tuple(segment.mask) == sequence.mask


def _ratios(
    version: int, batch: Sequence[TrainSequence], trajectories: Mapping[str, Trajectory], trained: Mapping[str, float]
) -> list[_Finding]:
    findings = []
    for role in Role:
        mine = [trajectories[owner_of(s)] for s in batch if s.role is role and owner_of(s) in trajectories]
        ratio = trained.get(f"{role.value}/ratio_mean")
        if not mine or ratio is None or any(t.version_range != (version, version) for t in mine):
            continue  # older weights sampled it: the ratio is not meant to be 1
        findings.append((f"{role.value}_ratio", ratio, abs(ratio - 1.0) <= RATIO_TOLERANCE))
    return findings


def _gradient(batch: Sequence[TrainSequence], trained: Mapping[str, float]) -> list[_Finding]:
    drafts = [s for s in batch if s.role is Role.DESIGNER]
    signal = trained.get("designer/signal")
    if not drafts or signal is None:
        return []
    # Drafts that all earned the same have nothing to say this time, and silence refusals (which never weigh more than
    # they do); a difference that moves nothing is a fault of ours.
    return [("designer_gradient", signal, signal > 0.0 or all(s.advantage * s.weight == 0.0 for s in drafts))]


def _lengths(plays: Sequence[Play]) -> list[_Finding]:
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
