"""One running sandbox of each backend for all tests of this folder, and programs to run in it."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import sandboxes

from spade_agentic.hooks.records import Program, ProgramKind, Skill
from spade_agentic.sandbox.backend import BubblewrapSandbox, PooledSandbox, ProcessSandbox
from spade_agentic.sandbox.options import SandboxOptions

OPTIONS = SandboxOptions(
    load_timeout_s=2.5, step_timeout_s=2.0, memory_mb=256, tree_memory_mb=300, disk_mb=2, file_mb=1, plays=24
)

HEAD = """
from spade_agentic import Instruction, TextEnv, ToolCall, ToolEnv, ToolError, tool
"""
WORLD = """
class World(ToolEnv):
    max_turns = 5

    def setup(self, rng):
        self.value, target = 0, rng.randint(2, 9)
        return [Instruction(f"Set it to {target}.", lambda: self.value == target, [ToolCall("set_to", {"n": target})])]

    @tool
    def set_to(self, n: int) -> str:
        '''Set the counter.'''
        self.value = n
        return "ok"

    @tool
    def look(self) -> str:
        '''Look.'''
        return str(self.value)
"""
"""A sound program: one instruction, won by one call."""


def made(*parts: str, kind: ProgramKind = ProgramKind.TOOL) -> Program:
    """A program of these pieces of source, with the usual imports before them."""
    source = HEAD + "\n".join(textwrap.dedent(part) for part in parts)
    return Program(source, Skill.STATE_MODIFICATION, kind)


def acting(body: str) -> Program:
    """A program with the further tool ``act``, whose body this is."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return made(WORLD + f"\n    @tool\n    def act(self) -> str:\n        '''Act.'''\n{lines}\n")


@pytest.fixture
def program() -> Callable[..., Program]:
    return made


@pytest.fixture
def act_program() -> Callable[[str], Program]:
    return acting


@pytest.fixture
def world() -> Program:
    return made(WORLD)


@pytest.fixture
def world_source() -> str:
    return WORLD


async def started(backend: str, options: SandboxOptions = OPTIONS) -> PooledSandbox:
    """A running sandbox; where bubblewrap does not work the test is skipped with the reason, in CI it fails."""
    return await sandboxes.started({"process": ProcessSandbox, "bubblewrap": BubblewrapSandbox}[backend](options, run="tests"))


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["process", "bubblewrap"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[PooledSandbox]:
    """Both backends, one after the other."""
    running = await started(request.param)
    yield running
    await running.stop()


@pytest.fixture
def start() -> Callable[..., object]:
    """:func:`started`, for a test that needs a sandbox of its own."""
    return started


def processes_of(label: str) -> list[int]:
    """Every process on this machine that has the owner's label in its arguments."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if label.encode() in arguments.split(b"\0") and state != "Z":
                found.append(int(folder.name))
    return found


@pytest.fixture
def labelled() -> Callable[[str], list[int]]:
    return processes_of
