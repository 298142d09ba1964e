"""Contract rules of tool simulators and sandboxes."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from spade_agentic.errors import EnvironmentFault, EnvironmentTimeout
from spade_agentic.hooks.records import Program

from .rules import Rule, Subject, is_json, require
from .samples import COUNTER_SOURCE, sample_program, sample_text_program
from .sandbox import InProcessSandbox

__all__ = ["SANDBOX", "TOOL_SIM"]

SEEDS = range(1, 6)
DAEMON_STARTS_S = 0.3


# --- tool simulators ---------------------------------------------------------------------------------------------------------


async def sim_is_importable(subject: Subject) -> None:
    """Its name is an identifier, and its module can be imported: programs import it inside the sandbox."""
    sim = subject.make()
    require(isinstance(sim.name, str) and sim.name.isidentifier(), f"its name is {sim.name!r}")
    importlib.import_module(sim.module)


async def sim_describes_itself(subject: Subject) -> None:
    """Its description is JSON with goals by name and tools as OpenAI schemas."""
    description = subject.make().describe()
    require(is_json(description), "it does not come back equal from JSON")
    require(isinstance(description.get("goals"), dict) and bool(description["goals"]), "it has no goals")
    tools = description.get("tools")
    require(isinstance(tools, list) and bool(tools), "it has no tools")
    for tool in tools:
        function = tool.get("function", {})
        fine = tool.get("type") == "function" and function.get("description") and "parameters" in function
        require(bool(fine), f"no function schema with a description: {tool!r:.120}")


async def sim_example_is_repeatable(subject: Subject) -> None:
    """An example is a program; the same seed gives the same one, different seeds not always."""
    sim = subject.make()
    examples = [sim.example(seed=seed) for seed in range(1, 9)]
    require(all(isinstance(example, Program) for example in examples), "it is no Program")
    require(examples == [subject.make().example(seed=seed) for seed in range(1, 9)], "the second time they differ")
    require(len({example.source for example in examples}) > 1, "eight seeds give one program")


async def _play(program: Program, seed: int, actions: list[dict[str, Any]] | None) -> tuple[float, list[str]]:
    """The reward and all observations of ``actions``, or of the reference solution and its answer."""
    instance = await (await InProcessSandbox().load(program)).play()
    observation = await instance.reset(seed)
    texts = [observation.text]
    if actions is None:
        actions = [{"type": "call", **call} for calls in (await instance.probe())["solution"] for call in calls]
        actions.append({"type": "text", "text": "done"})
    for action in actions:
        observation = await instance.step(action)
        texts.append(observation.text)
        if observation.terminated or observation.truncated:
            break
    return observation.reward if observation.terminated else 0.0, texts


async def sim_solution_wins(subject: Subject) -> None:
    """The reference solution of an example wins, on every seed."""
    program = subject.make().example(seed=1)
    for seed in SEEDS:
        reward, texts = await _play(program, seed, None)
        require(reward == 1.0, f"seed {seed}: reward {reward}, last observation {texts[-1]!r:.120}")


async def sim_nothing_loses(subject: Subject) -> None:
    """Answering at once loses, and no criterion is true at reset."""
    program = subject.make().example(seed=1)
    for seed in SEEDS:
        reward, _ = await _play(program, seed, [{"type": "text", "text": "done"}])
        require(reward < 1.0, f"seed {seed}: doing nothing wins")
        instance = await (await InProcessSandbox().load(program)).play()
        await instance.reset(seed)
        criteria = (await instance.probe())["criteria"]
        require(not any(criteria), f"seed {seed}: criteria at reset {criteria}")


async def sim_resets_are_deterministic(subject: Subject) -> None:
    """The same seed gives the same instance, and different seeds give different ones."""
    program = subject.make().example(seed=1)
    plays = [(await _play(program, seed, None))[1] for seed in SEEDS]
    require(plays == [(await _play(program, seed, None))[1] for seed in SEEDS], "a second play of a seed differs")
    require(len({tuple(texts) for texts in plays}) > 1, "all seeds give the same play")


TOOL_SIM: tuple[Rule, ...] = (
    sim_is_importable, sim_describes_itself, sim_example_is_repeatable, sim_solution_wins, sim_nothing_loses,
    sim_resets_are_deterministic,
)  # fmt: skip


# --- sandboxes ---------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _running(subject: Subject) -> AsyncIterator[Any]:
    sandbox = subject.make()
    await sandbox.start()
    try:
        yield sandbox
    finally:
        await sandbox.stop()


def _changed(old: str, new: str) -> Program:
    assert old in COUNTER_SOURCE
    return sample_program(source=COUNTER_SOURCE.replace(old, new))


async def sandbox_plays(subject: Subject) -> None:
    """A program's reference solution wins in it; its manifest says kind, tools, system and turns."""
    async with _running(subject) as sandbox:
        program = await sandbox.load(sample_program())
        manifest = program.manifest
        require(manifest["kind"] == "tool" and manifest["max_turns"] == 6, f"the manifest says {dict(manifest)!r:.160}")
        names = [tool["function"]["name"] for tool in manifest["tools"]]
        require(sorted(names) == ["read_counter", "set_counter"], f"the manifest's tools are {names}")
        play = await program.play()
        await play.reset(3)
        for calls in (await play.probe())["solution"]:
            for call in calls:
                await play.step({"type": "call", **call})
        last = await play.step({"type": "text", "text": "done"})
        require(last.terminated and last.reward == 1.0, f"the last answer is {last!r:.160}")
        await play.close()
        await program.close()


