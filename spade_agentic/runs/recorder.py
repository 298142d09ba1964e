"""Everything that a running run leaves behind, behind one object.

The self-play loop tells the recorder what happens (:meth:`RunRecorder.notify`, the life-cycle hooks by name) and hands it each
finished step (:meth:`RunRecorder.commit`); the recorder writes checkpoint, store, events, transcripts, metrics, status and
view, in the order that a kill at any point can bear: checkpoint, commit, then what can be made again from the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from spade_agentic.hooks.kinds import Tracker, TrainSequence
from spade_agentic.hooks.records import Arm, Draft, Environment, Play, Regret

from .events import EventLog
from .layout import RunDir, new_run_id
from .live import NoView, View, open_view
from .progress import Progress, StatusFile
from .reader import Commit, numbers
from .store import RunStore
from .summary import RunSummary, show_run
from .transcripts import write_transcripts

__all__ = ["RunRecorder", "StepLike"]


class StepLike(Protocol):
    """What one step made, for its commit."""

    @property
    def step(self) -> int: ...
    @property
    def plays(self) -> Sequence[Play]: ...
    @property
    def drafts(self) -> Sequence[Draft]: ...
    @property
    def environments(self) -> Sequence[Environment]: ...
    @property
    def regrets(self) -> Mapping[str, Regret]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


class RunRecorder:
    """Records one run, from :meth:`begin` to :meth:`end`. ``resumed_from`` is the commit to continue from, if any."""

    resumed_from: Commit | None

    def __init__(self, store: RunStore, *, steps: int, view: View, keep_checkpoints: int, clock: Callable[[], float]) -> None:
        self.store = store
        self.dir: RunDir = store.dir
        self.run_id = str(store.meta()["run_id"])
        self.resumed_from = store.last_commit()
        self.events = EventLog(self.dir.events, self.run_id, clock=clock)
        self.trackers: list[Tracker] = []
        self.tracker_errors = 0
        self.progress = Progress(self.run_id, steps, step=self.resumed_from.step if self.resumed_from else 0, clock=clock)
        self._status = StatusFile(self.dir.status, clock=clock)
        self._view, self._keep = view, keep_checkpoints
        self._cleanup = ExitStack()
        self._cleanup.callback(store.close)
        self._cleanup.callback(self.events.close)
        self._cleanup.enter_context(self.events.capture())
        self._cleanup.callback(lambda: self._show(lambda view: view.close()))
        self._recall()
        self._show(lambda view: view.open(self.progress))

    @classmethod
    def begin(
        cls, run_dir: Path, config: Mapping[str, Any], *, resume: bool, view: View | None = None, keep_checkpoints: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Create the run in ``run_dir``, or continue the one there. ``config`` is the resolved one (``RunConfig.to_data()``).

        Raises :class:`~spade_agentic.errors.RunDirError`; see :meth:`RunStore.create` and :meth:`RunStore.open`.
        """
        if resume:
            store = RunStore.open(run_dir, config=config, clock=clock)
        else:
            store = RunStore.create(run_dir, _run_id(run_dir, str(config["run"]["name"])), config, clock=clock)
        return cls(
            store, steps=int(config["run"]["steps"]), view=view or open_view(), keep_checkpoints=keep_checkpoints, clock=clock
        )

    def attach(self, trackers: Sequence[Tracker]) -> None:
        """Send metrics to ``trackers`` too. They are built after :meth:`begin`, since they look at what is committed."""
        self.trackers.extend(trackers)

    # --- what the loop tells -----------------------------------------------------------------------------------------

    def notify(self, hook: str, **arguments: Any) -> None:
        """A life-cycle hook of :mod:`spade_agentic.hooks.specs` happened."""
        getattr(self, f"_on_{hook}")(**arguments)
        self._changed()

    def stage(self, stage: str, *, plays_expected: int = 0) -> None:
        """The run goes on to ``stage``: designing, playing, updating, committing, publishing or evaluating."""
        if plays_expected:
            self.progress.plays_expected = plays_expected
        if self.progress.enter(stage):
            step = self.progress.step + 1
            self.events.emit("stage_changed", id=f"step-{step:06d}", stage=stage, step=step)
            self.events.flush()
            self._status.write(self.progress, force=True)

    def play_started(self, play_id: str, env_id: str, arm: Arm) -> None:
        """A play was admitted."""
        self.stage("playing")
        self.progress.play_started(play_id, env_id, arm)
        self.events.emit("play_started", id=play_id, env_id=env_id, arm=arm.value)
        self._changed()

    def look_on(self, play_id: str, env_id: str, arm: Arm) -> None:
        """A play of an evaluation begins: it is in flight, and that is all there is to say of it."""
        self.progress.take_off(play_id, env_id, arm)
        self._changed()

    def look_away(self, play_id: str) -> None:
        """A play of an evaluation has ended."""
        self.progress.in_flight.pop(play_id, None)
        self._changed()

    def play_entered(self, play_id: str, stage: str) -> None:
        """A play now waits for something else: ``resetting``, ``sampling`` or ``acting``."""
        self.progress.play_entered(play_id, stage)
        self._changed()

    def play_progressed(self, play_id: str) -> None:
        """A play took a turn."""
        self.progress.play_progressed(play_id)
        self._changed()

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, record: StepLike, state: Mapping[str, Any], fill: Callable[[Path], None]) -> Path:
        """Make a step durable: ``fill`` writes the learner's files into the checkpoint's folder, then one transaction.

        Returns the checkpoint's folder. Old checkpoints are pruned, transcripts and metrics written after the commit; a
        failure there is an event and loses nothing, since all of it is in the store.
        Raises :class:`~spade_agentic.errors.RunDirError` and :class:`~spade_agentic.errors.StoreError`; the step then did not
        happen.
        """
        self.stage("committing")
        path = self.store.checkpoints.write(record.step, fill)
        metrics = {**record.metrics, **self.progress.take_stage_times()}
        self.store.commit_step(
            step=record.step, checkpoint=path, state=state, plays=record.plays, drafts=record.drafts,
            environments=record.environments, regrets=record.regrets, metrics=metrics,
        )
        step_id = f"step-{record.step:06d}"
        self.progress.step_done(record.step, record.regrets)
        self.events.emit("step_committed", id=step_id, step=record.step, plays=len(record.plays), **_rounded(metrics))
        if removed := self.store.prune(self._keep):
            self.events.emit("checkpoints_pruned", id=step_id, removed=removed)
        try:
            write_transcripts(self.dir.transcripts, record.step, record.plays)
        except OSError as error:
            self.events.emit("transcripts_failed", id=step_id, level="warning", error=str(error))
        self._track(record.step, metrics)
        self.events.flush()
        self._show(lambda view: view.step_done())
        self._status.write(self.progress, force=True)
        return path

    def stop_requested(self) -> None:
        """The run was asked to end after the step under way."""
        step = self.progress.step + 1
        self.events.emit(
            "stop_requested", id=self.run_id, level="warning", step=step,
            hint=f"ending after step {step}; Ctrl-C again ends at once and gives the step up",
        )
        self.events.flush()

    def record_evaluation(self, *, step: int, name: str, result: Mapping[str, Any]) -> None:
        """Store what an evaluator answered for the weights of ``step`` (0: before training), and show it."""
        self.store.record_evaluation(step=step, name=name, result=result)
        self.events.emit("evaluation_finished", id=f"{name}-step-{step:06d}", step=step, **_rounded(numbers(result)))
        self.events.flush()
        self._track(step, numbers(result))
        self._show(lambda view: view.evaluated(step, name, result))

    def has_evaluation(self, *, step: int, name: str) -> bool:
        """Whether the evaluator ``name`` has answered for ``step`` already (a resumed run need not ask again)."""
        return any(row.step == step for row in self.store.evaluations(name))

    def end(self, status: str) -> RunSummary:
        """Record how the run ended (``finished``, ``interrupted``, ``failed``), close everything, and sum the run up.

        Every part is closed, whatever the others raise; the first failure is raised at the end.
        """
        with self._cleanup:
            for tracker in self.trackers:
                self._cleanup.callback(self._guarded, tracker.close, tracker)
            self.progress.enter(status)
            self.store.finish(status, stage_s=self.progress.stage_s)
            self._status.write(self.progress, force=True)
            self._write_report()
        return show_run(self.dir.path)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _write_report(self) -> None:
        """The page for people. The run is over and in the store: a page that fails is an event, no failure of the run."""
        from .html import write_report

        try:
            write_report(self.dir.path)
        except Exception as error:
            self.events.emit("report_failed", id=self.run_id, level="warning", error=f"{type(error).__name__}: {error}")

    def _recall(self) -> None:
        """Continue the counts that an earlier process of this run began."""
        totals = self.store.totals()
        self.progress.rounds = totals["rounds"]
        self.progress.admitted = totals["environments"]
        self.progress.refused.update(self.store.refusals())
        for name in self.store.recovered.half_written:
            self.events.emit("checkpoint_recovered", id=name, level="warning", was="half written")
        for name in self.store.recovered.unnamed:
            self.events.emit("checkpoint_recovered", id=name, level="warning", was="never committed")

    def _changed(self) -> None:
        self._status.write(self.progress)
        self._show(lambda view: view.changed())

    def _show(self, draw: Callable[[View], None]) -> None:
        """Let the view draw. A terminal that was closed, or a pipe that nobody reads, must not cost the run."""
        try:
            draw(self._view)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed in this process
            self._view = NoView()
            self.events.emit("view_failed", id=self.run_id, error=f"{type(error).__name__}: {error}")

    def _track(self, step: int, metrics: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            self._guarded(lambda t=tracker: t.log(step, metrics), tracker)  # type: ignore[misc]

    def _guarded(self, call: Callable[[], None], tracker: Tracker) -> None:
        """A tracker that fails (a service that is away, a full disk) must not cost the run: its metrics are committed."""
        try:
            call()
        except Exception as error:
            self.tracker_errors += 1
            self.events.emit(
                "tracker_failed", id=type(tracker).__name__, level="warning", error=f"{type(error).__name__}: {error}",
                count=self.tracker_errors,
            )

    def _on_run_started(self, run_id: str, config: Mapping[str, Any]) -> None:
        resumed = self.resumed_from.step if self.resumed_from else None
        self.events.emit("run_started", id=run_id, resumed_from=resumed, steps=self.progress.steps)

    def _on_round_opened(self, round_index: int, step: int) -> None:
        self.progress.rounds = round_index + 1
        self.stage("designing")
        self.events.emit("round_opened", id=f"round-{round_index}", round_index=round_index, step=step)

    def _on_program_admitted(self, environment: Environment, draft: Draft) -> None:
        self.progress.admitted += 1
        self.events.emit(
            "program_admitted", id=draft.draft_id, env_id=environment.env_id, skill=draft.skill.value, attempt=draft.attempt,
        )

    def _on_program_refused(self, draft: Draft) -> None:
        refusal = draft.refusal
        assert refusal is not None, f"{draft.draft_id} was refused without a reason"
        self.progress.refused[f"{refusal.gate}:{refusal.code}"] += 1
        self.events.emit(
            "program_refused", id=draft.draft_id, gate=refusal.gate, code=refusal.code, detail=refusal.detail[:300],
            skill=draft.skill.value, attempt=draft.attempt,
        )

    def _on_play_finished(self, play: Play) -> None:
        self.stage("playing")
        self.progress.play_finished(play)
        fault = {"fault": play.fault} if play.fault else {}
        self.events.emit(
            "play_finished", id=play.play_id, env_id=play.env_id, arm=play.arm.value, reward=play.reward, stop=play.stop.value,
            turns=len(play.turns), duration_s=round(play.duration_s, 3), **fault,
        )

    def _on_batch_ready(self, step: int, sequences: Sequence[TrainSequence]) -> None:
        self.events.emit("batch_ready", id=f"step-{step:06d}", step=step, sequences=len(sequences))
        self.stage("updating")

    def _on_step_committed(self, step: int, metrics: Mapping[str, float]) -> None:
        self.stage("publishing")

    def _on_run_ended(self, run_id: str, status: str) -> None:
        self.events.emit("run_ended", id=run_id, status=status)


def _rounded(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Metrics as an event shows them; the exact ones are in the store."""
    taken = {"id", "run_id", "event", "level", "seq", "t", "elapsed_s", "step", "plays"}
    return {k: float(f"{v:.6g}") for k, v in metrics.items() if k not in taken}


def _run_id(run_dir: Path, name: str) -> str:
    """The folder's name where it was made for this run, else a new id."""
    folder = Path(run_dir).resolve().name
    return folder if folder.startswith(name) else new_run_id(name)


