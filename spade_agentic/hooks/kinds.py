"""The plugin kinds: what an object of each kind must be able to do.

A hook of :mod:`spade_agentic.hooks.specs` returns named factories (:class:`Factory`); the factory's ``build`` returns an
object that satisfies one protocol of this module. Protocols are structural: a plugin need not inherit from anything.
Anything with state that outlives a step also has ``state_dict``/``load_state_dict`` (JSON-able), so that a resumed run
continues as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict

from .records import (
    Completion,
    Draft,
    Environment,
    Play,
    Program,
    Regret,
    Role,
    Sampling,
    Skill,
    Trajectory,
)

__all__ = [
    "Curriculum",
    "DesignRequest",
    "Designer",
    "DesignerReward",
    "EnvironmentHistory",
    "Evaluator",
    "Factory",
    "HintWriter",
    "InferenceEngine",
    "Learner",
    "MemoryEntry",
    "MemoryStore",
    "Observer",
    "Options",
    "PolicySession",
    "Reserving",
    "RewardInput",
    "Sandbox",
    "SandboxPlay",
    "SandboxProgram",
    "Stateful",
    "StepObservation",
    "ToolSim",
    "Tracker",
    "TrainSequence",
]


class Options(BaseModel):
    """Base of a plugin's options: unknown keys are refused, instances are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def check_machine(self) -> None:
        """Raise :class:`~spade_agentic.errors.UserError` where this machine lacks what these options ask for.

        Asked of every plugin of a run before anything is built, and by ``train --dry-run``; must be quick.
        """


T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Factory(Generic[T_co]):
    """A named way to build one plugin object.

    ``name`` is what the YAML says; ``options`` is the pydantic model of its options; ``build(options, context)`` makes the
    object. ``doc`` is one line for ``plugin list``. ``context`` is a :class:`spade_agentic.hooks.manager.BuildContext`.
    ``reserved``: it is kept for evaluation, as a tool simulator may be; a run that names it is refused.
    """

    name: str
    build: Callable[[Any, Any], T_co]
    options: type[Options] = Options
    doc: str = ""
    reserved: bool = False


@runtime_checkable
class Stateful(Protocol):
    """Has state that a checkpoint must hold. Both sides of it are JSON-able."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


# --- the policy, as a plugin sees it ---------------------------------------------------------------------------------


class PolicySession(Protocol):
    """One conversation with the policy, recorded token for token.

    ``say`` renders ``messages`` as an extension of what was said before, samples one completion and returns its text.
    ``trajectory`` holds every token so far. One session belongs to one draft, hint or play.
    """

    trajectory: Trajectory

    async def say(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[str, Completion]: ...


# --- design ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One remembered environment. ``source`` is the program's text in the designer's own language (a blueprint, or code)."""

    draft_id: str
    skill: Skill
    source: str
    win_rate: float | None
    regret: float | None
    admitted: bool
    round_index: int


@dataclass(frozen=True, slots=True)
class DesignRequest:
    """What one draft is asked for (paper, section 3.2). ``seed`` makes every random choice of the designer repeatable."""

    draft_id: str
    skill: Skill
    round_index: int
    slot: int
    attempt: int
    seed: int
    document: str | None = None
    seeds: tuple[MemoryEntry, ...] = ()
    counter_example: MemoryEntry | None = None


@runtime_checkable
class Designer(Protocol):
    """Turns a request into a draft, by asking the policy.

    A draft that makes no program carries a refusal; no text of the policy's is an exception.
    """

    async def design(self, request: DesignRequest, policy: PolicySession) -> Draft: ...


@runtime_checkable
class HintWriter(Protocol):
    """Writes the privileged hint of an environment; ``None`` means that no hint could be written (no regret then)."""

    async def write(self, program: Program, policy: PolicySession, *, seed: int) -> str | None: ...


@dataclass(frozen=True, slots=True)
class EnvironmentHistory:
    """Everything that happened to one environment while it was in the pool."""

    environment: Environment
    plays: tuple[Play, ...]
    regret: Regret | None
    faults: int


@dataclass(frozen=True, slots=True)
class RewardInput:
    """What a designer reward may look at: one environment's history, and whether enough of it survived."""

    history: EnvironmentHistory
    win_rate: float | None
    mean_return: float | None
    return_variance: float | None


@runtime_checkable
class DesignerReward(Protocol):
    """The designer's reward for one environment; ``None`` where it says nothing about it (the draft is then not trained)."""

    def reward(self, item: RewardInput) -> float | None: ...


@runtime_checkable
class Observer(Protocol):
    """A designer reward may also have this method: called once at the end of every interval, with all its environments,
    after their rewards were asked for. A reward that keeps averages keeps them here, and is then :class:`Stateful` too.
    """

    def observe(self, items: Sequence[RewardInput]) -> None: ...


