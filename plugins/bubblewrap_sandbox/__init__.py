"""The sandbox ``bubblewrap``: namespaces, no network, and a file system that holds the interpreter alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spade_agentic import BubblewrapSandbox, Factory, Sandbox, SandboxOptions, hookimpl, sandbox_for_run

__all__ = ["sandbox"]


def _build(options: SandboxOptions, context: Any) -> Sandbox:
    return sandbox_for_run(BubblewrapSandbox, options, context)


@hookimpl
def sandbox() -> Sequence[Factory[Sandbox]]:
    """The hook ``sandbox``."""
    return [Factory("bubblewrap", _build, SandboxOptions, doc="namespaces without network, and a file system of its own")]
