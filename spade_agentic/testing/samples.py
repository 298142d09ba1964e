"""Sample records: complete, valid, and easy to vary by keyword."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spade_agentic.hooks.kinds import DesignRequest, EnvironmentHistory, MemoryEntry, RewardInput, TrainSequence
from spade_agentic.hooks.records import (
    Arm,
    Completion,
    Draft,
    Environment,
    FinishReason,
    Play,
    Program,
    ProgramKind,
    Refusal,
    Regret,
    Role,
    Segment,
    Skill,
    StopReason,
    Trajectory,
)

__all__ = [
    "COUNTER_SOURCE",
    "ECHO_SOURCE",
    "sample_completion",
    "sample_draft",
    "sample_entry",
    "sample_environment",
    "sample_history",
    "sample_play",
    "sample_program",
    "sample_request",
    "sample_reward_input",
    "sample_sequences",
    "sample_text_program",
    "sample_trajectory",
]

COUNTER_SOURCE = '''\
"""A counter that must be set to a number, and then to another."""

from spade_agentic import Instruction, ToolCall, ToolEnv, tool


class Counter(ToolEnv):
    """Two requests, one after the other."""

    system = "Use the tools to do what the user asks. Answer done when everything is done."
    max_turns = 6

    def setup(self, rng):
        self.value = 0
        first, second = rng.sample(range(10, 1000), 2)
        return [self._wish("Set the counter to", first), self._wish("Now make it", second)]

    def _wish(self, words, number):
        return Instruction(f"{words} {number}.", lambda: self.value == number, [ToolCall("set_counter", {"number": number})])

    @tool
    def set_counter(self, number: int) -> str:
        """Set the counter to a number."""
        self.value = number
        return "ok"

    @tool
    def read_counter(self) -> int:
        """Read the counter."""
        return self.value
'''

ECHO_SOURCE = '''\
"""Say a number back."""

import random

from spade_agentic import TextEnv


class Echo(TextEnv):
    system = "Say the number."
    max_turns = 2

    def reset(self, *, seed):
        self.number = str(random.Random(seed).randint(100, 999))
        return f"Say {self.number}.", {}

    def step(self, text):
        return "", float(text.strip() == self.number), True, False, {}

    def solution(self):
        return [self.number]
'''


def sample_program(**changes: Any) -> Program:
    """A tool-use program that its reference solution wins and that nothing else does; no part of it needs a domain."""
    values: dict[str, Any] = {
        "source": COUNTER_SOURCE, "skill": Skill.STATE_MODIFICATION,
        "origin": {"hint": "Call set_counter with the number that is asked for, each time."},
    }  # fmt: skip
    return Program(**{**values, **changes})


def sample_text_program(**changes: Any) -> Program:
    """A program without tools."""
    return Program(**{"source": ECHO_SOURCE, "skill": Skill.DATA_RETRIEVAL, "kind": ProgramKind.TEXT, **changes})


def sample_environment(**changes: Any) -> Environment:
    """An environment in the pool, with its hint."""
    values: dict[str, Any] = {
        "env_id": "r0-s0", "program": sample_program(), "round_index": 0, "slot": 0, "draft_id": "r0-s0-a0", "max_turns": 6,
        "hint": "Call set_counter with the number that is asked for, each time.",
    }  # fmt: skip
    return Environment(**{**values, **changes})


def sample_completion(length: int = 3, **changes: Any) -> Completion:
    """``length`` tokens of version 0 that ended by a stop token."""
    values: dict[str, Any] = {
        "token_ids": tuple(range(10, 10 + length)), "logprobs": (-0.5,) * length, "versions": (0,) * length,
        "finish_reason": FinishReason.STOP, "prompt_tokens": 4,
    }  # fmt: skip
    return Completion(**{**values, **changes})


def sample_trajectory(role: Role = Role.AGENT, length: int = 3) -> Trajectory:
    """Four tokens of prompt, then ``length`` sampled ones."""
    segment = Segment()
    segment.append_context([1, 2, 3, 4])
    segment.append_completion(sample_completion(length))
    return Trajectory(role, [segment])


def sample_play(reward: float = 1.0, **changes: Any) -> Play:
    """One plain play that was answered; ``won`` follows ``reward``."""
    arm, seed, repeat = (changes.get(key, default) for key, default in (("arm", Arm.PLAIN), ("seed", 0), ("repeat", 0)))
    values: dict[str, Any] = {
        "play_id": f"t0-r0-s0-{seed}-{repeat}-{arm.value}", "env_id": "r0-s0", "seed": seed, "repeat": repeat, "arm": arm,
        "trajectory": sample_trajectory(), "reward": reward, "won": reward >= 1.0, "stop": StopReason.ANSWERED,
        "first_observation": "Set the counter to 12.",
    }  # fmt: skip
    return Play(**{**values, **changes})


def sample_history(
    plain: Sequence[float] = (1.0, 0.0, 1.0, 0.0), hinted: Sequence[float] = (1.0, 1.0, 1.0, 0.0), **changes: Any
) -> EnvironmentHistory:
    """An environment's plays with these returns (one seed each), and the regret that they give."""
    plays = [sample_play(reward, seed=seed, arm=arm) for arm, returns in ((Arm.PLAIN, plain), (Arm.HINTED, hinted))
             for seed, reward in enumerate(returns)]
    values: dict[str, Any] = {
        "environment": sample_environment(), "plays": tuple(plays), "regret": _regret(plain, hinted), "faults": 0,
    }
    return EnvironmentHistory(**{**values, **changes})


