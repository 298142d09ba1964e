"""A whole run, resolved: every plugin found, every option checked, and what it will cost. Nothing heavy is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from spade_agentic.config.load import resolve_model
from spade_agentic.config.model_folder import check_model_folder
from spade_agentic.config.suggest import did_you_mean
from spade_agentic.config.validation import option_error
from spade_agentic.errors import ConfigError

from .kinds import Factory

if TYPE_CHECKING:
    from spade_agentic.config.schema import PluginRef, RunConfig

    from .manager import PluginManager

__all__ = ["Cost", "ResolvedPart", "ResolvedRun", "resolve_run", "run_cost"]

ESTIMATED_TURNS = 4
"""Turns of a play, for the estimate: three calls and an answer."""
ESTIMATED_FILL = 0.5
"""Share of ``max_tokens`` that a completion uses, for the estimate."""


@dataclass(frozen=True, slots=True)
class ResolvedPart:
    """One plugin of a run. ``path`` is where the YAML names it."""

    path: str
    hook: str
    plugin: str
    factory: Factory[Any]
    options: BaseModel

    def summary(self) -> dict[str, Any]:
        """JSON-able: path, hook, plugin, name and options with their defaults filled in."""
        return {
            "path": self.path, "hook": self.hook, "plugin": self.plugin, "name": self.factory.name,
            "options": self.options.model_dump(mode="json"),
        }


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run asks of the policy. ``*_max`` are upper bounds; ``tokens_estimate`` assumes short plays.

    Every interval begins with a round, up to ``selfplay.rounds`` of them; it has hinted plays either way.
    """

    intervals: int
    rounds: int
    plain_plays: int
    hinted_plays: int
    drafts_min: int
    drafts_max: int
    hints: int
    evaluations: int
    tokens_max: int
    tokens_estimate: int

    @property
    def plays(self) -> int:
        return self.plain_plays + self.hinted_plays


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """Everything that a run needs, checked. ``model_dir`` exists."""

    config: RunConfig
    model_dir: Path
    parts: tuple[ResolvedPart, ...]
    cost: Cost


def references(config: RunConfig) -> list[tuple[str, str, PluginRef]]:
    """``(hook, path, reference)`` of every plugin that a run names."""
    play = config.selfplay
    found = [
        ("inference_engine", "engine", config.engine),
        ("learner", "learner", config.learner),
        ("sandbox", "sandbox", config.sandbox),
        ("env_designer", "selfplay.designer", play.designer),
        ("hint_writer", "selfplay.hint_writer", play.hint_writer),
        ("designer_reward", "selfplay.reward", play.reward),
        ("memory_store", "selfplay.memory", play.memory),
        ("curriculum", "selfplay.curriculum", play.curriculum),
        ("evaluator", "evaluation", config.evaluation),
    ]
    found += [("tool_sim", f"tool_sims.{i}", ref) for i, ref in enumerate(config.tool_sims)]
    found += [("tracker", f"trackers.{i}", ref) for i, ref in enumerate(config.trackers)]
    return found


def resolve_run(config: RunConfig, manager: PluginManager) -> ResolvedRun:
    """Find every plugin and check every option of ``config``. Raises :class:`ConfigError` for the first that is wrong."""
    parts = []
    for hook, path, ref in references(config):
        factory, options = manager.resolve(hook, ref, path=path, config=config)
        if factory.reserved:
            raise ConfigError(
                f"{factory.name!r} is reserved: it is kept for evaluation and no run is trained with it",
                where=config.where(path), todo="leave it out",
            )
        options.check_machine()
        parts.append(ResolvedPart(path, hook, manager.owner(hook, factory.name).name, factory, options))
    check_renderer(config)
    model_dir = resolve_model(config.model.path)
    check_model_folder(model_dir)
    return ResolvedRun(config, model_dir, tuple(parts), run_cost(config))


def check_renderer(config: RunConfig) -> None:
    """Check ``model.renderer`` against the renderers package. Raises :class:`ConfigError`."""
    import renderers.configs
    from pydantic import TypeAdapter

    ref = config.model.renderer
    known = _renderer_models(renderers.configs)
    if ref.name not in known:
        raise ConfigError(
            f"there is no renderer called {ref.name!r}",
            where=config.where("model.renderer"),
            todo=did_you_mean(ref.name, known, noun="renderer"),
        )
    try:
        TypeAdapter(known[ref.name]).validate_python({"name": ref.name, **ref.options})
    except ValidationError as error:
        raise option_error(
            error, model=known[ref.name], subject=f"renderer {ref.name!r}", path="model.renderer.options",
            located=config.where,
        ) from error


def _renderer_models(module: Any) -> dict[str, type[BaseModel]]:
    base: type[BaseModel] = module.BaseRendererConfig
    found = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base))
    return {model.model_fields["name"].default: model for model in found if "name" in model.model_fields}


def run_cost(config: RunConfig) -> Cost:
    """Plays, drafts and tokens of a run.

    A play samples at most the whole context; a slot of a round takes between one draft and ``attempts``. The estimate
    takes :data:`ESTIMATED_TURNS` turns at :data:`ESTIMATED_FILL` of ``max_tokens``, and one draft a slot.
    """
    play, steps = config.selfplay, config.run.steps
    intervals = math.ceil(steps / play.regenerate_every)
    rounds = intervals if play.rounds is None else min(intervals, play.rounds)
    step_plays = play.environments * play.seeds * play.repeats
    plain = steps * step_plays
    hinted = (steps if play.hinted == "every_step" else intervals) * step_plays
    slots = rounds * play.environments
    agent, designer, hint = play.agent_sampling, play.designer_sampling, play.hint_sampling
    play_estimate = min(config.model.context_tokens, ESTIMATED_TURNS * ESTIMATED_FILL * agent.max_tokens)
    return Cost(
        intervals=intervals,
        rounds=rounds,
        plain_plays=plain,
        hinted_plays=hinted,
        drafts_min=slots,
        drafts_max=slots * play.attempts,
        hints=slots,
        evaluations=2 + ((steps - 1) // config.evaluation.every if config.evaluation.every else 0),
        tokens_max=(plain + hinted) * config.model.context_tokens
        + slots * play.attempts * designer.max_tokens
        + slots * hint.max_tokens,
        tokens_estimate=int(
            (plain + hinted) * play_estimate + ESTIMATED_FILL * slots * (designer.max_tokens + hint.max_tokens)
        ),
    )
