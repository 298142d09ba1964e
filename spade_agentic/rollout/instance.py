"""One instance of an environment, played through a sandbox, with the host's own checks.

The clock never scores a play. Where the program misses a deadline, the instance is opened again and the actions so far
are repeated; a machine that was only busy then answers. What misses its deadline every time is reported as a timeout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spade_agentic.errors import EnvironmentFault, EnvironmentTimeout
from spade_agentic.hooks.kinds import SandboxPlay, SandboxProgram, StepObservation

__all__ = ["TIMEOUT_REPLAYS", "Instance"]

TIMEOUT_REPLAYS = 2


class Instance:
    """``reset`` once, then ``step``. Raises EnvironmentFault for whatever the program does wrong."""

    def __init__(self, program: SandboxProgram, seed: int) -> None:
        self._program = program
        self._seed = seed
        self._play: SandboxPlay | None = None
        self._said: list[StepObservation] = []
        self._actions: list[Mapping[str, Any]] = []

    async def reset(self) -> StepObservation:
        return await self._ask(None)

    async def step(self, action: Mapping[str, Any]) -> StepObservation:
        return await self._ask(action)

    async def close(self) -> None:
        if self._play is not None:
            play, self._play = self._play, None
            await play.close()

    async def _ask(self, action: Mapping[str, Any] | None) -> StepObservation:
        for attempt in range(TIMEOUT_REPLAYS + 1):
            try:
                if self._play is None:
                    await self._open()
                observation = await self._send(action)
            except EnvironmentTimeout:
                await self.close()
                if attempt == TIMEOUT_REPLAYS:
                    raise
                continue
            if action is not None:
                self._actions.append(action)
            self._said.append(observation)
            return observation
        raise AssertionError("unreachable")

    async def _open(self) -> None:
        """A fresh play, brought to where the lost one was."""
        self._play = await self._program.play()
        for action, before in zip([None, *self._actions], list(self._said), strict=False):
            again = await self._send(action)
            if (again.text, again.reward, again.terminated) != (before.text, before.reward, before.terminated):
                raise EnvironmentFault("nondeterministic", "the same seed and actions gave another observation")

    async def _send(self, action: Mapping[str, Any] | None) -> StepObservation:
        assert self._play is not None
        observation = await (self._play.reset(self._seed) if action is None else self._play.step(action))
        if not math.isfinite(observation.reward) or not -1.0 <= observation.reward <= 1.0:
            raise EnvironmentFault("bad_reward", f"reward {observation.reward!r} is not in [-1, 1]")
        return observation
