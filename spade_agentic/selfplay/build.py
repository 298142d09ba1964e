"""One training run: put the parts together, run the loop, and close everything, whichever way it ends.

The order matters. The run directory is locked first. The sandbox starts before torch and before any event loop, because a
process that has threads must not be the one that forks. The learner is closed last, when no thread can be in it any more.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from spade_agentic.config.schema import PluginRef, RunConfig, SamplingConfig
from spade_agentic.envs.gates import GateOptions, run_gates
from spade_agentic.errors import ConfigError, SpadeError
from spade_agentic.hooks.answers import check_evaluation
from spade_agentic.hooks.kinds import Evaluator, InferenceEngine, Learner, Reserving, Sandbox
from spade_agentic.hooks.manager import BuildContext, PluginManager
from spade_agentic.hooks.records import Arm, GateReport, Play, Program
from spade_agentic.hooks.resolution import ResolvedRun, resolve_run
from spade_agentic.rollout.episode import PlayStage
from spade_agentic.rollout.runner import RolloutRunner
from spade_agentic.rollout.scheduler import Admission
from spade_agentic.runs.files import run_dir_error
from spade_agentic.runs.recorder import RunRecorder

from .audit import Reserved
from .batch import BatchMaker
from .delay import DelayBuffer
from .evaluation import EvaluationRunner
from .histories import IntervalHistories
from .loop import SelfPlay, StepRecord
from .pool import Pool
from .rounds import Gates, RoundMaker
from .state import LoopState

if TYPE_CHECKING:
    from spade_agentic.runs.summary import RunSummary

__all__ = ["PLAYS_AT_ONCE", "run_training"]

PLAYS_AT_ONCE = 256
"""Plays in flight: one forked process of a sandbox worker and one row of the engine's batch each."""

STAGES_OF_A_STEP = ("designing", "playing", "updating", "committing")
"""While the run is in one of these a first Ctrl-C waits for the commit; what comes between two steps is done again."""

LEARNER_FOLDER, WEIGHTS_FOLDER = "learner", "weights"
"""What a checkpoint holds: the learner's own state, and the weights as the engine loads them."""


def run_training(config: RunConfig, *, run_dir: Path, resume: bool, manager: PluginManager) -> RunSummary:
    """Train as ``config`` says, in ``run_dir``, until the last step; returns what ``runs show`` prints.

    With ``resume`` the run there is continued from its last commit. A signal ends the run with the status ``interrupted``,
    everything is closed, and the summary is returned all the same: after a first SIGINT the step under way is finished and
    committed, SIGTERM, SIGHUP and a second SIGINT give it up.

    Raises :class:`~spade_agentic.errors.UserError` for a config, a plugin or a run directory that cannot be used (a full disk,
    say), and whatever a failing part of ours raises; the run's status is ``failed`` then, and it can be resumed.
    """
    resolved = resolve_run(config, manager)
    _check_sampling(config)
    recorder = RunRecorder.begin(run_dir, config.to_data(), resume=resume)
    failure: BaseException | None = None
    status = "failed"
    try:
        with _explained(manager, run_dir):
            status = _Training(resolved, manager, recorder).run()
    except KeyboardInterrupt:
        status = "interrupted"
    except BaseException as error:
        failure = error
        raise
    finally:
        summary = _end(recorder, manager, status, failure)
    assert summary is not None
    return summary


def _end(recorder: RunRecorder, manager: PluginManager, status: str, failure: BaseException | None) -> RunSummary | None:
    """Tell everybody and close the recorder. Where the run had failed already, that is what the user must hear of."""
    try:
        with _explained(manager, recorder.dir.path):
            try:
                _notify(recorder, manager, "run_ended", run_id=recorder.run_id, status=status)
            finally:
                summary = recorder.end(status)
    except Exception as error:
        if failure is None:
            raise
        failure.add_note(f"and at the end of the run: {type(error).__name__}: {error}")
        return None
    return summary


