"""The host's side of the protocol: frames over a non-blocking Unix socket, within asyncio."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from .wire import MAX_MESSAGE, ProtocolError, decode, encode

__all__ = ["Channel"]


class Channel:
    """One socket. ``receive`` and ``send`` may each be used by one task at a time.

    After a call was cancelled or timed out within a frame, the channel is of no further use and is to be closed.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()

    @classmethod
    def pair(cls) -> tuple[Channel, int]:
        """A channel, and the descriptor of its other end, to be passed on and closed."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs.detach()

    async def send(self, message: dict[str, Any]) -> None:
        """Raises :class:`ProtocolError` where the message is too large, :class:`OSError` where the peer is gone."""
        frame = encode(message)
        try:
            sent = self._sock.send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):
            await self._loop.sock_sendall(self._sock, memoryview(frame)[sent:])

    async def send_with_fds(self, message: dict[str, Any], fds: list[int]) -> None:
        """Send, and close ``fds`` here whatever happens."""
        frame = encode(message)
        try:
            sent = 0
            while not sent:
                try:
                    sent = socket.send_fds(self._sock, [frame], fds)
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            if sent < len(frame):
                await self._loop.sock_sendall(self._sock, memoryview(frame)[sent:])
        finally:
            for fd in fds:
                os.close(fd)

    async def receive(self, limit: int = MAX_MESSAGE) -> dict[str, Any] | None:
        """The next message; ``None`` where the peer has closed between two frames. Raises :class:`ProtocolError`."""
        while True:
            if len(self._buffer) >= 4:
                size = int.from_bytes(self._buffer[:4], "big")
                if size > limit:
                    raise ProtocolError(f"{size} bytes, at most {limit}")
                if len(self._buffer) >= 4 + size:
                    body = bytes(self._buffer[4 : 4 + size])
                    del self._buffer[: 4 + size]
                    return decode(body)
            try:
                part = await self._loop.sock_recv(self._sock, 1 << 16)
            except ConnectionResetError:
                part = b""
            if not part:
                if self._buffer:
                    raise ProtocolError("cut short")
                return None
            self._buffer += part

    async def ask(self, message: dict[str, Any], limit: int = MAX_MESSAGE) -> dict[str, Any] | None:
        """Send, then receive. What the peer said without being asked is a :class:`ProtocolError`."""
        if self._buffer:
            raise ProtocolError("a message that nobody asked for")
        try:
            await self.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return None
        return await self.receive(limit)

    def close(self) -> None:
        self._sock.close()
