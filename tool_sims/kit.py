"""The kit that every tool simulator is made with.

A *domain* is a :class:`SimEnv` subclass with records in ``self.state`` and ``@tool`` methods; its *kinds of goal*
(:class:`GoalKind`) are functions registered with ``@Domain.goal(...)`` that draw one concrete goal from a fresh state: slots
for the text, a criterion, and the reference solution as :class:`Step` objects. A *chain* is one to three goals in order;
*modifiers* (:class:`Mods`) make the same chain harder, longer, leaky or impossible. A concrete environment is a subclass
that sets ``chain``, ``mods`` and ``max_turns``; :func:`build_env` makes one without any source text.

The answer to "was exactly the requested change made" needs no code per goal: at reset the reference solution runs on a
copy of the state, and :meth:`SimEnv.verify` compares the final states.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import pickle
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from spade_agentic import Instruction, Skill, ToolCall, ToolEnv, ToolError, UserError

from .goal import ANSWER, GIVE_UP, Alternative, Drawn, Goal, GoalKind, Step, call, slips

__all__ = [
    "ANSWER",
    "GIVE_UP",
    "HELD_OUT_SEED",
    "MAX_CHAIN",
    "MAX_TOOLS",
    "RESERVED_DOMAINS",
    "Alternative",
    "Chain",
    "Drawn",
    "Goal",
    "GoalKind",
    "Mods",
    "SimEnv",
    "Step",
    "all_tools",
    "build_env",
    "call",
    "chain_hint",
    "chain_skills",
    "default_turns",
    "describe_domain",
    "draw_chain",
    "get_domain",
    "is_reserved",
    "needed_tools",
    "refuse_reserved",
    "register_domain",
    "slips",
]

MAX_CHAIN = 3
MAX_TOOLS = 8
"""Distractors fill up to this many exposed tools."""
RESERVED_DOMAINS = ("smart_home",)
"""Domains that are kept for evaluation, whole: in no warm start, no blueprint and no run's ``tool_sims``."""
HELD_OUT_SEED = 10**6
"""Instances for evaluation have seeds from here on; bootstrap and training stay below."""
TURN_SLACK = 2
"""Calls that may be wasted where a chain sets no turn limit of its own."""


# --- what a chain is made of ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mods:
    """What is done to a chain's world.

    ``hide_id``: names instead of ids, so that a look-up is needed. ``hide_secret``: one value is told nowhere (such a world
    cannot be solved). ``fault``: this tool fails once and says what mends it; with ``fault_always`` it never works.
    ``distract``: further tools shown. ``turns``: turn limit, may be too small. ``leak``: observations show the solution.
    """

    hide_id: bool = False
    hide_secret: bool = False
    fault: str | None = None
    fault_always: bool = False
    distract: int = 0
    turns: int | None = None
    leak: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """A domain, goals in order, and modifiers: everything but the seed of an instance."""

    domain: str
    goals: tuple[str, ...]
    mods: Mods = field(default_factory=Mods)

    def env(self) -> SimEnv:
        return build_env(self.domain, self.goals, self.mods)


# --- the environment ----------------------------------------------------------------------------------------------------

_EXPIRED, _BUSY, _DOWN, _LOCKED, _REFUSED, _CLEAR = "expired", "busy", "down", "locked", "refused", "clear"


