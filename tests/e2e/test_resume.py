"""A run that is killed anywhere and resumed ends with the very weights of an uninterrupted run, bit for bit."""

import signal
from pathlib import Path

import pytest

from spade_agentic.runs.reader import StoreReader

HERE = Path(__file__).parent
KILLER = ("--plugin", str(HERE / "kill_plugin.py"))

pytestmark = pytest.mark.slow

PHASES = {
    "during plays": [("plays", 5), ("plays", 40), ("plays", 25)],
    "during the update": [("update:backward", 1), ("update:weights_changed", 2), ("update:ends", 2)],
    "inside the checkpoint write": [("checkpoint:learner_written", 1), ("checkpoint:synced", 2), ("checkpoint:filled", 2)],
    "between checkpoint and commit": [("commit:begins", 1), ("commit:inside_the_transaction", 2), ("commit:begins", 2)],
    "during weight publishing": [("publish:loading", 1), ("publish:served", 2), ("publish:begins", 2)],
}
"""Where a run is killed: the point, and the how manieth time a process reaches it. Every resume but the last is killed too."""


def content(folder):
    """All that a run stored, without times."""
    with StoreReader(folder) as reader:
        plays = []
        for row in reader.plays(tokens=True):
            row.play.duration_s = 0.0
            plays.append((row.step, row.play))
        drafts = sorted((row.draft.draft_id, row.draft.reward, row.draft.text) for row in reader.drafts())
        evaluations = [(row.step, row.result) for row in reader.evaluations()]
        commit = reader.last_commit()
        return {"plays": plays, "drafts": drafts, "evaluations": evaluations, "state": commit.state, "step": commit.step}


@pytest.fixture(scope="module")
def whole(trainer_in, tmp_path_factory):
    """The uninterrupted run, with the same plugins."""
    trainer = trainer_in(tmp_path_factory.mktemp("whole"))
    done = trainer.train("small.yaml", "--run-dir", "run", *KILLER)
    assert done.returncode == 0, done.stderr
    return trainer


def test_both_roles_move_the_weights_in_the_run_that_is_compared(whole):
    """Else equal weights would prove little."""
    with StoreReader(whole.folder / "run") as reader:
        metrics = [row.metrics for row in reader.metrics()]
    assert all(m["agent/signal"] > 0 and m["grad_norm"] > 0 for m in metrics)
    assert [m["designer/tokens"] > 0 for m in metrics] == [False, False, True]
    assert all(m["audit/breaches"] == 0 for m in metrics)
    assert all(m["audit/agent_ratio"] == pytest.approx(1.0, abs=1e-4) for m in metrics)


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_run_resumes_to_bit_identical_weights(whole, trainer_in, tmp_path, phase):
    trainer = trainer_in(tmp_path)
    arguments = ["small.yaml", "--run-dir", "run", *KILLER]
    for at, n in PHASES[phase]:
        (tmp_path / "killed").unlink(missing_ok=True)
        killed = trainer.train(*arguments, kill={"at": at, "n": n})
        assert killed.returncode == -signal.SIGKILL, f"{at}: {killed.returncode}\n{killed.stderr}"
        assert (tmp_path / "killed").exists()
        arguments = ["small.yaml", "--run-dir", "run", "--resume", *KILLER]
    done = trainer.train(*arguments)
    assert done.returncode == 0, done.stderr
    assert trainer.weights() == whole.weights()
    assert content(tmp_path / "run") == content(whole.folder / "run")
