"""Which plays run when: admission under the staleness bound, and the lockstep of deterministic runs.

Asynchrony is a matter of admission alone (AReaL's rule): a play may start while
``min(free slots, (eta + version + 1) * batch - accepted - running) > 0``. ``eta`` is how many weight versions a play may
be behind when it is trained; synchronous training is ``eta = 0``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from .session import Ticket, no_wave

__all__ = ["Admission", "Job", "Lockstep", "Scheduler"]

T = TypeVar("T")


@dataclass(slots=True)
class Admission:
    """The capacity rule. Its unit is what must be admitted together: a pair of plays where both arms are played.

    ``batch`` is the number of units that one training step consumes, ``accepted`` counts those already handed to
    training in the whole run, ``version`` the updates made so far.
    """

    batch: int
    eta: int = 0
    version: int = 0
    accepted: int = 0
    running: int = 0

    def capacity(self, free_slots: int) -> int:
        """How many more units may start now; never negative."""
        allowed = (self.eta + self.version + 1) * self.batch - self.accepted - self.running
        return max(0, min(free_slots, allowed))


class Lockstep:
    """Makes the batches of the engine a function of the work alone.

    All active members submit together: a wave leaves when every one of them waits for it, and carries its number and
    size. A member that is done leaves; who is admitted in its place joins before the next wave can leave. So the
    composition of every wave is the same in every run, whatever the machine is doing.
    """

    def __init__(self, name: str) -> None:
        self.waves = 0
        self._name = name
        self._active: set[str] = set()
        self._waiting: dict[str, asyncio.Future[tuple[str, int]]] = {}

    def join(self, member: str) -> None:
        assert member not in self._active, f"{member} joined twice"
        self._active.add(member)

    def leave(self, member: str) -> None:
        self._active.discard(member)
        self._waiting.pop(member, None)
        self._depart()

    async def ticket(self, member: str) -> tuple[str, int]:
        """Wait for the next wave; returns its id and its size."""
        assert member in self._active, f"{member} is not active"
        assert member not in self._waiting, f"{member} already waits"
        future: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self._waiting[member] = future
        self._depart()
        return await future

    def _depart(self) -> None:
        if not self._waiting or len(self._waiting) < len(self._active):
            return
        wave = (f"{self._name}-w{self.waves}", len(self._waiting))
        self.waves += 1
        departing, self._waiting = self._waiting, {}
        for future in departing.values():
            if not future.done():
                future.set_result(wave)


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """One conversation to hold. ``run`` gets the ticket that its session must show for every completion."""

    job_id: str
    run: Callable[[Ticket], Awaitable[T]]


class Scheduler:
    """Runs jobs under a limit of ``slots``. An exception in any job cancels the rest and is raised."""

    def __init__(self, *, slots: int, deterministic: bool) -> None:
        assert slots >= 1
        self.slots = slots
        self.deterministic = deterministic

    async def run(
        self, name: str, units: Sequence[Sequence[Job[T]]], *, admission: Admission | None = None
    ) -> list[list[T]]:
        """Run all jobs; the jobs of one unit start together. Results come in the order of ``units``.

        ``name`` is unique in the run; waves are named after it.
        """
        batch = _Batch(self, name, units, admission)
        try:
            async with asyncio.TaskGroup() as group:
                batch.start(group)
        except BaseExceptionGroup as failures:
            raise _first_cause(failures) from failures
        return batch.results()


def _first_cause(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first: the other jobs were cancelled because of it."""
    first = failures.exceptions[0]
    return _first_cause(first) if isinstance(first, BaseExceptionGroup) else first


class _Batch(Generic[T]):
    def __init__(
        self, scheduler: Scheduler, name: str, units: Sequence[Sequence[Job[T]]], admission: Admission | None
    ) -> None:
        widest = max((len(unit) for unit in units), default=0)
        assert widest <= scheduler.slots, f"{name}: {widest} jobs must start together, but there are {scheduler.slots} slots"
        self._name = name
        self._free = scheduler.slots
        self._units = units
        self._pending = deque(range(len(units)))
        self._left = [len(unit) for unit in units]
        self._done: dict[tuple[int, int], T] = {}
        self._admission = admission
        self._lockstep = Lockstep(name) if scheduler.deterministic else None

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._admit()

    def results(self) -> list[list[T]]:
        assert not self._pending, f"{self._name}: {len(self._pending)} units were never admitted"
        return [[self._done[u, j] for j in range(len(unit))] for u, unit in enumerate(self._units)]

    def _admit(self) -> None:
        while self._pending:
            unit = self._units[self._pending[0]]
            if len(unit) > self._free or (self._admission is not None and self._admission.capacity(self._free) < 1):
                return
            index = self._pending.popleft()
            self._free -= len(unit)
            if self._admission is not None:
                self._admission.running += 1
            for job in unit:
                if self._lockstep is not None:
                    self._lockstep.join(job.job_id)
            for number, job in enumerate(unit):
                self._group.create_task(self._run(index, number, job), name=job.job_id)
            if not unit:
                self._finish_unit()

    async def _run(self, index: int, number: int, job: Job[T]) -> None:
        self._done[index, number] = await job.run(self._ticket(job.job_id))
        # No await from here on: who comes next joins the lockstep before the wave can leave without it.
        self._free += 1
        self._left[index] -= 1
        if self._left[index] == 0:
            self._finish_unit()
        self._admit()
        if self._lockstep is not None:
            self._lockstep.leave(job.job_id)

    def _finish_unit(self) -> None:
        if self._admission is not None:
            self._admission.running -= 1
            self._admission.accepted += 1

    def _ticket(self, job_id: str) -> Ticket:
        lockstep = self._lockstep
        if lockstep is None:
            return no_wave

        async def ticket() -> tuple[str, int] | None:
            return await lockstep.ticket(job_id)

        return ticket
