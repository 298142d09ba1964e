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
                allows; ``secret``: a tool, an argument or a value of it stands nowhere that an agent could have read it;
                ``nondeterministic``: two processes answer it differently
``leak``        ``leak``: an observation shows a call of the solution
``idle``        ``won_by_nothing``, ``won_by_answering``, ``won_at_random``
==============  ========================================================================================================

A fault that the sandbox reports while a gate plays refuses the program under that gate, with the fault's own code. Won is
what wins in a play: the environment itself ends it, with a reward of 1.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import Field

from spade_agentic.errors import EnvironmentFault
from spade_agentic.hooks.kinds import Options, Sandbox, SandboxPlay, SandboxProgram, StepObservation
from spade_agentic.hooks.records import GateReport, Program, ProgramKind, Refusal

__all__ = ["GATES", "GATE_SEED", "GateOptions", "run_gates"]

GATE_SEED = 2_000_000
"""Gates draw their instances from here on: training stays below 10**6, evaluation below this."""
GATES = ("static", "duplicate", "reserved", "load", "reset", "solution", "leak", "idle")
WON = 1.0
_CODE = re.compile(r"[a-z_]{1,40}")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])-?\d+(?:\.\d+)?(?![A-Za-z0-9_]|\.\d)", re.ASCII)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_DEEPEST = 4
"""Random arguments are nested no deeper than this."""

Action = Mapping[str, Any]
T = TypeVar("T")


class GateOptions(Options):
    """How much the gates look at."""

    seeds: int = Field(default=3, ge=2, le=64, description="Instances on which everything is checked.")
    random_plays: int = Field(default=3, ge=1, le=64, description="Plays of random calls, each on another instance.")
    max_source_chars: int = Field(default=65_536, ge=1, description="Longest source.")


