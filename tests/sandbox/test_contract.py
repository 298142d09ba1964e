"""What both backends promise: programs, plays, faults, room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from spade_agentic.errors import EnvironmentFault, SandboxError
from spade_agentic.hooks.kinds import Sandbox, SandboxPlay, SandboxProgram
from spade_agentic.hooks.records import Program, ProgramKind, Skill
from spade_agentic.sandbox.backend import PooledSandbox
from spade_agentic.sandbox.options import SandboxOptions

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALL = {"type": "call", "name": "set_to", "arguments": {"n": 3}}
ANSWER = {"type": "text", "text": "done"}


async def fault_of(sandbox: PooledSandbox, program: Program, *, act: bool = False) -> str:
    """The code of the fault that loading (or with ``act`` the call of its tool ``act``) raises."""

    async def run() -> None:
        loaded = await sandbox.load(program)
        try:
            play = await loaded.play()
            await play.reset(1)
            if act:
                await play.step({"type": "call", "name": "act", "arguments": {}})
        finally:
            await loaded.close()

    with pytest.raises(EnvironmentFault) as caught:
        await run()
    return caught.value.code


async def test_it_has_the_shape_that_the_plugin_kind_asks_for(sandbox: PooledSandbox, world: Program) -> None:
    loaded = await sandbox.load(world)
    play = await loaded.play()
    assert isinstance(sandbox, Sandbox)
    assert isinstance(loaded, SandboxProgram)
    assert isinstance(play, SandboxPlay)
    await loaded.close()


async def test_the_reference_solution_wins_and_the_manifest_is_complete(sandbox: PooledSandbox, world: Program) -> None:
    loaded = await sandbox.load(world)
    assert loaded.manifest["kind"] == "tool"
    assert loaded.manifest["max_turns"] == 5
    assert loaded.manifest["lines"] == len(world.source.splitlines())
    assert [item["function"]["name"] for item in loaded.manifest["tools"]] == ["set_to", "look"]
    play = await loaded.play()
    first = await play.reset(7)
    probe = await play.probe()
    assert first.text == probe["instructions"][0]
    assert probe["criteria"] == [False]
    [[step]] = probe["solution"]
    middle = await play.step({"type": "call", **step})
    assert (middle.text, middle.reward, middle.terminated) == ("ok", 0.0, False)
    last = await play.step(ANSWER)
    assert (last.reward, last.terminated, last.truncated) == (1.0, True, False)
    await play.close()
    await loaded.close()


async def test_plays_of_one_program_share_no_state(sandbox: PooledSandbox, world: Program) -> None:
    loaded = await sandbox.load(world)
    plays = [await loaded.play() for _ in range(6)]
    await asyncio.gather(*(play.reset(seed) for seed, play in enumerate(plays)))
    await asyncio.gather(*(p.step(CALL | {"arguments": {"n": n}}) for n, p in enumerate(plays)))
    seen = await asyncio.gather(*(p.step({"type": "call", "name": "look", "arguments": {}}) for p in plays))
    assert [item.text for item in seen] == ["0", "1", "2", "3", "4", "5"]
    await loaded.close()


async def test_a_text_environment_fits_the_same_contract(sandbox: PooledSandbox, program: Callable[..., Program]) -> None:
    source = """
    class Echo(TextEnv):
        system = "Say hello."
        def reset(self, *, seed):
            return f"Say hello {seed}.", {}
        def step(self, text):
            return "", float(text == "hello"), True, False, {}
        def solution(self):
            return ["hello"]
    """
    loaded = await sandbox.load(program(source, kind=ProgramKind.TEXT))
    play = await loaded.play()
    assert (await play.reset(4)).text == "Say hello 4."
    assert (await play.probe())["solution"] == [["hello"]]
    assert (await play.step({"type": "text", "text": "hello"})).reward == 1.0
    await loaded.close()


async def test_the_host_ends_a_play_that_has_used_its_turns(sandbox: PooledSandbox, program: Callable[..., Program]) -> None:
    source = """
    class Endless(TextEnv):
        max_turns = 2
        def reset(self, *, seed):
            return "go", {}
        def step(self, text):
            return "more", 0.0, False, False, {}
        def solution(self):
            return ["x"]
    """
    loaded = await sandbox.load(program(source, kind=ProgramKind.TEXT))
    play = await loaded.play()
    await play.reset(1)
    assert not (await play.step({"type": "text", "text": "a"})).truncated
    assert (await play.step({"type": "text", "text": "b"})).truncated
    with pytest.raises(RuntimeError, match="needs a reset"):
        await play.step({"type": "text", "text": "c"})
    await loaded.close()


async def test_a_step_before_the_reset_is_the_callers_mistake(sandbox: PooledSandbox, world: Program) -> None:
    loaded = await sandbox.load(world)
    play = await loaded.play()
    with pytest.raises(RuntimeError, match="needs a reset"):
        await play.step(CALL)
    await loaded.close()


async def test_two_loads_of_one_program_have_different_hash_seeds(
    sandbox: PooledSandbox, act_program: Callable[[str], Program]
) -> None:
    program = act_program("return str(hash('spade'))")
    seen = []
    for _ in range(3):
        loaded = await sandbox.load(program)
        play = await loaded.play()
        await play.reset(1)
        seen.append((await play.step({"type": "call", "name": "act", "arguments": {}})).text)
        await loaded.close()
    assert seen[0] == seen[2] != seen[1]


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("class World(:", "syntax"),
        ("import nothing_of_that_name", "import_failed"),
        ("import torch", "import_failed"),
        ("x = 1", "no_environment"),
        ("raise SystemExit(3)", "import_failed"),
        ("import os\nos._exit(3)", "crash"),
    ],
)
async def test_what_does_not_load_is_refused_with_a_reason(
    sandbox: PooledSandbox, program: Callable[..., Program], source: str, code: str
) -> None:
    assert await fault_of(sandbox, program(source)) == code


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [("max_turns = 0", "tool"), ("max_turns = 'many'", "tool"), ("system = None", "tool"), ("", "text")],
)
async def test_a_wrong_manifest_is_refused(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str, attribute: str, kind: str
) -> None:
    source = world_source.replace("max_turns = 5", attribute or "max_turns = 5")
    assert await fault_of(sandbox, program(source, kind=ProgramKind(kind))) == "bad_manifest"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("'', float('nan'), True, False, {}", "bad_reward"),
        ("'', float('inf'), True, False, {}", "bad_reward"),
        ("'', 1.5, True, False, {}", "bad_reward"),
        ("'', -2, True, False, {}", "bad_reward"),
        ("'', '1.0', True, False, {}", "bad_reward"),
        ("'', True, True, False, {}", "bad_reward"),
        ("'', 0.0, 1, False, {}", "bad_type"),
        ("None, 0.0, True, False, {}", "bad_type"),
        ("'\\ud800', 0.0, True, False, {}", "bad_type"),
        ("'', 0.0, True, False, []", "bad_type"),
        ("'', 0.0, True, False, {'x': 'y' * 5000}", "bad_type"),
        ("'', 0.0, True, False, {'x': object()}", "bad_type"),
        ("'', 0.0", "bad_type"),
        ("'x' * 20000, 0.0, True, False, {}", "too_large"),
        ("'x' * 5000000, 0.0, True, False, {}", "too_large"),
        ("1 // 0, 0.0, True, False, {}", "crash"),
        ("exit(0), 0.0, True, False, {}", "crash"),
        ("__import__('os')._exit(0), 0.0, True, False, {}", "crash"),
    ],
)
async def test_a_forged_or_broken_answer_is_a_fault_with_a_reason(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str, answer: str, code: str
) -> None:
    source = f"{world_source}\n    def step(self, action):\n        return {answer}\n"
    assert await fault_of(sandbox, program(source), act=True) == code


async def test_a_crash_names_the_error_and_the_line(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    loaded = await sandbox.load(act_program("return {}['missing']"))
    play = await loaded.play()
    await play.reset(1)
    with pytest.raises(EnvironmentFault, match=r"KeyError: 'missing' \(line 2\d\)"):
        await play.step({"type": "call", "name": "act", "arguments": {}})
    await loaded.close()


async def test_closing_a_program_ends_its_plays(sandbox: PooledSandbox, world: Program) -> None:
    loaded = await sandbox.load(world)
    play, idle = await loaded.play(), await loaded.play()
    await play.reset(1)
    await loaded.close()
    for closed in (play.step(CALL), idle.reset(1)):
        with pytest.raises(EnvironmentFault):
            await closed
    assert loaded.worker is None


async def test_an_idle_program_makes_room_and_comes_back(
    start: Callable[..., object], world: Program, program: Callable[..., Program], world_source: str
) -> None:
    sandbox = await start("process", SandboxOptions(workers=1, wait_timeout_s=1.0))  # type: ignore[misc]
    other = program(world_source, "# another")
    first = await sandbox.load(world)
    second = await sandbox.load(other)
    assert first.worker is None
    play = await first.play()
    assert second.worker is None
    assert (await play.reset(7)).text.startswith("Set it to")
    with pytest.raises(SandboxError, match="no room"):
        await second.play()
    await play.close()
    await (await second.play()).close()
    await sandbox.stop()
    with pytest.raises(SandboxError, match="not running"):
        await sandbox.load(Program("", Skill.STATE_MODIFICATION))
