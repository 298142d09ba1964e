"""One play: the agent and an instance, turn by turn, through one function for both arms.

The only difference between a plain and a hinted play is the hint at the end of the first observation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spade_agentic.errors import ContextOverflow, EnvironmentFault, EnvironmentTimeout
from spade_agentic.hooks.kinds import SandboxProgram, StepObservation
from spade_agentic.hooks.records import Arm, Environment, FinishReason, ParseOutcome, Play, ProgramKind, StopReason, Turn

from .instance import Instance
from .parsing import MALFORMED_OBSERVATION, ParsedTurn, parse_completion
from .rendering import Message, Rendering
from .session import Session

__all__ = ["PlayKey", "PlayStage", "play_episode", "with_hint"]

HINT_HEADER = "\n\nHint: "


def with_hint(observation: str, hint: str | None) -> str:
    """The first observation as the hinted arm sees it; unchanged where there is no hint to give."""
    return observation + HINT_HEADER + hint if hint else observation


@dataclass(frozen=True, slots=True)
class PlayKey:
    """Which play: an instance seed, a repeat and an arm of one environment."""

    play_id: str
    seed: int
    repeat: int
    arm: Arm


PlayStage = Literal["resetting", "sampling", "acting"]
"""What a play waits for: the environment's first observation, the policy, or the environment's answer to an action."""


@dataclass(slots=True)
class _Ending:
    stop: StopReason
    reward: float = 0.0
    fault: str | None = None


async def play_episode(
    environment: Environment, program: SandboxProgram, session: Session, rendering: Rendering, key: PlayKey, *,
    on_turn: Callable[[], None] | None = None, on_stage: Callable[[PlayStage], None] | None = None,
) -> Play:
    """Play one instance to its end; ``on_turn`` is called after every turn, ``on_stage`` whenever the play waits for another.

    The return is the last reward, clipped to [-1, 1], if the environment ended the play (also by its verdict on an
    answer), else 0. An EnvironmentFault makes the play void; it is never charged to the agent.
    Raises EngineError and SandboxError: those are ours, and no play.
    """
    started = time.monotonic()
    episode = _Episode(environment, program, session, rendering, key, on_turn, on_stage)
    try:
        ending = await episode.run()
    except EnvironmentTimeout as fault:
        ending = _Ending(StopReason.ENVIRONMENT_FAULT, fault="timeout: " + fault.detail)
    except EnvironmentFault as fault:
        ending = _Ending(StopReason.ENVIRONMENT_FAULT, fault=str(fault))
    finally:
        await episode.instance.close()
    return Play(
        play_id=key.play_id,
        env_id=environment.env_id,
        seed=key.seed,
        repeat=key.repeat,
        arm=key.arm,
        trajectory=session.trajectory,
        reward=ending.reward,
        won=ending.reward >= 1.0,
        stop=ending.stop,
        turns=episode.turns,
        fault=ending.fault,
        first_observation=episode.first_observation,
        duration_s=time.monotonic() - started,
    )


class _Episode:
    def __init__(
        self, environment: Environment, program: SandboxProgram, session: Session, rendering: Rendering, key: PlayKey,
        on_turn: Callable[[], None] | None, on_stage: Callable[[PlayStage], None] | None,
    ) -> None:
        self.instance = Instance(program, key.seed)
        self.turns: list[Turn] = []
        self.first_observation = ""
        self._manifest = program.manifest
        self._max_turns = environment.max_turns
        self._hint = environment.hint if key.arm is Arm.HINTED else None
        self._session = session
        self._rendering = rendering
        self._on_turn = on_turn
        self._enter = on_stage or (lambda stage: None)
        self._text_only = environment.program.kind is ProgramKind.TEXT
        self._tools = None if self._text_only else list(self._manifest.get("tools") or ())

    async def run(self) -> _Ending:
        self._enter("resetting")
        first = await self.instance.reset()
        self.first_observation = first.text
        system = str(self._manifest.get("system") or "")
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": with_hint(first.text, self._hint)})
        for _ in range(self._max_turns):
            self._enter("sampling")
            try:
                text, completion = await self._session.say(messages, tools=self._tools)
            except ContextOverflow:
                return _Ending(StopReason.CONTEXT_LIMIT)
            if completion.finish_reason is FinishReason.ABORT:
                return _Ending(StopReason.ABORTED)
            parsed = self._read(text, completion)
            if parsed.outcome is ParseOutcome.TRUNCATED:
                self.turns.append(Turn(text, parsed.outcome, (), ()))
                return _Ending(StopReason.TRUNCATED if self._session.room > 0 else StopReason.CONTEXT_LIMIT)
            self._enter("acting")
            observations, ending = await self._act(parsed)
            self.turns.append(Turn(text, parsed.outcome, parsed.calls, tuple(observations)))
            if self._on_turn is not None:
                self._on_turn()
            if ending is not None:
                return ending
            role = "user" if self._text_only else "tool"
            messages = [{"role": role, "content": observation} for observation in observations]
        return _Ending(StopReason.TURN_LIMIT)

    def _read(self, text: str, completion: Any) -> ParsedTurn:
        if self._text_only:
            cut = completion.finish_reason is not FinishReason.STOP
            return ParsedTurn(ParseOutcome.TRUNCATED if cut else ParseOutcome.NO_CALL, text)
        return parse_completion(self._rendering, completion, self._tools, prompt_ids=self._session.prompt_ids)

    async def _act(self, parsed: ParsedTurn) -> tuple[list[str], _Ending | None]:
        """Carry out one turn; parallel calls are answered in the order they were made, until one ends the play."""
        if parsed.outcome is ParseOutcome.MALFORMED:
            return [MALFORMED_OBSERVATION], None
        actions: list[Mapping[str, Any]] = [{"type": "call", **call} for call in parsed.calls]
        if parsed.outcome is ParseOutcome.NO_CALL:
            actions = [{"type": "text", "text": parsed.text}]
        observations: list[str] = []
        for action in actions:
            answer = await self.instance.step(action)
            observations.append(answer.text)
            ending = self._ending(answer, answered=action["type"] == "text" and not self._text_only)
            if ending is not None:
                return observations, ending
        return observations, None

    @staticmethod
    def _ending(answer: StepObservation, *, answered: bool) -> _Ending | None:
        if answer.terminated:
            reward = max(-1.0, min(1.0, float(answer.reward)))
            return _Ending(StopReason.ANSWERED if answered else StopReason.TERMINATED, reward)
        if answer.truncated:
            return _Ending(StopReason.TURN_LIMIT)
        if answered:
            raise EnvironmentFault("protocol", "an answer did not end the play")
        return None