class SimEnv(ToolEnv):
    """Base of all simulated domains. A domain sets ``domain``, ``mend_tool``, ``look_up_tool`` and :meth:`seed_records`."""

    domain: ClassVar[str]
    goal_kinds: ClassVar[dict[str, GoalKind]]
    mend_tool: ClassVar[str]
    """The tool that mends an expired session."""
    look_up_tool: ClassVar[str]
    """The search that ``hide_id`` makes necessary."""
    look_up_hint: ClassVar[str]

    chain: ClassVar[tuple[str, ...]] = ()
    mods: ClassVar[Mods] = Mods()

    state: dict[str, Any]
    checked: set[str]
    """Ids that were checked first (verified, read, ...); a precondition, not a change, so it is not compared."""
    goals: tuple[Goal, ...]
    _expected: dict[str, Any]
    _claimed: set[str]
    _numbers: list[int]
    _fault: str
    _met: str
    """The fault that the latest call met."""

    # -- to be written by a domain

    def seed_records(self, rng: random.Random) -> dict[str, Any]:
        """Tables of records, as plain JSON-able data; only what these hold is compared at the end."""
        raise NotImplementedError

    @classmethod
    def goal(
        cls, *, skills: Sequence[Skill], tools: Sequence[str], calls: int, vague: tuple[str, str], hint: str,
        phrasings: Sequence[str],
    ) -> Callable[[Callable[[Any, random.Random], Drawn]], GoalKind]:
        """Register a function as a kind of goal under its own name."""
        assert len(phrasings) >= 4, "a kind of goal has at least four phrasings"

        def register(draw_values: Callable[[Any, random.Random], Drawn]) -> GoalKind:
            name = draw_values.__name__
            kind = GoalKind(name, frozenset(skills), tuple(tools), tuple(phrasings), hint, calls, vague, draw_values)
            cls.goal_kinds[name] = kind
            return kind

        return register

    # -- helpers for goal functions and tools

    def new_id(self, prefix: str) -> str:
        """``prefix`` and a number that no other record of the instance has; the first ninety numbers have two digits."""
        return f"{prefix}{self._numbers.pop()}"

    def claim(self, rng: random.Random, ids: Sequence[str]) -> str:
        """One of ``ids`` that no other goal of this chain touches."""
        chosen = rng.choice([item for item in ids if item not in self._claimed])
        self._claimed.add(chosen)
        return chosen

    def breach(self, message: str) -> ToolError:
        """The error for a call that broke a rule. A breach is on record for good, so the play can no longer be won."""
        self.state["breaches"] += 1
        return ToolError(f"{message}, breach recorded")

    def record(self, table: str, key: str) -> dict[str, Any]:
        """The record of this id. Raises :class:`ToolError` where there is none."""
        found: dict[str, Any] | None = self.state[table].get(key)
        if found is None:
            raise ToolError(f"no such id in {table}")
        return found

    # -- the environment contract

    def setup(self, rng: random.Random) -> Sequence[Instruction]:
        self._claimed, self._numbers = set(), [*rng.sample(range(100, 1000), 900), *rng.sample(range(10, 100), 90)]
        self._fault, self._met, self.checked = _CLEAR, _CLEAR, set()
        self.state = {"breaches": 0}
        self.state |= self.seed_records(rng)
        self.goals = tuple(self.goal_kinds[name].draw(self, rng, hide_secret=self.mods.hide_secret) for name in self.chain)
        fault = rng.choice((_EXPIRED, _BUSY))
        armed = _DOWN if self.mods.fault_always else fault if self.mods.fault else _CLEAR
        solutions = self._solutions(armed)
        self._expected = self._replay(solutions, armed)
        self._fault, self._met = armed, _CLEAR
        return [
            Instruction(self._shown_text(goal.text, calls), goal.done, calls)
            for goal, calls in zip(self.goals, solutions, strict=True)
        ]

    def verify(self) -> bool:
        return self.state == self._expected

    def tools(self) -> list[dict[str, Any]]:
        shown = self.exposed_tools()
        return [schema for schema in super().tools() if schema["function"]["name"] in shown]

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        if name not in self.exposed_tools():
            raise ToolError("unknown tool")
        return super().call_tool(name, arguments)

    def run_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        self._met = _CLEAR
        if name == self.mend_tool and self._fault == _REFUSED:
            self._fault = _CLEAR
        elif name == self.mods.fault:
            self._raise_fault()
        return super().run_tool(name, arguments)

    @classmethod
    def exposed_tools(cls) -> frozenset[str]:
        """Names of the tools that the goals need, and of ``distract`` others (the same ones for the same chain)."""
        cached = cls.__dict__.get("_exposed")
        if cached is None:
            needed = needed_tools(cls, cls.chain, cls.mods)
            others = sorted(set(all_tools(cls)) - needed - {cls.mend_tool})
            random.Random(f"{cls.domain}|{cls.chain}").shuffle(others)
            room = min(cls.mods.distract, max(0, MAX_TOOLS - len(needed)))
            cached = frozenset(needed | set(others[:room]))
            cls._exposed = cached  # type: ignore[attr-defined]
        return cached

    def script(self) -> list[Step]:
        """The reference solution with decisions and alternatives: the steps of every goal, then the answer.

        It holds no failure of the world's fault: :meth:`recovery` says what to do when one is met.
        """
        steps: list[Step] = []
        for index, goal in enumerate(self.goals):
            own = list(goal.steps)
            if index and own[0].decision is None:
                own[0] = Step(own[0].call, "finish_or_more", (GIVE_UP,))
            steps += own
        return [*steps, Step(ANSWER, "finish_or_more", (Alternative(steps[-1].call, "again"),))]

    # -- faults

    def recovery(self, failed: ToolCall | str) -> list[Step]:
        """What mends the fault that the action ``failed`` has just met; nothing where it met none, or none can be mended."""
        return _recovery(self._met, failed, self.mend_tool) if isinstance(failed, ToolCall) else []

    def _raise_fault(self) -> None:
        """Fail if the fault of this world is still there; a second try on an expired session locks it for good."""
        self._met = self._fault
        if self._fault == _BUSY:
            self._fault = _CLEAR
            raise ToolError("busy, call again")
        if self._fault == _EXPIRED:
            self._fault = _REFUSED
            raise ToolError(f"session expired, {self.mend_tool} first")
        if self._fault in (_REFUSED, _LOCKED):
            self._fault = _LOCKED
            raise ToolError("locked out")
        if self._fault == _DOWN:
            raise ToolError("service down")

    def _solutions(self, fault: str) -> list[list[ToolCall]]:
        """The calls of every goal, with the failing call and what mends it at the first use of the faulty tool."""
        pending = self.mods.fault
        solutions: list[list[ToolCall]] = []
        for goal in self.goals:
            calls: list[ToolCall] = []
            for item in _calls(goal.steps):
                calls.append(item)
                if item.name == pending:
                    pending = None
                    calls += _calls(_recovery(fault, item, self.mend_tool))
            solutions.append(calls)
        return solutions

    # -- the expected end

    def _replay(self, solutions: Sequence[Sequence[ToolCall]], fault: str) -> dict[str, Any]:
        """The state after the reference solution; the state itself is put back."""
        before = pickle.dumps(self.state)
        self._fault = fault
        for item in (item for calls in solutions for item in calls):
            try:
                self.call_tool(item.name, item.arguments)
            except ToolError:
                continue  # a solution may meet a failure on purpose
        after, self.state, self.checked = self.state, pickle.loads(before), set()
        return after

    def _shown_text(self, text: str, calls: Sequence[ToolCall]) -> str:
        return "\n".join([text, *(json.dumps(item.as_dict()) for item in calls)]) if self.mods.leak else text


