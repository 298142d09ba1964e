"""The blueprint: a few ``key: value`` lines that describe a world, short enough for a very small model to write.

::

    domain: banking
    skill: error_recovery
    goals: move_own, freeze_card
    hide: id
    fault: move_money
    distract: 2
    turns: 12
    leak: yes

The first three lines are needed, the others optional; each key at most once, in any order. ``hide`` takes ``id``,
``secret`` or both; ``fault`` a tool that the goals use, with ``always`` after it where it shall never work.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spade_agentic import Skill
from spade_agentic_sims.kit import (
    MAX_CHAIN,
    MAX_TOOLS,
    RESERVED_DOMAINS,
    Mods,
    SimEnv,
    all_tools,
    chain_skills,
    default_turns,
    get_domain,
    needed_tools,
)

__all__ = ["MAX_DISTRACT", "MAX_TURNS", "Blueprint", "BlueprintError", "parse_blueprint"]

MAX_CHARS = 600
MAX_DISTRACT = 4
MAX_TURNS = 32
_KEYS = ("domain", "skill", "goals", "hide", "fault", "distract", "turns", "leak")


class BlueprintError(Exception):
    """A text is no blueprint. ``code`` is a stable reason code, ``detail`` says what was found."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code}: {detail}")


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A parsed blueprint: known domain and goals, modifiers in range, a skill that the chain trains."""

    domain: str
    skill: Skill
    goals: tuple[str, ...]
    mods: Mods = field(default_factory=Mods)

    def lines(self) -> list[str]:
        """The canonical form, one line per key in a fixed order; defaults are left out."""
        mods = self.mods
        hidden = ", ".join(name for name, on in (("id", mods.hide_id), ("secret", mods.hide_secret)) if on)
        optional = {
            "hide": hidden,
            "fault": f"{mods.fault}{' always' if mods.fault_always else ''}" if mods.fault else "",
            "distract": str(mods.distract or ""),
            "turns": str(mods.turns or ""),
            "leak": "yes" if mods.leak else "",
        }
        needed = [f"domain: {self.domain}", f"skill: {self.skill.value}", f"goals: {', '.join(self.goals)}"]
        return needed + [f"{key}: {value}" for key, value in optional.items() if value]

    def text(self) -> str:
        return "\n".join(self.lines())

    def world(self) -> str:
        """What two blueprints of the same world share: the canonical form without the skill it was written for.

        A turn limit that is the default, and distractors for which there is no room, change nothing and are left out.
        """
        room = max(0, MAX_TOOLS - len(needed_tools(get_domain(self.domain), self.goals, self.mods)))
        usual = self.mods.turns == default_turns(self.domain, self.goals, self.mods)
        mods = replace(self.mods, distract=min(self.mods.distract, room), turns=None if usual else self.mods.turns)
        return "\n".join(line for line in replace(self, mods=mods).lines() if not line.startswith("skill: "))


def parse_blueprint(text: str) -> Blueprint:
    """Read a blueprint. Raises :class:`BlueprintError`; its codes are

    ``malformed``, ``unknown_key``, ``repeated_key``, ``missing_key``, ``unknown_domain``, ``reserved_domain``,
    ``unknown_skill``, ``unknown_goal``, ``too_many_goals``, ``unknown_tool``, ``unused_fault``, ``out_of_range``,
    ``skill_not_trained``.
    """
    values = _values(text)
    domain = _domain(values["domain"])
    skill = _skill(values["skill"])
    goals = _goals(domain, values["goals"])
    hidden = _hidden(values.get("hide"))
    fault, always = _fault(domain, values.get("fault"))
    mods = Mods(
        hide_id="id" in hidden, hide_secret="secret" in hidden, fault=fault, fault_always=always,
        distract=_number("distract", values.get("distract"), 0, MAX_DISTRACT) or 0,
        turns=_number("turns", values.get("turns"), 1, MAX_TURNS), leak=_leak(values.get("leak")),
    )  # fmt: skip
    if fault is not None and fault not in needed_tools(domain, goals, Mods(hide_id=mods.hide_id)):
        raise BlueprintError("unused_fault", f"no goal of this chain uses {fault}")
    if skill not in chain_skills(domain.domain, goals, mods):
        raise BlueprintError("skill_not_trained", f"this chain does not train {skill.value}")
    return Blueprint(domain.domain, skill, goals, mods)


def _values(text: str) -> dict[str, str]:
    if not text.strip() or len(text) > MAX_CHARS:
        raise BlueprintError("malformed", "empty" if not text.strip() else f"more than {MAX_CHARS} characters")
    values: dict[str, str] = {}
    for line in text.strip().splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not value or not key.isidentifier():
            raise BlueprintError("malformed", f"not a 'key: value' line: {line[:60]!r}")
        if key not in _KEYS:
            raise BlueprintError("unknown_key", key[:40])
        if key in values:
            raise BlueprintError("repeated_key", key)
        values[key] = value
    for key in _KEYS[:3]:
        if key not in values:
            raise BlueprintError("missing_key", key)
    return values


def _domain(value: str) -> type[SimEnv]:
    if value in RESERVED_DOMAINS:
        raise BlueprintError("reserved_domain", f"{value} is kept for evaluation: design for another domain")
    try:
        return get_domain(value)
    except ValueError:
        raise BlueprintError("unknown_domain", value[:40]) from None


def _skill(value: str) -> Skill:
    try:
        return Skill(value)
    except ValueError:
        raise BlueprintError("unknown_skill", value[:40]) from None


def _goals(domain: type[SimEnv], value: str) -> tuple[str, ...]:
    goals = tuple(name.strip() for name in value.split(","))
    for name in goals:
        if name not in domain.goal_kinds:
            raise BlueprintError("unknown_goal", f"{domain.domain} has no goal {name[:40]!r}")
    if len(goals) > MAX_CHAIN:
        raise BlueprintError("too_many_goals", f"{len(goals)} goals, at most {MAX_CHAIN}")
    return goals


def _hidden(value: str | None) -> tuple[str, ...]:
    hidden = tuple(name.strip() for name in value.split(",")) if value else ()
    if len(set(hidden)) != len(hidden) or not set(hidden) <= {"id", "secret"}:
        raise BlueprintError("malformed", f"hide takes id, secret or both, not {value!r:.40}")
    return hidden


def _fault(domain: type[SimEnv], value: str | None) -> tuple[str | None, bool]:
    words = value.split() if value else []
    if not words:
        return None, False
    if len(words) > 2 or (len(words) == 2 and words[1] != "always"):
        raise BlueprintError("malformed", f"fault takes a tool and perhaps 'always', not {value!r:.40}")
    if words[0] not in all_tools(domain) or words[0] == domain.mend_tool:
        raise BlueprintError("unknown_tool", f"{domain.domain} has no such tool to fail: {words[0][:40]!r}")
    return words[0], len(words) == 2


def _number(key: str, value: str | None, low: int, high: int) -> int | None:
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()):
        raise BlueprintError("malformed", f"{key} takes a number, not {value!r:.40}")
    if len(value) > 4 or not low <= int(value) <= high:
        raise BlueprintError("out_of_range", f"{key} lies between {low} and {high}")
    return int(value)


def _leak(value: str | None) -> bool:
    if value not in (None, "yes", "no"):
        raise BlueprintError("malformed", f"leak takes yes or no, not {value!r:.40}")
    return value == "yes"