class _Refused(Exception):
    """``detail`` says what happened, to which object, and what to do."""

    def __init__(self, gate: str, code: str, detail: str) -> None:
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
        code = fault.code if _CODE.fullmatch(fault.code) else "protocol"  # the program's process can say anything
        refusal = Refusal(inspection.gate, code, fault.detail)
    except RecursionError:
        refusal = Refusal(inspection.gate, "too_large", "what the program answers is nested too deeply; make it flatter")
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
            raise _Refused(
                "static", "too_large",
                f"the source has {length} characters, at most {self.options.max_source_chars} are read; shorten it"
            )
        if known(self.program.canonical_hash):
            raise _Refused("duplicate", "duplicate", "an equal program is in the pool or was lately; change what it asks for")
        reason = reserved(self.program)
        if reason is not None:
            raise _Refused("reserved", "reserved", f"the program is kept for evaluation ({reason}); make another")

    async def run(self, closing: AsyncExitStack) -> None:
        self.gate = "load"
        first, second = await _load_twice(self.program, self.sandbox, closing)
        self.max_turns, self.tools = int(first.manifest["max_turns"]), first.manifest["tools"]
        self.gate = "reset"
        if dict(first.manifest) != dict(second.manifest):
            raise _Refused(
                "reset", "nondeterministic",
                "two processes describe the program's tools or limits differently; write them down, and iterate over no set",
            )
        await self._resets(first, second)
        self.gate = "solution"
        shown = await _all(*(self._replay(first, seed) for seed in self.seeds))
        if await self._replay(second, self.seeds[0]) != shown[0]:
            raise _Refused(
                "solution", "nondeterministic",
                f"seed {self.seeds[0]}: two processes answer the solution differently; let tools draw nothing at random",
            )
        self.gate = "leak"
        self._leaks(first, shown)
        self.gate = "idle"
        await self._idle(first)

    # -- reset

    async def _resets(self, first: SandboxProgram, second: SandboxProgram) -> None:
        here, there = await _all(_starts(first, self.seeds), _starts(second, self.seeds))
        for seed, one, other in zip(self.seeds, here, there, strict=True):
            if one != other:
                raise _Refused(
                    "reset", "nondeterministic",
                    f"seed {seed}: two processes make different instances of it; draw everything from the rng of setup",
                )
        if len({json.dumps([observation.text, probe], sort_keys=True) for observation, probe in here}) == 1:
            raise _Refused("reset", "constant", f"all {len(here)} seeds make the same instance; draw something from the rng")
        self.starts = dict(zip(self.seeds, here, strict=True))
        for seed, (_, probe) in self.starts.items():
            if any(probe["criteria"]):
                which = f"the criterion of instruction {probe['criteria'].index(True) + 1}"
                raise _Refused(
                    "reset", "done_at_reset",
                    f"seed {seed}: {which} holds before anything was done; start from a state in which it is false",
                )
            if not self.is_text and not probe["instructions"]:
                raise _Refused("reset", "no_instruction", f"seed {seed}: it makes no instruction; return one from setup")

    # -- solution

    def _solution(self, seed: int) -> list[Any]:
        return [step for part in self.starts[seed][1]["solution"] for step in part]

    async def _replay(self, loaded: SandboxProgram, seed: int) -> list[str]:
        """Play the reference solution; returns every observation that was not the last one."""
        steps = self._solution(seed)
        self.solution_calls = max(self.solution_calls, len(steps))
        needed = len(steps) + (not self.is_text)
        if needed > self.max_turns:
            raise _Refused(
                "solution", "too_long",
                f"seed {seed}: the solution and the answer need {needed} turns, {self.max_turns} are allowed; raise max_turns",
            )
        actions = [_action(seed, step) for step in steps]
        if not self.is_text:
            actions.append({"type": "text", "text": "done"})
        elif not actions:
            raise _Refused("solution", "unsolvable", f"seed {seed}: the solution is empty; return the texts that win")
        async with _playing(loaded) as play:
            observation = await play.reset(seed)
            if observation != self.starts[seed][0]:
                raise _Refused(
                    "reset", "nondeterministic",
                    f"seed {seed}: the instance depends on the resets before it; make all state anew in setup",
                )
            shown = [observation.text]
            for action in actions:
                self._has_source(seed, action, shown)
                observation = await play.step(action)
                if observation.terminated or observation.truncated:
                    break
                shown.append(observation.text)
            if not _won(observation) or action is not actions[-1]:
                raise _Refused("solution", "unsolvable", f"seed {seed}: the solution {_outcome(observation)}; mend one of both")
        return shown

    def _has_source(self, seed: int, action: Action, shown: Sequence[str]) -> None:
        """Everything that a call of the solution says was told before it is made, or is offered by a schema."""
        if action["type"] != "call":
            return
        schemas: dict[str, Mapping[str, Any]] = {t["function"]["name"]: t["function"]["parameters"] for t in self.tools}
        schema, tool = schemas.get(action["name"], {}), f"{action['name']!r:.60}"
        used = [] if action["name"] in schemas else [(f"the tool {tool}", action["name"])]
        for name, value in action["arguments"].items():
            if name not in schema.get("properties", {}):
                used.append((f"the argument {name!r:.60} of {tool}", name))
            offered = {json.dumps(item) for item in _offered(schema, name)}
            leaves = (leaf for leaf in _leaves(value) if json.dumps(leaf) not in offered)
            used.extend((f"{leaf!r:.60}, for the argument {name!r:.60} of {tool},", leaf) for leaf in leaves)
        for what, item in used:
            if not any(_tells(text, item) for text in shown):
                raise _Refused(
                    "solution", "secret",
                    f"seed {seed}: {what} stands in nothing that was shown before; "
                    "say it in the instruction, let a tool show it first, or offer it in a schema",
                )

    # -- leak

    def _leaks(self, loaded: SandboxProgram, shown: Sequence[Sequence[str]]) -> None:
        described = _squeezed(json.dumps([loaded.manifest["system"], self.tools]))
        for seed, texts in zip(self.seeds, shown, strict=True):
            squeezed = [described, *map(_squeezed, texts)]
            for step in self._solution(seed):
                if isinstance(step, Mapping) and step["arguments"] and any(_shows(text, step) for text in squeezed):
                    raise _Refused(
                        "leak", "leak",
                        f"seed {seed}: what is shown holds the solution's call of {step['name']!r:.60}; show facts, not calls",
                    )

    # -- idle

    async def _idle(self, loaded: SandboxProgram) -> None:
        """Policies that know nothing must lose. One process plays them all; each starts with a reset."""
        answer: Action = {"type": "text", "text": "done"}
        idle: Action = {"type": "text", "text": ""} if self.is_text else {"type": "call", "name": "", "arguments": {}}
        waiting = [idle] * (self.max_turns - 1)
        async with _playing(loaded) as play:
            for seed in self.seeds:
                if await _wins(play, seed, iter([answer])):
                    raise _Refused("idle", "won_by_answering", f"seed {seed}: an answer at once wins; ask for a change")
            if await _wins(play, self.seeds[0], iter([*waiting, answer])):
                raise _Refused(
                    "idle", "won_by_nothing",
                    f"seed {self.seeds[0]}: {self.max_turns - 1} turns of nothing and an answer win; reward only what was done",
                )
            for seed in range(GATE_SEED + 1_000, GATE_SEED + 1_000 + self.options.random_plays):
                rng = random.Random(f"{self.program.program_id}|{seed}")
                calls, texts = _random_actions(rng, self.tools, self.max_turns), _random_texts(rng, self.max_turns)
                if await _wins(play, seed, texts if self.is_text else calls):
                    what = "texts" if self.is_text else "calls"
                    raise _Refused("idle", "won_at_random", f"seed {seed}: random {what} win; ask for what is harder to hit")


