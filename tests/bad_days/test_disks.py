"""Folders and disks: full, read-only, in the way, damaged, somebody else's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_day_page import BadDay
from bad_day_runs import ToyRuns
from play_fakes import HELPERS

from spade_agentic.runs.reader import StoreReader

CHILD = HELPERS / "bad_day_child.py"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 8 MiB. Needs root's right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a disk can only be filled where one can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


FILLER = """
    import errno
    from spade_agentic import hookimpl

    @hookimpl
    def {hook}(step):
        if step != 2 or not broken():
            return
        with open({filler!r}, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC
            file.truncate(max(0, file.tell() - {left} * 1024))
"""


@pytest.mark.bad_day("a disk that is full")
@pytest.mark.parametrize(
    ("hook", "left_kib"), [("batch_ready", kib) for kib in (0, 4, 12, 24, 48, 96)] + [("step_committed", 0)]
)
def test_a_run_goes_on_when_there_is_room_again(
    day: BadDay, runs: ToyRuns, small_disk: Path, hook: str, left_kib: int
) -> None:
    """Wherever the room ends: in events, the checkpoint, the store, or metrics and transcripts after the commit."""
    assert runs.train().code == 0
    whole = runs.content()
    runs.run.rename(runs.folder / "whole")
    filler = small_disk / "filler"
    mine = runs.plugin(FILLER.format(hook=hook, filler=str(filler), left=left_kib))
    runs.place = small_disk / "run"
    result = runs.train(plugins=[mine])
    day.seen(result)
    assert runs.steps() in ((1, 2) if hook == "batch_ready" else (2,))
    filler.unlink()
    runs.mend()
    assert runs.resume().code == 0
    assert runs.content() == whole
    with StoreReader(runs.run) as reader:
        committed = [row.step for row in reader.metrics()]
    lines = [json.loads(line) for line in (runs.run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, *committed, 4]  # the first and the last are evaluations


@pytest.mark.bad_day("a disk that is full from the beginning")
def test_a_run_that_cannot_begin_leaves_nothing_in_the_way(day: BadDay, runs: ToyRuns, small_disk: Path) -> None:
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        file.write(bytes(16 << 20))  # what fits is written
    runs.place = small_disk / "run"
    day.seen(runs.train())
    filler.unlink()
    assert runs.train().code == 0


@pytest.mark.bad_day("a folder that is read-only")
def test_a_read_only_file_system(day: BadDay, runs: ToyRuns, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    runs.place = small_disk / "run"
    day.seen(runs.train())


# --- what is in the way ----------------------------------------------------------------------------------------------------


@pytest.mark.bad_day("a run folder that is a file")
@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_where_the_run_should_be(day: BadDay, runs: ToyRuns, below: str) -> None:
    runs.run.write_text("mine")
    runs.place = runs.run / below if below else runs.run
    day.seen(runs.train())
    assert (runs.folder / "run").read_text() == "mine"


@pytest.mark.bad_day("a folder with a run in it")
def test_a_folder_that_holds_a_run(day: BadDay, runs: ToyRuns) -> None:
    assert runs.train().code == 0
    before = runs.content()
    day.seen(runs.train())
    assert runs.content() == before


@pytest.mark.bad_day("two runs in one folder at the same time")
def test_two_processes_in_one_folder(day: BadDay, runs: ToyRuns) -> None:
    command = [sys.executable, str(CHILD), "train", str(runs.config([])), "--run-dir", str(runs.run)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[1] for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, day.code], said
    refused = said[codes.index(2)]
    # Whoever comes when the other has just ended is told that there is a run already.
    assert "is running in this folder" in refused or "there is a run" in refused
    assert (runs.steps(), runs.status()) == (4, "finished")


@pytest.mark.bad_day("two runs in one folder at the same time")
def test_a_run_that_goes_on_is_not_resumed_beside_itself(day: BadDay, runs: ToyRuns) -> None:
    mine = runs.plugin("""
        import subprocess
        from spade_agentic import hookimpl

        @hookimpl
        def batch_ready(step):
            if step == 2:
                done = subprocess.run(COMMAND, capture_output=True, text=True)
                OUT.write_text(f"{done.returncode}\\n{done.stderr}")
    """)
    out = runs.folder / "said"
    command = [sys.executable, str(CHILD), "train", "--resume", "--run-dir", str(runs.run)]
    Path(mine).write_text(f"{Path(mine).read_text()}\nCOMMAND = {command!r}\nOUT = Path({str(out)!r})\n")
    assert runs.train(plugins=[mine]).code == 0
    code, _, text = out.read_text().partition("\n")
    assert int(code) == day.code
    day.seen_in(text)


# --- what is damaged -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(runs: ToyRuns) -> ToyRuns:
    """A run that ended after two steps."""
    runs.toy.FAIL_AT.append("learner.step 2")
    assert runs.train().code == 2
    assert runs.steps() == 2
    runs.toy.FAIL_AT.clear()
    return runs


def newest(runs: ToyRuns) -> Path:
    return sorted(runs.run.glob("checkpoints/step-*"))[-1]


@pytest.mark.bad_day("a checkpoint that is damaged")
@pytest.mark.parametrize(
    ("damage", "how"),
    [
        (lambda folder: (folder / "weights" / "toy.json").write_text("{"), "weights/toy.json has 1 bytes"),
        (lambda folder: (folder / "weights" / "toy.json").unlink(), "weights/toy.json is missing"),
        (lambda folder: flip(folder / "learner" / "toy.json"), "learner/toy.json is not what was written"),
        (lambda folder: (folder / "checkpoint.json").write_text('{"files"'), "its checkpoint.json cannot be read"),
        (lambda folder: (folder / "checkpoint.json").write_text("[]"), "its checkpoint.json cannot be read"),
        (shutil.rmtree, "its checkpoint.json cannot be read"),
    ],
)
def test_a_damaged_checkpoint(day: BadDay, stopped: ToyRuns, damage: Callable[[Path], Any], how: str) -> None:
    damage(newest(stopped))
    result = stopped.resume()
    day.seen(result)
    assert how in result.err
    assert stopped.cli("runs", "show", stopped.run).code == 0, "what is in the store can still be read"


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])


@pytest.mark.bad_day("a checkpoint of another run")
def test_a_checkpoint_of_another_run(day: BadDay, stopped: ToyRuns) -> None:
    mine = newest(stopped)
    stopped.place = stopped.folder / "other"
    assert stopped.train("--set", "run.steps=2").code == 0
    theirs = stopped.run / "checkpoints" / mine.name
    stopped.place = None
    shutil.rmtree(mine)
    shutil.copytree(theirs, mine)
    day.seen(stopped.resume())


@pytest.mark.bad_day("a store that is damaged")
@pytest.mark.parametrize("damage", ["head", "middle", "cut"])
def test_a_damaged_store(day: BadDay, stopped: ToyRuns, damage: str) -> None:
    store = stopped.run / "store.sqlite"
    content = bytearray(store.read_bytes())
    assert len(content) > 40_000
    for log in stopped.run.glob("store.sqlite-*"):
        log.unlink()
    if damage == "head":
        content[:4096] = bytes(4096)
    elif damage == "middle":
        content[4096:-4096] = os.urandom(len(content) - 8192)
    else:
        del content[8192:]
    store.write_bytes(content)
    for arguments in (["train", "--resume", "--run-dir"], ["runs", "show"], ["runs", "report"]):
        result = stopped.cli(*arguments, stopped.run)
        day.seen(result)
        assert str(stopped.run) in result.err
    assert stopped.cli("runs", "list", "--root", stopped.folder).code == 0, "the others are listed all the same"


@pytest.mark.bad_day("a store of a newer version")
def test_a_store_of_a_newer_version(day: BadDay, stopped: ToyRuns) -> None:
    import sqlite3

    connection = sqlite3.connect(stopped.run / "store.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    day.seen(stopped.resume())


@pytest.mark.bad_day("a plugin file that is gone when the run is resumed")
def test_a_plugin_that_is_gone_at_the_resume(day: BadDay, runs: ToyRuns) -> None:
    mine = runs.plugin("from spade_agentic import hookimpl\n\n@hookimpl\ndef run_ended():\n    pass\n")
    runs.toy.FAIL_AT.append("learner.step 2")
    assert runs.train(plugins=[mine]).code == 2
    runs.toy.FAIL_AT.clear()
    Path(mine).unlink()
    day.seen(runs.resume())
    plugins = [str(HELPERS / "toy_plugin.py")]
    assert runs.resume("--set", f"plugins={json.dumps(plugins)}").code == 0


@pytest.mark.bad_day("nothing to resume")
def test_a_folder_without_a_run(day: BadDay, runs: ToyRuns) -> None:
    day.seen(runs.resume())


@pytest.mark.bad_day("a resume that would change what the steps depend on")
def test_a_changed_config(day: BadDay, stopped: ToyRuns) -> None:
    day.seen(stopped.resume("--set", "selfplay.seeds=7"))
