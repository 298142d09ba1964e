"""The self-play loop (paper, section 3): designer and agent, one policy::

    for t in 0 .. steps-1:
        if t mod k == 0:  a new interval; up to ``rounds`` times with a round: drafts -> gates -> hints -> the pool is swapped
        play every environment of the pool: seeds x repeats plain, and hinted on the same seeds when hints are due
        if the interval ends:  regret and reward of every environment; memory and curriculum learn of it
        batch = the agent's plain plays of this step + the designer's drafts that have waited ``delay`` steps
        update the weights, commit, publish

A step is a function of the state before it and the run's seed; :meth:`SelfPlay.state_dict` is all there is to that state.
A step that was not committed did not happen: a run that is killed in it does it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spade_agentic.hooks.answers import check_metrics, reward_of
from spade_agentic.hooks.kinds import DesignerReward, Learner, Observer, TrainSequence
from spade_agentic.hooks.records import Arm, Draft, Environment, Play, Regret, Sampling
from spade_agentic.rollout.runner import PlayRequest, PlayWatch, RolloutRunner, pair_requests
from spade_agentic.rollout.scheduler import Admission
from spade_agentic.rollout.seeding import instance_seeds

from .audit import Reserved, audit_step
from .batch import BatchMaker
from .delay import DelayBuffer, WaitingDraft
from .histories import IntervalHistories
from .metrics import play_metrics, regret_metrics, round_metrics, staleness_metrics
from .pool import Pool
from .rounds import Round, RoundMaker
from .state import LoopState

__all__ = ["SelfPlay", "StepRecord"]


@dataclass(slots=True)
class StepRecord:
    """Everything that one step made, for the commit. ``step`` counts from 1: the updates made, this one included."""

    step: int
    plays: list[Play] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    environments: list[Environment] = field(default_factory=list)
    regrets: dict[str, Regret] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class SelfPlay:
    """The loop, over parts that :mod:`spade_agentic.selfplay.build` puts together.

    ``commit`` makes a step durable (checkpoint, then the row that names it); ``publish`` gives the weights of the last
    commit to the engine. ``notify(hook, **arguments)`` calls the plugins' life-cycle hooks; ``watch`` sees plays as they go.
    """

    runner: RolloutRunner
    rounds: RoundMaker
    reward: DesignerReward
    learner: Learner
    batches: BatchMaker
    pool: Pool
    histories: IntervalHistories
    delay: DelayBuffer
    admission: Admission
    state: LoopState
    commit: Callable[[StepRecord, Mapping[str, Any]], None]
    publish: Callable[[int], Awaitable[None]]
    notify: Callable[..., None]
    watch: PlayWatch
    reserved: Reserved
    steps: int
    regenerate_every: int
    most_rounds: int | None
    train_designer: bool
    seeds: int
    repeats: int
    hinted_every_step: bool
    agent_sampling: Sampling
    after_step: Callable[[int], Awaitable[None]]

    async def run(self) -> None:
        """Take the steps that are left."""
        while self.state.version < self.steps:
            record = await self.step()
            self.commit(record, self.state_dict())
            self.notify("step_committed", step=record.step, metrics=record.metrics)
            await self.publish(self.state.version)
            await self.after_step(self.state.version)

    async def step(self) -> StepRecord:
        """One step of the algorithm, up to the commit."""
        t, last = self.state.version, self.state.version + 1 >= self.steps
        record = StepRecord(step=t + 1)
        if t % self.regenerate_every == 0:
            await self.open_interval(t, record)
        record.plays = await self.play(t)
        self.histories.add(record.plays)
        record.metrics |= play_metrics(record.plays)
        if (t + 1) % self.regenerate_every == 0 or last:
            self.end_interval(record)
        await self.learn(t, record, flush=last)
        self.state.version = self.admission.version = t + 1
        return record

    # --- the designer's turn ---------------------------------------------------------------------------------------------

    async def open_interval(self, t: int, record: StepRecord) -> None:
        """A new round, where there is one left; from here on, what is played counts anew."""
        if self.most_rounds is None or self.state.rounds < self.most_rounds:
            await self.open_round(t, record)
        self.histories.begin(self.pool.environments)
        self.state.interval_start = t

    async def open_round(self, t: int, record: StepRecord) -> None:
        """Make the next round beside the pool, and swap it in when it is complete."""
        self.notify("round_opened", round_index=self.state.rounds, step=record.step)
        made = await self.rounds.make(self.state.rounds, self.state.recent_programs)
        self._tell(made)
        kept = self.pool.swap(made.environments)
        await self.runner.shelf.keep_only(self.pool.environments)
        admitted = {environment.draft_id: environment.env_id for environment in made.environments.values()}
        self.delay.put(WaitingDraft(draft, t, admitted.get(draft.draft_id)) for draft in made.drafts)
        self.state.remember(environment.program.canonical_hash for environment in made.environments.values())
        self.state.rounds += 1
        record.drafts += made.drafts
        record.environments += made.environments.values()
        record.metrics |= round_metrics(made, kept)

    def _tell(self, made: Round) -> None:
        by_draft = {environment.draft_id: environment for environment in made.environments.values()}
        for draft in made.drafts:
            if draft.draft_id in by_draft:
                self.notify("program_admitted", environment=by_draft[draft.draft_id], draft=draft)
            else:
                self.notify("program_refused", draft=draft)

    # --- the agent's turn ------------------------------------------------------------------------------------------------

    async def play(self, t: int) -> list[Play]:
        """Play the pool. Both arms of a pair see the same instance, start together, and go through the same function."""
        hinted_now = self.hinted_every_step or t == self.state.interval_start
        units: list[list[PlayRequest]] = []
        for environment in self.pool.environments:
            arms = [Arm.PLAIN, Arm.HINTED] if hinted_now and environment.hint is not None else [Arm.PLAIN]
            for seed in instance_seeds(self.seeds, self.runner.run_seed, "train", environment.env_id, t):
                units += [pair_requests(environment, seed, r, arms=arms, label=f"t{t}") for r in range(self.repeats)]
        plays = await self.runner.play(
            f"t{t}-play", units, self.agent_sampling, admission=self.admission, watch=self.watch
        )
        return [play for unit in plays for play in unit]

    # --- what the designer earned ------------------------------------------------------------------------------------------

    def end_interval(self, record: StepRecord) -> None:
        """Settle every environment of the interval: regret, reward, memory, averages, curriculum."""
        environments = self.pool.environments
        inputs = [self.histories.reward_input(environment) for environment in environments]
        self.delay.settle({e.env_id: reward_of(self.reward, i) for e, i in zip(environments, inputs, strict=True)})
        for environment, item in zip(environments, inputs, strict=True):
            regret = item.history.regret
            if regret is not None:
                record.regrets[environment.env_id] = regret
            self.rounds.memory.update(
                environment.draft_id, win_rate=item.win_rate, regret=None if regret is None else regret.mean
            )
        if isinstance(self.reward, Observer):
            self.reward.observe(inputs)
        self.rounds.curriculum.observe([item.history for item in inputs])
        record.metrics |= regret_metrics(record.regrets, inputs)

    # --- learning --------------------------------------------------------------------------------------------------------

    async def learn(self, t: int, record: StepRecord, *, flush: bool) -> None:
        """One update, from the agent's plain plays of now and the drafts that are due; and its audit.

        Where the designer is not trained, its drafts get their reward for the record, and are none of the batch's business.
        """
        due = self.drafts_due(t, flush=flush)
        known = {draft.draft_id for draft in record.drafts}
        record.drafts += [waiting.draft for waiting in due if waiting.draft.draft_id not in known]
        due = due if self.train_designer else []
        batch, metrics = self.batches.make(record.plays, due)
        self.notify("batch_ready", step=record.step, sequences=batch)
        trained = await self._update(batch)
        record.metrics |= metrics | trained | staleness_metrics(t, record.plays, [waiting.draft for waiting in due])
        record.metrics |= audit_step(
            t, record.plays, [waiting.draft for waiting in due], batch, trained,
            environments=self.pool.environments, reserved=self.reserved, agent_group=self.batches.agent_group,
            text_of=self.runner.rendering.text,
        )

    def drafts_due(self, t: int, *, flush: bool) -> list[WaitingDraft]:
        """The drafts that have waited long enough (all of them, at the end of the run), with what they earned."""
        early = set(self.delay.unsettled(t, flush=flush))
        for environment in self.pool.environments:
            if environment.env_id in early:  # the delay is shorter than the interval: pay for what was seen so far
                self.delay.settle({environment.env_id: reward_of(self.reward, self.histories.reward_input(environment))})
        due = self.delay.take(t, flush=flush)
        for waiting in due:
            waiting.draft.reward = waiting.reward
        return due

    async def _update(self, batch: Sequence[TrainSequence]) -> dict[str, float]:
        """In a thread, so that the run stays answerable; a batch without any signal changes nothing."""
        return check_metrics(self.learner, await asyncio.to_thread(self.learner.step, batch)) if batch else {}

    # --- state -----------------------------------------------------------------------------------------------------------

    def _stateful(self) -> dict[str, Any]:
        parts = {
            "pool": self.pool, "histories": self.histories, "delay": self.delay, "memory": self.rounds.memory,
            "curriculum": self.rounds.curriculum, "reward": self.reward, "designer": self.rounds.designer,
            "hint_writer": self.rounds.hint_writer, "batches": self.batches, "loop": self.state,
        }
        return {name: part for name, part in parts.items() if hasattr(part, "state_dict")}

    def state_dict(self) -> dict[str, Any]:
        """JSON-able: all that the next step depends on, apart from the learner's checkpoint."""
        state = {name: part.state_dict() for name, part in self._stateful().items()}
        return {**state, "admission": {"accepted": self.admission.accepted}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])
        self.admission.accepted = int(state["admission"]["accepted"])
        self.admission.version = self.state.version
