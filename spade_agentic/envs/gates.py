"""The gates: what a program must show before it may join the pool.

Each gate looks for one kind of fault and refuses with a stable reason code. Programs are only ever run in the sandbox, on
instance seeds that neither training nor evaluation draws. In order:

==============  ========================================================================================================
``static``      ``too_large``
``duplicate``   ``duplicate``: its canonical hash is known already
``reserved``    ``reserved``: it is kept for evaluation
``load``        whatever the sandbox found wrong: ``syntax``, ``import_failed``, ``timeout``, ``extra_thread``, ...
``reset``       ``nondeterministic``: two processes with different hash seeds disagree; ``constant``: all seeds are the same;
                ``no_instruction``; ``done_at_reset``: a criterion is true before anything was done
``solution``    ``unsolvable``: the reference solution does not win; ``too_long``: it needs more turns than the program
                allows; ``secret``: an argument of it stands nowhere that an agent could have read it; ``nondeterministic``:
                two processes answer it differently
``leak``        ``leak``: an observation shows a call of the solution
``idle``        ``won_by_nothing``, ``won_by_answering``, ``won_at_random``
==============  ========================================================================================================

A fault that the sandbox reports while a gate plays refuses the program under that gate, with the fault's own code.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pydantic import Field

from spade_agentic.errors import EnvironmentFault
from spade_agentic.hooks.kinds import Options, Sandbox, SandboxPlay, SandboxProgram, StepObservation
from spade_agentic.hooks.records import GateReport, Program, ProgramKind, Refusal

__all__ = ["GATES", "GATE_SEED", "GateOptions", "run_gates"]

GATE_SEED = 2_000_000
"""Gates draw their instances from here on: training stays below 10**6, evaluation below this."""
GATES = ("static", "duplicate", "reserved", "load", "reset", "solution", "leak", "idle")
WON = 1.0

Action = Mapping[str, Any]


class GateOptions(Options):
    """How much the gates look at."""

    seeds: int = Field(default=3, ge=2, le=64, description="Instances on which everything is checked.")
    random_plays: int = Field(default=3, ge=1, le=64, description="Plays of random calls, each on another instance.")
    max_source_chars: int = Field(default=65_536, ge=1, description="Longest source.")


class _Refused(Exception):
    def __init__(self, gate: str, code: str, detail: str = "") -> None:
        self.refusal = Refusal(gate, code, detail)
        super().__init__(code)


async def run_gates(
    program: Program, sandbox: Sandbox, *, options: GateOptions, known: Callable[[str], bool],
    reserved: Callable[[Program], str | None],
) -> GateReport:
    """Check ``program``; the report has the first refusal, or what was learnt of an admitted program.

    ``known`` says whether a canonical hash counts as a duplicate; ``reserved`` why a program is kept for evaluation, if it
    is. Raises :class:`~spade_agentic.errors.SandboxError` where the sandbox itself fails.
    """
    inspection = _Inspection(program, sandbox, options)
    start = time.monotonic()
    refusal = None
    try:
        inspection.static(known, reserved)
        async with AsyncExitStack() as closing:
            await inspection.run(closing)
    except _Refused as refused:
        refusal = refused.refusal
    except EnvironmentFault as fault:
        refusal = Refusal(inspection.gate, fault.code, fault.detail)
    passed = GATES if refusal is None else GATES[: GATES.index(refusal.gate)]
    return GateReport(
        refusal, max_turns=inspection.max_turns, solution_calls=inspection.solution_calls, tools=inspection.tool_names,
        seconds=time.monotonic() - start, passed=passed,
    )


class _Inspection:
    """One program on its way through the gates. ``gate`` is the one that it is at."""

    def __init__(self, program: Program, sandbox: Sandbox, options: GateOptions) -> None:
        self.program, self.sandbox, self.options = program, sandbox, options
        self.seeds = [GATE_SEED + index for index in range(options.seeds)]
        self.gate = GATES[0]
        self.max_turns = self.solution_calls = 0
        self.tools: Sequence[Mapping[str, Any]] = ()
        self.starts: dict[int, tuple[StepObservation, Mapping[str, Any]]] = {}

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(tool["function"]["name"] for tool in self.tools)

    @property
    def is_text(self) -> bool:
        return self.program.kind is ProgramKind.TEXT

    def static(self, known: Callable[[str], bool], reserved: Callable[[Program], str | None]) -> None:
        """Everything that needs no process."""
        length = len(self.program.source)
        if length > self.options.max_source_chars:
            raise _Refused("static", "too_large", f"{length} characters, at most {self.options.max_source_chars}")
        if known(self.program.canonical_hash):
            raise _Refused("duplicate", "duplicate", "an equal program is in the pool or was lately")
        reason = reserved(self.program)
        if reason is not None:
            raise _Refused("reserved", "reserved", reason)

    async def run(self, closing: AsyncExitStack) -> None:
        self.gate = "load"
        first, second = await _load_twice(self.program, self.sandbox, closing)
        self.max_turns, self.tools = int(first.manifest["max_turns"]), first.manifest["tools"]
        self.gate = "reset"
        if dict(first.manifest) != dict(second.manifest):
            raise _Refused("reset", "nondeterministic", "two processes describe the program differently")
        await self._resets(first, second)
        self.gate = "solution"
        shown = await asyncio.gather(*(self._replay(first, seed) for seed in self.seeds))
        if await self._replay(second, self.seeds[0]) != shown[0]:
            raise _Refused("solution", "nondeterministic", "the solution is answered differently in two processes")
        self.gate = "leak"
        self._leaks(first, shown)
        self.gate = "idle"
        await self._idle(first)

    # -- reset

    async def _resets(self, first: SandboxProgram, second: SandboxProgram) -> None:
        here, there = await asyncio.gather(_starts(first, self.seeds), _starts(second, self.seeds))
        if here != there:
            raise _Refused("reset", "nondeterministic", "one seed gives different instances in two processes")
        if len({json.dumps([observation.text, probe], sort_keys=True) for observation, probe in here}) == 1:
            raise _Refused("reset", "constant", "every seed gives the same instance")
        self.starts = dict(zip(self.seeds, here, strict=True))
        for seed, (_, probe) in self.starts.items():
            if any(probe["criteria"]):
                raise _Refused("reset", "done_at_reset", f"seed {seed}: a criterion holds before anything was done")
            if not self.is_text and not probe["instructions"]:
                raise _Refused("reset", "no_instruction", f"seed {seed}")

    # -- solution

    def _solution(self, seed: int) -> list[Any]:
        return [step for part in self.starts[seed][1]["solution"] for step in part]

    async def _replay(self, loaded: SandboxProgram, seed: int) -> list[str]:
        """Play the reference solution; returns every observation that was not the last one."""
        steps = self._solution(seed)
        self.solution_calls = max(self.solution_calls, len(steps))
        needed = len(steps) + (not self.is_text)
        if needed > self.max_turns:
            raise _Refused("solution", "too_long", f"seed {seed}: {needed} turns needed, {self.max_turns} allowed")
        actions = [_action(step) for step in steps]
        if not self.is_text:
            actions.append({"type": "text", "text": "done"})
        async with _playing(loaded) as play:
            shown = [(await play.reset(seed)).text]
            for action in actions:
                self._has_source(seed, action, shown)
                observation = await play.step(action)
                if observation.terminated or observation.truncated:
                    break
                shown.append(observation.text)
            if observation.reward < WON or action is not actions[-1]:
                raise _Refused("solution", "unsolvable", f"seed {seed}: the reference solution gets {observation.reward:g}")
        return shown

    def _has_source(self, seed: int, action: Action, shown: Sequence[str]) -> None:
        """Every value that the solution uses was told before it is used, or is a choice that a schema offers."""
        if action["type"] != "call":
            return
        schemas: dict[str, Mapping[str, Any]] = {t["function"]["name"]: t["function"]["parameters"] for t in self.tools}
        for name, value in action["arguments"].items():
            offered = {json.dumps(item) for item in _offered(schemas.get(action["name"], {}), name)}
            for leaf in _leaves(value):
                if json.dumps(leaf) not in offered and not any(_tells(text, leaf) for text in shown):
                    raise _Refused(
                        "solution", "secret", f"seed {seed}: {action['name']}({name}={leaf!r}) stands in nothing that was shown"
                    )

    # -- leak

    def _leaks(self, loaded: SandboxProgram, shown: Sequence[Sequence[str]]) -> None:
        described = json.dumps([loaded.manifest["system"], self.tools])
        for seed, texts in zip(self.seeds, shown, strict=True):
            for step in self._solution(seed):
                if isinstance(step, Mapping) and step["arguments"] and any(_shows(text, step) for text in (described, *texts)):
                    raise _Refused("leak", "leak", f"seed {seed}: an observation shows the call of {step['name']}")

    # -- idle

    async def _idle(self, loaded: SandboxProgram) -> None:
        """Policies that know nothing must lose. One process plays them all; each starts with a reset."""
        answer: Action = {"type": "text", "text": "done"}
        idle: Action = {"type": "text", "text": ""} if self.is_text else {"type": "call", "name": "", "arguments": {}}
        waiting = [idle] * (self.max_turns - 1)
        async with _playing(loaded) as play:
            for seed in self.seeds:
                if await _wins(play, seed, iter([answer])):
                    raise _Refused("idle", "won_by_answering", f"seed {seed}")
            if await _wins(play, self.seeds[0], iter([*waiting, answer])):
                raise _Refused("idle", "won_by_nothing", f"seed {self.seeds[0]}")
            for seed in range(GATE_SEED + 1_000, GATE_SEED + 1_000 + self.options.random_plays):
                rng = random.Random(f"{self.program.program_id}|{seed}")
                if await _wins(play, seed, _random_actions(rng, self.tools, self.max_turns)):
                    raise _Refused("idle", "won_at_random", f"seed {seed}: calls with random arguments won")


# --- playing -----------------------------------------------------------------------------------------------------------


async def _load_twice(
    program: Program, sandbox: Sandbox, closing: AsyncExitStack
) -> tuple[SandboxProgram, SandboxProgram]:
    """Two copies in two processes; both are closed with ``closing``, also where only one of them loads."""
    outcomes = await asyncio.gather(sandbox.load(program), sandbox.load(program), return_exceptions=True)
    failures = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            failures.append(outcome)
        else:
            closing.push_async_callback(outcome.close)
    if failures:
        raise failures[0]
    first, second = outcomes
    return first, second  # type: ignore[return-value]


@asynccontextmanager
async def _playing(loaded: SandboxProgram) -> AsyncIterator[SandboxPlay]:
    """A play that is closed afterwards."""
    play = await loaded.play()
    try:
        yield play
    finally:
        await play.close()


async def _wins(play: SandboxPlay, seed: int, actions: Iterator[Action]) -> bool:
    """Whether these actions win on ``seed``."""
    observation = await play.reset(seed)
    for action in actions:
        observation = await play.step(action)
        if observation.terminated or observation.truncated:
            break
    return observation.reward >= WON


async def _starts(loaded: SandboxProgram, seeds: Sequence[int]) -> list[tuple[StepObservation, Mapping[str, Any]]]:
    found = []
    async with _playing(loaded) as play:
        for seed in seeds:
            observation = await play.reset(seed)
            found.append((observation, await play.probe()))
    return found


def _action(step: Any) -> Action:
    """A step of a solution as an action; anything malformed is the program's fault."""
    if isinstance(step, str):
        return {"type": "text", "text": step}
    if not isinstance(step, Mapping) or not isinstance(step.get("name"), str) or not isinstance(step.get("arguments"), Mapping):
        raise _Refused("solution", "unsolvable", f"not a call: {step!r:.80}")
    return {"type": "call", "name": step["name"], "arguments": dict(step["arguments"])}


