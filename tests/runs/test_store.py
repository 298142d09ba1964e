from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spade_agentic.errors import PluginError, RunDirError, StoreError
from spade_agentic.hooks.records import Arm
from spade_agentic.runs import RunStore, StoreReader

Fill = Callable[[Path], None]


@pytest.fixture
def store(tmp_path: Path, config: dict[str, Any]) -> Iterator[RunStore]:
    made = RunStore.create(tmp_path / "run", "run-1", config)
    yield made
    made.close()


def commit(store: RunStore, step: Any, state: dict[str, Any] | None = None, *, fill: Fill | None = None) -> None:
    path = store.checkpoints.write(step.step, fill or (lambda folder: (folder / "w").write_bytes(b"w") and None))
    store.commit_step(
        step=step.step, checkpoint=path, state=state or {}, plays=step.plays, drafts=step.drafts,
        environments=step.environments, regrets=step.regrets, metrics=step.metrics,
    )


def test_the_database_is_in_wal_mode_and_waits_for_the_disk(store: RunStore) -> None:
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._connection.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_what_a_step_consumed_comes_back_exactly(store: RunStore, make: Any) -> None:
    step = make.step(1)
    commit(store, step, {"rng": [1, 2], "mean": 0.1})
    assert [row.play for row in store.plays(tokens=True)] == step.plays
    assert store.play("p1-2").play == step.plays[2]
    assert {row.draft.draft_id: row.draft for row in store.drafts(tokens=True)} == {d.draft_id: d for d in step.drafts}
    assert [row.environment for row in store.environments()] == step.environments
    assert {row.env_id: row.regret for row in store.regrets()} == step.regrets
    last = store.last_commit()
    assert last is not None
    assert (last.step, last.checkpoint, last.state) == (1, "step-000001", {"rng": [1, 2], "mean": 0.1})
    assert store.metrics()[0].metrics == step.metrics


def test_plays_can_be_asked_for_by_step_environment_and_arm(store: RunStore, make: Any) -> None:
    commit(store, make.step(1))
    commit(store, make.step(2))
    assert [row.play.play_id for row in store.plays(step=2, arm=Arm.HINTED)] == ["p2-2"]
    assert len(list(store.plays(env_id="e1"))) == 4
    assert not next(iter(store.plays())).play.trajectory.segments, "tokens come only when asked for"
    assert store.play_counts()[1] == {
        "step": 1, "arm": "plain", "plays": 3, "void": 1, "wins": 1, "mean_reward": 0.5, "sampled_tokens": 24,
    }  # fmt: skip


def test_a_play_is_consumed_once_in_a_run(store: RunStore, make: Any) -> None:
    commit(store, make.step(1))
    again = make.step(2)
    again.plays[-1] = make.play("p1-0", "e1")
    with pytest.raises(StoreError, match="refused"):
        commit(store, again)
    assert store.last_step() == 1
    assert not list(store.plays(step=2)), "a refused commit leaves nothing of its step"


def test_a_play_needs_its_environment_and_an_environment_its_draft(store: RunStore, make: Any) -> None:
    orphan = make.step(1)
    orphan.environments.clear()
    orphan.regrets.clear()
    with pytest.raises(StoreError, match="names one that was never committed"):
        commit(store, orphan)
    motherless = make.step(1)
    motherless.drafts.clear()
    with pytest.raises(StoreError, match="names one that was never committed"):
        commit(store, motherless)


def test_steps_only_grow_and_name_checkpoints_that_exist(store: RunStore, make: Any) -> None:
    commit(store, make.step(2))
    with pytest.raises(StoreError, match="step 2 cannot be committed after step 2"):
        store.commit_step(step=2, checkpoint="step-000002", state={})
    with pytest.raises(StoreError, match="step-000009, which does not exist"):
        store.commit_step(step=9, checkpoint="step-000009", state={})


def test_a_draft_that_is_paid_later_keeps_its_tokens_and_its_first_step(store: RunStore, make: Any) -> None:
    first, second = make.step(1), make.step(2)
    first.drafts[0].reward = None
    commit(store, first)
    late = make.draft("d1", reward=0.75)
    late.trajectory = None
    second.drafts.append(late)
    commit(store, second)
    row = next(row for row in store.drafts(tokens=True) if row.draft.draft_id == "d1")
    assert (row.step, row.draft.reward) == (1, 0.75)
    assert row.draft.trajectory == first.drafts[0].trajectory


@pytest.mark.parametrize("bad", [{"x": "1"}, {"x": True}, {"x": None}])
def test_a_metric_is_a_number(store: RunStore, make: Any, bad: dict[str, Any]) -> None:
    step = make.step(1)
    step.metrics = bad
    with pytest.raises(StoreError, match="the metric x is of type"):
        commit(store, step)


def test_state_that_would_change_on_the_way_back_is_refused(store: RunStore, make: Any) -> None:
    with pytest.raises(PluginError, match=r"state\.seen is of type set"):
        commit(store, make.step(1), {"seen": {1}})
    assert store.last_step() is None


