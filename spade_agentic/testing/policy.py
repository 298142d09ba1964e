"""A policy session that answers from a script, for the tests of designers and hint writers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spade_agentic.hooks.records import Completion, FinishReason, Role, Segment, Trajectory

__all__ = ["Answer", "Scripted", "ScriptedPolicy"]

LOGPROB = -0.5
"""Log-probability of every token that a script says."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """One answer and how it ended; a bare string ends by a stop token."""

    text: str
    finish_reason: FinishReason = FinishReason.STOP


Answer = str | Scripted


class ScriptedPolicy:
    """A :class:`~spade_agentic.hooks.kinds.PolicySession` without a model.

    ``answers`` are said in turn, or computed by a function of the messages of the turn. A token is a UTF-8 byte, plus 256 as
    the stop token. ``conversation`` holds the messages of every turn, ``tools`` what was offered with them.
    """

    def __init__(
        self, answers: Iterable[Answer] | Callable[[Sequence[Mapping[str, Any]]], Answer], *, role: Role = Role.DESIGNER
    ) -> None:
        self.trajectory = Trajectory(role)
        self.conversation: list[list[dict[str, Any]]] = []
        self.tools: list[list[Mapping[str, Any]] | None] = []
        self._computed = answers if callable(answers) else None
        self._answers = [] if callable(answers) else list(answers)

    async def say(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[str, Completion]:
        """The next answer. Raises AssertionError where the script has come to its end."""
        self.conversation.append([dict(message) for message in messages])
        self.tools.append(None if tools is None else list(tools))
        answer = self._next(messages)
        answer = Scripted(answer) if isinstance(answer, str) else answer
        context = list(json.dumps([dict(message) for message in messages]).encode())
        completion = scripted_completion(answer, prompt_tokens=len(context))
        if not self.trajectory.segments:
            self.trajectory.segments.append(Segment())
        self.trajectory.segments[-1].append_context(context)
        self.trajectory.segments[-1].append_completion(completion)
        return answer.text, completion

    def _next(self, messages: Sequence[Mapping[str, Any]]) -> Answer:
        if self._computed is not None:
            return self._computed(messages)
        if not self._answers:
            raise AssertionError(f"the script has no answer for turn {len(self.conversation)}")
        return self._answers.pop(0)


def scripted_completion(answer: Scripted, *, prompt_tokens: int = 0) -> Completion:
    """``answer`` as tokens: its bytes, and the stop token 256 where it stopped."""
    stop = (256,) if answer.finish_reason is FinishReason.STOP else ()
    ids = (*answer.text.encode("utf-8", errors="surrogatepass"), *stop)
    return Completion(ids, (LOGPROB,) * len(ids), (0,) * len(ids), answer.finish_reason, prompt_tokens=prompt_tokens)
