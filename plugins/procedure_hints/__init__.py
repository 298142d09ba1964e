"""Hint writers that need no model: ``procedure`` tells the steps of a simulated world in words, ``null`` tells nothing.

With ``null`` both arms of a pair see the same, so that regret must be zero within its error: the control of the method.
"""

from __future__ import annotations

from spade_agentic import Factory, HintWriter, PolicySession, Program, hookimpl

__all__ = ["NullHints", "ProcedureHints", "hint_writer"]


class ProcedureHints:
    """The hint that came with the program: what to do in which order, without any value of an instance."""

    async def write(self, program: Program, policy: PolicySession, *, seed: int) -> str | None:
        hint = program.origin.get("hint")
        return str(hint) if hint else None


class NullHints:
    """The empty hint."""

    async def write(self, program: Program, policy: PolicySession, *, seed: int) -> str | None:
        return ""


@hookimpl
def hint_writer() -> list[Factory[HintWriter]]:
    return [
        Factory("procedure", lambda options, context: ProcedureHints(), doc="the procedure that a simulated world carries"),
        Factory("null", lambda options, context: NullHints(), doc="an empty hint: both arms are the same"),
    ]
