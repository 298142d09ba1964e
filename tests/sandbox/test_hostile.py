"""Programs that try to do harm. After each the sandbox still works, and nothing of the program is left."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from spade_agentic.errors import EnvironmentFault, EnvironmentTimeout
from spade_agentic.hooks.records import Program
from spade_agentic.sandbox.backend import PooledSandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")

GIVEN = {"LC_ALL", "LC_CTYPE", "PYTHONHASHSEED", "PYDANTIC_DISABLE_PLUGINS", "PWD"}
"""All that stands in a worker's environment; bubblewrap adds PWD."""
ACT = {"type": "call", "name": "act", "arguments": {}}


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def nothing_is_left(
    sandbox: PooledSandbox, labelled: Callable[[str], list[int]], world: Program
) -> AsyncIterator[None]:
    """As many processes as before, and a sound program still plays."""
    assert sandbox._owner is not None
    before = set(labelled(sandbox._owner.label))
    yield
    for _ in range(100):
        if set(labelled(sandbox._owner.label)) == before:
            break
        await asyncio.sleep(0.02)
    assert set(labelled(sandbox._owner.label)) == before
    loaded = await sandbox.load(world)
    play = await loaded.play()
    assert (await play.reset(1)).text.startswith("Set it to")
    await loaded.close()


async def told(sandbox: PooledSandbox, program: Program) -> str:
    """What the tool ``act`` of this program says."""
    loaded = await sandbox.load(program)
    try:
        play = await loaded.play()
        await play.reset(1)
        return (await play.step(ACT)).text
    finally:
        await loaded.close()


async def refused(sandbox: PooledSandbox, program: Program) -> str:
    """The code with which this program is refused when it is loaded."""
    with pytest.raises(EnvironmentFault) as caught:
        await (await sandbox.load(program)).close()
    return caught.value.code


# -- processes and threads


async def test_a_fork_bomb_at_import_is_stopped(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str
) -> None:
    code = await refused(sandbox, program("import os\nwhile True:\n    os.fork()", world_source))
    assert code in ("process_limit", "import_failed", "timeout", "crash")


async def test_a_fork_bomb_that_hides_its_failures_is_stopped(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str
) -> None:
    bomb = """
    import os
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            pass
    """
    assert await refused(sandbox, program(bomb, world_source)) in ("process_limit", "timeout")


