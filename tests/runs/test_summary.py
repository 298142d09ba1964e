from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from spade_agentic.cli.main import main
from spade_agentic.errors import RunDirError
from spade_agentic.hooks.records import Regret
from spade_agentic.runs import RunStore, find_run, list_runs, new_run_id, report_data, report_run, show_run, watch_run
from spade_agentic.runs.html import report_page


@pytest.fixture
def finished(recording: Any, evaluation: Any) -> Path:
    """A finished run of three steps: .25 -> .75 sampled, .5 -> .75 greedy."""
    run = recording()
    run.recorder.record_evaluation(step=0, name="heldout", result=evaluation(0.25, 0.5, 0.75))
    for number in (1, 2, 3):
        step = run.make.step(number, mean=0.6 - number / 10)
        run.recorder.commit(step, {}, lambda folder: None)
    run.recorder.record_evaluation(step=3, name="heldout", result=evaluation(0.75, 0.75, 0.75))
    run.recorder.end("finished")
    path: Path = run.run_dir
    return path


def command(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


def test_a_summary_has_before_and_after_as_fractions(finished: Path) -> None:
    run = show_run(finished)
    assert (run.run_id, run.name, run.status, run.seed, run.steps, run.steps_planned) == (
        "tooluse-1", "tooluse", "finished", 7, 3, 3,
    )  # fmt: skip
    assert run.heldout == {"before": 0.25, "after": 0.75}
    assert run.heldout_greedy == {"before": 0.5, "after": 0.75}
    after = {"step": 3, "value": 0.75, "low": pytest.approx(0.7), "high": pytest.approx(0.8)}
    assert run.evaluation["sampled"]["after"] == after
    assert run.regret["first"] == {"round": 0, "mean": 0.5, "stderr": 0.0, "environments": 1}
    assert run.regret["last"]["mean"] == pytest.approx(0.3)  # type: ignore[index]
    assert (run.plays, run.plays_void, run.drafts, run.admitted, run.refused) == (12, 3, 6, 3, {"blueprint:unknown_goal": 3})
    assert run.checkpoint == str(finished / "checkpoints" / "step-000003")
    assert all(Path(path).exists() for path in run.paths.values())


def test_before_any_training_there_is_no_after(recording: Any, evaluation: Any) -> None:
    run = recording()
    run.recorder.record_evaluation(step=0, name="heldout", result=evaluation(0.25, 0.5))
    summary = show_run(run.run_dir)
    assert (summary.status, summary.heldout) == ("running", {"before": 0.25, "after": None})
    assert "0.250 [0.200, 0.300]" in report_run(run.run_dir)


def test_the_regret_of_a_round_is_what_its_environments_measured_first(recording: Any) -> None:
    """A pool keeps environments for longer: what they measure later says how the agent learned."""
    run = recording()
    for number, mean in ((1, 0.6), (2, 0.1)):
        step = run.make.step(number, mean=mean)
        step.regrets["e1"] = Regret(mean, 0.1, 4, 0.8, 0.4)
        run.recorder.commit(step, {}, lambda folder: None)
    regret = show_run(run.run_dir).regret
    assert (regret["first"]["round"], regret["first"]["mean"]) == (0, pytest.approx(0.6))
    assert (regret["last"]["round"], regret["last"]["mean"]) == (1, pytest.approx(0.1))


def test_the_final_table_has_both_intervals_the_paired_difference_and_the_paths(finished: Path) -> None:
    text = report_run(finished)
    line = next(line for line in text.splitlines() if line.split()[:1] == ["sampled"])
    assert "0.250 [0.200, 0.300]" in line
    assert "0.750 [0.700, 0.800]" in line
    assert "+50.0 points [+33.8, +66.2]" in line
    hinted = next(line for line in text.splitlines() if line.split()[:1] == ["hinted"])
    assert "+0.0 points [+0.0, +0.0]" in hinted
    for part in ("blueprint:unknown_goal", "+0.500 ± 0.000", "12 consumed, 3 void", str(finished / "store.sqlite")):
        assert part in text, part
    assert report_data(finished)["gain"]["greedy"]["value"] == pytest.approx(0.25)


def test_runs_list_is_newest_first_and_keeps_what_cannot_be_read(
    tmp_path: Path, finished: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    RunStore.create(tmp_path / "newer", "newer", config).close()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "store.sqlite").write_text("x" * 2000)
    code, out, _ = command(capsys, "runs", "list", "--root", tmp_path, "--json")
    listed = json.loads(out)
    assert code == 0
    assert [r["run_id"] for r in listed if r["status"] != "unreadable"] == ["newer", "tooluse-1"]
    assert next(r for r in listed if r["run_id"] == "newer")["status"] == "killed", "it says running, and no process holds it"
    mine = next(r for r in listed if r["run_id"] == "tooluse-1")
    assert mine["heldout"] == {"before": 0.25, "after": 0.75}
    assert mine["heldout_greedy"] == {"before": 0.5, "after": 0.75}
    assert "cannot be read" in next(r for r in listed if r["status"] == "unreadable")["error"]
    assert list_runs(tmp_path / "nowhere") == []
    assert command(capsys, "runs", "list", "--root", tmp_path / "nowhere") == (0, f"no runs in {tmp_path / 'nowhere'}\n", "")
    code, out, _ = command(capsys, "runs", "list", "--root", tmp_path)
    assert "0.250 -> 0.750" in out
    assert "cannot be read" in out


def test_runs_show_prints_steps_plays_and_one_play(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "runs", "show", finished, "--json")
    shown = json.loads(out)
    assert [s["step"] for s in shown["steps"]] == [1, 2, 3]
    assert shown["steps"][0]["plays"]["plain"]["wins"] == 1
    assert shown["steps"][0]["metrics"]["loss"] == 0.1
    code, out, _ = command(capsys, "runs", "show", finished, "--step", 2, "--json")
    assert [p["play_id"] for p in json.loads(out)["plays"]] == ["p2-0", "p2-1", "p2-2", "p2-3"]
    code, out, _ = command(capsys, "runs", "show", finished, "--step", 2)
    assert code == 0
    assert "environment_fault" in out
    code, out, _ = command(capsys, "runs", "show", finished, "--play", "p2-1", "--json")
    assert json.loads(out)["messages"][0] == {"role": "user", "content": "Find it."}
    code, out, _ = command(capsys, "runs", "show", finished, "--play", "p2-1")
    assert out.startswith("p2-1: plain, seed")
    assert "--- assistant (call)\nI look." in out
    code, out, err = command(capsys, "runs", "show", finished, "--play", "p9")
    assert (code, out) == (2, "")
    assert "no play 'p9' was consumed" in err


def test_runs_show_has_the_figures_and_names_what_is_not_there(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = command(capsys, "runs", "show", finished)
    for text in ("held-out sampled: 0.250 -> 0.750", "regret, first round: +0.500 ± 0.000", f"runs report {finished}"):
        assert text in out
    code, _, err = command(capsys, "runs", "show", finished, "--step", 9)
    assert (code, "name one from 1 to 3" in err) == (2, True)
    code, _, err = command(capsys, "runs", "show", "latst", "--root", finished.parent)
    assert (code, "did you mean 'latest'?" in err) == (2, True)


def test_runs_report_prints_the_final_table(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "runs", "report", finished)
    assert (code, out) == (0, report_run(finished))
    code, out, _ = command(capsys, "runs", "report", finished, "--json")
    assert json.loads(out)["gain"]["sampled"]["value"] == pytest.approx(0.5)


def test_a_run_is_found_by_path_name_beginning_or_latest(finished: Path, config: dict[str, Any]) -> None:
    root = finished.parent
    assert find_run(str(finished), root) == finished
    assert find_run("tooluse-1", root) == find_run("tool", root) == find_run("latest", root) == finished
    RunStore.create(root / "tooluse-12", "x", config).close()
    assert find_run("tooluse-1", root) == finished, "the whole name wins"
    assert find_run("latest", root) == root / "tooluse-12"
    with pytest.raises(RunDirError, match="could be any of: tooluse-1, tooluse-12"):
        find_run("tool", root)
    with pytest.raises(RunDirError, match="there is no run 'x'"):
        find_run("x", root)


def test_run_ids_are_fit_for_folders() -> None:
    assert new_run_id("my run/é", now=0).startswith("my-run-")
    assert new_run_id("a") != new_run_id("a")


# --- watching ---------------------------------------------------------------------------------------------------------------


def test_watching_a_finished_run_looks_once(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (update,) = watch_run(finished)
    assert not update.running
    assert str(update).startswith("step 3/3 not running: 0 plays in flight")
    code, out, _ = command(capsys, "runs", "watch", finished, "--json")
    assert code == 0
    assert json.loads(out)["status"]["step"] == 3
    code, out, _ = command(capsys, "runs", "watch", finished, "--once")
    assert out.startswith("step 3/3")


def test_watching_follows_a_run_to_its_end(recording: Any) -> None:
    run = recording()
    run.commit(1)
    looks = 0

    def meanwhile(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            run.commit(2)
        elif looks == 2:
            run.recorder.notify("run_ended", run_id="tooluse-1", status="finished")
            run.recorder.end("finished")

    updates = list(watch_run(run.run_dir, sleep=meanwhile))
    assert [u.running for u in updates] == [True, True, False]
    assert [u.status["step"] for u in updates if u.status] == [1, 2, 2]
    names = [e["event"] for u in updates for e in u.events]
    assert "step_committed" in names
    assert names[-1] == "run_ended"
    assert "run_ended tooluse-1 status=finished" in str(updates[-1])


def test_a_line_that_is_still_being_written_waits_for_the_next_look(recording: Any) -> None:
    run = recording()
    path = run.run_dir / "events.jsonl"
    seen: list[list[str]] = []
    steps = iter(['{"event": "half"', ', "id": "1"}\n{"cut\n', None])

    def meanwhile(seconds: float) -> None:
        text = next(steps)
        if text is None:
            run.recorder.end("interrupted")
        else:
            with path.open("a") as file:
                file.write(text)

    seen = [[e["event"] for e in update.events] for update in watch_run(run.run_dir, sleep=meanwhile)]
    assert [names for names in seen if names] == [["half"]]


def test_the_summary_of_a_run_can_be_read_while_it_commits(recording: Any) -> None:
    run = recording()
    run.commit(1)
    problems: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                summary = show_run(run.run_dir)
                assert summary.plays == 4 * summary.steps
            except BaseException as error:
                problems.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(2, 12):
        run.commit(number)
    done.set()
    reader.join()
    assert not problems


def test_breaches_of_the_audit_are_named_wherever_a_run_is_shown(
    recording: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recording()
    for number, broken in ((1, []), (2, ["arms", "mask"]), (3, ["mask"])):
        step = run.make.step(number)
        step.metrics |= {"audit/breaches": len(broken)} | {f"audit/breach/{check}": 1.0 for check in broken}
        run.recorder.commit(step, {}, lambda folder: None)
    summary = show_run(run.run_dir)
    assert (summary.steps_audited, summary.breaches) == (3, {"mask": 2, "arms": 1})
    line = "Audit of the training signal: 3 steps, breaches: mask, arms"
    assert line in report_run(run.run_dir)
    _, out, _ = command(capsys, "runs", "show", run.run_dir)
    assert line in out
    assert "mask in 2, arms in 1" in report_page(run.run_dir)


@pytest.mark.parametrize(
    ("metrics", "said"), [({}, "no step audited"), ({"audit/breaches": 0}, "1 steps, breaches: none")]
)
def test_a_run_without_a_breach_is_told_from_one_without_an_audit(recording: Any, metrics: Any, said: str) -> None:
    run = recording()
    step = run.make.step(1)
    step.metrics |= metrics
    run.recorder.commit(step, {}, lambda folder: None)
    assert f"Audit of the training signal: {said}\n" in report_run(run.run_dir)
