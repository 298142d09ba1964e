"""Runs side by side."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from stored_runs import CONFIG, StepOf, World, write_run

from spade_agentic.errors import RunDirError
from spade_agentic.runs import compare_runs, comparison_text
from spade_agentic.runs.compare import config_differences, run_labels


@pytest.fixture
def three(tmp_path: Path, evaluation: Any) -> list[Path]:
    """``a`` and ``b`` measured the same 40 instances, ``b`` won 8 more of them at the end; ``c`` measured others."""
    paths = []
    for name, before, after, seed in (("a", 0.25, 0.5, 0), ("b", 0.25, 0.7, 1), ("c", 0.25, 0.9, 0)):
        held = {0: evaluation(before, before), 2: evaluation(after, after)}
        if name == "c":
            for result in held.values():
                for rate in ("sampled", "greedy", "hinted"):
                    result[f"instances/{rate}"] = {f"other{i}:1": [1, 1] for i in range(3)}
        config = {**CONFIG, "run": {**CONFIG["run"], "seed": seed}}
        steps = [StepOf([World("e1", regret=0.5)]), StepOf([World("e2", 1, regret=0.1)])]
        paths.append(write_run(tmp_path / name, steps, evaluations=held, config=config))
    return paths


def test_runs_that_measured_the_same_instances_are_compared_instance_by_instance(three: list[Path]) -> None:
    comparison = compare_runs(three[:2])
    by_key = {(d.rate, d.when): d for d in comparison.paired}
    last = by_key["sampled", "last"]
    assert (last.baseline, last.run, last.evaluator, last.steps, last.instances) == ("a", "b", "heldout", (2, 2), 40)
    # Of 40 differences 8 are 1 and the others 0: standard deviation sqrt(.2 * .8 * 40 / 39), Student's t of 39 is 2.0227.
    half = 2.0227 * math.sqrt(0.16 * 40 / 39 / 40)
    assert (last.difference.value, last.difference.low) == (pytest.approx(0.2), pytest.approx(0.2 - half, abs=1e-4))
    assert by_key["sampled", "first"].difference.value == 0.0


def test_what_was_not_measured_in_common_is_not_compared(three: list[Path]) -> None:
    assert compare_runs([three[0], three[2]]).paired == []
    assert "the runs measured no instance in common" in comparison_text(compare_runs([three[0], three[2]]))


def test_the_text_has_success_regret_plays_and_the_keys_that_differ(three: list[Path]) -> None:
    text = comparison_text(compare_runs(three))
    rows = {line.split("  ")[0].strip(): line for line in text.splitlines()}
    assert rows["sampled, after"].count("[") == 3
    assert "0.700 [0.650, 0.750]" in rows["sampled, after"]
    assert "+45.0 points [+28.9, +61.1]" in rows["sampled, change"]
    assert rows["regret, first round"].count("+0.500 ± 0.000 (round 0)") == 3
    assert rows["regret, last round"].count("+0.100 ± 0.000 (round 1)") == 3
    assert rows["plays"].count("8, 0 void") == 3
    assert rows["run.seed"].split() == ["run.seed", "0", "1", "0"]
    assert "+20.0 points" in text


def test_keys_differ_where_values_do_and_where_one_is_missing() -> None:
    found = config_differences({"a": {"x": {"y": 1, "z": [1]}, "w": {}}, "b": {"x": {"y": 2, "z": [1]}, "new": None, "w": {}}})
    assert [(d.key, d.values) for d in found] == [("x.y", {"a": 1, "b": 2}), ("new", {"a": None, "b": None})]
    assert config_differences({"a": CONFIG, "b": CONFIG}) == []


def test_labels_are_unique(tmp_path: Path) -> None:
    one, two = tmp_path / "p" / "run", tmp_path / "q" / "run"
    assert run_labels([one, tmp_path / "other"]) == ["run", "other"]
    assert run_labels([one, two]) == [str(one), str(two)]
    assert run_labels([one, one]) == [str(one), f"{one} (2)"]


def test_one_run_is_nothing_to_compare(three: list[Path]) -> None:
    with pytest.raises(RunDirError, match="nothing to compare with"):
        compare_runs(three[:1])


def test_runs_compare_prints_text_json_and_a_page(three: list[Path], cli: Any, tmp_path: Path) -> None:
    done = cli("runs", "compare", "a", "b", "--root", tmp_path)
    assert (done.code, done.out) == (0, comparison_text(compare_runs(three[:2])))
    data = cli("runs", "compare", *three, "--json").json()
    assert [item["label"] for item in data["runs"]] == ["a", "b", "c"]
    assert data["runs"][1]["gain"]["sampled"]["value"] == pytest.approx(0.45)
    assert {d["key"] for d in data["config"]} == {"run.seed"}
    done = cli("runs", "compare", *three, "--html", "--output", tmp_path / "c.html")
    assert (done.code, done.out.strip()) == (0, str(tmp_path / "c.html"))
    page = (tmp_path / "c.html").read_text()
    assert "Held out: heldout/sampled" in page
    assert "+20.0 points" in page
    assert cli("runs", "compare", "a", "--root", tmp_path).code == 2
    assert cli("runs", "compare", "a", "b", "--root", tmp_path, "--output", "x.html").code == 2
