"""The engine as a process: it comes up, is checked, and goes away with whoever started it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest

from spade_agentic import (
    EmbeddedEngine,
    EmbeddedOptions,
    EngineUnavailable,
    InferenceEngine,
    Sampling,
    UserError,
    WeightUpdateFailed,
)
from spade_agentic.errors import EngineError
from spade_agentic.inference.publishing import read_weights, write_weights

OPTIONS = EmbeddedOptions(threads=1)


@asynccontextmanager
async def _started(model_dir, log):
    engine = EmbeddedEngine(OPTIONS, log_file=log, context_tokens=512)
    await engine.start(model_dir)
    try:
        yield engine
    finally:
        await engine.stop()


def _complete(engine, rid="r", **keywords):
    return engine.complete([30] * 20, Sampling(max_tokens=6), seed=1, request_id=rid, stop_token_ids=[], **keywords)


def _gone(pid, seconds=10.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


async def test_it_serves_publishes_and_leaves_no_process(model_dir, other_weights, tmp_path):
    async with _started(model_dir, tmp_path / "engine.log") as engine:
        assert isinstance(engine, InferenceEngine)
        pid = engine.pid
        before = await _complete(engine)
        await engine.publish(other_weights, 1)
        after = await _complete(engine)
        assert set(before.versions) == {0}
        assert set(after.versions) == {1}
        assert (await engine.client.server_info())["context_length"] == 512
        with pytest.raises(EngineError, match="started already"):
            await engine.start(model_dir)
    assert _gone(pid)
    assert "serving weights 1" in (tmp_path / "engine.log").read_text()
    with pytest.raises(EngineUnavailable):
        await _complete(engine)


async def test_weights_that_are_not_what_was_published_are_noticed(model_dir, tmp_path, monkeypatch):
    changed = read_weights(model_dir)
    changed["model.norm.weight"] = changed["model.norm.weight"] + 1
    write_weights(tmp_path / "new", changed, like=model_dir)
    async with _started(model_dir, None) as engine:
        with pytest.raises(WeightUpdateFailed):
            await engine.publish(tmp_path / "missing", 1)
        assert set((await _complete(engine)).versions) == {0}, "generation goes on after a failed update"
        real = engine.client.update_weights
        monkeypatch.setattr(engine.client, "update_weights", lambda folder, version: real(str(model_dir), version))
        with pytest.raises(WeightUpdateFailed, match="other numbers"):
            await engine.publish(tmp_path / "new", 1)


async def test_a_killed_server_is_unavailable_and_named_in_the_error(model_dir, tmp_path):
    async with _started(model_dir, tmp_path / "engine.log") as engine:
        waiting = asyncio.create_task(_complete(engine, wave=("w", 2)))
        await asyncio.sleep(0.3)
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(EngineUnavailable, match=r"engine\.log"):
            await waiting
        with pytest.raises(EngineUnavailable, match="code -9"):
            await _complete(engine)
        with pytest.raises(EngineUnavailable):
            await engine.publish(model_dir, 1)


async def test_a_folder_that_cannot_be_served_is_the_users_error(tmp_path):
    engine = EmbeddedEngine(OPTIONS)
    with pytest.raises(UserError, match=r"config\.json"):
        await engine.start(tmp_path)
    assert engine.pid is None


def test_started_by_hand_it_tells_people_what_is_wrong_and_not_a_parent(tmp_path):
    command = [sys.executable, "-m", "spade_agentic.inference.embedded", "--model", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "nowhere" in done.stderr


async def test_a_server_that_does_not_come_up_in_time_is_killed(model_dir):
    engine = EmbeddedEngine(EmbeddedOptions(start_timeout_s=0.01))
    with pytest.raises(EngineUnavailable, match="in time"):
        await engine.start(model_dir)
    assert engine.pid is None


_PARENT = """
import asyncio, sys, time
from pathlib import Path
from spade_agentic import EmbeddedEngine, EmbeddedOptions
async def main():
    engine = EmbeddedEngine(EmbeddedOptions(threads=1))
    await engine.start(Path(sys.argv[1]))
    print(engine.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_a_parent_that_is_killed_leaves_no_server(model_dir):
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(model_dir)], stdout=subprocess.PIPE)
    with parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert _gone(pid)


def test_a_server_whose_pipe_ends_ends_too(model_dir):
    """Where the kernel gives no death signal the pipe is enough: the parent lives here, only the pipe is closed."""
    command = [sys.executable, "-P", "-m", "spade_agentic.inference.embedded", "--child", "--model", str(model_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        server.stdin.write(b"{}\n")
        server.stdin.flush()
        assert b"port" in server.stdout.readline()
        server.stdin.close()
        assert server.wait(15) == 0
