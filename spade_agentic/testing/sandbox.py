"""A sandbox that is none: programs run in this very process.

UNSAFE. It protects from nothing: no process, no deadline, no limit. It is for tests and for programs that one has written
oneself. It keeps the sandbox's manners: what a program does wrong is an EnvironmentFault with a reason code.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from spade_agentic.envs.contract import TextEnv, ToolEnv, load_environment
from spade_agentic.errors import EnvironmentFault
from spade_agentic.hooks.kinds import StepObservation
from spade_agentic.hooks.records import Program, ProgramKind

__all__ = ["InProcessPlay", "InProcessProgram", "InProcessSandbox"]

FIELDS = 5


class InProcessSandbox:
    """Runs :func:`~spade_agentic.envs.contract.load_environment` directly. ``unsafe`` says what it is."""

    name = "in_process"
    unsafe = True

    async def start(self) -> None:
        """Nothing to start."""

    async def load(self, program: Program) -> InProcessProgram:
        """Raises EnvironmentFault: ``syntax``, ``import_failed``, ``no_environment``, or ``crash`` in its description."""
        return InProcessProgram(program.source)

    async def stop(self) -> None:
        """Nothing to stop."""


class InProcessProgram:
    """One program; every play is an environment of its own."""

    def __init__(self, source: str) -> None:
        self._source = source
        environment = load_environment(source)
        try:
            self.manifest: Mapping[str, Any] = _manifest(environment, source)
        except Exception as error:
            raise _crash(error) from error

    async def play(self) -> InProcessPlay:
        return InProcessPlay(load_environment(self._source))

    async def close(self) -> None:
        """Nothing to close."""


class InProcessPlay:
    """One instance."""

    def __init__(self, environment: ToolEnv | TextEnv) -> None:
        self._environment = environment

    async def reset(self, seed: int) -> StepObservation:
        try:
            answer = self._environment.reset(seed=seed)
        except Exception as error:
            raise _crash(error) from error
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], str):
            raise EnvironmentFault("protocol", f"reset returned {answer!r:.200}")
        return StepObservation(answer[0], info=dict(answer[1]))

    async def step(self, action: Mapping[str, Any]) -> StepObservation:
        try:
            if isinstance(self._environment, ToolEnv):
                answer: Any = self._environment.step(copy.deepcopy(dict(action)))
            else:
                answer = self._environment.step(str(action["text"]))
        except Exception as error:
            raise _crash(error) from error
        return _observation(answer)

    async def probe(self) -> Mapping[str, Any]:
        try:
            if isinstance(self._environment, ToolEnv):
                return self._environment.probe()
            return {"criteria": [], "solution": [list(self._environment.solution())], "instructions": [], "current": 0}
        except Exception as error:
            raise _crash(error) from error

    async def close(self) -> None:
        """Nothing to close."""


def _manifest(environment: ToolEnv | TextEnv, source: str) -> dict[str, Any]:
    is_tool = isinstance(environment, ToolEnv)
    return {
        "kind": (ProgramKind.TOOL if is_tool else ProgramKind.TEXT).value,
        "tools": environment.tools() if isinstance(environment, ToolEnv) else [],
        "system": environment.system,
        "max_turns": environment.max_turns,
        "lines": len(source.splitlines()),
    }


def _observation(answer: Any) -> StepObservation:
    """What ``step`` answered, checked as the host checks it. Raises EnvironmentFault."""
    if not isinstance(answer, tuple) or len(answer) != FIELDS or not isinstance(answer[0], str):
        raise EnvironmentFault("protocol", f"step returned {answer!r:.200}")
    text, reward, terminated, truncated, info = answer
    if not isinstance(reward, int | float) or not math.isfinite(reward) or not -1.0 <= reward <= 1.0:
        raise EnvironmentFault("bad_reward", f"reward {reward!r} is not in [-1, 1]")
    return StepObservation(text, float(reward), bool(terminated), bool(truncated), dict(info))


def _crash(error: Exception) -> EnvironmentFault:
    return error if isinstance(error, EnvironmentFault) else EnvironmentFault("crash", f"{type(error).__name__}: {error}")