def _calls(steps: Sequence[Step]) -> list[ToolCall]:
    return [step.call for step in steps if isinstance(step.call, ToolCall)]


def _recovery(fault: str, failed: ToolCall, mend_tool: str) -> list[Step]:
    if fault == _BUSY:
        return [Step(failed, "recover", (Alternative(call(mend_tool), "again"), GIVE_UP))]
    if fault == _EXPIRED:
        return [Step(call(mend_tool), "recover", (Alternative(failed, (Step(ANSWER),)), GIVE_UP)), Step(failed)]
    return []


# --- domains and chains -------------------------------------------------------------------------------------------------

_DOMAINS: dict[str, type[SimEnv]] = {}


def register_domain(cls: type[SimEnv]) -> type[SimEnv]:
    """Class decorator: make a domain known by its name."""
    cls.goal_kinds = {}
    _DOMAINS[cls.domain] = cls
    return cls


def get_domain(name: str) -> type[SimEnv]:
    """The domain of this name; first-party ones are imported on demand. Raises :class:`UserError` where there is none."""
    if name not in _DOMAINS and name.isidentifier():
        module = f"{__package__}.{name}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    if name not in _DOMAINS:
        raise UserError(f"no tool simulator named {name!r}", todo=f"use one of: {', '.join(sorted(_DOMAINS))}")
    return _DOMAINS[name]


def refuse_reserved(domains: Iterable[str], *, where: str) -> None:
    """Raise :class:`UserError` for a domain that is kept for evaluation; ``where`` names the setting that has it."""
    reserved = [name for name in domains if name in RESERVED_DOMAINS]
    if reserved:
        raise UserError(
            f"{', '.join(reserved)} is reserved: it is kept for evaluation and nothing is trained in it", where=where,
            todo="leave it out",
        )


def all_tools(cls: type[SimEnv]) -> list[str]:
    return [schema["function"]["name"] for schema in ToolEnv.tools(cls())]