async def sandbox_plays_text(subject: Subject) -> None:
    """A program without tools is played by texts."""
    async with _running(subject) as sandbox:
        program = await sandbox.load(sample_text_program())
        require(program.manifest["kind"] == "text", f"the manifest says {program.manifest['kind']!r}")
        play = await program.play()
        first = await play.reset(1)
        last = await play.step({"type": "text", "text": first.text.removeprefix("Say ").rstrip(".")})
        require(last.terminated and last.reward == 1.0, f"the last answer is {last!r:.160}")
        await play.close()
        await program.close()


async def sandbox_keeps_plays_apart(subject: Subject) -> None:
    """Two plays of one program know nothing of each other, and the same seed is the same instance."""
    async with _running(subject) as sandbox:
        program = await sandbox.load(sample_program())
        first, second = await program.play(), await program.play()
        texts = [(await play.reset(5)).text for play in (first, second)]
        require(texts[0] == texts[1], f"the same seed says {texts}")
        await first.step({"type": "call", "name": "set_counter", "arguments": {"number": 7}})
        seen = await second.step({"type": "call", "name": "read_counter", "arguments": {}})
        require(seen.text == "0", f"the second play sees {seen.text!r}, which the first one wrote")
        for play in (first, second):
            await play.close()
        await program.close()


BOARDS = {
    "a module's list": ("BOARD = [0]", "BOARD[0] = number", "BOARD[0]"),
    "a shared map": (
        "import mmap\nBOARD = mmap.mmap(-1, 4)", "BOARD[:4] = number.to_bytes(4, 'big')", "int.from_bytes(BOARD[:4], 'big')",
    ),
    "a file": (
        "import os", "open('board', 'w').write(str(number))", "int(open('board').read()) if os.path.exists('board') else 0",
    ),
}  # fmt: skip
"""How the plays of one program might leave each other notes: at the program's head, writing, reading."""


async def sandbox_lets_plays_leave_no_notes(subject: Subject) -> None:
    """What a play leaves in a module, a shared map or a file, no other play of the program finds.

    Of a sandbox that says of itself that it is unsafe only the module is asked: its plays live in one process.
    """
    apart = not getattr(subject.make(), "unsafe", False)
    async with _running(subject) as sandbox:
        for what, (head, write, read) in BOARDS.items() if apart else list(BOARDS.items())[:1]:
            source = COUNTER_SOURCE.replace("\n\nclass Counter", f"\n\n{head}\n\n\nclass Counter")
            source = source.replace("        self.value = number\n", f"        {write}\n        self.value = number\n")
            source = source.replace("return self.value\n", f"return {read}\n")
            try:
                program = await sandbox.load(sample_program(source=source))
            except EnvironmentFault:
                continue  # a program that would share something was refused
            plays = [await program.play(), await program.play()]
            for play in plays:
                await play.reset(5)
            with suppress(EnvironmentFault):  # it may not be able to write at all
                await plays[0].step({"type": "call", "name": "set_counter", "arguments": {"number": 7}})
            plays.append(await program.play())
            await plays[2].reset(5)
            seen = [await play.step({"type": "call", "name": "read_counter", "arguments": {}}) for play in plays[1:]]
            require(all("7" not in answer.text for answer in seen), f"another play reads in {what} what the first one wrote")
            await program.close()


