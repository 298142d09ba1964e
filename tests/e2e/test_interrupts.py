"""Ctrl-C as a terminal sends it, to every process of the group, on a run with a real engine, sandbox and learner."""

import os
import signal
import subprocess
import sys
import time

import pytest

from spade_agentic.runs.reader import StoreReader

pytestmark = pytest.mark.slow


def test_ctrl_c_to_the_whole_group_ends_after_the_step_and_loses_nothing(trainer_in, tmp_path):
    trainer = trainer_in(tmp_path)
    trainer.write()
    command = [sys.executable, "-m", "spade_agentic.cli.main", "train", "small.yaml", "--run-dir", "run"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    log, end = tmp_path / "run" / "events.jsonl", time.monotonic() + 200
    while not (log.exists() and '"stage": "playing"' in log.read_text()):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    with StoreReader(tmp_path / "run") as reader:
        assert (reader.last_step(), reader.meta()["status"]) == (1, "interrupted")
    done = trainer.train("--resume", "--run-dir", "run")
    assert done.returncode == 0, done.stderr
    with StoreReader(tmp_path / "run") as reader:
        assert reader.last_step() == 3
