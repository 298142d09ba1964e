"""``benchmarks/controller.py`` measures a whole run: what it counts is what the run played."""

import argparse
from pathlib import Path

import controller


def test_the_controller_benchmark_counts_the_plays_of_its_run_and_some_of_them_win(
    tmp_path: Path, tiny_model_dir: Path
) -> None:
    asked = argparse.Namespace(steps=1, model=str(tiny_model_dir), sandbox="process", environments=2)
    result = controller.measure(asked, tmp_path / "run")
    assert result["plays"] == 2 * 4 * 4 * 2, "two environments, four seeds, four repeats; hinted in the first step"
    assert 0 < result["won"] < result["plays"]
    assert result["void"] == 0
    assert result["drafts"] == 2
    assert {"designing", "playing", "updating"} <= set(result["stages_s"])
    assert result["plays_per_s"] > 0
