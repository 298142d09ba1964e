"""Hint-regret over paired plays (paper, equation 1), with its standard error over seeds.

Both arms play the same seeds with the same repeats. A pair is one (seed, repeat) played in both arms. Nothing here is
floored: a floor at 0 would pay a designer for noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from spade_agentic.hooks.records import Arm, Play, Regret, Role, StopReason, Trajectory

__all__ = ["PlayRecord", "paired_regret"]


@dataclass(frozen=True, slots=True)
class PlayRecord:
    """What a history keeps of a play: all that regret and rewards look at, and no tokens.

    ``oldest`` and ``newest`` are the weight versions of its sampled tokens (``None`` where nothing was sampled).
    """

    play_id: str
    seed: int
    repeat: int
    arm: Arm
    reward: float
    won: bool
    stop: StopReason
    fault: str | None = None
    oldest: int | None = None
    newest: int | None = None

    @property
    def void(self) -> bool:
        return self.stop in (StopReason.ENVIRONMENT_FAULT, StopReason.ABORTED)

    @classmethod
    def of(cls, play: Play) -> PlayRecord:
        oldest, newest = play.trajectory.version_range or (None, None)
        return cls(
            play.play_id, play.seed, play.repeat, play.arm, play.reward, play.won, play.stop, play.fault, oldest, newest
        )

    def as_play(self, env_id: str) -> Play:
        """The play again, for plugins: everything but tokens, turns and observations."""
        return Play(
            self.play_id, env_id, self.seed, self.repeat, self.arm, Trajectory(Role.AGENT), self.reward, self.won, self.stop,
            fault=self.fault,
        )


def paired_regret(plays: Iterable[PlayRecord], *, min_pairs: int, version_gap: int = 0) -> Regret | None:
    """Mean and standard error of the per-seed differences hinted minus plain; ``None`` below ``min_pairs`` seeds.

    A pair counts where both of its plays survived and their weight versions lie no more than ``version_gap`` apart. A
    seed's difference is the mean over its surviving repeats; a seed without any is no seed. One seed's error is infinite.
    """
    assert min_pairs >= 1
    arms: dict[tuple[int, int], dict[Arm, PlayRecord]] = defaultdict(dict)
    for play in plays:
        pair = arms[play.seed, play.repeat]
        assert play.arm not in pair, f"seed {play.seed}, repeat {play.repeat} was played twice in the {play.arm} arm"
        pair[play.arm] = play
    per_seed: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for (seed, _), pair in sorted(arms.items()):
        if len(pair) == 2 and _comparable(pair[Arm.HINTED], pair[Arm.PLAIN], version_gap):
            per_seed[seed].append((pair[Arm.HINTED].reward, pair[Arm.PLAIN].reward))
    if len(per_seed) < min_pairs:
        return None
    hinted = [math.fsum(h for h, _ in pairs) / len(pairs) for pairs in per_seed.values()]
    plain = [math.fsum(p for _, p in pairs) / len(pairs) for pairs in per_seed.values()]
    differences = [h - p for h, p in zip(hinted, plain, strict=True)]
    n = len(differences)
    mean = math.fsum(differences) / n
    squares = math.fsum((d - mean) ** 2 for d in differences)
    stderr = math.sqrt(squares / (n - 1) / n) if n > 1 else math.inf
    return Regret(mean, stderr, n, math.fsum(hinted) / n, math.fsum(plain) / n)


def _comparable(hinted: PlayRecord, plain: PlayRecord, version_gap: int) -> bool:
    if hinted.void or plain.void:
        return False
    versions = [v for v in (hinted.oldest, hinted.newest, plain.oldest, plain.newest) if v is not None]
    return not versions or max(versions) - min(versions) <= version_gap
