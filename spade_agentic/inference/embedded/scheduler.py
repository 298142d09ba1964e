"""The compute thread: who runs when, in which lane, on which weights.

Free requests are batched continuously: they enter as rows become vacant and leave when they end. Waves are lockstep: the
``size`` requests that name one wave start together, in the order of their ids, after the wave before them has ended.

What makes waves repeatable bit for bit. A wave runs in a lane of its own, so nothing but waves touches its batch and its
cache. Wave ids are ``<scope>-w<n>``; with the first wave of a scope other than the last one's, and with every change of
weights, the lane goes back to the state of a fresh server. So the results of a wave are a function of the weights and of
the waves of its scope so far, and a caller that repeats a scope from its first wave (a step is redone whole after a kill)
gets the same bits, whatever this server did before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from ...errors import EngineError
from .lane import Lane
from .model import Qwen3, Weights
from .requests import GenerationRequest, Wave

__all__ = ["PauseMode", "Refused", "Scheduler", "SchedulerStats"]

PauseMode = Literal["abort", "retract", "in_place"]
_log = logging.getLogger(__name__)


class Refused(EngineError):
    """The server does not do what was asked in its present state. ``status`` is the HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


@dataclass(slots=True)
class SchedulerStats:
    """Counters since the start."""

    generated_tokens: int = 0
    decode_steps: int = 0
    waves: int = 0
    busy_seconds: float = 0.0


@dataclass(slots=True)
class _Gathering:
    """A wave that is being gathered or run. ``pending`` is sorted by request id once all are there."""

    size: int
    arrived: int = 0
    pending: deque[GenerationRequest] = field(default_factory=deque)

    @property
    def complete(self) -> bool:
        return self.arrived >= self.size


