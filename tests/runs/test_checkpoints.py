from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spade_agentic.errors import RunDirError
from spade_agentic.runs import Checkpoints, RunStore

POINTS = ("begun", "filled", "synced", "renamed", "durable")


@pytest.fixture
def store(tmp_path: Path, config: dict[str, Any]) -> Iterator[RunStore]:
    made = RunStore.create(tmp_path / "run", "run-1", config)
    yield made
    made.close()


def test_a_checkpoint_is_what_was_filled_in_and_a_manifest(store: RunStore, fill_checkpoint: Any) -> None:
    path = store.checkpoints.write(12, fill_checkpoint)
    assert path.name == "step-000012"
    assert sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()) == [
        "checkpoint.json", "learner/state.json", "weights.bin",
    ]  # fmt: skip
    assert json.loads((path / "checkpoint.json").read_text())["step"] == 12
    store.checkpoints.verify("step-000012")


def test_everything_is_synced_before_the_rename_and_the_rename_after_it(
    store: RunStore, fill_checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (said.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1])
    store.checkpoints.fault = said.append
    store.checkpoints.write(1, fill_checkpoint)
    before, after = said[: said.index("renamed")], said[said.index("renamed") :]
    for name in ("weights.bin", "learner/state.json", "learner", "checkpoint.json", ".writing-step-000001"):
        assert any(path.endswith(name) for path in before), name
    assert any(path.endswith("/checkpoints") for path in after)


@pytest.mark.parametrize("point", POINTS)
def test_a_failure_at_any_point_leaves_no_checkpoint_that_counts(
    store: RunStore, fill_checkpoint: Any, point: str
) -> None:
    def fault(at: str) -> None:
        if at == point:
            raise KeyboardInterrupt(at)

    store.checkpoints.fault = fault
    with pytest.raises(KeyboardInterrupt):
        store.checkpoints.write(1, fill_checkpoint)
    assert store.checkpoints.named() == []
    recovery = Checkpoints(store.dir.path).recover()
    assert recovery, "something was left, and recovery says so"
    assert list(store.checkpoints.folder.iterdir()) == []
    store.checkpoints.fault = lambda at: None
    store.checkpoints.write(1, fill_checkpoint)


def test_a_failing_learner_leaves_nothing_behind(store: RunStore) -> None:
    def broken(folder: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.checkpoints.write(1, broken)
    assert list(store.checkpoints.folder.iterdir()) == []


def test_a_full_disk_names_the_folder_and_what_to_do(store: RunStore) -> None:
    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RunDirError, match="no space left while writing checkpoint step-000001") as caught:
        store.checkpoints.write(1, full)
    assert "--resume" in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "how"),
    [
        (lambda p: (p / "weights.bin").unlink(), "weights.bin is missing"),
        (lambda p: (p / "weights.bin").write_bytes(b"short"), "weights.bin has 5 bytes, not 2048"),
        (lambda p: (p / "weights.bin").write_bytes(b"\1" * 2048), "weights.bin is not what was written"),
        (lambda p: (p / "checkpoint.json").write_text("{"), "checkpoint.json cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_refused_at_resume_by_name(
    store: RunStore, fill_checkpoint: Any, damage: Callable[[Path], None], how: str
) -> None:
    path = store.checkpoints.write(1, fill_checkpoint)
    store.commit_step(step=1, checkpoint=path, state={})
    store.close()
    damage(path)
    with pytest.raises(RunDirError, match=how):
        RunStore.open(store.dir.path)
    with pytest.raises(RunDirError, match=how):
        RunStore.open(store.dir.path)  # and the lock was given back


def test_the_newest_committed_checkpoints_are_kept_and_the_last_one_always(store: RunStore, fill_checkpoint: Any) -> None:
    for step in range(1, 6):
        store.commit_step(step=step, checkpoint=store.checkpoints.write(step, fill_checkpoint), state={})
    store.checkpoints.write(6, fill_checkpoint)  # not committed yet: not to be touched
    assert store.prune(2) == ["step-000001", "step-000002", "step-000003"]
    assert store.checkpoints.names() == ["step-000004", "step-000005", "step-000006"]
    assert store.prune(0) == ["step-000004"]
    assert store.checkpoints.names() == ["step-000005", "step-000006"]


def test_a_kill_in_the_middle_of_pruning_leaves_no_half_checkpoint(
    store: RunStore, fill_checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    for step in (1, 2):
        store.commit_step(step=step, checkpoint=store.checkpoints.write(step, fill_checkpoint), state={})
    real = shutil.rmtree

    def killed(path: Path, **options: Any) -> None:
        if path.exists():
            (path / "weights.bin").unlink()
            raise KeyboardInterrupt
        real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            store.prune(1)
    assert store.checkpoints.names() == ["step-000002"]
    assert store.checkpoints.recover().half_written == ("step-000001",)


def test_steps_beyond_six_digits_stay_in_order(store: RunStore, fill_checkpoint: Any) -> None:
    for step in (999_999, 1_000_000):
        store.commit_step(step=step, checkpoint=store.checkpoints.write(step, fill_checkpoint), state={})
    assert store.checkpoints.names() == ["step-999999", "step-1000000"]
    assert store.prune(1) == ["step-999999"]