# --- playing -----------------------------------------------------------------------------------------------------------


async def _all(*waits: Awaitable[T]) -> list[T]:
    """Every result. Waits for all, then raises the first failure in their order, whichever came first in time."""
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes  # type: ignore[return-value]


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
    return _won(observation)


def _won(observation: StepObservation) -> bool:
    """As in a play: what the turn limit cuts off is not won, whatever its reward."""
    return observation.terminated and observation.reward >= WON


def _outcome(observation: StepObservation) -> str:
    ending = "ends the play" if observation.terminated else "is cut off" if observation.truncated else "does not end the play"
    return f"{ending} with reward {observation.reward:g}"


async def _starts(loaded: SandboxProgram, seeds: Sequence[int]) -> list[tuple[StepObservation, Mapping[str, Any]]]:
    found = []
    async with _playing(loaded) as play:
        for seed in seeds:
            observation = await play.reset(seed)
            found.append((observation, await play.probe()))
    return found


def _action(seed: int, step: Any) -> Action:
    """A step of a solution as an action; anything malformed is the program's fault."""
    if isinstance(step, str):
        return {"type": "text", "text": step}
    if not isinstance(step, Mapping) or not isinstance(step.get("name"), str) or not isinstance(step.get("arguments"), Mapping):
        raise _Refused(
            "solution", "unsolvable", f"seed {seed}: a step of the solution is no call: {step!r:.80}; give name and arguments"
        )
    return {"type": "call", "name": step["name"], "arguments": dict(step["arguments"])}


# --- values ------------------------------------------------------------------------------------------------------------


def _leaves(value: Any) -> Iterator[Any]:
    """Strings (keys too) and numbers within a JSON value; truth values and null need no source."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def _offered(schema: Mapping[str, Any], name: str) -> list[Any]:
    """What the schema of one argument offers by itself: enums and names of properties, wherever in it they stand."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, Mapping):
            for choices in (node.get("enum"), [node["const"]] if "const" in node else None):
                found.extend(choices if isinstance(choices, list) else [])
            properties = node.get("properties")
            found.extend(properties if isinstance(properties, Mapping) else [])
            for item in node.values():
                visit(item)
        elif isinstance(node, list):
            for item in node:
                visit(item)

    visit(schema.get("properties", {}).get(name, {}))
    visit(schema.get("$defs", {}))
    return found


