"""How the zygotes of the ``bubblewrap`` backend are wrapped, and whether that works on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from spade_agentic.errors import SandboxUnavailable

from .layout import Layout

__all__ = ["INSTALL", "probe", "wrapper"]

INSTALL = "install bubblewrap (Debian, Ubuntu: `apt-get install bubblewrap`; Fedora: `dnf install bubblewrap`)"
_CAPABILITIES = ("SYS_ADMIN", "SETUID", "SETGID", "CHOWN", "KILL", "SYS_PTRACE", "SETPCAP")
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/etc/ld.so.cache")
_TIMEOUT_S = 10.0


def wrapper(layout: Layout) -> list[str]:
    """The command before a zygote's own: no network, an empty file system with Python's folders, dies with its parent.

    Under root the zygote keeps the capabilities with which it confines each worker to a user, pid namespace and file
    system of its own; the worker itself has none. Without root it gets what its user namespace gives.
    """
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(f"the program `bwrap` is not on the path; {INSTALL}")
    command = [found, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        for name in _CAPABILITIES:
            command += ["--cap-add", f"CAP_{name}"]
    else:
        command += ["--unshare-user"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chmod", "1777", "/tmp"]
    for place in _places(layout):  # after /tmp, in which an environment may lie
        command += ["--ro-bind-try", place, place]
    for target, source in _links():
        command += ["--symlink", target, source]
    return [*command, "--chdir", "/", "--"]


def _places(layout: Layout) -> list[str]:
    """What is bound, parents before children: system libraries, Python, and the folders that modules come from."""
    python = {sys.executable, os.path.realpath(sys.executable), sys.prefix, sys.base_prefix}
    wanted = {*_SYSTEM, *python, *layout.path, *layout.packages.values(), str(Path(__file__).parent.parent)}
    return sorted(place for place in wanted if os.path.exists(place) and not os.path.islink(place))


def _links() -> list[tuple[str, str]]:
    """Symbolic links among the places above, such as /lib on a merged system, and the interpreter's own."""
    return [(os.readlink(place), place) for place in _SYSTEM if os.path.islink(place) and place != "/etc/localtime"]


async def probe(layout: Layout) -> str | None:
    """``None`` where bubblewrap really works here, else what is missing. Runs it once."""
    try:
        command = wrapper(layout)
    except SandboxUnavailable as error:
        return str(error)
    check = [*command, sys.executable, "-s", "-S", "-P", "-c", "import socket, json"]
    process = await asyncio.create_subprocess_exec(
        *check, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, said = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"bubblewrap did not answer within {_TIMEOUT_S:g} s"
    if process.returncode == 0:
        return None
    return f"bubblewrap does not work here ({_first(said.decode(errors='replace').splitlines())}); {_HELP}"


_HELP = "it needs user namespaces (`sysctl user.max_user_namespaces`, and in a container `--security-opt seccomp=unconfined`)"


def _first(lines: Sequence[str]) -> str:
    return lines[0][:200] if lines else "no message"
