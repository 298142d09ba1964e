"""A sandbox as a run needs it: its zygotes import the run's tool simulators before any program does."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .backend import PooledSandbox
from .options import SandboxOptions

if TYPE_CHECKING:
    from spade_agentic.hooks.manager import BuildContext

__all__ = ["sandbox_for_run"]

SandboxT = TypeVar("SandboxT", bound=PooledSandbox)


def sandbox_for_run(backend: type[SandboxT], options: SandboxOptions, context: BuildContext) -> SandboxT:
    """An instance of ``backend``, labelled with the run's name; without a run directory (a check) with ``check``."""
    modules = [context.manager.build("tool_sim", ref, context).module for ref in context.config.tool_sims]
    more = {
        "preload": tuple(dict.fromkeys((*options.preload, *modules))),
        "packages": tuple(dict.fromkeys((*options.packages, *(name.partition(".")[0] for name in modules)))),
    }
    run = context.run_dir.name if context.run_dir is not None else "check"
    return backend(options.model_copy(update=more), run=run)