@pytest.mark.parametrize("point", ["begun", "written"])
def test_a_failure_inside_a_commit_leaves_the_step_before(
    tmp_path: Path, make: Any, config: dict[str, Any], point: str
) -> None:
    armed = False

    def fault(at: str) -> None:
        if armed and at == point:
            raise MemoryError(at)

    store = RunStore.create(tmp_path / "run", "run-1", config, fault=fault)
    commit(store, make.step(1), {"at": 1})
    armed = True
    with pytest.raises(MemoryError):
        commit(store, make.step(2), {"at": 2})
    armed = False
    assert store.last_commit().state == {"at": 1}  # type: ignore[union-attr]
    assert len(list(store.plays())) == 4
    store.close()
    with RunStore.open(tmp_path / "run") as again:
        assert again.recovered.unnamed == ("step-000002",)
        commit(again, make.step(2), {"at": 2})
        assert again.last_step() == 2


def test_a_full_disk_is_the_users_to_mend_and_loses_nothing(store: RunStore, make: Any) -> None:
    commit(store, make.step(1))
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = make.step(2)
    big.plays[0].first_observation = "".join(chr(0x4E00 + i * 7 % 20000) for i in range(200_000))
    with pytest.raises(RunDirError, match="no space left while committing step 2"):
        commit(store, big)
    assert store.last_step() == 1


def test_a_reader_sees_whole_steps_of_a_run_that_is_being_written(store: RunStore, make: Any) -> None:
    commit(store, make.step(1))
    with StoreReader(store.dir.path) as reader:
        seen: list[tuple[int | None, int]] = []
        look = lambda at: seen.append((reader.last_step(), len(list(reader.plays()))))
        store._fault = look
        commit(store, make.step(2))
    assert seen == [(1, 4), (1, 4), (2, 8)], "begun and written are not seen yet, committed is"


def test_the_state_of_a_pruned_checkpoint_goes_with_the_next_commit_and_its_records_stay(store: RunStore, make: Any) -> None:
    for number in (1, 2, 3):
        commit(store, make.step(number), {"at": number})
        store.prune(1)
    rows = store._connection.execute("SELECT step, state IS NULL FROM step ORDER BY step").fetchall()
    assert rows == [(1, 1), (2, 0), (3, 0)]
    assert store.checkpoints.names() == ["step-000003"]
    assert len(list(store.plays())) == 12


def test_an_evaluation_that_is_repeated_replaces_the_earlier_one(store: RunStore, evaluation: Any) -> None:
    store.record_evaluation(step=0, name="heldout", result=evaluation(0.25, 0.5))
    store.record_evaluation(step=0, name="heldout", result=evaluation(0.5, 0.5))
    (row,) = store.evaluations("heldout")
    assert row.result == evaluation(0.5, 0.5)
    assert store.evaluations("other") == []


def test_create_refuses_a_folder_with_a_run_and_open_one_without(store: RunStore, tmp_path: Path) -> None:
    store.close()
    with pytest.raises(RunDirError, match="already"):
        RunStore.create(store.dir.path, "run-2", {})
    with pytest.raises(RunDirError, match="there is no run here"):
        RunStore.open(tmp_path / "nothing")


def test_a_kill_before_the_first_transaction_leaves_a_folder_that_can_be_begun_again(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    (tmp_path / "store.sqlite").touch()
    with pytest.raises(RunDirError, match="holds no committed run"):
        StoreReader(tmp_path)
    RunStore.create(tmp_path, "run-1", config).close()


def test_a_foreign_file_and_a_newer_store_are_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    (tmp_path / "store.sqlite").write_text("not a database, and long enough to be looked at " * 20)
    with pytest.raises(RunDirError, match="cannot be read"):
        StoreReader(tmp_path)
    with pytest.raises(RunDirError, match="already"):
        RunStore.create(tmp_path, "run-1", config)
    newer = tmp_path / "newer"
    RunStore.create(newer, "run-1", config).close()
    connection = sqlite3.connect(newer / "store.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(RunDirError, match="newer spade-agentic"):
        RunStore.open(newer)


def test_opening_with_another_config_puts_it_on_record(store: RunStore, config: dict[str, Any]) -> None:
    store.close()
    config["run"]["steps"] = 9
    with RunStore.open(store.dir.path, config=config) as again:
        assert again.meta()["config"]["run"]["steps"] == 9
        assert "steps: 9" in again.dir.config.read_text()


def test_seeds_beyond_sqlites_integers_come_back(store: RunStore, make: Any) -> None:
    step = make.step(1)
    step.plays[0].seed = 2**64 + 5
    commit(store, step)
    assert store.play("p1-0").play.seed == 2**64 + 5


def test_wall_time_adds_up_over_the_processes_of_a_run(tmp_path: Path, make: Any, config: dict[str, Any]) -> None:
    now = [100.0]
    store = RunStore.create(tmp_path / "run", "run-1", config, clock=lambda: now[0])
    now[0] += 10
    commit(store, make.step(1))
    store.close()
    now[0] = 7.0  # another process, another clock
    with RunStore.open(tmp_path / "run", clock=lambda: now[0]) as again:
        now[0] += 5
        commit(again, make.step(2))
        again.finish("finished")
        assert (again.elapsed_s(), again.meta()["wall_s"]) == (15.0, 15.0)
