"""The protocol of the sandbox: length-prefixed JSON over a Unix stream socket.

A frame is four bytes (length of what follows, big-endian) and that many bytes of UTF-8 JSON, always an object. File
descriptors travel beside a frame (SCM_RIGHTS). This is the blocking side, for spawner, zygotes, supervisors and runners;
it needs the standard library alone. The host's side is :mod:`spade_agentic.sandbox.channel`.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

__all__ = ["MAX_MESSAGE", "ProtocolError", "decode", "encode", "receive", "receive_with_fds", "send", "send_with_fds"]

MAX_MESSAGE = 1 << 20
"""No frame is larger than this many bytes, in either direction."""
_MAX_FDS = 8


class ProtocolError(Exception):
    """A frame is too large, is cut short, or does not hold a JSON object."""


def encode(message: dict[str, Any], limit: int = MAX_MESSAGE) -> bytes:
    """A whole frame. Raises :class:`ProtocolError` where ``message`` is no JSON or larger than ``limit`` bytes."""
    try:
        body = json.dumps(message, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from error
    if len(body) > limit:
        raise ProtocolError(f"{len(body)} bytes, at most {limit}")
    return len(body).to_bytes(4, "big") + body


def decode(body: bytes) -> dict[str, Any]:
    """The object in a frame's body."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError("not an object")
    return message


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    sock.sendall(encode(message))


def send_with_fds(sock: socket.socket, message: dict[str, Any], fds: list[int]) -> None:
    frame = encode(message)
    sent = socket.send_fds(sock, [frame], fds)
    sock.sendall(frame[sent:])


def receive(sock: socket.socket) -> dict[str, Any] | None:
    """The next message; ``None`` where the peer has closed."""
    received = receive_with_fds(sock)
    if received is None:
        return None
    message, fds = received
    for fd in fds:
        os.close(fd)
    return message


def receive_with_fds(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with the descriptors that came with it."""
    head, fds, _, _ = socket.recv_fds(sock, 4, _MAX_FDS)
    if not head:
        return None
    head += _exactly(sock, 4 - len(head))
    size = int.from_bytes(head, "big")
    if size > MAX_MESSAGE:
        raise ProtocolError(f"{size} bytes, at most {MAX_MESSAGE}")
    return decode(_exactly(sock, size)), list(fds)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count > 0:
        part = sock.recv(min(count, 1 << 16))
        if not part:
            raise ProtocolError("cut short")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