@runtime_checkable
class MemoryStore(Stateful, Protocol):
    """What the designer remembers (paper, section 3.2: a ring, with seeds and counter-examples).

    One that is meant to remember nothing says so with an attribute ``capacity`` of 0, and keeps no entry at all.
    """

    def add(self, entry: MemoryEntry) -> None: ...
    def update(self, draft_id: str, *, win_rate: float | None, regret: float | None) -> None: ...
    def sample(self, skill: Skill, *, seed: int) -> tuple[tuple[MemoryEntry, ...], MemoryEntry | None]: ...
    def __len__(self) -> int: ...


@runtime_checkable
class Curriculum(Stateful, Protocol):
    """Chooses the skill of every slot of a round."""

    def skills(self, round_index: int, slots: int) -> list[Skill]: ...
    def observe(self, histories: Sequence[EnvironmentHistory]) -> None: ...


# --- environments and sandboxes ------------------------------------------------------------------------------------------


@runtime_checkable
class ToolSim(Protocol):
    """A tool simulator: a domain with state, tools and kinds of goal, importable inside the sandbox by ``module``.

    ``describe()`` returns its ``goals`` (by name), ``modifiers`` and ``tools`` (OpenAI schemas) as JSON-able data, for
    designers and for ``env list``. ``example(seed=)`` is a complete, solvable program of this simulator, the same for the
    same seed, for ``env play`` and for the contract tests.
    """

    name: str
    module: str

    def describe(self) -> dict[str, Any]: ...
    def example(self, *, seed: int) -> Program: ...


@dataclass(frozen=True, slots=True)
class StepObservation:
    """What a program answers to ``reset`` and ``step``. ``reward`` is finite and in [-1, 1], checked by the host."""

    text: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class SandboxPlay(Protocol):
    """One forked instance of a loaded program. Every call has a deadline; at the deadline everything is killed."""

    async def reset(self, seed: int) -> StepObservation: ...
    async def step(self, action: Mapping[str, Any]) -> StepObservation: ...
    async def probe(self) -> Mapping[str, Any]: ...
    async def close(self) -> None: ...


@runtime_checkable
class SandboxProgram(Protocol):
    """A program, loaded in its own worker.

    ``manifest``: ``kind``, ``tools`` (OpenAI schemas), ``system``, ``max_turns``, ``lines``.
    """

    manifest: Mapping[str, Any]

    async def play(self) -> SandboxPlay: ...
    async def close(self) -> None: ...


@runtime_checkable
class Sandbox(Protocol):
    """Runs programs that nobody trusts.

    ``load`` raises :class:`EnvironmentFault` where the program is at fault and :class:`SandboxError` where we are.
    """

    name: str

    async def start(self) -> None: ...
    async def load(self, program: Program) -> SandboxProgram: ...
    async def stop(self) -> None: ...


# --- inference and learning ----------------------------------------------------------------------------------------------


@runtime_checkable
class InferenceEngine(Protocol):
    """Serves the policy. ``complete`` samples one completion; ``publish`` makes a weights folder the served version."""

    base_url: str

    async def start(self, model_dir: Path) -> None: ...
    async def complete(
        self, token_ids: Sequence[int], sampling: Sampling, *, seed: int, request_id: str, stop_token_ids: Sequence[int],
        wave: tuple[str, int] | None = None,
    ) -> Completion: ...
    async def publish(self, weights_dir: Path, version: int) -> None: ...
    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TrainSequence:
    """One sequence of a batch: one segment of one trajectory, with its advantage.

    ``advantage`` applies to every sampled token (``mask``). ``weight`` multiplies the role's loss. ``prefix_key`` names
    sequences that share their first ``prefix_len`` tokens (a group's prompt), so that a backend may compute them once.
    """

    sequence_id: str
    role: Role
    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    rollout_logprobs: tuple[float, ...]
    advantage: float
    weight: float = 1.0
    temperature: float = 1.0
    prefix_key: str | None = None
    prefix_len: int = 0


@runtime_checkable
class Learner(Protocol):
    """Trains the policy. ``step`` takes one optimizer step (or more, by its own options) and returns flat metrics."""

    def step(self, batch: Sequence[TrainSequence]) -> dict[str, float]: ...
    def save_weights(self, folder: Path) -> None: ...
    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Tracker(Protocol):
    """Receives metrics; ``step`` only grows."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Evaluator(Protocol):
    """Measures the policy on tasks that are never trained on. Returns flat metrics, success rates with intervals."""

    async def evaluate(self, runner: Any, *, step: int) -> dict[str, Any]: ...


@runtime_checkable
class Reserving(Protocol):
    """A designer or an evaluator may also have this method: why a program is kept for evaluation, ``None`` where it is not.

    Such a program is refused by a gate of its own, and the audit of every step counts it if it is played.
    """

    def reserved(self, program: Program) -> str | None: ...