def needed_tools(cls: type[SimEnv], goals: Sequence[str], mods: Mods) -> set[str]:
    needed = {name for goal in goals for name in cls.goal_kinds[goal].tools}
    if mods.hide_id:
        needed.add(cls.look_up_tool)
    if mods.fault:
        needed |= {mods.fault, cls.mend_tool}
    return needed


def default_turns(domain: str, goals: Sequence[str], mods: Mods) -> int:
    """A turn limit that leaves room for the longest solution, its answer, and ``TURN_SLACK`` wasted calls."""
    kinds = get_domain(domain).goal_kinds
    calls = sum(kinds[name].calls + mods.hide_id for name in goals)
    return calls + (2 if mods.fault else 0) + 1 + TURN_SLACK


def chain_skills(domain: str, goals: Sequence[str], mods: Mods) -> frozenset[Skill]:
    """The skills that a chain trains."""
    kinds = get_domain(domain).goal_kinds
    skills = {skill for name in goals for skill in kinds[name].skills}
    if mods.fault:
        skills.add(Skill.ERROR_RECOVERY)
    if mods.hide_id:
        skills.add(Skill.DATA_RETRIEVAL)
    if len(goals) > 1:
        skills.add(Skill.MULTI_STEP_WORKFLOWS)
    return frozenset(skills)


def chain_hint(domain: str, goals: Sequence[str], mods: Mods) -> str:
    """The procedure of a chain in words: what to do, in which order, without any value of an instance."""
    cls = get_domain(domain)
    lines = [cls.look_up_hint] if mods.hide_id else []
    lines += [cls.goal_kinds[name].hint for name in dict.fromkeys(goals)]
    if mods.fault:
        lines.append(f"If expired: {cls.mend_tool}, then the same call. If busy: the same call.")
    lines.append("No new request: answer done.")
    return " ".join(lines)


def build_env(domain: str, goals: Sequence[str], mods: Mods | None = None) -> SimEnv:
    """An environment of this chain, in this process. Equal arguments share one class."""
    mods = mods or Mods()
    key = (domain, tuple(goals), mods)
    if key not in _CLASSES:
        base = get_domain(domain)
        turns = mods.turns or default_turns(domain, goals, mods)
        if len(_CLASSES) > 4096:
            _CLASSES.clear()
        body = {"chain": tuple(goals), "mods": mods, "max_turns": turns, "__module__": __name__}
        _CLASSES[key] = type(f"{base.__name__}Chain", (base,), body)
    return _CLASSES[key]()


_CLASSES: dict[tuple[str, tuple[str, ...], Mods], type[SimEnv]] = {}


def is_reserved(domain: str, goals: Sequence[str]) -> bool:
    """Whether this chain is kept for evaluation: about one in five of those with two or three goals.

    Of a domain of :data:`RESERVED_DOMAINS` this says which chains are measured; kept are all of them.

    The order of the goals and the modifiers do not matter, so that no disguise of an evaluation chain is trained on.
    """
    if len(goals) < 2:
        return False
    text = "|".join([domain, *sorted(goals)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 5 == 0


def draw_chain(
    rng: random.Random, domain: str, length: int, *, reserved: bool = False, goals: Sequence[str] | None = None,
    mods: Mods | None = None, skill: Skill | None = None,
) -> Chain:
    """Draw a chain of ``length`` goals (out of ``goals``, else all of the domain's) that is, or is not, reserved.

    With ``skill`` the chain trains it. Modifiers are ``mods`` as given.
    """
    names = sorted(goals or get_domain(domain).goal_kinds)
    mods = mods or Mods()
    for _ in range(10_000):
        drawn = tuple(rng.choice(names) for _ in range(length))
        if is_reserved(domain, drawn) == reserved and (skill is None or skill in chain_skills(domain, drawn, mods)):
            return Chain(domain, drawn, mods)
    raise UserError(f"no such chain of {length} goals", where=domain, todo="ask for other goals, another skill or length")


def describe_domain(domain: str) -> dict[str, Any]:
    """Goals, modifiers and tools of a domain as JSON-able data."""
    cls = get_domain(domain)
    return {
        "name": domain,
        "goals": {
            kind.name: {
                "skills": sorted(kind.skills), "tools": list(kind.tools), "calls": kind.calls,
                "phrasings": list(kind.phrasings), "hint": kind.hint,
            }
            for kind in cls.goal_kinds.values()
        },
        "modifiers": list(Mods.__dataclass_fields__),
        "tools": ToolEnv.tools(cls()),
    }
