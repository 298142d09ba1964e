from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from spade_agentic.hooks.records import Arm, Regret
from spade_agentic.runs.live import PlainView, TerminalView, duration, evaluation_lines, open_view, panel, step_line
from spade_agentic.runs.progress import Progress, StatusFile, mean_regret, read_status


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock, make: Any) -> Progress:
    """Step 2 of 10 was committed after 30 s; now some plays of step 3 are done and one is in flight."""
    progress = Progress("tooluse-1", 10, step=1, clock=clock)
    clock.now += 30
    progress.step_done(2, {"e1": Regret(0.5, 0.1, 4, 0.9, 0.4), "e2": Regret(0.3, 0.1, 4, 0.9, 0.6)})
    progress.rounds, progress.admitted = 1, 12
    progress.refused.update({"blueprint:malformed": 3, "gates:[unsolvable]": 1})
    progress.enter("playing")
    progress.plays_expected = 20
    for number in range(4):
        progress.play_started(f"p{number}", "e1", Arm.PLAIN)
    progress.play_started("slow", "e2", Arm.HINTED)
    progress.play_entered("slow", "acting")
    progress.play_progressed("slow")
    clock.now += 4
    for number, won in enumerate((True, False, False)):
        progress.play_finished(make.play(f"p{number}", "e1", won=won))
    progress.play_finished(make.play("p3", "e1", void=True))
    return progress


def drawn(progress: Progress) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(panel(progress))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_live_panel_shows_step_plays_success_regret_reasons_speed_and_time_left(progress: Progress) -> None:
    text = drawn(progress)
    for part in (
        "tooluse-1", "2 of 10, playing for 4s", "1 in flight, 3 of 20 done, 1 void", "plain 0.33", "+0.400 ± 0.100 (2)",
        "1 rounds, 12 admitted, 4 refused (blueprint:malformed 3, gates:[unsolvable] 1)", "8 tokens/s", "4m00s",
        "slow turn 1, 4s",
    ):  # fmt: skip
        assert part in text, part


def test_a_panel_before_anything_happened_has_dashes(clock: Clock) -> None:
    text = drawn(Progress("run", 3, clock=clock))
    assert "0 of 3, starting for 0s" in text
    assert "0 refused" in text


def test_a_committed_step_starts_its_counts_again(progress: Progress, clock: Clock) -> None:
    progress.step_done(3, {})
    assert (progress.step, progress.plays_void, progress.tokens, dict(progress.in_flight)) == (3, 0, 0, {})
    assert progress.regret == (pytest.approx(0.4), pytest.approx(0.1), 2), "a step without regrets keeps the last one"
    assert progress.success[Arm.PLAIN] == pytest.approx(1 / 3), "shown until the next plays"


def test_the_time_left_comes_from_recent_steps(clock: Clock) -> None:
    progress = Progress("run", 20, clock=clock)
    assert progress.left_s is None
    for step in range(1, 11):
        clock.now += 100 if step <= 5 else 10
        progress.step_done(step, {})
    assert progress.left_s == pytest.approx(100.0)
    progress.step = 20
    assert progress.left_s == 0.0


def test_starting_and_measuring_are_in_no_steps_time(clock: Clock) -> None:
    progress = Progress("run", 3, clock=clock)
    for stage, seconds in (("evaluating", 50), ("designing", 7), ("playing", 3)):
        clock.now += 100 if stage == "evaluating" else 0  # starting
        progress.enter(stage)
        clock.now += seconds
    progress.step_done(1, {})
    assert progress.last_step_s == pytest.approx(10.0)
    progress.enter("evaluating")
    clock.now += 50
    progress.enter("playing")
    clock.now += 4
    progress.step_done(2, {})
    assert progress.last_step_s == pytest.approx(4.0)


def test_mean_regret_has_the_error_of_its_environments() -> None:
    values = [Regret(mean, 9.0, 4, 0.0, 0.0) for mean in (-0.1, 0.1, 0.3)]
    assert mean_regret(values) == (pytest.approx(0.1), pytest.approx(0.2 / 3**0.5), 3)
    assert mean_regret([]) is None


def test_elsewhere_than_on_a_terminal_a_step_is_one_line(progress: Progress) -> None:
    stream = io.StringIO()
    view = open_view(stream)
    assert isinstance(view, PlainView)
    view.open(progress)
    view.changed()
    view.step_done()
    view.evaluated(0, "heldout", {"heldout/sampled": 0.3, "heldout/sampled_low": 0.26, "heldout/sampled_high": 0.34})
    view.close()
    first, second = stream.getvalue().splitlines()
    assert first == step_line(progress)
    assert first.startswith("step 2/10  success plain 0.33  regret +0.400 ± 0.100 (2)  admitted 12, 4 refused")
    assert second == "heldout at step 0: sampled 0.300 [0.260, 0.340]"


def test_rates_of_groups_are_left_out_of_the_evaluation_lines() -> None:
    result = {"heldout/sampled": 0.5, "heldout/sampled/banking": 0.1, "instances/sampled": {}}
    assert evaluation_lines(4, "heldout", result) == ["heldout at step 4: no rates"]


def test_on_a_terminal_the_panel_is_drawn_and_steps_stay_above_it(progress: Progress) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    view = open_view(stream)
    assert isinstance(view, TerminalView)
    view.open(progress)
    view.step_done()
    view.evaluated(3, "heldout", {})
    view.close()
    assert "step 2/10" in stream.getvalue()
    assert "heldout at step 3" in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (59.6, "1m00s"), (185, "3m05s"), (7620, "2h07m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_status_file_is_whole_and_not_written_too_often(tmp_path: Any, progress: Progress, clock: Clock) -> None:
    path = tmp_path / "status.json"
    assert read_status(path) is None
    status = StatusFile(path, clock=clock)
    status.write(progress)
    first = read_status(path)
    assert first is not None
    assert (first["step"], first["plays_in_flight"], first["refused"]["blueprint:malformed"]) == (2, 1, 3)
    assert first["in_flight"][0] == {
        "play_id": "slow", "env_id": "e2", "arm": "hinted", "stage": "acting", "turn": 1,
        "elapsed_s": 4.0, "since_progress_s": 4.0,
    }  # fmt: skip
    progress.step = 9
    status.write(progress)
    assert read_status(path)["step"] == 2  # type: ignore[index]
    status.write(progress, force=True)
    assert read_status(path)["step"] == 9  # type: ignore[index]