@contextmanager
def _explained(manager: PluginManager, run_dir: Path) -> Iterator[None]:
    """While inside, what a third party's plugin raises is said to be the plugin's, and a full disk a full disk."""
    try:
        yield
    except SpadeError:
        raise
    except Exception as error:
        blamed: SpadeError | None = manager.blame(error)
        if blamed is None and isinstance(error, OSError):
            blamed = run_dir_error("training", Path(error.filename or run_dir), error)
        if blamed is None:
            raise
        raise blamed from error


def _check_sampling(config: RunConfig) -> None:
    """A role that is trained must be sampled from the distribution that the learner recomputes."""
    for role in ("agent", "designer"):
        sampling: SamplingConfig = getattr(config.selfplay, f"{role}_sampling")
        path = f"selfplay.{role}_sampling"
        if sampling.temperature == 0.0:
            raise ConfigError(
                f"greedy plays cannot be trained: the {role}'s temperature is 0", where=config.where(f"{path}.temperature"),
                todo="set it above 0, for example to 1.0; evaluations play greedily as well",
            )
        if sampling.top_p < 1.0 or sampling.top_k > 0:
            raise ConfigError(
                f"the {role} is sampled with top_p {sampling.top_p} and top_k {sampling.top_k}: the learner cannot know which"
                " tokens that left out, since no engine here returns the sampling mask",
                where=config.where(path), todo="set top_p to 1.0 and top_k to 0",
            )


