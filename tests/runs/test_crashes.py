"""A process that is killed (SIGKILL, so that nothing of it can clean up) at every point of a commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spade_agentic.runs import RunStore, StoreReader, show_run
from spade_agentic.runs.recorder import RunRecorder

WRITER = '''
import importlib.util, io, os, signal, sys
from pathlib import Path
from spade_agentic.runs.live import PlainView
from spade_agentic.runs.recorder import RunRecorder

spec = importlib.util.spec_from_file_location("records", sys.argv[1])
records = importlib.util.module_from_spec(spec)
sys.modules["records"] = records
spec.loader.exec_module(records)
run_dir, kill_step, kill_point = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

recorder = RunRecorder.begin(run_dir, records.CONFIG, resume=(run_dir / "store.sqlite").exists(), view=PlainView(io.StringIO()))
now = 0
def fault(point):
    if now == kill_step and point == kill_point:
        os.kill(os.getpid(), signal.SIGKILL)
recorder.store._fault = lambda point: fault("store-" + point)
recorder.store.checkpoints.fault = lambda point: fault("checkpoint-" + point)

def fill(folder):
    records.fill(folder)
    (folder / "step").write_text(str(now))

first = recorder.resumed_from.step + 1 if recorder.resumed_from else 1
for now in range(first, 4):
    step = records.Make().step(now)
    for play in step.plays:
        recorder.notify("play_finished", play=play)
    recorder.commit(step, {"at": now}, fill)
    fault("after")
recorder.end("finished")
'''

POINTS = [
    *(f"checkpoint-{point}" for point in ("begun", "filled", "synced", "renamed", "durable")),
    *(f"store-{point}" for point in ("begun", "written", "committed")),
    "after",
]


def write(run_dir: Path, kill_step: int = 0, kill_point: str = "never") -> int:
    conftest = Path(__file__).with_name("conftest.py")
    return subprocess.run(
        [sys.executable, "-c", WRITER, str(conftest), str(run_dir), str(kill_step), kill_point], check=False, timeout=60
    ).returncode


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("whole") / "tooluse-1"
    assert write(run_dir) == 0
    return run_dir


def without_times(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def contents(run_dir: Path) -> dict[str, Any]:
    """Everything a run says, apart from times."""
    with StoreReader(run_dir) as reader:
        checkpoints = run_dir / "checkpoints"
        return {
            "plays": list(reader.plays(tokens=True)), "drafts": list(reader.drafts(tokens=True)),
            "environments": reader.environments(), "regrets": reader.regrets(),
            "metrics": [(row.step, without_times(row.metrics)) for row in reader.metrics()], "commit": reader.last_commit(),
            "checkpoints": {p.relative_to(checkpoints): p.read_bytes() for p in checkpoints.rglob("*") if p.is_file()},
        }  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_of_a_commit_loses_and_doubles_nothing(
    tmp_path: Path, uninterrupted: Path, point: str
) -> None:
    run_dir = tmp_path / "tooluse-1"
    assert write(run_dir, 2, point) == -signal.SIGKILL
    committed = 2 if point in ("store-committed", "after") else 1
    with StoreReader(run_dir) as reader:
        commit = reader.last_commit()
        assert commit is not None
        assert (commit.step, commit.state) == (committed, {"at": committed})
        assert {row.step for row in reader.plays()} == set(range(1, committed + 1))
        checkpoint = run_dir / "checkpoints" / commit.checkpoint
        assert (checkpoint / "step").read_text() == str(committed), "the commit names a checkpoint that is there, whole"
    assert show_run(run_dir).status == "killed"
    assert write(run_dir) == 0
    assert contents(run_dir) == contents(uninterrupted)
    assert show_run(run_dir).status == "finished"


def test_kills_of_one_run_at_every_step_add_up_to_the_same_run(tmp_path: Path, uninterrupted: Path) -> None:
    run_dir = tmp_path / "tooluse-1"
    for step, point in ((1, "checkpoint-filled"), (1, "store-written"), (2, "checkpoint-renamed"), (3, "store-begun")):
        assert write(run_dir, step, point) == -signal.SIGKILL
    assert write(run_dir) == 0
    assert contents(run_dir) == contents(uninterrupted)


def test_a_run_that_was_killed_can_be_read_without_being_opened(tmp_path: Path) -> None:
    run_dir = tmp_path / "tooluse-1"
    assert write(run_dir, 3, "store-written") == -signal.SIGKILL
    before = sorted(p.name for p in (run_dir / "checkpoints").iterdir())
    assert show_run(run_dir).steps == 2
    assert sorted(p.name for p in (run_dir / "checkpoints").iterdir()) == before, "reading mends nothing"


def test_recovery_says_what_it_removed(tmp_path: Path, config: dict[str, Any]) -> None:
    run_dir = tmp_path / "tooluse-1"
    assert write(run_dir, 2, "checkpoint-synced") == -signal.SIGKILL
    recorder = RunRecorder.begin(run_dir, config, resume=True)
    assert recorder.store.recovered.half_written == ("step-000002",)
    recorder.end("interrupted")
    assert '"checkpoint_recovered"' in (run_dir / "events.jsonl").read_text()


def test_only_one_process_can_continue_a_run(tmp_path: Path, uninterrupted: Path) -> None:
    with RunStore.open(uninterrupted):
        assert write(uninterrupted) == 1
        assert show_run(uninterrupted).status == "running"
    assert os.path.exists(uninterrupted / "run.lock")
