"""The ``blueprint`` designer: the policy writes a few lines, which compile to a complete program.

For policies that are too small to write code. Everything after the text is shared with every other designer: the same
gates, the same pool, the same plays and rewards.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator

from spade_agentic import (
    BuildContext,
    Designer,
    DesignRequest,
    Draft,
    Factory,
    FinishReason,
    Options,
    PolicySession,
    Program,
    Refusal,
    hookimpl,
)
from spade_agentic_sims.kit import RESERVED_DOMAINS, is_reserved, refuse_reserved

from .compiler import compile_blueprint
from .grammar import Blueprint, BlueprintError, parse_blueprint
from .prompt import DEFAULT_DOMAINS, Offer, offer_for, prompt_messages, random_blueprint

__all__ = [
    "DEFAULT_DOMAINS",
    "Blueprint",
    "BlueprintDesigner",
    "BlueprintError",
    "BlueprintOptions",
    "Offer",
    "compile_blueprint",
    "env_designer",
    "offer_for",
    "parse_blueprint",
    "prompt_messages",
    "random_blueprint",
    "read_blueprint",
    "reserved_reason",
]

_FENCED = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


class BlueprintOptions(Options):
    domains: tuple[str, ...] | None = Field(default=None, description="Domains to design for; the run's tool_sims by default.")

    @field_validator("domains")
    @classmethod
    def _none_is_reserved(cls, domains: tuple[str, ...] | None) -> tuple[str, ...] | None:
        reserved = [name for name in domains or () if name in RESERVED_DOMAINS]
        if reserved:
            raise ValueError(f"{', '.join(reserved)} is reserved, kept for evaluation; leave it out")
        return domains


class BlueprintDesigner:
    """Asks the policy for a blueprint and compiles it. Raises :class:`~spade_agentic.UserError` for a reserved domain."""

    def __init__(self, domains: tuple[str, ...] = DEFAULT_DOMAINS) -> None:
        refuse_reserved(domains, where="the blueprint designer's domains")
        self.domains = domains

    async def design(self, request: DesignRequest, policy: PolicySession) -> Draft:
        text, completion = await policy.say(prompt_messages(request, self.domains))
        draft = Draft(
            request.draft_id, request.skill, request.round_index, request.slot, request.attempt,
            trajectory=policy.trajectory, text=text,
        )  # fmt: skip
        if completion.finish_reason is not FinishReason.STOP:
            draft.refusal = Refusal("blueprint", "truncated", f"the completion ended by {completion.finish_reason.value}")
            return draft
        try:
            draft.program = self._program(text, request)
        except BlueprintError as error:
            draft.refusal = Refusal("blueprint", error.code, error.detail)
        return draft

    def reserved(self, program: Program) -> str | None:
        """Why this program is kept for evaluation, ``None`` where it is not."""
        return reserved_reason(program)

    def _program(self, text: str, request: DesignRequest) -> Program:
        blueprint = parse_blueprint(read_blueprint(text))
        if blueprint.domain not in self.domains:
            raise BlueprintError("unknown_domain", f"{blueprint.domain} is not one of this run's domains")
        if blueprint.skill != request.skill:
            raise BlueprintError("skill_mismatch", f"asked for {request.skill.value}, got {blueprint.skill.value}")
        return compile_blueprint(blueprint)


def read_blueprint(text: str) -> str:
    """The blueprint in a completion: the last fenced block, else everything outside of a thought."""
    spoken = _THOUGHT.sub("", text)
    fenced: list[str] = _FENCED.findall(spoken)
    return (fenced[-1] if fenced else spoken).strip()


def reserved_reason(program: Program) -> str | None:
    """Why a program must not be trained on: its domain or its chain is kept for evaluation. ``None`` where neither is."""
    domain, goals = program.origin.get("domain"), program.origin.get("goals")
    if domain in RESERVED_DOMAINS:
        return f"the domain {domain} is kept for evaluation"
    if not domain or not goals or not is_reserved(str(domain), list(goals)):
        return None
    return f"the chain {', '.join(goals)} of {domain} is kept for evaluation"


def _build(options: Any, context: BuildContext) -> BlueprintDesigner:
    return BlueprintDesigner(options.domains or tuple(reference.name for reference in context.config.tool_sims))


@hookimpl
def env_designer() -> list[Factory[Designer]]:
    return [Factory("blueprint", _build, BlueprintOptions, "the policy writes a short blueprint that compiles to a program")]