class _Training:
    """The parts of one run, from the sandbox to the loop."""

    def __init__(self, resolved: ResolvedRun, manager: PluginManager, recorder: RunRecorder) -> None:
        self.config, self.model_dir = resolved.config, resolved.model_dir
        self.manager, self.recorder = manager, recorder
        self.context = BuildContext(recorder.dir.path, self.config.run.seed, self.config, manager)
        self._stopping = False
        self.checkpoint: Path | None = None
        if recorder.resumed_from is not None:
            self.checkpoint = recorder.dir.checkpoints / recorder.resumed_from.checkpoint
        self._learner: Learner | None = None

    def run(self) -> str:
        """Everything between the beginning and the end of the recorder. Returns ``finished`` or ``interrupted``."""
        sandbox: Sandbox = self.manager.build("sandbox", self.config.sandbox, self.context)
        try:
            return asyncio.run(self._main(sandbox))
        finally:
            # asyncio.run has waited for the thread that an update may have been cancelled in.
            if self._learner is not None:
                self._learner.close()

    async def _main(self, sandbox: Sandbox) -> str:
        with _stop_signals(self._finish_step) as stopped:
            try:
                async with AsyncExitStack() as closing:
                    closing.push_async_callback(sandbox.stop)
                    await sandbox.start()
                    engine: InferenceEngine = self.manager.build("inference_engine", self.config.engine, self.context)
                    closing.push_async_callback(engine.stop)
                    await engine.start(self.model_dir)
                    await self._train(sandbox, engine, closing)
            except (asyncio.CancelledError, SpadeError) as error:
                if not stopped:
                    raise
                # Whatever a signal broke on its way is no failure then.
                structlog.get_logger("spade_agentic").info("stopped_by_signal", signal=stopped[0].name, error=str(error))
        return "interrupted" if stopped else "finished"

    def _finish_step(self, which: signal.Signals) -> bool:
        """A first Ctrl-C: end after the step under way, where there is one. False: there is nothing to wait for."""
        if which is not signal.SIGINT or self.recorder.progress.stage not in STAGES_OF_A_STEP:
            return False
        self._stopping = True
        self.recorder.stop_requested()
        return True

    async def _train(self, sandbox: Sandbox, engine: InferenceEngine, closing: AsyncExitStack) -> None:
        config, recorder = self.config, self.recorder
        self._learner = learner = self.manager.build("learner", config.learner, self.context)
        trackers = [
            self.manager.build("tracker", ref, self.context, path=f"trackers.{i}") for i, ref in enumerate(config.trackers)
        ]
        recorder.attach(trackers)
        loop = self._self_play(sandbox, engine, learner)
        closing.push_async_callback(loop.runner.shelf.close)
        if recorder.resumed_from is not None and self.checkpoint is not None:
            learner.load(self.checkpoint / LEARNER_FOLDER)
            loop.load_state_dict(recorder.resumed_from.state)
            await engine.publish(self.checkpoint / WEIGHTS_FOLDER, recorder.resumed_from.step)
        self._notify("run_started", run_id=recorder.run_id, config=config.to_data())
        await loop.after_step(loop.state.version)
        await loop.run()

    # --- the loop and its parts ------------------------------------------------------------------------------------------

    def _self_play(self, sandbox: Sandbox, engine: InferenceEngine, learner: Learner) -> SelfPlay:
        from spade_agentic.rollout.rendering import build_rendering

        config, play = self.config, self.config.selfplay
        renderer = config.model.renderer
        runner = RolloutRunner(
            engine=engine, rendering=build_rendering(self.model_dir, {"name": renderer.name, **renderer.options}),
            sandbox=sandbox, run_seed=config.run.seed, context_tokens=config.model.context_tokens, slots=PLAYS_AT_ONCE,
            deterministic=config.run.deterministic,
        )
        evaluator = self._build("evaluator", config.evaluation)
        designer = self._build("env_designer", play.designer)
        reserved = _reserved_by(designer, evaluator)
        rounds = RoundMaker(
            runner=runner, designer=designer, hint_writer=self._build("hint_writer", play.hint_writer),
            curriculum=self._build("curriculum", play.curriculum), memory=self._build("memory_store", play.memory),
            gates=_gates(sandbox, reserved), slots=play.environments, attempts=play.attempts,
            designer_sampling=play.designer_sampling.sampling(), hint_sampling=play.hint_sampling.sampling(),
        )
        pool = Pool(play.environments)
        agent_sampling = play.agent_sampling.sampling()

        watch = _EvaluationWatch(self.recorder)

        async def evaluate(version: int) -> None:
            await self._evaluate(evaluator, EvaluationRunner(runner, rounds, pool, agent_sampling, version, watch))

        return SelfPlay(
            runner=runner, rounds=rounds, reward=self._build("designer_reward", play.reward), learner=learner,
            batches=BatchMaker(
                agent_sampling=agent_sampling, designer_sampling=play.designer_sampling.sampling(),
                agent_group=play.agent_group, refused_advantage=play.refused_advantage,
                weight_cap=play.designer_weight_cap, interval=play.regenerate_every,
            ),
            pool=pool, histories=IntervalHistories(min_pairs=play.min_pairs, version_gap=play.pair_version_gap),
            delay=DelayBuffer(play.delay_steps), admission=Admission(batch=play.environments * play.seeds * play.repeats),
            state=LoopState(), commit=functools.partial(self._commit, learner),
            publish=functools.partial(self._publish, engine), notify=self._notify,
            watch=_Watch(self.recorder, self._notify), reserved=reserved, steps=config.run.steps,
            regenerate_every=play.regenerate_every, most_rounds=play.rounds, train_designer=play.train_designer,
            seeds=play.seeds, repeats=play.repeats,
            hinted_every_step=play.hinted == "every_step", agent_sampling=agent_sampling, after_step=evaluate,
        )

    def _build(self, hook: str, ref: PluginRef) -> Any:
        return self.manager.build(hook, ref, self.context)

    def _notify(self, hook: str, **arguments: Any) -> None:
        _notify(self.recorder, self.manager, hook, **arguments)

    def _commit(self, learner: Learner, record: StepRecord, state: Mapping[str, Any]) -> None:
        def fill(folder: Path) -> None:
            learner.save(folder / LEARNER_FOLDER)
            learner.save_weights(folder / WEIGHTS_FOLDER)

        record.metrics["hook_errors"] = self.manager.hook_error_count
        self.checkpoint = self.recorder.commit(record, state, fill)

    async def _publish(self, engine: InferenceEngine, version: int) -> None:
        """The weights that were committed are the ones that are served: they are read from the checkpoint itself."""
        if self._stopping:  # the step is committed, and nobody will play with its weights
            raise asyncio.CancelledError("the run was asked to end after this step")
        assert self.checkpoint is not None
        await engine.publish(self.checkpoint / WEIGHTS_FOLDER, version)

    async def _evaluate(self, evaluator: Evaluator, runner: EvaluationRunner) -> None:
        """Measure the weights that are published now, where that is due and was not done before a kill."""
        name, every, version = self.config.evaluation.name, self.config.evaluation.every, runner.step
        due = version in (0, self.config.run.steps) or (every > 0 and version % every == 0)
        if not due or self.recorder.has_evaluation(step=version, name=name):
            return
        self.recorder.stage("evaluating")
        result = check_evaluation(evaluator, await evaluator.evaluate(runner, step=version))
        self.recorder.record_evaluation(step=version, name=name, result=result)


