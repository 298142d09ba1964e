from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from spade_agentic.hooks.records import Arm
from spade_agentic.runs import EventLog, StoreReader, committed_metrics, show_run
from spade_agentic_plugins.jsonl_tracker import JsonlTracker
from spade_agentic_plugins.tensorboard_tracker import TensorBoardTracker


def events(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]


def test_a_commit_writes_checkpoint_store_transcripts_events_and_a_line(recording: Any) -> None:
    run = recording()
    step = run.commit(1)
    assert (run.run_dir / "checkpoints" / "step-000001" / "weights.bin").is_file()
    assert len(list(run.recorder.store.plays())) == 4
    assert events(run.run_dir)[-1]["event"] == "step_committed"
    assert "step 1/3" in run.out.getvalue()
    transcripts = [json.loads(x) for x in (run.run_dir / "transcripts" / "step-000001.jsonl").read_text().splitlines()]
    assert [t["play_id"] for t in transcripts] == [p.play_id for p in step.plays], "two an arm, and every void one"
    assert [m["role"] for m in transcripts[0]["messages"]] == ["user", "assistant", "tool"]
    assert transcripts[0]["messages"][2]["content"] == "found é\ud800"


def test_every_event_has_the_runs_id_a_number_and_the_id_of_its_object(recording: Any, make: Any) -> None:
    run = recording()
    run.recorder.notify("run_started", run_id=run.recorder.run_id, config={})
    run.recorder.notify("round_opened", round_index=0, step=1)
    step = make.step(1)
    run.recorder.notify("program_admitted", environment=step.environments[0], draft=step.drafts[0])
    run.recorder.notify("program_refused", draft=step.drafts[1])
    run.recorder.play_started("p1-0", "e1", Arm.PLAIN)
    run.recorder.notify("play_finished", play=step.plays[0])
    run.recorder.notify("batch_ready", step=1, sequences=[])
    run.recorder.commit(step, {}, lambda folder: None)
    run.recorder.notify("step_committed", step=1, metrics={})
    run.recorder.notify("run_ended", run_id=run.recorder.run_id, status="finished")
    run.recorder.end("finished")
    found = events(run.run_dir)
    assert {e["run_id"] for e in found} == {"tooluse-1"}
    assert [e["seq"] for e in found] == list(range(len(found)))
    assert all(e["id"] for e in found)
    refused = next(e for e in found if e["event"] == "program_refused")
    assert (refused["gate"], refused["code"]) == ("blueprint", "unknown_goal")
    assert next(e for e in found if e["event"] == "play_finished")["stop"] == "answered"