class Scheduler:
    """Owns the model and both lanes. Every public method may be called from any thread.

    Futures resolve in the compute thread.
    """

    def __init__(self, model: Qwen3, *, max_batch: int, pool_tokens: int) -> None:
        self.stats = SchedulerStats()
        self.failure: BaseException | None = None
        self._model = model
        self._free = Lane(model, max_rows=max_batch, pool_tokens=pool_tokens)
        self._locked = Lane(model, max_rows=max_batch, pool_tokens=pool_tokens)
        self._waiting: deque[GenerationRequest] = deque()
        self._waves: dict[str, _Gathering] = {}
        self._scope: str | None = None
        self._paused: PauseMode | None = None
        self._ids: set[str] = set()
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)

    # -- from any thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the compute thread after its present step; what runs is aborted."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    @property
    def version(self) -> str:
        return self._model.weights.version

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self.failure is None

    def submit(self, request: GenerationRequest) -> Future[None]:
        """Queue ``request``; its result comes by ``deliver``. The future fails with :class:`Refused` where it is not taken."""
        return self._call(lambda: self._enqueue(request))

    def abort(self, request_id: str | None) -> Future[None]:
        """End the request of this id, or all (``None``), with the tokens they have. An unknown id is no error."""
        return self._call(lambda: self._abort(lambda r: request_id is None or r.request_id == request_id))

    def pause(self, mode: PauseMode) -> Future[None]:
        """Stop decoding. ``abort`` ends what runs, ``retract`` queues it again with its tokens, ``in_place`` keeps it."""
        return self._call(lambda: self._pause(mode))

    def resume(self) -> Future[None]:
        return self._call(self._resume)

    def flush(self) -> Future[None]:
        """Empty both prefix caches. Refused while requests run."""
        return self._call(self._flush)

    def swap(self, weights: Weights) -> Future[None]:
        """Serve ``weights`` from the next step on, and empty both prefix caches.

        Requests that run (after a pause in place, or none at all) go on with the keys and values they have.
        """
        return self._call(lambda: self._swap(weights))

    def load(self) -> Future[dict[str, Any]]:
        """What runs and what waits."""
        return self._call(self._load)

    def _call(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except EngineError as error:
                future.set_exception(error)

        with self._wake:
            if self._stopping or self.failure is not None:
                future.set_exception(Refused("the server is shutting down", 503))
                return future
            self._inbox.append(run)
            self._wake.notify()
        return future

    # -- in the compute thread ---------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _run(self) -> None:
        try:
            while self._receive():
                began = time.perf_counter()
                self._admit()
                for lane in (self._locked, self._free):
                    if lane.running and self._paused is None:
                        self.stats.generated_tokens += lane.step()
                        self.stats.decode_steps += 1
                self.stats.busy_seconds += time.perf_counter() - began
            self._abort(lambda r: True)
        except BaseException as error:
            _log.exception("the compute thread failed")
            self.failure = error
            raise

    def _receive(self) -> bool:
        """Carry out what was asked; wait for more where nothing can be computed. False at the end."""
        while True:
            with self._wake:
                while not (self._inbox or self._stopping or self._has_work()):
                    self._wake.wait()
                orders, self._inbox = self._inbox, deque()
                if self._stopping and not orders:
                    return False
            for order in orders:
                order()
            if self._stopping or self._has_work():
                return not self._stopping

    def _has_work(self) -> bool:
        return self._paused is None and bool(
            self._free.running or self._locked.running or self._waiting or any(w.complete for w in self._waves.values())
        )

    def _enqueue(self, request: GenerationRequest) -> None:
        if request.request_id in self._ids:
            raise Refused(f"a request with id {request.request_id!r} is running already", 409)
        if request.wave is None:
            self._waiting.append(request)
        else:
            self._gather(request, request.wave)
        self._ids.add(request.request_id)
        deliver = request.deliver

        def delivered(result: Any) -> None:
            self._ids.discard(request.request_id)
            deliver(result)

        request.deliver = delivered

    def _gather(self, request: GenerationRequest, wave: Wave) -> None:
        gathering = self._waves.setdefault(wave.wave_id, _Gathering(wave.size))
        if gathering.size != wave.size:
            raise Refused(f"wave {wave.wave_id!r} has {gathering.size} requests, this one says {wave.size}")
        if gathering.complete:
            raise Refused(f"wave {wave.wave_id!r} has left with {gathering.size} requests")
        gathering.arrived += 1
        gathering.pending.append(request)
        if gathering.complete:
            gathering.pending = deque(sorted(gathering.pending, key=lambda r: r.request_id))

    def _admit(self) -> None:
        if self._paused is not None:
            return
        if not self._locked.running:
            self._start_wave()
        count = min(self._free.vacant, len(self._waiting))
        if count:
            self._free.admit([self._waiting.popleft() for _ in range(count)])
            self.stats.generated_tokens += count

    def _start_wave(self) -> None:
        """Start the next full wave, the first ``max_batch`` of it at once and the others when those have ended."""
        for wave_id, wave in list(self._waves.items()):
            if not wave.complete:
                continue
            if not wave.pending:
                del self._waves[wave_id]
                continue
            scope = wave_id.rpartition("-w")[0] or wave_id
            if scope != self._scope:
                self._locked.flush()
                self._scope = scope
            count = min(self._locked.vacant, len(wave.pending))
            self.stats.waves += 1
            self._locked.admit([wave.pending.popleft() for _ in range(count)])
            self.stats.generated_tokens += count
            if not wave.pending:
                del self._waves[wave_id]
            return

    def _abort(self, chosen: Callable[[GenerationRequest], bool]) -> None:
        for lane in (self._locked, self._free):
            lane.abort(chosen)
        queues = [self._waiting, *(w.pending for w in self._waves.values())]
        for queue in queues:
            gone = [r for r in queue if chosen(r)]
            for request in gone:
                queue.remove(request)
                request.deliver(request.result({"type": "abort", "message": "aborted"}, self.version))
        # A wave that lost a member before it left can never be full: its other members must not wait for ever.
        for wave_id, wave in list(self._waves.items()):
            if not wave.complete and len(wave.pending) < wave.arrived:
                del self._waves[wave_id]
                for request in wave.pending:
                    request.deliver(request.result({"type": "abort", "message": "its wave lost a member"}, self.version))

    def _pause(self, mode: PauseMode) -> None:
        if mode == "abort":
            self._abort(lambda r: True)
        elif mode == "retract":
            self._waiting.extendleft(reversed(self._free.retract()))
            self._retract_wave()
        self._paused = mode

    def _retract_wave(self) -> None:
        taken = self._locked.retract()
        for request in sorted(taken, key=lambda r: r.request_id, reverse=True):
            assert request.wave is not None
            wave = self._waves.setdefault(request.wave.wave_id, _Gathering(request.wave.size, request.wave.size))
            wave.pending.appendleft(request)

    def _resume(self) -> None:
        self._paused = None

    def _flush(self) -> None:
        if self._free.running or self._locked.running:
            raise Refused("the cache is not flushed while requests run; pause with mode retract or abort first")
        self._free.flush()
        self._locked.flush()
        self._scope = None

    def _swap(self, weights: Weights) -> None:
        for lane in (self._free, self._locked):
            lane.mark_weights_changed(self.version)
        self._model.weights = weights
        for lane in (self._free, self._locked):
            if not lane.running:
                lane.flush()
        self._scope = None

    def _load(self) -> dict[str, Any]:
        return {
            "running": self._free.running + self._locked.running,
            "waiting": len(self._waiting) + sum(len(w.pending) for w in self._waves.values()),
            "cached_tokens": self._free.cached_tokens + self._locked.cached_tokens,
            "paused": self._paused,
        }