class _Watch:
    """Plays as they go, for the live view; and each finished one, for the life-cycle hooks."""

    def __init__(self, recorder: RunRecorder, notify: Callable[..., None]) -> None:
        self._recorder, self._notify = recorder, notify

    def plays_expected(self, count: int) -> None:
        self._recorder.stage("playing", plays_expected=count)

    def play_started(self, play_id: str, env_id: str, arm: Arm) -> None:
        self._recorder.play_started(play_id, env_id, arm)

    def play_entered(self, play_id: str, stage: PlayStage) -> None:
        self._recorder.play_entered(play_id, stage)

    def play_progressed(self, play_id: str) -> None:
        self._recorder.play_progressed(play_id)

    def play_finished(self, play: Play) -> None:
        self._notify("play_finished", play=play)


class _EvaluationWatch:
    """Plays of an evaluation as they go, for whoever watches the run; they are counted nowhere and are nobody's event."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder

    def plays_expected(self, count: int) -> None:
        """Nothing: how many there are is the evaluator's business."""

    def play_started(self, play_id: str, env_id: str, arm: Arm) -> None:
        self._recorder.look_on(play_id, env_id, arm)

    def play_entered(self, play_id: str, stage: PlayStage) -> None:
        self._recorder.play_entered(play_id, stage)

    def play_progressed(self, play_id: str) -> None:
        self._recorder.play_progressed(play_id)

    def play_finished(self, play: Play) -> None:
        self._recorder.look_away(play.play_id)


def _notify(recorder: RunRecorder, manager: PluginManager, hook: str, **arguments: Any) -> None:
    """Our own record first, so that a plugin that ends the run has been seen to be called."""
    recorder.notify(hook, **arguments)
    manager.call_lifecycle(hook, **arguments)


def _reserved_by(*parts: Any) -> Reserved:
    """Whatever any of ``parts`` keeps for evaluation (:class:`~spade_agentic.hooks.kinds.Reserving`) is kept."""
    keepers = [part for part in parts if isinstance(part, Reserving)]

    def reserved(program: Program) -> str | None:
        return next((reason for keeper in keepers if (reason := keeper.reserved(program)) is not None), None)

    return reserved


def _gates(sandbox: Sandbox, reserved: Reserved) -> Gates:
    async def gates(program: Program, known: Callable[[str], bool]) -> GateReport:
        return await run_gates(program, sandbox, options=GateOptions(), known=known, reserved=reserved)

    return gates


@contextmanager
def _stop_signals(finish_step: Callable[[signal.Signals], bool]) -> Iterator[list[signal.Signals]]:
    """While inside, SIGINT, SIGTERM and SIGHUP are noted in the list and cancel the current task; a later one its closing too.

    The first one does not, where ``finish_step`` says that it sees to it. Signals belong to the main thread:
    elsewhere (a notebook, a test) nothing is changed.
    """
    stopped: list[signal.Signals] = []
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def stop(which: signal.Signals) -> None:
        stopped.append(which)
        if len(stopped) > 1 or not finish_step(which):
            task.cancel()

    handled = [signal.SIGINT, signal.SIGTERM] if threading.current_thread() is threading.main_thread() else []
    if handled and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup a closed terminal ends nothing
        handled.append(signal.SIGHUP)
    for which in handled:
        loop.add_signal_handler(which, stop, which)
    try:
        yield stopped
    finally:
        for which in handled:
            loop.remove_signal_handler(which)
