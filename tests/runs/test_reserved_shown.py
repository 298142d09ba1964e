"""Success in reserved domains is shown apart, with its interval, wherever a run is; runs that did not measure it still are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stored_runs import StepOf, World, write_run

from spade_agentic.runs import compare_runs, comparison_text, list_runs, report_data, report_run, show_run
from spade_agentic.runs.html.facts import read_facts
from spade_agentic.runs.html.model import Lines
from spade_agentic.runs.html.page import report_page, sections_of
from spade_agentic.runs.live import evaluation_lines

TITLE = "Success in reserved domains (95 % intervals; in no figure above)"
PAGE_TITLE = "Success in reserved domains"


def with_reserved(main: dict[str, Any], reserved: dict[str, Any]) -> dict[str, Any]:
    """``main`` with another answer's rates as those of reserved domains."""
    renamed = {
        key.replace("heldout/", "heldout/reserved/").replace("instances/", "instances/reserved/"): value
        for key, value in reserved.items()
    }
    return main | renamed


@pytest.fixture
def runs(tmp_path: Path, evaluation: Any) -> tuple[Path, Path]:
    """Two runs with the same held-out success, .25 -> .75; the second measured reserved domains too, .1 -> .2."""
    steps = [StepOf([World("e1", regret=0.5)]), StepOf([World("e2", 1, regret=0.1)])]
    main = {0: evaluation(0.25, 0.5), 2: evaluation(0.75, 0.75)}
    both = {0: with_reserved(main[0], evaluation(0.1, 0.05, 0.4)), 2: with_reserved(main[2], evaluation(0.2, 0.15, 0.4))}
    return write_run(tmp_path / "old", steps, evaluations=main), write_run(tmp_path / "new", steps, evaluations=both)


def block(text: str, title: str) -> list[str]:
    """The lines below a title, to the next empty one."""
    lines = text.splitlines()
    start = lines.index(title) + 1
    return lines[start : lines.index("", start)]


def row(lines: list[str], name: str) -> str:
    return next(line for line in lines if line.split()[:1] == [name])


def test_a_summary_has_it_under_its_own_keys_and_nothing_else_changes(runs: tuple[Path, Path]) -> None:
    old, new = map(show_run, runs)
    assert (new.reserved, new.reserved_greedy) == ({"before": 0.1, "after": 0.2}, {"before": 0.05, "after": 0.15})
    assert new.evaluation["reserved/sampled"]["after"] == {
        "step": 2, "value": 0.2, "low": pytest.approx(0.15), "high": pytest.approx(0.25),
    }  # fmt: skip
    assert (new.heldout, new.heldout_greedy) == (old.heldout, old.heldout_greedy) == (
        {"before": 0.25, "after": 0.75}, {"before": 0.5, "after": 0.75},
    )  # fmt: skip
    assert {rate: pair for rate, pair in new.evaluation.items() if not rate.startswith("reserved/")} == old.evaluation


def test_a_run_that_did_not_measure_it_has_nothing_to_say(runs: tuple[Path, Path]) -> None:
    old, _ = runs
    assert show_run(old).reserved == show_run(old).reserved_greedy == {"before": None, "after": None}
    assert "eserved" not in report_run(old)
    assert PAGE_TITLE not in report_page(old)
    assert not any("reserved" in rate for rate in report_data(old)["gain"])


def test_runs_list_has_it_as_keys_of_its_own_for_both(runs: tuple[Path, Path], cli: Any) -> None:
    listed = {run["run_id"]: run for run in cli("runs", "list", "--root", runs[0].parent, "--json").json()}
    assert listed["new"]["reserved"] == {"before": 0.1, "after": 0.2}
    assert listed["new"]["reserved_greedy"] == {"before": 0.05, "after": 0.15}
    assert listed["old"]["reserved"] == {"before": None, "after": None}
    assert listed["old"]["heldout"] == listed["new"]["heldout"]
    assert {run.status for run in list_runs(runs[0].parent)} == {"finished"}


