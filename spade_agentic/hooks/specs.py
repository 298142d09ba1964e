"""Every hook, in one place: who calls it, when, and what it may raise.

Factory hooks return a list of :class:`~spade_agentic.hooks.kinds.Factory` and are called once, before anything heavy
starts. Life-cycle hooks are called by the self-play loop; an exception in a third party's life-cycle hook is logged and
counted (``hook_errors`` in the metrics), never fatal, unless the plugin module sets ``spade_agentic_fatal = True``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pluggy

from . import kinds
from .records import Draft, Environment, Play

__all__ = ["FACTORY_HOOKS", "LIFECYCLE_HOOKS", "PROJECT", "Specs", "hookimpl", "hookspec"]

PROJECT = "spade_agentic"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Specs:
    """The hook specifications. A plugin implements any subset, as functions marked ``@hookimpl``."""

    # -- factories: called by the manager when a config is resolved; may raise PluginError ----------------------------

    @hookspec
    def env_designer(self) -> Sequence[kinds.Factory[kinds.Designer]]:  # type: ignore[empty-body]
        """Ways to turn a design request into a draft (``selfplay.designer`` in the YAML)."""

    @hookspec
    def hint_writer(self) -> Sequence[kinds.Factory[kinds.HintWriter]]:  # type: ignore[empty-body]
        """Ways to write the privileged hint (``selfplay.hint_writer``)."""

    @hookspec
    def designer_reward(self) -> Sequence[kinds.Factory[kinds.DesignerReward]]:  # type: ignore[empty-body]
        """Rewards for the designer (``selfplay.reward``)."""

    @hookspec
    def memory_store(self) -> Sequence[kinds.Factory[kinds.MemoryStore]]:  # type: ignore[empty-body]
        """Memories of earlier environments (``selfplay.memory``)."""

    @hookspec
    def curriculum(self) -> Sequence[kinds.Factory[kinds.Curriculum]]:  # type: ignore[empty-body]
        """Ways to choose the skill of each slot of a round (``selfplay.curriculum``)."""

    @hookspec
    def tool_sim(self) -> Sequence[kinds.Factory[kinds.ToolSim]]:  # type: ignore[empty-body]
        """Tool simulators (``tool_sims`` in the YAML)."""

    @hookspec
    def sandbox(self) -> Sequence[kinds.Factory[kinds.Sandbox]]:  # type: ignore[empty-body]
        """Sandbox backends (``sandbox``)."""

    @hookspec
    def inference_engine(self) -> Sequence[kinds.Factory[kinds.InferenceEngine]]:  # type: ignore[empty-body]
        """Inference engines (``engine``)."""

    @hookspec
    def learner(self) -> Sequence[kinds.Factory[kinds.Learner]]:  # type: ignore[empty-body]
        """Training backends (``learner``)."""

    @hookspec
    def tracker(self) -> Sequence[kinds.Factory[kinds.Tracker]]:  # type: ignore[empty-body]
        """Metric sinks (``trackers``)."""

    @hookspec
    def evaluator(self) -> Sequence[kinds.Factory[kinds.Evaluator]]:  # type: ignore[empty-body]
        """Evaluations (``evaluators``)."""

    # -- life cycle: called by the loop, in this order ----------------------------------------------------------------

    @hookspec
    def run_started(self, run_id: str, config: Mapping[str, Any]) -> None:
        """Once, after everything is built and before the first round (also after a resume)."""

    @hookspec
    def round_opened(self, round_index: int, step: int) -> None:
        """Before the designer writes the drafts of a round."""

    @hookspec
    def program_admitted(self, environment: Environment, draft: Draft) -> None:
        """A draft passed the gates; its environment joins the pool when the round is ready."""

    @hookspec
    def program_refused(self, draft: Draft) -> None:
        """A draft was refused; ``draft.refusal`` says why."""

    @hookspec
    def play_finished(self, play: Play) -> None:
        """A play ended, whatever its stop reason."""

    @hookspec
    def batch_ready(self, step: int, sequences: Sequence[kinds.TrainSequence]) -> None:
        """The batch of a step is complete, before the learner sees it."""

    @hookspec
    def step_committed(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is on disk: checkpoint, plays and metrics."""

    @hookspec
    def run_ended(self, run_id: str, status: str) -> None:
        """Once, at the end: ``status`` is ``finished``, ``interrupted`` or ``failed``."""


FACTORY_HOOKS: tuple[str, ...] = (
    "env_designer", "hint_writer", "designer_reward", "memory_store", "curriculum", "tool_sim", "sandbox",
    "inference_engine", "learner", "tracker", "evaluator",
)
LIFECYCLE_HOOKS: tuple[str, ...] = (
    "run_started", "round_opened", "program_admitted", "program_refused", "play_finished", "batch_ready",
    "step_committed", "run_ended",
)