def _regret(plain: Sequence[float], hinted: Sequence[float]) -> Regret | None:
    pairs = list(zip(hinted, plain, strict=False))
    if len(pairs) < 2:
        return None
    differences = [a - b for a, b in pairs]
    mean = math.fsum(differences) / len(pairs)
    variance = math.fsum((d - mean) ** 2 for d in differences) / (len(pairs) - 1)
    return Regret(
        mean, math.sqrt(variance / len(pairs)), len(pairs), math.fsum(a for a, _ in pairs) / len(pairs),
        math.fsum(b for _, b in pairs) / len(pairs),
    )


def sample_reward_input(history: EnvironmentHistory | None = None) -> RewardInput:
    """What a designer reward sees of ``history``: rates over its plain plays that are not void, or ``None``."""
    history = history or sample_history()
    returns = [play.reward for play in history.plays if play.arm is Arm.PLAIN and not play.void]
    if not returns:
        return RewardInput(history, None, None, None)
    mean = math.fsum(returns) / len(returns)
    variance = math.fsum((value - mean) ** 2 for value in returns) / len(returns)
    return RewardInput(history, sum(value >= 1.0 for value in returns) / len(returns), mean, variance)


def sample_request(**changes: Any) -> DesignRequest:
    """A request for one draft, with two remembered environments."""
    skill = changes.get("skill", Skill.STATE_MODIFICATION)
    values: dict[str, Any] = {
        "draft_id": "r1-s2-a0", "skill": skill, "round_index": 1, "slot": 2, "attempt": 0, "seed": 7,
        "seeds": (sample_entry(draft_id="r0-s0-a0", skill=skill),),
        "counter_example": sample_entry(draft_id="r0-s1-a0", skill=skill, win_rate=1.0, regret=0.0),
    }  # fmt: skip
    return DesignRequest(**{**values, **changes})


def sample_entry(**changes: Any) -> MemoryEntry:
    """One remembered environment."""
    values: dict[str, Any] = {
        "draft_id": "r0-s0-a0", "skill": Skill.STATE_MODIFICATION, "source": COUNTER_SOURCE, "win_rate": 0.5, "regret": 0.3,
        "admitted": True, "round_index": 0,
    }  # fmt: skip
    return MemoryEntry(**{**values, **changes})


def sample_draft(**changes: Any) -> Draft:
    """An admitted draft, or with ``program=None`` a refused one."""
    refused = "program" in changes and changes["program"] is None
    values: dict[str, Any] = {
        "draft_id": "r0-s0-a0", "skill": Skill.STATE_MODIFICATION, "round_index": 0, "slot": 0, "attempt": 0,
        "trajectory": sample_trajectory(Role.DESIGNER), "text": COUNTER_SOURCE, "program": sample_program(),
        "refusal": Refusal("designer", "malformed", "no program in it") if refused else None,
    }  # fmt: skip
    return Draft(**{**values, **changes})


def sample_sequences(count: int = 4, *, vocabulary: int = 300) -> list[TrainSequence]:
    """A batch of both roles: half of it the agent's, in groups of two with a shared prompt and opposite advantages."""
    prompt = tuple((7 * i) % vocabulary for i in range(1, 9))
    batch = []
    for index in range(count):
        said = tuple((31 * index + 5 * i + 11) % vocabulary for i in range(6))
        role = Role.AGENT if index < (count + 1) // 2 else Role.DESIGNER
        batch.append(
            TrainSequence(
                sequence_id=f"s{index}", role=role, token_ids=prompt + said, mask=(False,) * 8 + (True,) * 6,
                rollout_logprobs=(0.0,) * 8 + (-5.0,) * 6, advantage=1.0 if index % 2 == 0 else -1.0,
                prefix_key=f"group-{role.value}", prefix_len=8,
            )
        )
    return batch