def test_runs_show_has_a_line_with_both_intervals(runs: tuple[Path, Path], cli: Any) -> None:
    old, new = (cli("runs", "show", run) for run in runs)
    assert "reserved domains, sampled: 0.100 [0.050, 0.150] -> 0.200 [0.150, 0.250]" in new.out
    assert "reserved domains, greedy: 0.050 [0.000, 0.100] -> 0.150 [0.100, 0.200]" in new.out
    assert "held-out sampled: 0.250 -> 0.750" in new.out
    assert (old.code, "reserved domains" in old.out) == (0, False)


def test_the_table_at_the_end_has_it_by_itself_with_intervals_and_the_paired_change(runs: tuple[Path, Path]) -> None:
    old, new = map(report_run, runs)
    held_out = "Held-out success (95 % intervals)"
    assert block(new, held_out) == block(old, held_out), "the main table is the one without it"
    sampled = row(block(new, TITLE), "sampled")
    assert "0.100 [0.050, 0.150]" in sampled
    assert "0.200 [0.150, 0.250]" in sampled
    assert "+10.0 points [+0.3, +19.7]" in sampled
    assert report_data(runs[1])["gain"]["reserved/sampled"]["value"] == pytest.approx(0.1)
    assert report_data(runs[1])["gain"]["sampled"] == report_data(runs[0])["gain"]["sampled"]


def test_before_training_has_ended_there_is_a_dash_for_after(tmp_path: Path, evaluation: Any) -> None:
    only = {0: with_reserved(evaluation(0.25, 0.5), evaluation(0.1, 0.05))}
    run = write_run(tmp_path / "begun", [StepOf([World("e1")])], evaluations=only)
    assert row(block(report_run(run), TITLE), "sampled").split()[-2:] == ["-", "-"]


def test_the_page_has_a_section_of_its_own_and_the_held_out_section_stays_as_it_was(runs: tuple[Path, Path]) -> None:
    old, new = ({s.anchor: s for s in sections_of(read_facts(run))} for run in runs)
    assert set(new) - set(old) == {"reserved"}
    assert new["heldout"] == old["heldout"]
    (drawn,) = new["reserved"].figures
    assert isinstance(drawn.chart, Lines)
    sampled = drawn.chart.series[0]
    assert (sampled.name, [point.y for point in sampled.points]) == ("sampled", [0.1, 0.2])
    assert (sampled.points[1].low, sampled.points[1].high) == (pytest.approx(0.15), pytest.approx(0.25))
    (table,) = new["reserved"].tables
    assert table.rows[0] == (
        "reserved/sampled", "0.100 [0.050, 0.150] (step 0)", "0.200 [0.150, 0.250] (step 2)", "+10.0 points [+0.3, +19.7]",
    )  # fmt: skip
    page = report_page(runs[1])
    assert "reserved domains, sampled" in page
    assert PAGE_TITLE in page


def test_runs_are_compared_in_it_by_rows_of_its_own_and_a_dash_where_one_did_not_measure_it(runs: tuple[Path, Path]) -> None:
    comparison = compare_runs(runs)
    lines = comparison_text(comparison).splitlines()
    rows = {line.split("  ")[0].strip(): line for line in lines}
    assert rows["reserved/sampled, after"].split()[2:] == ["-", "0.200", "[0.150,", "0.250]"]
    assert "+10.0 points" in rows["reserved/sampled, change"]
    assert rows["sampled, after"].count("0.750 [0.700, 0.800]") == 2
    assert not any("reserved" in difference.rate for difference in comparison.paired), "the first run has nothing to pair with"
    paired = {(d.rate, d.when): d.difference.value for d in compare_runs([runs[1], runs[1]]).paired}
    assert list(dict.fromkeys(rate for rate, _ in paired)) == [
        "sampled", "greedy", "hinted", "reserved/sampled", "reserved/greedy", "reserved/hinted",
    ]  # fmt: skip


def test_a_running_run_says_it_in_a_line_of_its_own(evaluation: Any) -> None:
    main, reserved = evaluation_lines(0, "heldout", with_reserved(evaluation(0.25, 0.5), evaluation(0.1, 0.05)))
    assert main.startswith("heldout at step 0: sampled 0.250 [0.200, 0.300], greedy 0.500")
    assert reserved.startswith("heldout/reserved at step 0: sampled 0.100 [0.050, 0.150], greedy 0.050")
