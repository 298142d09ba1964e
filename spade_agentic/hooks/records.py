"""The records that travel between the parts: programs, trajectories, plays, drafts.

They are plain data, below every other layer, so that a plugin, the store, the learner and the report mean the same
thing by the same word. DESIGN words: *program*, *environment*, *instance*, *play*, *round*, *role*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "Arm",
    "Completion",
    "Draft",
    "Environment",
    "FinishReason",
    "GateReport",
    "ParseOutcome",
    "Play",
    "Program",
    "ProgramKind",
    "Refusal",
    "Regret",
    "Role",
    "Sampling",
    "Segment",
    "Skill",
    "StopReason",
    "Trajectory",
    "Turn",
]


class Skill(StrEnum):
    """The six tool-use skills of the paper (section 4, tool-use setting)."""

    API_ORCHESTRATION = "api_orchestration"
    """Combine several tools whose results feed each other."""
    DATA_RETRIEVAL = "data_retrieval"
    """Find the record that the instruction means, among similar ones."""
    STATE_MODIFICATION = "state_modification"
    """Change state so that exactly the requested change holds."""
    ERROR_RECOVERY = "error_recovery"
    """Meet a failure, do what mends it, try again."""
    TOOL_SELECTION = "tool_selection"
    """Pick the right tool among near-synonyms."""
    MULTI_STEP_WORKFLOWS = "multi_step_workflows"
    """Carry out several dependent requests, one after the other."""


class Role(StrEnum):
    """What the one policy is doing; each role has its own rendering, sampling and loss weight."""

    AGENT = "agent"
    DESIGNER = "designer"


class Arm(StrEnum):
    """Whether a play saw the hint. Hinted plays enter no loss."""

    PLAIN = "plain"
    HINTED = "hinted"


class ProgramKind(StrEnum):
    """How the agent talks to the program."""

    TOOL = "tool"
    """A ``ToolEnv``: the agent calls tools and ends with an answer."""
    TEXT = "text"
    """A ``TextEnv``: ``step`` takes the agent's text."""


class FinishReason(StrEnum):
    """Why one completion ended."""

    STOP = "stop"
    """A stop token was sampled."""
    LENGTH = "length"
    """``max_tokens`` was reached: the completion is truncated."""
    ABORT = "abort"
    """The engine was told to stop; the tokens are partial."""


class ParseOutcome(StrEnum):
    """What the agent's completion was, as data; only ``CALL`` ever reaches a tool."""

    CALL = "call"
    NO_CALL = "no_call"
    MALFORMED = "malformed"
    TRUNCATED = "truncated"


