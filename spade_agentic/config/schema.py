"""The pydantic schema of a run: what may stand in its YAML.

Models are strict (no silent conversion), frozen, and refuse unknown keys. Every field has a description, from which
``docs/config.md`` and ``spade-agentic config schema`` are made.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from spade_agentic.hooks.records import Sampling

__all__ = [
    "EvaluationConfig",
    "ModelConfig",
    "PluginRef",
    "RunConfig",
    "RunSection",
    "SamplingConfig",
    "SelfPlayConfig",
]


class Section(BaseModel):
    """Base of every section: unknown keys are refused, values are not converted, instances are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PluginRef(Section):
    """Which plugin to use, and its options. In YAML a bare name, or ``{name: ..., options: {...}}``."""

    name: str = Field(min_length=1, description="Name of the factory, as `spade-agentic plugin list` shows it.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the plugin; checked by the plugin's own model."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_bare_name(cls, value: Any) -> Any:
        if value is None:  # YAML reads the hint writer `null`, written without quotes, as this
            value = "null"
        return {"name": value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


PluginRefs = Annotated[tuple[PluginRef, ...], BeforeValidator(_listed)]
Strings = Annotated[tuple[str, ...], BeforeValidator(_listed)]


def _ref(name: str) -> Any:
    return lambda: PluginRef(name=name)


class SamplingConfig(Section):
    """How one role draws its tokens."""

    temperature: float = Field(default=1.0, ge=0.0, le=5.0, description="Softmax temperature; 0 is greedy.")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="Nucleus mass; 1 keeps the whole distribution.")
    top_k: int = Field(default=0, ge=0, description="Keep only the k likeliest tokens; 0 is no limit.")
    max_tokens: int = Field(default=256, ge=1, description="Most tokens of one completion.")

    def sampling(self) -> Sampling:
        """The same as the record that the engine takes."""
        return Sampling(
            temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, max_tokens=self.max_tokens
        )


class RunSection(Section):
    """The run itself."""

    name: str = Field(
        default="tooluse", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of the run; part of its folder."
    )
    seed: int = Field(default=0, ge=0, description="Seed of every random choice of the run.")
    steps: int = Field(default=24, ge=1, description="Optimizer steps to take.")
    deterministic: bool = Field(
        default=True,
        description="Lockstep waves of fixed shape, so that a killed and resumed run ends with bit-identical weights (CPU).",
    )
    dir: str = Field(default="runs", min_length=1, description="Folder that holds the run directories.")


class ModelConfig(Section):
    """The one policy, which plays both roles."""

    path: str = Field(default="spade-tiny", min_length=1, description="A shipped model's name, or a local model folder.")
    renderer: PluginRef = Field(
        default_factory=_ref("qwen3"), description="Chat renderer (the `renderers` package) and its options."
    )
    context_tokens: int = Field(default=1024, ge=64, description="Longest sequence of one play or draft, in tokens.")


class SelfPlayConfig(Section):
    """The game between designer and agent (paper, section 3)."""

    designer: PluginRef = Field(default_factory=_ref("blueprint"), description="Turns a design request into a draft.")
    hint_writer: PluginRef = Field(default_factory=_ref("procedure"), description="Writes the hint of an environment.")
    reward: PluginRef = Field(default_factory=_ref("hint_regret"), description="The designer's reward.")
    memory: PluginRef = Field(default_factory=_ref("sqlite"), description="What the designer remembers.")
    curriculum: PluginRef = Field(default_factory=_ref("round_robin"), description="Chooses the skill of every slot.")

    environments: int = Field(default=12, ge=1, description="Environments in the pool.")
    regenerate_every: int = Field(default=4, ge=1, description="Steps between two rounds; each replaces the pool.")
    rounds: int | None = Field(
        default=None, ge=1,
        description="Rounds in all; the pool of the last one is played to the end. Null regenerates to the end of the run.",
    )
    train_designer: bool = Field(
        default=True,
        description="Whether drafts are trained; where not, they are made, played and rewarded, and enter no loss.",
    )
    attempts: int = Field(default=5, ge=1, description="Drafts per slot of a round before the slot stays empty.")
    seeds: int = Field(default=4, ge=1, description="Instances of each environment per step; a regret is over them.")
    repeats: int = Field(default=4, ge=1, description="Plays of each instance per step, in each arm.")
    hinted: Literal["first_step", "every_step"] = Field(
        default="first_step", description="When the hinted arm is played: in the first step of a round, or in each."
    )
    designer_delay: int | None = Field(
        default=None,
        ge=1,
        description="Steps that a draft waits for its reward before it is trained; null is `regenerate_every`.",
    )
    refused_advantage: float = Field(default=-1.0, le=0.0, description="Advantage of a refused draft.")
    designer_weight_cap: float = Field(
        default=50.0, gt=0.0, description="Most that a designer token's loss may weigh against an agent token's."
    )
    agent_group: Literal["instance", "environment"] = Field(
        default="instance", description="Which plays of the agent are compared: same instance, or same environment."
    )
    agent_sampling: SamplingConfig = Field(
        default_factory=lambda: SamplingConfig(max_tokens=96), description="Sampling of the agent."
    )
    designer_sampling: SamplingConfig = Field(
        default_factory=lambda: SamplingConfig(max_tokens=160), description="Sampling of the designer."
    )
    hint_sampling: SamplingConfig = Field(
        default_factory=lambda: SamplingConfig(temperature=0.3, max_tokens=256), description="Sampling of the hint writer."
    )
    pair_version_gap: int = Field(
        default=0, ge=0, description="A pair whose arms' weight versions differ by more than this gives no regret."
    )
    min_pairs: int = Field(default=2, ge=1, description="With fewer surviving pairs an environment has no regret.")

    @property
    def delay_steps(self) -> int:
        """``designer_delay`` with its default filled in."""
        return self.regenerate_every if self.designer_delay is None else self.designer_delay

    @model_validator(mode="after")
    def _pairs_fit(self) -> SelfPlayConfig:
        if self.min_pairs > self.seeds:
            raise ValueError(f"min_pairs ({self.min_pairs}) is larger than seeds ({self.seeds}): no regret is possible")
        return self


class EvaluationConfig(PluginRef):
    """The held-out measurement: an evaluator, its options, and how often it runs."""

    name: str = Field(default="heldout", min_length=1, description="Name of the evaluator.")
    every: int = Field(
        default=0, ge=0, description="Steps between two evaluations; 0 is only before the first step and after the last."
    )


class RunConfig(Section):
    """One run, whole. Made by :func:`spade_agentic.config.load_config`."""

    run: RunSection = Field(default_factory=RunSection, description="The run itself.")
    model: ModelConfig = Field(default_factory=ModelConfig, description="The policy.")
    engine: PluginRef = Field(default_factory=_ref("embedded"), description="Inference engine.")
    learner: PluginRef = Field(default_factory=_ref("torch"), description="Training backend.")
    sandbox: PluginRef = Field(default_factory=_ref("auto"), description="Where programs run.")
    tool_sims: PluginRefs = Field(
        default_factory=lambda: tuple(PluginRef(name=name) for name in ("banking", "support", "retail", "telecom")),
        min_length=1,
        description="Tool simulators that designers may use.",
    )
    selfplay: SelfPlayConfig = Field(default_factory=SelfPlayConfig, description="The game.")
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig, description="Held-out evaluation.")
    trackers: PluginRefs = Field(
        default_factory=lambda: (PluginRef(name="jsonl"), PluginRef(name="tensorboard")), description="Metric sinks."
    )
    plugins: Strings = Field(
        default=(), description="Further plugins: files, folders, or importable module names; relative to this file."
    )

    _sources: dict[tuple[str, ...], str] = PrivateAttr(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Equal values are equal runs, wherever they were written."""
        return isinstance(other, RunConfig) and self.to_data() == other.to_data()

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def where(self, path: str) -> str:
        """``path`` (dots between keys) with the file and line that set it, or the override that did."""
        keys = tuple(path.split("."))
        for length in range(len(keys), 0, -1):
            if keys[:length] in self._sources:
                return f"{path} ({self._sources[keys[:length]]})"
        below = [place for known, place in self._sources.items() if known[: len(keys)] == keys]
        return f"{path} ({below[0]})" if below else path

    def to_data(self) -> dict[str, Any]:
        """JSON-able form; ``RunConfig.model_validate`` of it gives an equal config."""
        return self.model_dump(mode="json")
