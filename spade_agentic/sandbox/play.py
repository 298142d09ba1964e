"""One play of a loaded program, as the host sees it: deadlines, the order of calls, and checks of every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spade_agentic.errors import EnvironmentFault, EnvironmentTimeout
from spade_agentic.hooks.kinds import StepObservation

from .channel import Channel
from .checks import checked_probe, checked_reset, checked_step
from .wire import ProtocolError

if TYPE_CHECKING:
    from .worker import Worker

__all__ = ["HostPlay"]


class HostPlay:
    """A :class:`~spade_agentic.hooks.kinds.SandboxPlay`: a forked child of the program's runner.

    Every call raises :class:`EnvironmentFault` for what the program did wrong; the play is of no further use then. At a
    deadline the child is killed, and the whole worker where something of it is left.
    """

    def __init__(self, worker: Worker, number: int, channel: Channel) -> None:
        self._worker, self._number, self._channel = worker, number, channel
        self._turn, self._over, self._closed = 0, True, False

    async def reset(self, seed: int) -> StepObservation:
        observation = checked_reset(await self._ask({"op": "reset", "seed": seed}), self._worker.options.max_text_chars)
        self._turn, self._over = 0, False
        return observation

    async def step(self, action: Mapping[str, Any]) -> StepObservation:
        assert not self._over, "a play that is over, or was not reset, takes no step"
        self._turn += 1
        answer = await self._ask({"op": "step", "action": dict(action)})
        observation = checked_step(answer, self._worker.options.max_text_chars)
        if self._turn >= self._worker.manifest["max_turns"] and not (observation.terminated or observation.truncated):
            await self._give_up()
            raise EnvironmentFault("too_long", f"the play went on after the {self._turn} turns that the program allows itself")
        self._over = observation.terminated or observation.truncated
        return observation

    async def probe(self) -> Mapping[str, Any]:
        return checked_probe(await self._ask({"op": "probe"}))

    async def close(self) -> None:
        """Kill the child and wait until it is gone."""
        if not self._closed:
            await self._give_up()

    async def _ask(self, message: dict[str, Any]) -> Any:
        assert not self._closed, "the play is closed"
        options = self._worker.options
        try:
            async with self._worker.turnstile:
                async with asyncio.timeout(options.step_timeout_s):
                    answer = await self._channel.ask(message, options.message_kb * 1024 + 64)
        except TimeoutError:
            await self._give_up(hung=True)
            raise EnvironmentTimeout(f"no answer to {message['op']} within {options.step_timeout_s} s") from None
        except (ProtocolError, OSError) as error:
            await self._give_up()
            raise EnvironmentFault("protocol", str(error)) from error
        except asyncio.CancelledError:
            self._channel.close()  # an answer that comes later would be taken for the next one's
            raise
        if answer is None:
            reason = await self._worker.why_gone()
            await self._give_up()
            raise reason or EnvironmentFault("crash", "the process of the play ended")
        if "is" in answer:
            return answer["is"]
        await self._give_up()
        raise EnvironmentFault(str(answer.get("fault", "protocol"))[:40], str(answer.get("detail", ""))[:500])

    async def _give_up(self, *, hung: bool = False) -> None:
        self._closed = self._over = True
        self._channel.close()
        await self._worker.end_play(self._number, hung=hung)
