"""Drawn worlds of the tool simulators, and policies that need no model."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spade_agentic import ToolCall
from spade_agentic_sims.demonstrate import Demonstration, demonstrate
from spade_agentic_sims.kit import Chain, Mods, SimEnv, Step, draw_chain, get_domain, needed_tools

DOMAINS = ("banking", "retail", "smart_home", "support", "telecom")
REPORTS = {
    "banking": "report_limit", "retail": "tell_boxes", "smart_home": "tell_minutes", "support": "report_price",
    "telecom": "report_bill",
}  # fmt: skip
"""A kind of goal of each domain that ends with ``log_answer``."""
ANSWER_ACTION = {"type": "text", "text": "done"}


def drawn_worlds(domain: str, count: int, *, seed: int) -> Iterator[tuple[Chain, int]]:
    """Solvable worlds with one to three goals, and an instance seed each."""
    rng = random.Random(f"{domain}|{seed}")
    for index in range(count):
        goals = draw_chain(rng, domain, 1 + index % 3).goals
        yield Chain(domain, goals, drawn_mods(rng, domain, goals)), rng.randrange(10**6)


def drawn_mods(rng: random.Random, domain: str, goals: Sequence[str]) -> Mods:
    hide_id = rng.random() < 0.5
    tools = sorted(needed_tools(get_domain(domain), goals, Mods(hide_id=hide_id)))
    return Mods(hide_id=hide_id, fault=rng.choice(tools) if rng.random() < 0.4 else None, distract=rng.randrange(4))


def follow(env: SimEnv, seed: int) -> Demonstration:
    """Play the script without a wrong turn."""
    return demonstrate(env, seed=seed, choose=lambda step: None)


def play_calls(env: SimEnv, seed: int, calls: Sequence[Mapping[str, Any]]) -> tuple[float, list[str]]:
    """Make these calls, then answer. The reward, and all observations."""
    shown = [env.reset(seed=seed)[0]]
    for item in calls:
        observation, reward, terminated, truncated, _ = env.step({"type": "call", **item})
        shown.append(observation)
        if terminated or truncated:
            return reward, shown
    return env.step(ANSWER_ACTION)[1], shown


def solution(env: SimEnv, seed: int) -> list[Mapping[str, Any]]:
    """The reference solution as the gates read it."""
    env.reset(seed=seed)
    return [item for calls in env.probe()["solution"] for item in calls]


def play_at_random(env: SimEnv, seed: int, rng: random.Random) -> float:
    """Call tools at random, with values of the right type that were shown if any were; then answer. The reward."""
    shown = env.reset(seed=seed)[0]
    tools = env.tools()
    for _ in range(rng.randint(1, env.max_turns - 1)):
        function = rng.choice(tools)["function"]
        properties = function["parameters"].get("properties", {})
        arguments = {name: _value(rng, schema, shown) for name, schema in properties.items()}
        observation, reward, terminated, truncated, _ = env.step(
            {"type": "call", "name": function["name"], "arguments": arguments}
        )
        shown += "\n" + observation
        if terminated or truncated:
            return reward
    return env.step(ANSWER_ACTION)[1]


def _value(rng: random.Random, schema: Mapping[str, Any], shown: str) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "integer":
        return int(rng.choice(re.findall(r"\b\d+\b", shown) or ["7"]))
    return rng.choice(re.findall(r"\b(?:[A-Za-z]+\d+|[A-Z][a-z]+)\b", shown) or ["C100"])


def tells(text: str, value: Any) -> bool:
    """Whether ``text`` has the value as a word of its own."""
    word = value if isinstance(value, str) else json.dumps(value)
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def offered(env: SimEnv, call: Mapping[str, Any], argument: str) -> list[Any]:
    """The choices that the schema of an argument offers."""
    schema = next(item["function"] for item in env.tools() if item["function"]["name"] == call["name"])
    return list(schema["parameters"]["properties"][argument].get("enum", []))


def decisions(env: SimEnv, seed: int) -> list[Step]:
    """The steps of the script at which one may go wrong."""
    env.reset(seed=seed)
    return [step for step in env.script() if step.alternatives]


def as_text(action: ToolCall | str) -> str:
    return action if isinstance(action, str) else json.dumps(action.as_dict())
