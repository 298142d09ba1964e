"""Faults, each planted in the real component for as long as a ``with`` lasts, or as a plugin variant that has it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest import mock

from spade_agentic.hooks.kinds import TrainSequence
from spade_agentic.hooks.records import Arm, Completion, Play, Program, Segment
from spade_agentic.inference import engine as engine_module
from spade_agentic.learning.torch_backend import TorchLearner
from spade_agentic.rollout.runner import PlayRequest, RolloutRunner
from spade_agentic.sandbox.worker import Worker
from spade_agentic.selfplay import batch as batch_module
from spade_agentic.testing import InProcessSandbox, sample_program
from spade_agentic.testing.sandbox import InProcessPlay, InProcessProgram

# --- advantages -------------------------------------------------------------------------------------------------------


@contextmanager
def wrong_normaliser(kind: str) -> Iterator[None]:
    """The agent's advantages are divided by the wrong thing: ``nothing``, the ``sample`` deviation, or the ``batch``'s."""
    right = batch_module.agent_advantages

    def wrong(rewards: Sequence[float], keys: Sequence[Any]) -> list[float | None]:
        advantages = right(rewards, keys)
        if kind == "batch":
            together = right(rewards, [0] * len(rewards))
            return [b if a is not None else None for a, b in zip(advantages, together, strict=True)]
        factors = []
        for key in keys:
            members = [r for r, k in zip(rewards, keys, strict=True) if k == key]
            n = len(members)
            mean = sum(members) / n
            deviation = (sum((r - mean) ** 2 for r in members) / n) ** 0.5
            factors.append(deviation if kind == "nothing" else ((n - 1) / n) ** 0.5)
        return [a if a is None else a * f for a, f in zip(advantages, factors, strict=True)]

    with mock.patch.object(batch_module, "agent_advantages", wrong):
        yield


# --- masks ------------------------------------------------------------------------------------------------------------


def shifted(mask: Sequence[bool], by: int) -> list[bool]:
    """The mask, ``by`` one place later (1) or earlier (-1)."""
    return [False, *mask[:-1]] if by == 1 else [*mask[1:], False]


@contextmanager
def mask_off_by_one_when_recorded(by: int) -> Iterator[None]:
    """The trajectory itself has the wrong mask, so that everything after it agrees with it."""
    right = Segment.append_completion

    def wrong(self: Segment, completion: Completion) -> None:
        right(self, completion)
        self.mask[:] = shifted(self.mask, by)

    with mock.patch.object(Segment, "append_completion", wrong):
        yield


@contextmanager
def mask_off_by_one_in_the_batch(by: int) -> Iterator[None]:
    """The trajectory is right and the batch is not."""
    right = batch_module._sequence

    def wrong(*arguments: Any) -> TrainSequence:
        sequence = right(*arguments)
        return replace(sequence, mask=tuple(shifted(sequence.mask, by)))

    with mock.patch.object(batch_module, "_sequence", wrong):
        yield


@contextmanager
def mask_off_by_one_in_the_learner(by: int) -> Iterator[None]:
    """The batch is right and the learner reads it one off."""
    right = TorchLearner.step

    def wrong(self: TorchLearner, batch: Sequence[TrainSequence]) -> dict[str, float]:
        return right(self, [replace(s, mask=tuple(shifted(s.mask, by))) for s in batch])

    with mock.patch.object(TorchLearner, "step", wrong):
        yield


# --- arms -------------------------------------------------------------------------------------------------------------


@contextmanager
def swapped_arms() -> Iterator[None]:
    """Every play is played in the other arm than the one that it is labelled with."""
    right = RolloutRunner._play_one

    async def wrong(self: RolloutRunner, request: PlayRequest, *rest: Any) -> Play:
        other = Arm.PLAIN if request.key.arm is Arm.HINTED else Arm.HINTED
        play = await right(self, replace(request, key=replace(request.key, arm=other)), *rest)
        play.arm = request.key.arm
        return play

    with mock.patch.object(RolloutRunner, "_play_one", wrong):
        yield


# --- the engine -------------------------------------------------------------------------------------------------------

_STALE = """
import sys
from spade_agentic.inference.embedded.lane import Lane
Lane.flush = lambda self: None
Lane.mark_weights_changed = lambda self, old_version: None
from spade_agentic.inference.embedded.__main__ import main
sys.exit(main())
"""


@contextmanager
def stale_cache() -> Iterator[None]:
    """The embedded engine's server keeps the keys and values of old weights after an update."""
    right = subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        at = command.index("-m")
        return right([*command[:at], "-c", _STALE, *command[at + 2 :]], **options)

    with mock.patch.object(engine_module.subprocess, "Popen", popen):
        yield


# --- sandboxes --------------------------------------------------------------------------------------------------------


class OneInstanceForAll(InProcessSandbox):
    """A sandbox whose plays of one program are all the same instance."""

    async def load(self, program: Program) -> InProcessProgram:
        loaded = await super().load(program)
        only = await loaded.play()

        async def play() -> InProcessPlay:
            return only

        loaded.play = play  # type: ignore[method-assign]
        return loaded


class KillsTheGroupOnly(InProcessSandbox):
    """A sandbox that runs a program's source in a process, and ends it by its process group: daemons left that."""

    unsafe = False

    async def load(self, program: Program) -> InProcessProgram:
        loaded = await super().load(sample_program())  # what it answers is not what this is about
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program.source, start_new_session=True)
        await process.wait()

        async def close() -> None:
            with suppress(ProcessLookupError):  # nothing of the group is left
                os.killpg(process.pid, signal.SIGKILL)

        loaded.close = close  # type: ignore[method-assign]
        return loaded


@contextmanager
def nobody_looks_after_loading() -> Iterator[None]:
    """The real sandbox, whose host does not ask what a program left behind when it was loaded."""

    async def looks_away(self: Worker) -> None:
        return None

    with mock.patch.object(Worker, "_audit", looks_away):
        yield