# --- values ------------------------------------------------------------------------------------------------------------


def _leaves(value: Any) -> Iterator[Any]:
    """Strings and numbers within a JSON value; truth values and null need no source."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def _offered(schema: Mapping[str, Any], name: str) -> list[Any]:
    """What the schema of one argument offers by itself: its enum, wherever in it that stands."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, Mapping):
            found.extend(node.get("enum", []))
            found.extend([node["const"]] if "const" in node else [])
            for item in node.values():
                visit(item)
        elif isinstance(node, list):
            for item in node:
                visit(item)

    visit(schema.get("properties", {}).get(name, {}))
    visit(schema.get("$defs", {}))
    return found


def _tells(text: str, value: Any) -> bool:
    """Whether ``text`` holds the value as a word or number of its own."""
    shown = value if isinstance(value, str) else json.dumps(value)
    return bool(shown) and re.search(rf"(?<![A-Za-z0-9_.]){re.escape(shown)}(?![A-Za-z0-9_]|\.\d)", text) is not None


def _shows(text: str, call: Mapping[str, Any]) -> bool:
    """Whether ``text`` holds the call as JSON, however it is spaced."""
    body = json.dumps({"name": call["name"], "arguments": call["arguments"]}, ensure_ascii=False)
    squeezed = re.sub(r"\s", "", text)
    return any(re.sub(r"\s", "", form) in squeezed for form in (body, json.dumps(body)[1:-1]))


def _random_actions(rng: random.Random, tools: Sequence[Mapping[str, Any]], turns: int) -> Iterator[Action]:
    """Random calls with arguments of the right type, then an answer."""
    for _ in range(rng.randint(1, max(1, turns - 1)) if tools else 0):
        function = rng.choice(tools)["function"]
        properties = function["parameters"].get("properties", {})
        arguments = {name: _random_value(rng, schema) for name, schema in properties.items()}
        yield {"type": "call", "name": function["name"], "arguments": arguments}
    yield {"type": "text", "text": "done"}


def _random_value(rng: random.Random, schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "integer":
        return rng.randint(0, 999)
    if kind == "number":
        return rng.uniform(0, 999)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return [_random_value(rng, schema.get("items", {})) for _ in range(rng.randint(0, 2))]
    if kind == "object":
        return {}
    return rng.choice("ABCDKPRT") + str(rng.randint(100, 999))
