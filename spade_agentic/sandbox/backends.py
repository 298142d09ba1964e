"""The backends: ``process``, ``bubblewrap`` (namespaces and a file system of their own for all workers), and ``auto``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Literal

from spade_agentic.errors import SandboxUnavailable

from .backend import WorkerSandbox
from .layout import BASE_PACKAGES, find_packages, interpreter_folders
from .options import SandboxOptions

__all__ = ["auto_sandbox", "bubblewrap_sandbox", "process_sandbox", "sandbox_for_run", "why_no_bubblewrap"]

_TRY_TIMEOUT_S = 20.0
_CAPABILITIES = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN",
    "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
)
"""What root's zygote and supervisors keep, to give each worker a user and namespaces of its own. Runners keep nothing."""


def _program() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable("bubblewrap is not installed; on Debian and Ubuntu: apt-get install bubblewrap")
    return found


def _wrapper(packages: Sequence[str]) -> list[str]:
    """bubblewrap's command line, up to the command that it runs.

    Root keeps its own user namespace, since workers shall have users of their own; anyone else gets one.
    """
    root = os.geteuid() == 0
    namespaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command = [_program(), *(namespaces if root else ["--unshare-all"]), "--die-with-parent", "--new-session"]
    command += ["--hostname", "sandbox"]
    if root:
        command += ["--cap-drop", "ALL", *(word for name in _CAPABILITIES for word in ("--cap-add", name))]
    command += ["--tmpfs", "/", "--dir", "/tmp", "--proc", "/proc", "--dev", "/dev"]
    for place in [*interpreter_folders(), *find_packages(packages).values()]:
        command += ["--ro-bind", place, place]
    return [*command, "--dir", "{folder}", "--chdir", "/", "--"]


def why_no_bubblewrap() -> str | None:
    """Why bubblewrap does not work on this machine, found by running it once; ``None`` where it does."""
    try:
        command = [*(part.replace("{folder}", "/tmp/try") for part in _wrapper(BASE_PACKAGES)), sys.executable, "-S", "-c", ""]
    except SandboxUnavailable as error:
        return str(error)
    try:
        done = subprocess.run(
            command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run: {error}"
    said = done.stderr.decode(errors="replace").strip()
    return None if done.returncode == 0 else f"bubblewrap is installed but does not work here: {said or done.returncode}"


def process_sandbox(options: SandboxOptions, *, run: str) -> WorkerSandbox:
    """Workers confined by what the kernel offers to this user; for machines without bubblewrap."""
    return WorkerSandbox("process", options, run=run)


def bubblewrap_sandbox(options: SandboxOptions, *, run: str) -> WorkerSandbox:
    """Raises :class:`SandboxUnavailable` where bubblewrap is not installed or not allowed to work."""
    reason = why_no_bubblewrap()
    if reason is not None:
        raise SandboxUnavailable(reason)
    packages = [*BASE_PACKAGES, *options.packages, *(name.split(".")[0] for name in options.preload)]
    return WorkerSandbox("bubblewrap", options, run=run, wrapper=_wrapper(packages))


def auto_sandbox(options: SandboxOptions, *, run: str) -> WorkerSandbox:
    """``bubblewrap`` where it works, else ``process``, with an event that says so and why."""
    import structlog

    reason = why_no_bubblewrap()
    if reason is None:
        return bubblewrap_sandbox(options, run=run)
    structlog.get_logger(__name__).warning("sandbox_fallback", chosen="process", instead_of="bubblewrap", reason=reason)
    return process_sandbox(options, run=run)


def sandbox_for_run(name: Literal["process", "bubblewrap", "auto"], options: SandboxOptions, context: Any) -> WorkerSandbox:
    """The backend of this name for a run: its zygotes import the run's tool simulators before any program does.

    ``context`` is a :class:`~spade_agentic.hooks.manager.BuildContext`.
    """
    sims = [context.manager.build("tool_sim", ref, context).module for ref in context.config.tool_sims]
    options = options.model_copy(update={"preload": tuple(dict.fromkeys((*options.preload, *sims)))})
    run = context.run_dir.name if context.run_dir is not None else "check"
    backends = {"process": process_sandbox, "bubblewrap": bubblewrap_sandbox, "auto": auto_sandbox}
    return backends[name](options, run=run)
