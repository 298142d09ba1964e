"""What happened to the environments of the pool in the running interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from spade_agentic.hooks.kinds import EnvironmentHistory, RewardInput
from spade_agentic.hooks.records import Arm, Environment, Play, Regret, StopReason
from spade_agentic.runs.codec import from_json, to_json

from .regret import PlayRecord, paired_regret

__all__ = ["IntervalHistories"]


class IntervalHistories:
    """Plays per environment since the interval began. An environment that stays for another interval starts anew."""

    def __init__(self, *, min_pairs: int, version_gap: int) -> None:
        self._min_pairs = min_pairs
        self._version_gap = version_gap
        self._plays: dict[str, list[PlayRecord]] = {}

    def begin(self, environments: Iterable[Environment]) -> None:
        """Forget the last interval; from now on these environments are played."""
        self._plays = {e.env_id: [] for e in environments}

    def add(self, plays: Iterable[Play]) -> None:
        for play in plays:
            self._plays[play.env_id].append(PlayRecord.of(play))

    def regret(self, environment: Environment) -> Regret | None:
        """``None`` where too few pairs survived, or where the environment has no hint."""
        if environment.hint is None:
            return None
        return paired_regret(self._plays[environment.env_id], min_pairs=self._min_pairs, version_gap=self._version_gap)

    def history(self, environment: Environment) -> EnvironmentHistory:
        records = self._plays[environment.env_id]
        return EnvironmentHistory(
            environment=environment,
            plays=tuple(record.as_play(environment.env_id) for record in records),
            regret=self.regret(environment),
            faults=sum(record.stop is StopReason.ENVIRONMENT_FAULT for record in records),
        )

    def reward_input(self, environment: Environment) -> RewardInput:
        """The history with its plain-arm statistics, over plays that are not void; ``None`` where there are none."""
        records = self._plays[environment.env_id]
        plain = [record for record in records if record.arm is Arm.PLAIN and not record.void]
        history = self.history(environment)
        if not plain:
            return RewardInput(history, None, None, None)
        mean = math.fsum(r.reward for r in plain) / len(plain)
        variance = math.fsum((r.reward - mean) ** 2 for r in plain) / len(plain)
        return RewardInput(history, sum(r.won for r in plain) / len(plain), mean, variance)

    def state_dict(self) -> dict[str, Any]:
        return {env_id: to_json(records) for env_id, records in self._plays.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._plays = {env_id: [from_json(PlayRecord, r) for r in records] for env_id, records in state.items()}