async def test_a_play_cannot_fork(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    program = act_program(
        """
        import os
        try:
            os.fork()
        except OSError as error:
            return "refused"
        return "forked"
        """
    )
    assert await told(sandbox, program) == "refused"


async def test_a_daemon_that_left_its_session_is_found_and_killed(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str
) -> None:
    daemon = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(1)
        os._exit(0)
    os.wait()
    """
    assert await refused(sandbox, program(daemon, world_source)) == "extra_child"


async def test_a_thread_at_import_is_refused(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str
) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    assert await refused(sandbox, program(thread, world_source)) == "extra_thread"


async def test_a_play_cannot_start_a_thread(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    program = act_program(
        """
        import threading
        try:
            threading.Thread(target=print).start()
        except RuntimeError:
            return "refused"
        return "started"
        """
    )
    assert await told(sandbox, program) == "refused"


async def test_nothing_can_be_executed(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    if not sandbox.found["landlock"]:
        pytest.skip("this kernel has no Landlock")
    program = act_program(
        """
        import os, sys
        try:
            os.execv(sys.executable, [sys.executable, "-c", ""])
        except OSError as error:
            return type(error).__name__
        """
    )
    assert await told(sandbox, program) in ("PermissionError", "FileNotFoundError")


async def test_signals_to_everybody_reach_nobody_else(
    sandbox: PooledSandbox, act_program: Callable[[str], Program], world: Program
) -> None:
    neighbour = await sandbox.load(world)
    play = await neighbour.play()
    await play.reset(1)
    program = act_program("import os\nos.kill(-1, 9)\nreturn 'sent'")
    with suppress(EnvironmentFault):  # it may have killed its own worker
        await told(sandbox, program)
    assert (await play.step({"type": "call", "name": "look", "arguments": {}})).text == "0"
    await neighbour.close()


# -- descriptors, memory, files


async def test_a_descriptor_left_open_at_import_is_refused(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str
) -> None:
    assert await refused(sandbox, program("kept = open('/dev/null')", world_source)) == "extra_descriptor"


async def test_a_shared_map_is_refused(sandbox: PooledSandbox, program: Callable[..., Program], world_source: str) -> None:
    assert await refused(sandbox, program("import mmap\nboard = mmap.mmap(-1, 4096)", world_source)) == "shared_map"


async def test_memory_is_limited(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    program = act_program("hog = []\nwhile True:\n    hog.append(bytearray(1 << 20))")
    with pytest.raises(EnvironmentFault) as caught:
        await told(sandbox, program)
    assert caught.value.code in ("memory", "crash", "memory_limit")


async def test_the_plays_of_a_program_share_one_limit_of_memory(
    sandbox: PooledSandbox, act_program: Callable[[str], Program]
) -> None:
    loaded = await sandbox.load(act_program("self.hog = bytearray(b'x') * (60 << 20)\nreturn 'ok'"))
    plays = [await loaded.play() for _ in range(8)]
    await asyncio.gather(*(play.reset(1) for play in plays))
    codes = []
    for play in plays * 2:
        try:
            await play.step(ACT)
        except EnvironmentFault as fault:
            codes.append(fault.code)
        await asyncio.sleep(0.1)
    assert codes[0] == "memory_limit"
    await loaded.close()


async def test_files_are_limited_in_size_and_number(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    assert sandbox.found["tmpfs"], "this machine gives workers no file system of their own"
    program = act_program(
        """
        written, failed = 0, 0
        for number in range(8):
            try:
                with open(f"f{number}", "wb") as file:
                    for _ in range(64):
                        written += file.write(bytes(1 << 15))
                        file.flush()
            except OSError:
                failed += 1
        return f"{written >> 20} {failed}"
        """
    )
    written, failed = map(int, (await told(sandbox, program)).split())
    assert written <= 3
    assert failed == 8


async def test_the_private_folder_is_empty_and_the_only_one(
    sandbox: PooledSandbox, act_program: Callable[[str], Program]
) -> None:
    program = act_program(
        """
        import os
        found = [f"files:{os.listdir('.')}"]
        for place in ("/tmp/x", "/dev/shm/x", "/x", "/var/tmp/x", "/etc/x"):
            try:
                open(place, "w").close()
                found.append(place)
            except OSError:
                pass
        return " ".join(found)
        """
    )
    assert await told(sandbox, program) == "files:[]"


# -- secrets and network


async def test_secrets_of_the_host_cannot_be_read(
    sandbox: PooledSandbox, act_program: Callable[[str], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = act_program(
        f"""
        import os
        found = sorted(os.environ)
        host = "/proc/{os.getpid()}"
        for place in ("/etc/shadow", "{Path.home()}/.bashrc", "/proc/1/environ", host + "/environ", host + "/mem"):
            try:
                with open(place, "rb") as file:
                    file.read(1)
                    found.append(place)
            except OSError:
                pass
        return " ".join(found)
        """
    )
    monkeypatch.setenv("A_SECRET", "x")
    assert set((await told(sandbox, program)).split()) <= GIVEN


async def test_there_is_no_tcp(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    if sandbox.name == "process" and sandbox.found["landlock"] < 4:
        pytest.skip("this kernel's Landlock does not know TCP; the process backend does not promise it then")
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    program = act_program(
        f"""
        import socket
        try:
            socket.create_connection(("127.0.0.1", {port}), timeout=1)
        except OSError:
            return "refused"
        return "connected"
        """
    )
    assert await told(sandbox, program) == "refused"
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("sandbox", ["bubblewrap"], indirect=True)
async def test_bubblewrap_has_no_network_at_all(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    program = act_program(
        """
        import socket
        names = [name for _, name in socket.if_nameindex()]
        try:
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9))
            names.append("sent")
        except OSError:
            pass
        return " ".join(names)
        """
    )
    assert await told(sandbox, program) == "lo"


# -- time


async def test_an_endless_loop_is_killed_and_its_neighbours_play_on(
    sandbox: PooledSandbox, act_program: Callable[[str], Program]
) -> None:
    program = act_program("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    pass")
    loaded = await sandbox.load(program)
    good, bad = await loaded.play(), await loaded.play()
    await asyncio.gather(good.reset(1), bad.reset(1))
    start = time.monotonic()
    with pytest.raises(EnvironmentTimeout, match="step took more than"):
        await bad.step(ACT)
    assert time.monotonic() - start < sandbox.options.step_timeout_s + 1.5
    assert (await good.step({"type": "call", "name": "look", "arguments": {}})).text == "0"
    assert loaded.users == 1
    again = await loaded.play()
    assert (await again.reset(2)).text.startswith("Set it to")
    await loaded.close()


async def test_a_program_that_never_loads_times_out(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str
) -> None:
    assert await refused(sandbox, program("while True:\n    pass", world_source)) == "timeout"


async def test_a_runner_that_was_taken_over_costs_the_program_its_worker(
    sandbox: PooledSandbox, program: Callable[..., Program], world_source: str
) -> None:
    """Every fork of it hangs in a reset, and the runner pretends not to hear that it shall stop them."""
    source = """
    from spade_agentic.sandbox import runner
    runner._stop = lambda plays, number: None
    """
    hanging = world_source.replace("self.value, target = 0", "self.value, target = self.hang(), 0; self.value, target = 0")
    hang = "\n    def hang(self):\n        while True:\n            pass\n"
    loaded = await sandbox.load(program(source, hanging + hang))
    play = await loaded.play()
    with pytest.raises(EnvironmentTimeout):
        await play.reset(1)
    assert loaded.worker is not None
    assert not loaded.worker.alive
    await loaded.close()


# -- the protocol


async def test_what_is_printed_goes_nowhere(sandbox: PooledSandbox, act_program: Callable[[str], Program]) -> None:
    program = act_program("import os\nprint('{}' * 1000)\nos.write(1, b'x')\nos.write(2, b'x')\nreturn 'ok'")
    assert await told(sandbox, program) == "ok"


@pytest.mark.parametrize(
    "noise", ["b'garbage!' * 100", "bytes([255]) * 8", "bytes([0, 0, 0, 2]) + b'{}'", "bytes([0, 0, 0, 2]) + b'[]'"]
)
async def test_noise_on_the_socket_is_a_fault(
    sandbox: PooledSandbox, act_program: Callable[[str], Program], noise: str
) -> None:
    body = """
    import os
    for fd in range(3, 64):
        try:
            os.write(fd, NOISE)
        except OSError:
            pass
    return "ok"
    """
    loaded = await sandbox.load(act_program(body.replace("NOISE", noise)))
    play = await loaded.play()
    await play.reset(1)
    with pytest.raises(EnvironmentFault) as caught:  # the answer to the first call is the noise
        await play.step(ACT)
    assert caught.value.code in ("protocol", "bad_type")
    await loaded.close()