def _tells(text: str, value: Any) -> bool:
    """Whether ``text`` holds the value as a word of its own (also as JSON writes it), or the number, however it is written."""
    if not isinstance(value, str):
        number = Decimal(json.dumps(value))
        return not {number, -abs(number)}.isdisjoint(_numbers(text)) or _has_word(text, json.dumps(value))
    return any(_has_word(text, word) for word in {value, *(json.dumps(value, ensure_ascii=way)[1:-1] for way in (True, False))})


def _has_word(text: str, word: str) -> bool:
    return bool(word) and re.search(rf"(?<![A-Za-z0-9_.]){re.escape(word)}(?![A-Za-z0-9_]|\.\d)", text) is not None


@lru_cache(maxsize=256)
def _numbers(text: str) -> frozenset[Decimal]:
    """All numbers in ``text``; 1,250.00 also as 1250."""
    return frozenset(Decimal(found) for way in (text, _THOUSANDS.sub("", text)) for found in _NUMBER.findall(way))


def _squeezed(text: str) -> str:
    """``text`` without white space, also where it is escaped."""
    return re.sub(r"\s|\\+[nrt]", "", text)


def _shows(squeezed: str, call: Mapping[str, Any]) -> bool:
    """Whether a text without white space holds the call as JSON, however that is escaped."""
    body = {"name": call["name"], "arguments": call["arguments"]}
    plain = [json.dumps(body, ensure_ascii=way) for way in (True, False)]
    within = [json.dumps(form, ensure_ascii=way)[1:-1] for form in plain for way in (True, False)]
    return any(_squeezed(form) in squeezed for form in (*plain, *within))


def _random_actions(rng: random.Random, tools: Sequence[Mapping[str, Any]], turns: int) -> Iterator[Action]:
    """Random calls with arguments of the right type, then an answer."""
    for _ in range(rng.randint(1, max(1, turns - 1)) if tools else 0):
        function = rng.choice(tools)["function"]
        schema = function["parameters"]
        defs = schema.get("$defs")
        defs = defs if isinstance(defs, Mapping) else {}
        arguments = {name: _random_value(rng, item, defs) for name, item in schema.get("properties", {}).items()}
        yield {"type": "call", "name": function["name"], "arguments": arguments}
    yield {"type": "text", "text": "done"}


def _random_texts(rng: random.Random, turns: int) -> Iterator[Action]:
    for _ in range(turns):
        yield {"type": "text", "text": _random_word(rng)}


def _random_word(rng: random.Random) -> str:
    return rng.choice("ABCDKPRT") + str(rng.randint(100, 999))


def _random_value(rng: random.Random, schema: Any, defs: Mapping[str, Any], depth: int = 0) -> Any:
    """A value that ``schema`` allows, as far as this reads it; a program may hand in any JSON as a schema."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return _random_word(rng)
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return rng.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("$ref"), str):
        return _random_value(rng, defs.get(schema["$ref"].rpartition("/")[2]), defs, depth + 1)
    if isinstance(schema.get("anyOf"), list) and schema["anyOf"]:
        return _random_value(rng, rng.choice(schema["anyOf"]), defs, depth + 1)
    kind = schema.get("type")
    if kind == "null":
        return None
    if kind == "integer":
        return rng.randint(0, 999)
    if kind == "number":
        return rng.uniform(0, 999)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return [_random_value(rng, schema.get("items"), defs, depth + 1) for _ in range(rng.randint(0, 2))]
    if kind == "object":
        properties = schema.get("properties")
        items = properties.items() if isinstance(properties, Mapping) else ()
        return {name: _random_value(rng, item, defs, depth + 1) for name, item in items}
    return _random_word(rng)
