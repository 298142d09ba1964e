"""What a run is doing now: one record, from which the live view, the plain lines and ``status.json`` are all drawn."""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade_agentic.hooks.records import Arm, Play, Regret

from .files import replace_file

__all__ = ["InFlight", "Progress", "StatusFile", "mean_regret", "read_status"]

RECENT_STEPS = 5
"""Steps that the time left is estimated from."""
NO_PART_OF_A_STEP = ("starting", "evaluating")
"""Stages whose time says nothing about how long the next step will take."""
LISTED_IN_FLIGHT = 1000
"""Plays that ``status.json`` lists one by one, those without progress for longest first; a run on one machine has fewer."""


@dataclass(slots=True)
class InFlight:
    """A play that runs. ``turn`` counts finished ones; times are of the monotonic clock, in seconds."""

    play_id: str
    env_id: str
    arm: Arm
    started: float
    stage: str = "starting"
    turn: int = 0
    progressed: float = 0.0


@dataclass(slots=True)
class Progress:
    """The state of a running run, as seen from outside. ``clock`` is monotonic; durations are seconds."""

    run_id: str
    steps: int
    step: int = 0
    clock: Callable[[], float] = time.monotonic
    stage: str = "starting"
    stage_since: float = 0.0
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    plays_done: Counter[Arm] = field(default_factory=Counter)
    plays_won: Counter[Arm] = field(default_factory=Counter)
    plays_void: int = 0
    plays_expected: int = 0
    tokens: int = 0
    playing_since: float | None = None
    rounds: int = 0
    admitted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    success: dict[Arm, float] = field(default_factory=dict)
    regret: tuple[float, float, int] | None = None
    tokens_per_s: float | None = None
    last_step_s: float | None = None
    step_times: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    step_since: float = 0.0
    stage_s: dict[str, float] = field(default_factory=dict)
    """Seconds by stage, of stages that were left, since :meth:`take_stage_times`."""

    def __post_init__(self) -> None:
        self.stage_since = self.step_since = self.clock()

    def enter(self, stage: str) -> bool:
        """Go on to ``stage``; false where the run is in it already."""
        if stage == self.stage:
            return False
        now = self.clock()
        if self.stage in NO_PART_OF_A_STEP:
            self.step_since += now - self.stage_since
        self.stage_s[self.stage] = self.stage_s.get(self.stage, 0.0) + now - self.stage_since
        self.stage, self.stage_since = stage, now
        return True

    def take_stage_times(self) -> dict[str, float]:
        """Seconds by stage since the last call, as metrics ``time/<stage>_s``, without the stage that goes on now."""
        taken = {f"time/{stage}_s": seconds for stage, seconds in self.stage_s.items()}
        self.stage_s.clear()
        return taken

    def play_started(self, play_id: str, env_id: str, arm: Arm) -> None:
        self.playing_since = self.playing_since or self.clock()
        self.take_off(play_id, env_id, arm)

    def take_off(self, play_id: str, env_id: str, arm: Arm) -> None:
        """The play is in flight, whether or not it counts for anything."""
        now = self.clock()
        self.in_flight[play_id] = InFlight(play_id, env_id, arm, now, progressed=now)

    def play_entered(self, play_id: str, stage: str) -> None:
        if (play := self.in_flight.get(play_id)) is not None:
            play.stage, play.progressed = stage, self.clock()

    def play_progressed(self, play_id: str) -> None:
        if (play := self.in_flight.get(play_id)) is not None:
            play.turn += 1
            play.progressed = self.clock()

    def play_finished(self, play: Play) -> None:
        self.in_flight.pop(play.play_id, None)
        now = self.clock()
        if self.playing_since is None:
            self.playing_since = now - play.duration_s
        self.tokens += play.trajectory.sampled_tokens
        self.tokens_per_s = self.tokens / max(now - self.playing_since, 1e-3)
        if play.void:
            self.plays_void += 1
            return
        self.plays_done[play.arm] += 1
        self.plays_won[play.arm] += play.won
        self.success[play.arm] = self.plays_won[play.arm] / self.plays_done[play.arm]

    def step_done(self, step: int, regrets: Mapping[str, Regret]) -> None:
        """The step is committed: what was counted for it starts again at zero."""
        now = self.clock()
        self.last_step_s = now - self.step_since
        self.step_times.append(self.last_step_s)
        self.step, self.step_since = step, now
        self.regret = mean_regret(regrets.values()) or self.regret
        self.in_flight.clear()
        self.plays_done.clear()
        self.plays_won.clear()
        self.plays_void = self.tokens = self.plays_expected = 0
        self.playing_since = None

    @property
    def left_s(self) -> float | None:
        """Seconds that the steps still to take will need, by the recent ones; ``None`` before the first."""
        if not self.step_times:
            return None
        return sum(self.step_times) / len(self.step_times) * max(0, self.steps - self.step)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form for ``status.json``; ages instead of points in time, since the reader has another clock."""
        now = self.clock()
        plays = sorted(self.in_flight.values(), key=lambda play: play.progressed)
        return {
            "run_id": self.run_id, "pid": os.getpid(), "step": self.step, "steps": self.steps, "stage": self.stage,
            "stage_s": round(now - self.stage_since, 2), "plays_in_flight": len(plays),
            "in_flight": [
                {
                    "play_id": p.play_id, "env_id": p.env_id, "arm": p.arm.value, "stage": p.stage, "turn": p.turn,
                    "elapsed_s": round(now - p.started, 2), "since_progress_s": round(now - p.progressed, 2),
                }
                for p in plays[:LISTED_IN_FLIGHT]
            ],
            "plays_done": sum(self.plays_done.values()), "plays_expected": self.plays_expected, "plays_void": self.plays_void,
            "success": {arm.value: round(value, 4) for arm, value in self.success.items()},
            "regret": None if self.regret is None else {"mean": self.regret[0], "stderr": self.regret[1]},
            "rounds": self.rounds, "admitted": self.admitted, "refused": dict(self.refused),
            "tokens_per_s": None if self.tokens_per_s is None else round(self.tokens_per_s, 1),
            "last_step_s": self.last_step_s, "left_s": self.left_s,
        }


def mean_regret(regrets: Any) -> tuple[float, float, int] | None:
    """Mean of unfloored regrets over environments, its standard error, and how many there are; ``None`` without any.

    The standard error is that of the mean over environments (0 for a single one, which has none).
    """
    means = [r.mean for r in regrets]
    if not means:
        return None
    mean = math.fsum(means) / len(means)
    if len(means) == 1:
        return mean, 0.0, 1
    variance = math.fsum((m - mean) ** 2 for m in means) / (len(means) - 1)
    return mean, math.sqrt(variance / len(means)), len(means)


class StatusFile:
    """Keeps ``status.json`` current: replaced whole, at most every ``every_s`` seconds unless forced."""

    def __init__(self, path: Path, *, every_s: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._every_s, self._clock = path, every_s, clock
        self._written = -math.inf

    def write(self, progress: Progress, *, force: bool = False) -> None:
        now = self._clock()
        if force or now - self._written >= self._every_s:
            self._written = now
            data = {"updated_at": time.time(), **progress.to_json()}
            replace_file(self._path, json.dumps(data).encode(), durable=False)


def read_status(path: Path) -> dict[str, Any] | None:
    """The content of a ``status.json``, or ``None`` where there is none (yet)."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return data
