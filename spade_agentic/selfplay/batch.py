"""What one step trains on: the agent's plain plays of now, and the designer's drafts that are due.

Agent: plays are compared within (environment, instance), or within the environment in the paper's preset; standardised;
a group whose returns are all equal gives nothing. Designer: drafts are compared within (skill, round), centred only, times the
role's weight; a refused draft has a fixed negative advantage, is in no baseline, and all refusals of a round together weigh
no more than its admitted drafts. Hinted plays and void plays never enter; hints have no sequence to enter with.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from spade_agentic.hooks.kinds import TrainSequence
from spade_agentic.hooks.records import Arm, Play, Role, Sampling, Segment, Trajectory
from spade_agentic.learning.advantages import (
    DesignerAdvantage,
    DesignerSample,
    agent_advantages,
    designer_advantages,
    designer_weight,
)

from .delay import WaitingDraft

__all__ = ["BatchMaker", "consumed_plays", "owner_of"]

_SEGMENT = "#"


def owner_of(sequence: TrainSequence) -> str:
    """The play or draft that a sequence is a segment of."""
    return sequence.sequence_id.rpartition(_SEGMENT)[0]


@dataclass(slots=True)
class BatchMaker:
    """Turns plays and due drafts into sequences. Its state is each skill's mean reward over earlier rounds: the baseline of a
    draft that has nobody to be compared with."""

    agent_sampling: Sampling
    designer_sampling: Sampling
    agent_group: Literal["instance", "environment"]
    refused_advantage: float
    weight_cap: float
    interval: int
    _earned: dict[str, tuple[float, int]] = field(default_factory=dict)

    def make(self, plays: Sequence[Play], due: Sequence[WaitingDraft]) -> tuple[list[TrainSequence], dict[str, float]]:
        """The batch and what there is to say about it. ``due`` holds whole rounds. Either part may be empty."""
        agent = self._agent(plays)
        designer = self._designer(due)
        n_agent, n_designer = _trained(agent), _trained(designer)
        weight = designer_weight(n_agent, n_designer, self.interval, self.weight_cap)
        designer = [replace(sequence, weight=sequence.weight * weight) for sequence in designer]
        metrics = {
            "batch/agent_sequences": len(agent),
            "batch/agent_tokens": n_agent,
            "batch/agent_plays": len({owner_of(s) for s in agent}),
            "batch/plays_without_signal": len(consumed_plays(plays)) - len({owner_of(s) for s in agent}),
            "batch/designer_sequences": len(designer),
            "batch/designer_tokens": n_designer,
            "batch/designer_weight": weight,
            "batch/drafts_due": len(due),
            "batch/drafts_refused": sum(w.draft.refusal is not None for w in due),
        }
        rewards = [w.reward for w in due if w.reward is not None and w.draft.refusal is None]
        if rewards:
            metrics["batch/designer_reward"] = math.fsum(rewards) / len(rewards)
        return [*agent, *designer], metrics

    def _agent(self, plays: Sequence[Play]) -> list[TrainSequence]:
        taken = consumed_plays(plays)
        advantages = agent_advantages([play.reward for play in taken], [self._key(play) for play in taken])
        return [
            sequence
            for play, advantage in zip(taken, advantages, strict=True)
            if advantage is not None
            for sequence in _sequences(
                play.play_id, play.trajectory, advantage, 1.0, self.agent_sampling, prefix=f"{play.env_id}:{play.seed}"
            )
        ]

    def _key(self, play: Play) -> Hashable:
        return (play.env_id, play.seed) if self.agent_group == "instance" else play.env_id

    def _designer(self, due: Sequence[WaitingDraft]) -> list[TrainSequence]:
        spoken = [w for w in due if w.draft.trajectory is not None and w.draft.trajectory.sampled_tokens > 0]
        advantages = designer_advantages(
            [self._sample(w) for w in spoken],
            refused_advantage=self.refused_advantage,
            running={skill: total / count for skill, (total, count) in self._earned.items()},
        ) if self.refused_advantage < 0 else self._without_refusals(spoken)
        for w in spoken:
            if w.reward is not None and w.draft.refusal is None:
                total, count = self._earned.get(w.draft.skill.value, (0.0, 0))
                self._earned[w.draft.skill.value] = (total + w.reward, count + 1)
        return [
            sequence
            for w, advantage in zip(spoken, advantages, strict=True)
            if advantage is not None and w.draft.trajectory is not None
            for sequence in _sequences(
                w.draft.draft_id, w.draft.trajectory, advantage.advantage, advantage.weight, self.designer_sampling
            )
        ]

    def _without_refusals(self, spoken: Sequence[WaitingDraft]) -> list[DesignerAdvantage | None]:
        """With ``refused_advantage`` 0 a refusal has no say at all."""
        admitted = [w for w in spoken if w.draft.refusal is None]
        running = {skill: total / count for skill, (total, count) in self._earned.items()}
        found = iter(designer_advantages([self._sample(w) for w in admitted], running=running))
        return [None if w.draft.refusal is not None else next(found) for w in spoken]

    @staticmethod
    def _sample(waiting: WaitingDraft) -> DesignerSample:
        draft = waiting.draft
        assert draft.trajectory is not None
        refused = draft.refusal is not None
        return DesignerSample(
            skill=draft.skill.value, round_index=draft.round_index, reward=None if refused else waiting.reward,
            refused=refused, tokens=draft.trajectory.sampled_tokens,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"earned": {skill: [total, count] for skill, (total, count) in self._earned.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._earned = {skill: (float(total), int(count)) for skill, (total, count) in state["earned"].items()}


def consumed_plays(plays: Sequence[Play]) -> list[Play]:
    """The plays that training may look at: plain ones that are not void."""
    return [play for play in plays if play.arm is Arm.PLAIN and not play.void and play.trajectory.sampled_tokens > 0]


def _sequences(
    owner: str, trajectory: Trajectory, advantage: float, weight: float, sampling: Sampling, *, prefix: str | None = None
) -> list[TrainSequence]:
    """One sequence a segment, with the trajectory's tokens as they are. A segment in which nothing was sampled is left out."""
    return [
        _sequence(f"{owner}{_SEGMENT}{number}", trajectory.role, segment, advantage, weight, sampling,
                  prefix if number == 0 else None)
        for number, segment in enumerate(trajectory.segments)
        if any(segment.mask)
    ]


def _sequence(
    name: str, role: Role, segment: Segment, advantage: float, weight: float, sampling: Sampling, prefix: str | None
) -> TrainSequence:
    return TrainSequence(
        sequence_id=name, role=role, token_ids=tuple(segment.token_ids), mask=tuple(segment.mask),
        rollout_logprobs=tuple(segment.logprobs), advantage=advantage, weight=weight, temperature=sampling.temperature,
        prefix_key=prefix, prefix_len=segment.mask.index(True) if prefix is not None else 0,
    )


def _trained(sequences: Sequence[TrainSequence]) -> int:
    return sum(sum(sequence.mask) for sequence in sequences)
