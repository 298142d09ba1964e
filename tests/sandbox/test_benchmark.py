"""The benchmark of the sandbox, small: it measures what it names, and nothing survives its owner."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "sandbox.py"

LEAVING = """
import json, subprocess, sys, time

LABEL = "spade-sandbox:leaving:1:1:0"
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", LABEL], stdout=subprocess.DEVNULL)
print(json.dumps({"label": LABEL, "folder": "/nowhere"}), flush=True)
time.sleep(60)
"""
"""Something to be killed whose child lives on."""


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_of_the_sandbox", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_every_backend_is_measured_and_nothing_survives_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [sys.executable, str(BENCHMARK), "--quick", "--deadline", "0.3", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert {"cpu", "cores", "load_1min", "python", "platform"} <= report["machine"].keys()
    assert {*report["backends"], *report["missing"]} == {"process", "bubblewrap"}
    assert "process" in report["backends"]
    assert report["auto"] == ("bubblewrap" if "bubblewrap" in report["backends"] else "process")
    for result in report["backends"].values():
        for name in ("load_ms", "play_start_ms", "step_ms"):
            assert 0 < result[name]["p50"] <= result[name]["p99"]
        for hang in (result["hang"]["play"], result["hang"]["taken_over"]):
            assert hang["total_ms"]["p50"] == pytest.approx(hang["excess_ms"]["p50"] + 300)
        gates = result["gates"]
        assert gates["admitted"] == gates["programs"] == gates["at_once"] == 12, gates["refused"]
        kills = result["sigkill"]
        assert kills["hanging"]
        assert kills["forked"]
        assert kills["processes"] > 30  # workers, their plays, and who looks after them
        assert (kills["left"], kills["folders_left"]) == (0, 0)
        assert kills["gone_ms"]["count"] == kills["kills"] == 1


async def test_a_backend_that_does_not_work_is_named_with_the_reason(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delitem(benchmark.BACKENDS, "process")
    report = await benchmark.measure_all(benchmark.QUICK, deadline_s=0.3)
    assert report["backends"] == {}
    assert "install bubblewrap" in report["missing"]["bubblewrap"]
    assert report["auto"] == "process"


def test_a_process_that_survives_its_owner_fails_the_benchmark(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, labelled: Callable[[str], list[int]]
) -> None:
    victim = tmp_path / "leaving.py"
    victim.write_text(LEAVING)
    for name, value in {"__file__": str(victim), "GONE_WITHIN_S": 0.2, "BUSY_WITHIN_S": 0.2}.items():
        monkeypatch.setattr(benchmark, name, value)
    try:
        kills = benchmark.kill_owners("process", 1)
    finally:
        for pid in labelled("spade-sandbox:leaving:1:1:0"):
            os.kill(pid, signal.SIGKILL)
    assert (kills["left"], kills["gone_ms"]) == (1, None)
    assert benchmark.exit_status({"backends": {"process": {"sigkill": kills}}}) == 1
