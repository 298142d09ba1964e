"""One conversation with the policy, kept token for token.

The ids that were sampled are the ids that are trained. A later turn extends them by the rendered observation; it never
renders what was said before again. Where a model family's template cannot extend its history (it drops old reasoning), a
new segment starts from a full render, and ``breaks`` counts it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from spade_agentic.errors import ContextOverflow
from spade_agentic.hooks.answers import check_completion
from spade_agentic.hooks.kinds import InferenceEngine
from spade_agentic.hooks.records import Completion, FinishReason, Role, Sampling, Segment, Trajectory

from .rendering import Message, Rendering
from .seeding import stable_seed

__all__ = ["Session", "Ticket", "no_wave"]

Ticket = Callable[[], Awaitable["tuple[str, int] | None"]]
"""Waits until this session may submit; returns the wave it belongs to in deterministic mode (id, size), else ``None``."""


async def no_wave() -> tuple[str, int] | None:
    """The ticket of a session that needs no lockstep."""
    return None


class Session:
    """A :class:`~spade_agentic.hooks.kinds.PolicySession` over an inference engine.

    The sampling noise of turn ``i`` is keyed by ``(*noise_key, i)``, so the same conversation is the same again after a
    kill. ``request_id`` names the requests for the engine (``<request_id>_t<turn>``).
    """

    def __init__(
        self,
        *,
        role: Role,
        rendering: Rendering,
        engine: InferenceEngine,
        sampling: Sampling,
        noise_key: Sequence[str | int],
        request_id: str,
        context_tokens: int,
        ticket: Ticket = no_wave,
    ) -> None:
        self.trajectory = Trajectory(role)
        self.messages: list[Message] = []
        self.turns = 0
        self.prompt_ids: list[int] = []
        self._rendering = rendering
        self._engine = engine
        self._sampling = sampling
        self._noise_key = tuple(noise_key)
        self._request_id = request_id
        self._context_tokens = context_tokens
        self._ticket = ticket
        self._last: Completion | None = None

    @property
    def breaks(self) -> int:
        """How often history could not be extended and a new segment began."""
        return max(0, len(self.trajectory.segments) - 1)

    @property
    def room(self) -> int:
        """How many tokens the context still holds after the last prompt and completion."""
        return self._context_tokens - len(self.trajectory.segments[-1]) if self.trajectory.segments else self._context_tokens

    async def say(
        self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[str, Completion]:
        """Extend the conversation by ``messages`` and sample one completion; returns its text and its tokens.

        A completion is cut at what the context still holds. Raises ContextOverflow, with nothing appended, where not
        even the prompt fits, and EngineError where the engine fails.
        """
        segment, context = self._next_prompt(messages, tools)
        length = len(context) + (len(segment) if segment else 0)
        room = self._context_tokens - length
        if room < 1:
            raise ContextOverflow(
                f"{self._request_id}: a prompt of {length} tokens fills the context of {self._context_tokens}"
            )
        if segment is None:
            segment = Segment()
            self.trajectory.segments.append(segment)
        segment.append_context(context)
        self.messages.extend(messages)
        self.prompt_ids = list(segment.token_ids)
        completion = await self._sample(min(room, self._sampling.max_tokens))
        segment.append_completion(completion)
        self._last = completion
        self.turns += 1
        text = self._rendering.text(completion.token_ids)
        self.messages.append(self._spoken(completion, text, tools))
        return text, completion

    def _next_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
    ) -> tuple[Segment | None, list[int]]:
        """The segment to go on with (``None``: a new one) and the context tokens to append to it."""
        if self._last is not None:
            extension = self._rendering.extension(self.prompt_ids, self._last.token_ids, messages, tools)
            if extension is not None:
                return self.trajectory.segments[-1], extension
        return None, self._rendering.prompt([*self.messages, *messages], tools)

    async def _sample(self, max_tokens: int) -> Completion:
        sampling = self._sampling
        if max_tokens != sampling.max_tokens:
            sampling = Sampling(sampling.temperature, sampling.top_p, sampling.top_k, max_tokens)
        wave = await self._ticket()
        completion = await self._engine.complete(
            self.prompt_ids,
            sampling,
            seed=stable_seed(*self._noise_key, self.turns),
            request_id=f"{self._request_id}_t{self.turns}",
            stop_token_ids=self._rendering.stop_token_ids,
            wave=wave,
        )
        return check_completion(self._engine, completion)

    def _spoken(self, completion: Completion, text: str, tools: Sequence[Mapping[str, Any]] | None) -> Message:
        """The completion as a message, for the full render that a new segment starts with."""
        if completion.finish_reason is not FinishReason.STOP:
            return {"role": "assistant", "content": text}
        try:
            parsed = self._rendering.parse(completion.token_ids, tools, self.prompt_ids)
        except (ValueError, RecursionError):
            return {"role": "assistant", "content": text}
        message: dict[str, Any] = {"role": "assistant", "content": parsed.content or ""}
        if parsed.reasoning_content:
            message["reasoning_content"] = parsed.reasoning_content
        if parsed.tool_calls and all(str(call.status) == "ok" for call in parsed.tool_calls):
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in parsed.tool_calls
            ]
        elif parsed.tool_calls:
            message["content"] = text
        return message