class StopReason(StrEnum):
    """Why a play ended."""

    ANSWERED = "answered"
    """The agent answered without a call; the environment gave its verdict."""
    TERMINATED = "terminated"
    """The environment ended the play on its own."""
    TURN_LIMIT = "turn_limit"
    """The turn budget was used up; the return is 0."""
    TRUNCATED = "truncated"
    """A completion hit ``max_tokens``; the return is 0 and the play stays in the batch, counted."""
    CONTEXT_LIMIT = "context_limit"
    """The next prompt would not fit the context; the return is 0."""
    ENVIRONMENT_FAULT = "environment_fault"
    """The program crashed, timed out or broke the protocol: the play is void, its pair too; charged to the designer."""
    ABORTED = "aborted"
    """Cut off from outside (staleness, shutdown); the play enters nothing and is counted."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw tokens. ``temperature`` 0 is greedy. ``top_k`` 0 means no limit."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of the policy.

    ``token_ids`` includes the stop token where one was sampled. ``logprobs[i]`` is the log-probability of
    ``token_ids[i]`` under the distribution it was drawn from (temperature included). ``versions[i]`` is the weight
    version that produced token ``i``.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    finish_reason: FinishReason
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.logprobs) == len(self.versions)


@dataclass(slots=True)
class Segment:
    """A prefix-stable run of tokens: ids, mask, log-probs and weight versions that only grow together.

    ``mask[i]`` is true where the policy sampled token ``i``; elsewhere ``logprobs[i]`` is 0.0 and ``versions[i]`` -1.
    """

    token_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.token_ids)

    def append_context(self, token_ids: Sequence[int]) -> None:
        """Append tokens that the policy did not sample (prompt, observation, template)."""
        n = len(token_ids)
        self.token_ids.extend(token_ids)
        self.mask.extend([False] * n)
        self.logprobs.extend([0.0] * n)
        self.versions.extend([-1] * n)

    def append_completion(self, completion: Completion) -> None:
        """Append what the policy sampled."""
        self.token_ids.extend(completion.token_ids)
        self.mask.extend([True] * len(completion.token_ids))
        self.logprobs.extend(completion.logprobs)
        self.versions.extend(completion.versions)


@dataclass(slots=True)
class Trajectory:
    """All that one play or one draft said, in segments. Usually one; a new one starts where history is not prefix-stable."""

    role: Role
    segments: list[Segment] = field(default_factory=list)

    @property
    def sampled_tokens(self) -> int:
        return sum(sum(s.mask) for s in self.segments)

    @property
    def version_range(self) -> tuple[int, int] | None:
        """Oldest and newest weight version among the sampled tokens; ``None`` if nothing was sampled."""
        versions = [v for s in self.segments for v, m in zip(s.versions, s.mask, strict=True) if m]
        return (min(versions), max(versions)) if versions else None


@dataclass(frozen=True, slots=True)
class Program:
    """A source text that defines one environment class.

    ``origin`` says where it came from (designer, blueprint text, corpus document id) and never reaches the agent.
    ``canonical`` is what near-duplicates share (for a blueprint its normal form); it defaults to the source.
    """

    source: str
    skill: Skill
    kind: ProgramKind = ProgramKind.TOOL
    origin: Mapping[str, Any] = field(default_factory=dict)
    canonical: str | None = None

    @property
    def program_id(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    @property
    def canonical_hash(self) -> str:
        return hashlib.sha256((self.canonical or self.source).encode()).hexdigest()[:16]


@dataclass(slots=True)
class Environment:
    """A program in the pool, with skill, hint and history. ``env_id`` is unique in the run."""

    env_id: str
    program: Program
    round_index: int
    slot: int
    draft_id: str
    max_turns: int
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange of a play, for transcripts and tests."""

    completion_text: str
    outcome: ParseOutcome
    calls: tuple[Mapping[str, Any], ...]
    observations: tuple[str, ...]


@dataclass(slots=True)
class Play:
    """One episode of an instance by the agent.

    ``reward`` is the return in [-1, 1], already checked to be finite. ``void`` plays (environment fault, aborted) count
    for nothing but the designer's fault count.
    """

    play_id: str
    env_id: str
    seed: int
    repeat: int
    arm: Arm
    trajectory: Trajectory
    reward: float
    won: bool
    stop: StopReason
    turns: list[Turn] = field(default_factory=list)
    fault: str | None = None
    first_observation: str = ""
    duration_s: float = 0.0

    @property
    def void(self) -> bool:
        return self.stop in (StopReason.ENVIRONMENT_FAULT, StopReason.ABORTED)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a draft was not admitted: the gate's name, a stable reason code, and detail for a person."""

    gate: str
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the gates found. ``refusal`` is ``None`` where the program is admitted."""

    refusal: Refusal | None
    max_turns: int = 0
    solution_calls: int = 0
    tools: tuple[str, ...] = ()
    seconds: float = 0.0
    passed: tuple[str, ...] = ()


@dataclass(slots=True)
class Draft:
    """One attempt of the designer: its tokens, and the program they made, or why they made none."""

    draft_id: str
    skill: Skill
    round_index: int
    slot: int
    attempt: int
    trajectory: Trajectory | None
    text: str
    program: Program | None = None
    refusal: Refusal | None = None
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class Regret:
    """Hint-regret of one environment (paper, eq. 1), over per-seed paired differences.

    ``mean`` is unfloored. ``stderr`` is the standard error of the mean of per-seed differences. ``pairs`` counts seeds
    that survive in both arms.
    """

    mean: float
    stderr: float
    pairs: int
    hinted_mean: float
    plain_mean: float
