"""A table of runs as one job: every cell is a run, finished ones are skipped, half-done ones resumed, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spade_agentic.bench.cells import Cell, plan_cells
from spade_agentic.bench.job import LOCK, Job, run_cells
from spade_agentic.errors import ConfigError, RunDirError
from spade_agentic.runs.lock import RunLock
from spade_agentic.runs.summary import show_run

HELPERS = Path(__file__).parents[1] / "helpers"
FAKE = (sys.executable, str(HELPERS / "fake_train.py"))
STEPS = ("run.steps=3",)


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def order(**values: object) -> None:
    Path("fake.json").write_text(json.dumps(values))


def cells(*names: str, seeds: tuple[int, ...] = (0, 1)) -> list[Cell]:
    return plan_cells(names or ("self_play", "fixed_pool"), seeds, Path("table"), sets=STEPS)


def run(planned: list[Cell], **options: object) -> tuple[Job, list[str]]:
    said: list[str] = []
    job = run_cells(
        planned, Path("table"), sets=STEPS, report=lambda cell, text: said.append(f"{cell.label}: {text}"), train=FAKE,
        **options,  # type: ignore[arg-type]
    )
    return job, said


def eventually(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- planning ------------------------------------------------------------------------------------------------------------


def test_a_cell_is_a_config_with_a_seed_in_a_folder_of_its_own() -> None:
    planned = cells()
    assert [c.folder.name for c in planned] == ["self_play-seed0", "fixed_pool-seed0", "self_play-seed1", "fixed_pool-seed1"]
    assert [(c.config.run.seed, c.config.selfplay.rounds) for c in planned] == [(0, None), (0, 1), (1, None), (1, 1)]
    assert all(c.config.run.steps == 3 for c in planned)


def test_a_config_of_ones_own_is_a_row_like_any_other() -> None:
    Path("mine.yaml").write_text("extends: ablations/fixed_pool.yaml\nselfplay: {seeds: 2}\n")
    [cell] = plan_cells(["mine.yaml"], [4], Path("table"))
    assert (cell.name, cell.folder.name) == ("mine", "mine-seed4")
    assert (cell.config.selfplay.seeds, cell.config.selfplay.rounds) == (2, 1)


@pytest.mark.parametrize(
    ("names", "sets", "message"),
    [
        (["slef_play"], [], "did you mean 'self_play'"),
        (["nowhere.yaml"], [], "no config called 'nowhere.yaml'"),
        (["self_play"], ["run.seed=3"], "--seeds"),
        (["self_play"], ["run.dir=x"], "--dir"),
        (["a/mine.yaml", "b/mine.yaml"], [], "called the same"),
    ],
)
def test_what_cannot_be_planned_is_refused(names: list[str], sets: list[str], message: str) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "mine.yaml").touch()
    with pytest.raises(ConfigError, match=message):
        plan_cells(names, [0], Path("table"), sets=sets)


# --- running -------------------------------------------------------------------------------------------------------------


def test_every_cell_becomes_a_finished_run_and_a_second_job_skips_them_all() -> None:
    job, said = run(cells())
    assert (job.failed, job.stopped) == ({}, None)
    assert [line.partition(" in ")[0] for line in said][:2] == ["self_play, seed 0: begins", "self_play, seed 0: finished"]
    assert all(show_run(cell.folder).status == "finished" for cell in cells())
    stores = {cell.folder: (cell.folder / "store.sqlite").read_bytes() for cell in cells()}
    _, again = run(cells())
    assert [line.partition(": ")[2] for line in again] == ["finished before: skipped"] * 4
    assert stores == {folder: (folder / "store.sqlite").read_bytes() for folder in stores}


def test_a_cell_that_fails_leaves_the_others_alone_and_is_resumed_by_the_next_job() -> None:
    order(fail="fixed_pool-seed0")
    job, _ = run(cells())
    assert list(job.failed) == ["fixed_pool, seed 0"]
    assert "at step 1 of 3" in job.failed["fixed_pool, seed 0"]
    assert "this one fails" in Path("table/fixed_pool-seed0.log").read_text()
    order()
    job, said = run(cells())
    assert job.failed == {}
    assert "fixed_pool, seed 0: resumed after step 1 of 3" in said


def test_a_finished_cell_with_other_settings_is_refused_before_anything_begins() -> None:
    run(cells("self_play", seeds=(1,)))
    other = plan_cells(["fixed_pool", "self_play"], [1], Path("table"), sets=["run.steps=4", "selfplay.seeds=5"])
    with pytest.raises(RunDirError, match=r"other settings: run\.steps, selfplay\.seeds \(run\.steps was 3, not 4\)"):
        run_cells(other, Path("table"), train=FAKE)
    assert not Path("table/fixed_pool-seed1").exists()


def test_a_store_that_was_never_finished_is_begun_anew() -> None:
    Path("table/self_play-seed0").mkdir(parents=True)
    Path("table/self_play-seed0/store.sqlite").touch()
    job, said = run(cells("self_play", seeds=(0,)))
    assert job.failed == {}
    assert said[0] == "self_play, seed 0: begins"


def test_two_jobs_do_not_share_a_folder() -> None:
    Path("table").mkdir()
    script = f"import time; from pathlib import Path; from spade_agentic.runs.lock import RunLock; " \
             f"RunLock(Path('table/{LOCK}')); print('locked', flush=True); time.sleep(60)"  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(RunDirError, match=f"process {other.pid}") as caught:
            run(cells())
        assert "--dir" in str(caught.value.todo)
        other.kill()
    assert not Path("table/self_play-seed0").exists()


def test_a_cell_that_another_process_runs_is_waited_for() -> None:
    order(step_s=0.4)
    words = ["ablations/self_play.yaml", "--run-dir", "table/self_play-seed0", "--set", "run.steps=3", "--set", "run.seed=0"]
    with subprocess.Popen([*FAKE, *words]) as other:
        eventually(lambda: cells("self_play", seeds=(0,))[0].state() == "running")
        job, said = run(cells("self_play", seeds=(0,)))
        other.wait()
    assert job.failed == {}
    assert said == [f"self_play, seed 0: process {other.pid} runs it: waiting", "self_play, seed 0: finished before: skipped"]


def test_cells_run_side_by_side_where_that_is_wanted() -> None:
    order(step_s=0.3)
    _, said = run(cells(seeds=(0,)), jobs=2)
    assert [line.partition(": ")[2][:6] for line in said] == ["begins", "begins", "finish", "finish"]


# --- killed and stopped --------------------------------------------------------------------------------------------------

JOB = """
    import sys
    from pathlib import Path
    from spade_agentic.bench.cells import plan_cells
    from spade_agentic.bench.job import run_cells
    cells = plan_cells(["self_play", "fixed_pool"], [0], Path("table"), sets=["run.steps=3"])
    job = run_cells(cells, Path("table"), sets=["run.steps=3"], train={train!r},
                    report=lambda cell, text: print(cell.label, text, flush=True))
    sys.exit(0 if job.stopped is None else 7)
"""


def start_job() -> subprocess.Popen[str]:
    script = textwrap.dedent(JOB).format(train=FAKE)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def begun(cell: Cell) -> bool:
    run = cell.summary()
    return run is not None and run.steps > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_ended_anywhere_takes_its_run_with_it_and_loses_nothing(number: signal.Signals) -> None:
    order(step_s=0.5)
    first, second = cells(seeds=(0,))
    with start_job() as process:
        eventually(lambda: begun(first))
        process.send_signal(number)
        code = process.wait()
    assert code == (-number if number is signal.SIGKILL else 7)
    eventually(lambda: first.state() == "unfinished")
    done = show_run(first.folder)
    assert done.status == "interrupted"
    assert 1 <= done.steps < 3
    assert second.state() == "new"
    order()
    job, said = run(cells(seeds=(0,)))
    assert job.failed == {}
    assert f"self_play, seed 0: resumed after step {done.steps} of 3" in said
    assert show_run(first.folder).plays == show_run(second.folder).plays


def test_the_lock_is_free_after_a_job() -> None:
    run(cells("self_play", seeds=(0,)))
    RunLock(Path("table") / LOCK).release()
    assert os.path.exists(Path("table") / LOCK)
