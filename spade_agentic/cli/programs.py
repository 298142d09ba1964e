"""What the ``env`` commands share: a program from what the user names, and a sandbox to run it in."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .logs import configure_logs
from .output import debugging

if TYPE_CHECKING:
    from spade_agentic.hooks.kinds import Sandbox
    from spade_agentic.hooks.manager import PluginManager
    from spade_agentic.hooks.records import Program

__all__ = ["build_sim", "load_manager", "named_program", "opened_sandbox", "program_from_file"]

EXAMPLE_SEED = 1


def load_manager(plugins: Sequence[str] | None) -> PluginManager:
    """Installed plugins and those of ``--plugin``; events of what they build go to standard error."""
    from spade_agentic.hooks.manager import PluginManager

    configure_logs(debug=debugging())
    return PluginManager.load(plugins or ())


def build_sim(manager: PluginManager, name: str, folder: Path | None = None) -> Any:
    """The tool simulator ``name`` with its default options. Raises :class:`ConfigError` where there is none."""
    from spade_agentic.config.schema import PluginRef

    return manager.build("tool_sim", PluginRef(name=name), _context(manager, folder))


def _context(manager: PluginManager, folder: Path | None) -> Any:
    """For commands without a run: every simulator that is loaded may be imported in the sandbox."""
    from spade_agentic.config.schema import PluginRef, RunConfig
    from spade_agentic.hooks.manager import BuildContext

    config = RunConfig(tool_sims=tuple(PluginRef(name=name) for name in manager.factories("tool_sim")))
    return BuildContext(run_dir=folder, run_seed=0, config=config, manager=manager)


def program_from_file(path: Path, skill: str | None = None) -> Program:
    """The program in a source file. ``skill`` is one of the six; the file's own line ``# skill: NAME`` is the default.

    Raises :class:`UserError` for a file that cannot be read or a skill that does not exist.
    """
    from spade_agentic.config.suggest import did_you_mean
    from spade_agentic.errors import UserError
    from spade_agentic.hooks.records import Program, Skill

    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the program cannot be read: {error}", where=str(path), todo="name a Python file") from error
    if re.search(r"^\s*@hookimpl\b", source, re.MULTILINE):
        raise UserError(
            "this file is a plugin, not a program", where=str(path),
            todo=f"load it with --plugin {path}, and name the simulator that it gives",
        )
    name = skill or _noted_skill(source) or Skill.MULTI_STEP_WORKFLOWS.value
    known = [item.value for item in Skill]
    if name not in known:
        raise UserError(f"there is no skill {name!r}", where=str(path), todo=did_you_mean(name, known, noun="skill"))
    return Program(source, Skill(name), origin={"file": str(path)})


def _noted_skill(source: str) -> str | None:
    for line in source.splitlines()[:10]:
        if line.startswith("# skill:"):
            return line.removeprefix("# skill:").strip()
    return None


def named_program(manager: PluginManager, name: str, *, skill: str | None = None, seed: int = EXAMPLE_SEED) -> Program:
    """A source file's program, or the example of the simulator of that name.

    Raises :class:`UserError` where ``name`` is neither.
    """
    from spade_agentic.config.suggest import did_you_mean
    from spade_agentic.errors import UserError

    path = Path(name)
    if path.is_file():
        return program_from_file(path, skill)
    known = manager.factories("tool_sim")
    if name in known:
        program: Program = build_sim(manager, name).example(seed=seed)
        return program
    raise UserError(
        f"there is no environment {name!r}: neither a file nor a tool simulator",
        where=str(path.absolute()) if "/" in name or name.endswith(".py") else name,
        todo=did_you_mean(name, known, noun="simulator") + "; or name a Python file",
    )


@asynccontextmanager
async def opened_sandbox(manager: PluginManager, name: str) -> AsyncIterator[Sandbox]:
    """The sandbox of this name, started, and stopped afterwards. Raises :class:`ConfigError` where there is none."""
    from spade_agentic.config.schema import PluginRef

    with tempfile.TemporaryDirectory(prefix="spade-agentic-") as folder:
        sandbox: Sandbox = manager.build("sandbox", PluginRef(name=name), _context(manager, Path(folder)))
        await sandbox.start()
        try:
            yield sandbox
        finally:
            await sandbox.stop()