def test_what_a_plugin_logs_is_an_event_and_a_cut_line_harms_none(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "a", "seq": 0}\n{"event": "cut')
    log = EventLog(path, "run-1")
    with log.capture():
        structlog.get_logger("plugin").info("reward_scaled", factor=2)
    structlog.get_logger("plugin").info("after")
    log.close()
    lines = path.read_text().splitlines()
    assert json.loads(lines[2]) | {"t": 0, "elapsed_s": 0} == {
        "event": "reward_scaled", "run_id": "run-1", "id": "", "level": "info", "factor": 2, "seq": 2, "t": 0, "elapsed_s": 0,
    }  # fmt: skip
    assert len(lines) == 3


def test_an_exception_is_logged_with_its_traceback(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", "run-1")
    with log.capture():
        try:
            raise ValueError("told you")
        except ValueError:
            structlog.get_logger().exception("hook_failed", plugin="x")
    log.close()
    (event,) = events(tmp_path)
    assert (event["event"], event["level"]) == ("hook_failed", "error")
    assert "told you" in event["exception"]


# --- metrics agree with the store -----------------------------------------------------------------------------------------


def jsonl(run_dir: Path) -> list[tuple[int, dict[str, Any]]]:
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [(row.pop("step"), {k: v for k, v in row.items() if k != "t"}) for row in rows]


def tensorboard(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(run_dir / "tensorboard"), purge_orphaned_data=False)
    accumulator.Reload()
    return {tag: [(e.step, round(e.value, 5)) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def attach(run: Any) -> None:
    committed = committed_metrics(run.run_dir)
    run.recorder.attach(
        [JsonlTracker(run.run_dir / "metrics.jsonl", committed), TensorBoardTracker(run.run_dir / "tensorboard", committed)]
    )


def test_metrics_files_say_what_the_store_says_after_kills_and_resumes(recording: Any, evaluation: Any) -> None:
    run = recording()
    attach(run)
    run.recorder.record_evaluation(step=0, name="heldout", result=evaluation(0.25, 0.5))
    run.commit(1)
    for tracker in run.recorder.trackers:
        tracker.close()
    run.recorder.trackers.clear()  # a kill between the commit and the trackers of step 2
    run.commit(2)
    run.recorder._cleanup.close()

    again = recording(resume=True)
    with (again.run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 9.0}\n{"st')  # what a step that was never committed left
    attach(again)
    again.commit(3)
    again.recorder.record_evaluation(step=3, name="heldout", result=evaluation(0.75, 0.75))
    again.recorder.end("finished")

    expected = [(row.step, row.metrics) for row in committed_metrics(again.run_dir)]
    assert [step for step, _ in expected] == [0, 1, 2, 3, 3]
    assert jsonl(again.run_dir) == expected
    scalars = tensorboard(again.run_dir)
    assert scalars["loss"] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert scalars["heldout/sampled"] == [(0, 0.25), (3, 0.75)]
    assert set(scalars) == {name for _, metrics in expected for name in metrics}


def test_numbers_that_json_does_not_know_are_null(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    tracker.log(1, {"a": float("nan"), "b": float("inf"), "c": 1})
    tracker.close()
    assert jsonl(tmp_path) == [(1, {"a": None, "b": None, "c": 1})]


class Broken:
    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        raise ConnectionError("away")

    def close(self) -> None:
        raise ConnectionError("away")


def test_a_tracker_that_fails_is_an_event_and_costs_no_step(recording: Any) -> None:
    run = recording()
    run.recorder.attach([Broken()])
    run.commit(1)
    summary = run.recorder.end("finished")
    assert (summary.steps, summary.status) == (1, "finished")
    failures = [e for e in events(run.run_dir) if e["event"] == "tracker_failed"]
    assert [(e["id"], e["count"]) for e in failures] == [("Broken", 1), ("Broken", 2)]
    assert failures[0]["level"] == "warning"


def test_transcripts_that_cannot_be_written_cost_no_step(recording: Any) -> None:
    run = recording()
    (run.run_dir / "transcripts").rmdir()
    (run.run_dir / "transcripts").write_text("in the way")
    run.commit(1)
    assert show_run(run.run_dir).steps == 1
    assert any(e["event"] == "transcripts_failed" for e in events(run.run_dir))


def test_a_step_whose_checkpoint_fails_did_not_happen(recording: Any, make: Any) -> None:
    run = recording()

    def broken(folder: Path) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run.recorder.commit(make.step(1), {}, broken)
    assert run.recorder.store.last_step() is None
    run.commit(1)


def test_a_resumed_run_continues_its_counts_and_need_not_measure_again(recording: Any, evaluation: Any) -> None:
    run = recording()
    run.recorder.record_evaluation(step=0, name="heldout", result=evaluation(0.25, 0.5))
    run.commit(1)
    run.recorder.end("interrupted")
    again = recording(resume=True)
    assert again.recorder.resumed_from.step == 1
    assert again.recorder.resumed_from.state == {"at": 1}
    progress = again.recorder.progress
    assert (progress.step, progress.rounds, progress.admitted, dict(progress.refused)) == (
        1, 1, 1, {"blueprint:unknown_goal": 1},
    )  # fmt: skip
    assert again.recorder.has_evaluation(step=0, name="heldout")
    assert not again.recorder.has_evaluation(step=3, name="heldout")


def test_only_the_newest_checkpoints_stay(recording: Any) -> None:
    run = recording(keep_checkpoints=2)
    for number in (1, 2, 3):
        run.commit(number)
    assert run.recorder.store.checkpoints.names() == ["step-000002", "step-000003"]
    pruned = [e for e in events(run.run_dir) if e["event"] == "checkpoints_pruned"]
    assert [e["removed"] for e in pruned] == [["step-000001"]]


def test_the_end_of_a_run_writes_its_page_and_names_it(recording: Any) -> None:
    run = recording()
    run.commit(1)
    summary = run.recorder.end("finished")
    assert summary.paths["report"] == str(run.run_dir / "report.html")
    assert "finished, 1 of 3 steps" in (run.run_dir / "report.html").read_text()


def test_a_page_that_cannot_be_written_is_an_event_and_no_failure_of_the_run(recording: Any) -> None:
    run = recording()
    run.commit(1)
    (run.run_dir / "report.html").mkdir()
    summary = run.recorder.end("finished")
    assert summary.status == "finished"
    assert "report_failed" in [e["event"] for e in events(run.run_dir)]


def test_the_time_of_every_stage_is_in_the_metrics_of_a_step_or_in_the_end(recording: Any) -> None:
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()
    run = recording(clock=clock)
    for stage, seconds in (("designing", 3), ("playing", 5), ("updating", 2)):
        run.recorder.stage(stage)
        clock.now += seconds
    run.recorder.commit(run.make.step(1), {}, lambda folder: setattr(clock, "now", clock.now + 1))
    run.recorder.stage("evaluating")
    clock.now += 7
    run.recorder.stage("playing")
    clock.now += 4
    run.recorder.commit(run.make.step(2), {}, lambda folder: None)
    run.recorder.stage("publishing")
    clock.now += 6
    run.recorder.end("interrupted")
    times = [{k: v for k, v in row.metrics.items() if k.startswith("time/")} for row in committed_metrics(run.run_dir)]
    assert times == [
        {"time/starting_s": 0, "time/designing_s": 3, "time/playing_s": 5, "time/updating_s": 2},
        {"time/committing_s": 1, "time/evaluating_s": 7, "time/playing_s": 4},
    ]
    again = recording(resume=True, clock=clock)
    clock.now += 8
    again.recorder.end("interrupted")
    with StoreReader(run.run_dir) as reader:
        assert reader.meta()["stage_s"] == {"committing": 0, "publishing": 6, "starting": 8}
