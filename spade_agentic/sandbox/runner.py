"""The runner: it loads one program and forks a child for every play of it.

It needs the standard library and the environment contract. It shares its interpreter with the program, so nothing that
it says is proof of anything: the host counts, checks and limits on its own side, and the supervisor audits from outside.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import socket
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from spade_agentic.envs.contract import TextEnv, ToolEnv, load_environment
from spade_agentic.errors import EnvironmentFault

from . import wire

__all__ = ["serve"]

_DETAIL = 500


def serve(work: socket.socket, limits: Mapping[str, int]) -> NoReturn:
    """Answer the host until it closes ``work``; never returns."""
    try:
        _serve(work, limits)
    except BaseException:
        os._exit(1)
    os._exit(0)


def _serve(work: socket.socket, limits: Mapping[str, int]) -> None:
    request = wire.receive(work)
    if request is None:
        return
    environment = _load(work, request["source"])
    if environment is None:
        return
    plays: dict[int, tuple[int, int]] = {}  # the host's number to (pid, pidfd)
    while True:
        ready, _, _ = select.select([work.fileno(), *(pidfd for _, pidfd in plays.values())], [], [])
        _collect(plays)
        if work.fileno() not in ready:
            continue
        received = wire.receive_with_fds(work)
        if received is None:
            return
        request, fds = received
        if request["op"] == "play":
            _start(environment, plays, int(request["play"]), fds[0], work, limits)
        else:
            _stop(plays, int(request["play"]))
            wire.send(work, {"stopped": request["play"]})


def _load(work: socket.socket, source: str) -> ToolEnv | TextEnv | None:
    try:
        environment = load_environment(source)
        reply = {"manifest": _manifest(environment)}
    except EnvironmentFault as fault:
        wire.send(work, {"fault": fault.code, "detail": fault.detail[:_DETAIL]})
        return None
    except (Exception, SystemExit) as error:
        wire.send(work, {"fault": "import_failed", "detail": _say(error)})
        return None
    gc.collect()
    gc.freeze()
    try:
        wire.send(work, reply)
    except wire.ProtocolError as error:
        wire.send(work, {"fault": "bad_manifest", "detail": str(error)})
        return None
    return environment


def _manifest(environment: ToolEnv | TextEnv) -> dict[str, Any]:
    tools = environment.tools() if isinstance(environment, ToolEnv) else []
    kind = "tool" if isinstance(environment, ToolEnv) else "text"
    return {"kind": kind, "tools": tools, "system": environment.system, "max_turns": environment.max_turns}


def _collect(plays: dict[int, tuple[int, int]]) -> None:
    """Reap every child that has ended, ours or an orphan that was left to us."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for number, (child, pidfd) in list(plays.items()):
            if child == pid:
                os.close(pidfd)
                del plays[number]


def _stop(plays: dict[int, tuple[int, int]], number: int) -> None:
    if number in plays:
        pid, pidfd = plays.pop(number)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(pidfd)


def _start(
    environment: ToolEnv | TextEnv, plays: dict[int, tuple[int, int]], number: int, fd: int, work: socket.socket,
    limits: Mapping[str, int],
) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            work.close()
            for _, pidfd in plays.values():
                os.close(pidfd)
            resource.setrlimit(resource.RLIMIT_CPU, (limits["play_cpu_s"], limits["play_cpu_s"]))
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            _play(environment, socket.socket(fileno=fd), limits)
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(fd)
    plays[number] = (pid, os.pidfd_open(pid))


def _play(environment: ToolEnv | TextEnv, sock: socket.socket, limits: Mapping[str, int]) -> None:
    while True:
        request = wire.receive(sock)
        if request is None:
            return
        number = {"n": request["n"]}
        try:
            frame = wire.encode({**number, "is": _answer(environment, request)}, limits["message_kb"] * 1024)
        except wire.ProtocolError as error:
            code = "too_large" if "at most" in str(error) else "bad_type"
            frame = wire.encode({**number, "fault": code, "detail": str(error)[:_DETAIL]})
        except MemoryError:
            frame = wire.encode({**number, "fault": "memory", "detail": "the program ran out of memory"})
        except (Exception, SystemExit) as error:
            frame = wire.encode({**number, "fault": "crash", "detail": _say(error)})
        sock.sendall(frame)


def _answer(environment: ToolEnv | TextEnv, request: Mapping[str, Any]) -> Any:
    """``[text, info]`` for a reset, the five-tuple for a step, a mapping for a probe, nothing for an end."""
    op = request["op"]
    if op == "end":
        return None
    if op == "reset":
        return list(environment.reset(seed=request["seed"]))
    if op == "step":
        action = request["action"]
        if isinstance(environment, ToolEnv):
            return list(environment.step(action))
        text = action.get("text")
        return list(environment.step(text if isinstance(text, str) else json.dumps(action)))
    assert op == "probe", op
    if isinstance(environment, ToolEnv):
        return environment.probe()
    return {"criteria": [], "solution": [list(environment.solution())], "instructions": [], "current": 0}


def _say(error: BaseException) -> str:
    """The error and the line of the program that raised it."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    own = [frame.lineno for frame in frames if frame.filename.startswith("<spade_program_")]
    where = f" (line {own[-1]})" if own else ""
    return f"{type(error).__name__}: {str(error)[:_DETAIL]}{where}"
