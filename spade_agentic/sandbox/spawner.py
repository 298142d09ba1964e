"""The spawner: one single-threaded process that starts everything else of a sandbox.

It is executed fresh (never forked from a process that has torch or threads), holds one *zygote* for every hash seed, and
passes requests for workers on to them with the sockets that the host made. When its control socket closes, or its parent
dies, it kills the zygotes; they, and the supervisors of all workers, hear of it from the kernel and kill what they have.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from . import linux, wire

__all__ = ["run"]

_POLL_S = 1.0


@dataclass(slots=True)
class _Zygote:
    process: subprocess.Popen[bytes]
    control: socket.socket
    pidfd: int


class _Spawner:
    def __init__(self, control: socket.socket, setup: dict[str, Any]) -> None:
        self.control = control
        self.setup = setup
        self.zygotes: dict[int, _Zygote] = {}

    def start_zygote(self, variant: int) -> dict[str, Any]:
        """Start the zygote of this hash seed and wait until it has imported what programs need; returns its report."""
        ours, theirs = socket.socketpair()
        environment = {
            "PYTHONHASHSEED": str(self.setup["hash_seeds"][variant]),
            "LC_ALL": "C.UTF-8",
            "PYDANTIC_DISABLE_PLUGINS": "__all__",
        }
        guest = [sys.executable, "-s", "-S", "-P", "-B", sys.argv[0], "zygote", sys.argv[2], str(theirs.fileno()), sys.argv[4]]
        process = subprocess.Popen(
            [*self.setup["wrapper"], *guest], env=environment, cwd="/", pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        zygote = _Zygote(process, ours, os.pidfd_open(process.pid))
        self.zygotes[variant] = zygote
        try:
            wire.send(ours, self.setup["zygote"] | {"parent": 0 if self.setup["wrapper"] else os.getpid()})
            report = wire.receive(ours)
        except (OSError, wire.ProtocolError) as error:
            report = {"error": str(error)}
        if report is None or "error" in report:
            self.stop(variant)
            return {"error": (report or {}).get("error", "a zygote ended while it started")}
        return report

    def stop(self, variant: int) -> None:
        zygote = self.zygotes.pop(variant)
        zygote.process.kill()
        zygote.process.wait()
        zygote.control.close()
        os.close(zygote.pidfd)

    def pass_on(self, request: dict[str, Any], fds: list[int]) -> None:
        """Hand a request for a worker to its zygote. If that fails the host sees its sockets closed."""
        variant = int(request["variant"])
        try:
            if variant not in self.zygotes and "error" in self.start_zygote(variant):
                return
            wire.send_with_fds(self.zygotes[variant].control, request, fds)
        except OSError:
            self.stop(variant)
        finally:
            for fd in fds:
                os.close(fd)

    def serve(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            watched = {zygote.pidfd: variant for variant, zygote in self.zygotes.items()}
            ready, _, _ = select.select([self.control.fileno(), *watched], [], [], _POLL_S)
            for item in ready:
                if item in watched:
                    self.stop(watched[item])
            if self.control.fileno() in ready:
                received = wire.receive_with_fds(self.control)
                if received is None:
                    return
                self.pass_on(*received)


def run(control: socket.socket) -> None:
    """Serve until the host closes ``control`` or dies."""
    setup = wire.receive(control)
    if setup is None:
        return
    if setup["die_with_parent"]:
        linux.die_with_parent(setup["host"])
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    linux.process_name("spade-spawner")
    spawner = _Spawner(control, setup)
    try:
        reports = [spawner.start_zygote(variant) for variant in range(len(setup["hash_seeds"]))]
        failed = [report for report in reports if "error" in report]
        wire.send(control, failed[0] if failed else reports[0])
        if not failed:
            spawner.serve()
    finally:
        for variant in list(spawner.zygotes):
            spawner.stop(variant)
