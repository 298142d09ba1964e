from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_agentic.errors import RunDirError
from spade_agentic.runs.lock import RunLock, holder

HOLD = """
import sys, time
from pathlib import Path
from spade_agentic.runs.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock ``tmp_path/run.lock``."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run.lock")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_and_told_who_runs_there(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    with pytest.raises(RunDirError, match=f"process {other.pid} on"):
        RunLock(tmp_path / "run.lock")
    found = holder(tmp_path / "run.lock")
    assert found is not None
    assert found.pid == other.pid


def test_a_killed_process_holds_nothing(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert holder(tmp_path / "run.lock") is None, "its pid is still in the file, but it does not live"
    RunLock(tmp_path / "run.lock").release()


def test_the_same_process_is_refused_too(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "run.lock")
    with pytest.raises(RunDirError, match=f"process {os.getpid()}"):
        RunLock(tmp_path / "run.lock")
    assert holder(tmp_path / "run.lock") is not None
    assert holder(tmp_path / "run.lock") is not None, "looking does not drop the lock"
    lock.release()
    lock.release()
    assert holder(tmp_path / "run.lock") is None


def test_a_child_that_outlives_the_run_does_not_keep_it_locked(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\nfrom pathlib import Path\nfrom spade_agentic.runs.lock import RunLock\n"
        "lock = RunLock(Path(sys.argv[1]))\n"
        "child = subprocess.Popen(['sleep', '30'], close_fds=False)\nprint(child.pid, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "run.lock")], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        child = int(p.stdout.readline())
        p.wait()
        try:
            assert holder(tmp_path / "run.lock") is None
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_lock_file_that_was_never_filled_in_has_no_holder(tmp_path: Path) -> None:
    assert holder(tmp_path / "run.lock") is None
    (tmp_path / "run.lock").write_text("")
    assert holder(tmp_path / "run.lock") is None
    lock = RunLock(tmp_path / "run.lock")
    assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()
    lock.release()


def test_a_folder_that_cannot_be_written_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file is in the way")
    with pytest.raises(RunDirError, match="in the way"):
        RunLock(tmp_path / "run" / "run.lock")