async def sandbox_refuses_broken_programs(subject: Subject) -> None:
    """A program that cannot be loaded is an EnvironmentFault with a reason code, and the sandbox goes on."""
    sources = {"syntax": "def (", "import_failed": "raise ValueError('no')", "no_environment": "x = 1"}
    async with _running(subject) as sandbox:
        for code, source in sources.items():
            try:
                await sandbox.load(sample_program(source=source))
            except EnvironmentFault as fault:
                require(fault.code == code, f"for {source!r} the code is {fault.code!r}, not {code!r}")
            else:
                require(False, f"{source!r} was loaded")
        await (await sandbox.load(sample_program())).close()


async def _faults(sandbox: Any, program: Program) -> str | None:
    """The code of the fault that the program makes in its first step, or ``None``."""
    loaded = await sandbox.load(program)
    play = await loaded.play()
    try:
        await play.reset(1)
        await play.step({"type": "call", "name": "read_counter", "arguments": {}})
        await play.step({"type": "text", "text": "done"})
    except EnvironmentTimeout:
        return "timeout"
    except EnvironmentFault as fault:
        return fault.code
    finally:
        await play.close()
        await loaded.close()
    return None


async def sandbox_reports_faults(subject: Subject) -> None:
    """A crash and a reward out of range are EnvironmentFaults; the next play is not hurt."""
    crash = _changed("return self.value\n", "raise KeyError('gone')\n")
    paid = _changed(
        "    @tool\n    def read_counter",
        "    def step(self, action):\n        return 'x', float('inf'), True, False, {}\n\n    @tool\n    def read_counter",
    )
    async with _running(subject) as sandbox:
        code = await _faults(sandbox, crash)
        require(code == "crash", f"a KeyError in a tool is reported as {code!r}")
        code = await _faults(sandbox, paid)
        require(code == "bad_reward", f"an infinite reward is reported as {code!r}")
        code = await _faults(sandbox, sample_program())
        require(code is None, f"afterwards a sound program has the fault {code!r}")


async def sandbox_has_deadlines(subject: Subject) -> None:
    """A program that hangs is an EnvironmentTimeout, unless the sandbox says of itself that it is unsafe."""
    if getattr(subject.make(), "unsafe", False):
        return
    async with _running(subject) as sandbox:
        code = await _faults(sandbox, _changed("return self.value\n", "while True: pass\n"))
        require(code == "timeout", f"an endless loop is reported as {code!r}")
        code = await _faults(sandbox, sample_program())
        require(code is None, f"afterwards a sound program has the fault {code!r}")


DAEMON = '''
import ctypes
import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"{mark}")
        time.sleep(60)
    os._exit(0)
os.wait()
'''
"""A process that leaves its parent, its session and its group while the program is loaded, under a name of its own."""


async def sandbox_lets_no_process_escape(subject: Subject) -> None:
    """A daemon that a program starts is gone when the program is closed, unless the sandbox says that it is unsafe."""
    if getattr(subject.make(), "unsafe", False):
        return
    mark = f"stray-{secrets.token_hex(4)}"
    async with _running(subject) as sandbox:
        with suppress(EnvironmentFault):  # it may refuse the program
            program = await sandbox.load(sample_program(source=DAEMON.replace("{mark}", mark) + COUNTER_SOURCE))
            await asyncio.sleep(DAEMON_STARTS_S)
            await program.close()
        for _ in range(100):
            if not _named(mark):
                break
            await asyncio.sleep(0.05)
        left = _named(mark)
        for pid in left:  # the finding is reported; nobody needs the process
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        require(not left, f"after the program was closed {len(left)} of its processes are still there")
        await (await sandbox.load(sample_program())).close()


def _named(mark: str) -> list[int]:
    """The processes of this machine that carry this name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            if (folder / "comm").read_text().strip() == mark:
                found.append(int(folder.name))
    return found


async def sandbox_stops_twice(subject: Subject) -> None:
    """Closing and stopping can be done twice; a play that is open is closed with its sandbox."""
    sandbox = subject.make()
    await sandbox.start()
    program = await sandbox.load(sample_program())
    play = await program.play()
    await play.reset(1)
    await play.close()
    await play.close()
    await program.close()
    await program.close()
    await sandbox.load(sample_program())
    await sandbox.stop()
    await sandbox.stop()


SANDBOX: tuple[Rule, ...] = (
    sandbox_plays, sandbox_plays_text, sandbox_keeps_plays_apart, sandbox_lets_plays_leave_no_notes,
    sandbox_refuses_broken_programs, sandbox_reports_faults, sandbox_has_deadlines, sandbox_lets_no_process_escape,
    sandbox_stops_twice,
)  # fmt: skip
