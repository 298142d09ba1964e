"""The sandboxes ``process``, which needs nothing but Linux, and ``auto``, the strongest that works here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spade_agentic import AutoSandbox, Factory, ProcessSandbox, Sandbox, SandboxOptions, hookimpl, sandbox_for_run

__all__ = ["sandbox"]


def _build_process(options: SandboxOptions, context: Any) -> Sandbox:
    return sandbox_for_run(ProcessSandbox, options, context)


def _build_auto(options: SandboxOptions, context: Any) -> Sandbox:
    return sandbox_for_run(AutoSandbox, options, context)


@hookimpl
def sandbox() -> Sequence[Factory[Sandbox]]:
    """The hook ``sandbox``."""
    return [
        Factory("process", _build_process, SandboxOptions, doc="processes confined by what the kernel offers to this user"),
        Factory("auto", _build_auto, SandboxOptions, doc="bubblewrap where it works, else process, and says which"),
    ]
