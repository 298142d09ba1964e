"""The life of a run: what starts when, what a resume takes up, and that everything is closed whichever way it ends."""

import os
import signal
import threading
from pathlib import Path

import pytest
from play_fakes import HELPERS, door_gates

from spade_agentic.config.schema import RunConfig
from spade_agentic.errors import ConfigError, PluginError, RunDirError
from spade_agentic.hooks.manager import PluginManager
from spade_agentic.runs.reader import StoreReader
from spade_agentic.selfplay import build
from spade_agentic.selfplay.build import run_training


@pytest.fixture
def toy(monkeypatch, tokenizer_dir):
    manager = PluginManager.load([HELPERS / "toy_plugin.py"], problems=[])
    module = manager.plugins["toy_plugin"].module
    module.LOG.clear()
    module.FAIL_AT.clear()
    monkeypatch.setattr(build, "_gates", lambda sandbox, reserved: door_gates)
    (tokenizer_dir / "config.json").write_text("{}")

    class Toy:
        log, fail_at = module.LOG, module.FAIL_AT
        plugins = module

        @staticmethod
        def config(**changes):
            data = {
                "run": {"steps": 4, "seed": 1}, "model": {"path": str(tokenizer_dir), "context_tokens": 8192},
                "engine": {"name": "scripted", "options": {"model": str(tokenizer_dir)}}, "learner": "toy",
                "sandbox": "inprocess", "evaluation": {"name": "doors"}, "trackers": ["logged"],
                "selfplay": {
                    "designer": "door", "hint_writer": "calling", "environments": 2, "regenerate_every": 2, "seeds": 2,
                    "repeats": 2, "agent_sampling": {"max_tokens": 512}, "designer_sampling": {"max_tokens": 512},
                    "hint_sampling": {"max_tokens": 512},
                },
            }
            for section, values in changes.items():
                data[section] = {**data[section], **values} if isinstance(values, dict) else values
            return RunConfig.model_validate(data)

        @staticmethod
        def run(folder, *, resume=False, **changes):
            return run_training(Toy.config(**changes), run_dir=Path(folder), resume=resume, manager=manager)

    return Toy


def test_a_run_goes_from_evaluation_to_evaluation_and_closes_everything_in_reverse(toy, tmp_path):
    summary = toy.run(tmp_path / "run")
    assert (summary.status, summary.steps) == ("finished", 4)
    kept = [call for call in toy.log if not call.startswith(("tracker.log", "learner.s"))]
    assert kept == [
        "sandbox.start", "engine.start", "run_started", "evaluate 0", "engine.publish 1", "engine.publish 2",
        "engine.publish 3", "engine.publish 4", "evaluate 4", "engine.stop", "sandbox.stop", "learner.close",
        "run_ended finished", "tracker.close",
    ]


def test_a_step_is_checkpointed_then_committed_then_published(toy, tmp_path, monkeypatch):
    """What the engine is given is what the store names."""
    seen = []
    publish = toy.plugins.LoggedEngine.publish

    async def watched(self, weights_dir, version):
        with StoreReader(tmp_path / "run") as reader:
            commit = reader.last_commit()
            seen.append((version, commit.step, weights_dir.parent.name == commit.checkpoint, weights_dir.is_dir()))
        await publish(self, weights_dir, version)

    monkeypatch.setattr(toy.plugins.LoggedEngine, "publish", watched)
    toy.run(tmp_path / "run")
    assert seen == [(v, v, True, True) for v in (1, 2, 3, 4)]


def test_the_summary_has_success_before_and_after(toy, tmp_path):
    summary = toy.run(tmp_path / "run")
    assert set(summary.heldout) == {"before", "after"}
    assert all(0.0 <= value <= 1.0 for value in summary.heldout.values())


@pytest.mark.parametrize(("every", "steps"), [(0, [0, 4]), (1, [0, 1, 2, 3, 4]), (3, [0, 3, 4])])
def test_evaluations_run_before_and_after_and_as_often_as_was_asked(toy, tmp_path, every, steps):
    toy.run(tmp_path / "run", evaluation={"every": every})
    assert [call for call in toy.log if call.startswith("evaluate")] == [f"evaluate {step}" for step in steps]


def committed(folder):
    """Everything a run stored, step by step, without times."""
    with StoreReader(folder) as reader:
        plays = [(row.step, row.play.play_id, row.play.reward, row.play.trajectory) for row in reader.plays(tokens=True)]
        weights = (reader.dir.checkpoints / reader.last_checkpoint() / "weights" / "toy.json").read_bytes()
        return plays, weights, reader.last_commit().state, [(e.step, e.result) for e in reader.evaluations()]


@pytest.mark.parametrize("broken", ["learner.step 1", "engine.publish 1", "engine.publish 3", "evaluate 4", "learner.save"])
def test_a_run_that_failed_is_resumed_and_ends_as_an_uninterrupted_one(toy, tmp_path, broken):
    toy.run(tmp_path / "whole")
    toy.fail_at.append(broken)
    with pytest.raises(PluginError, match=r"'toy_plugin' raised RuntimeError: .* broke"):
        toy.run(tmp_path / "run")
    assert toy.log[-1] == "tracker.close"
    assert "run_ended failed" in toy.log
    toy.fail_at.clear()
    toy.log.clear()
    summary = toy.run(tmp_path / "run", resume=True)
    assert summary.status == "finished"
    assert committed(tmp_path / "run") == committed(tmp_path / "whole")
    assert "evaluate 0" not in toy.log, "what was measured before the kill is not measured again"


@pytest.mark.parametrize("broken", ["sandbox.start", "engine.start", "evaluate 0", "learner.step 2"])
def test_whatever_breaks_everything_that_was_started_is_stopped(toy, tmp_path, broken):
    toy.fail_at.append(broken)
    with pytest.raises(PluginError, match=r"'toy_plugin' raised RuntimeError: .* broke"):
        toy.run(tmp_path / "run")
    assert toy.log.count("sandbox.stop") == 1
    assert toy.log.count("engine.stop") == ("engine.start" in toy.log)
    assert toy.log.count("learner.close") == (broken in ("evaluate 0", "learner.step 2"))
    with StoreReader(tmp_path / "run") as reader:
        assert reader.meta()["status"] == "failed"


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["learner.step 1", "evaluate 0", "engine.publish 2"])
def test_a_signal_interrupts_the_run_closes_everything_and_it_can_be_resumed(toy, tmp_path, monkeypatch, which, where):
    toy.run(tmp_path / "whole")
    log = toy.plugins.log

    def interrupt(call):
        log(call)
        if call == where:
            os.kill(os.getpid(), which)

    monkeypatch.setattr(toy.plugins, "log", interrupt)
    toy.log.clear()
    summary = toy.run(tmp_path / "run")
    assert summary.status == "interrupted"
    assert "run_ended interrupted" in toy.log
    assert [c for c in ("engine.stop", "sandbox.stop", "learner.close") if c in toy.log] == [
        "engine.stop", "sandbox.stop", "learner.close"
    ]
    monkeypatch.setattr(toy.plugins, "log", log)
    assert toy.run(tmp_path / "run", resume=True).status == "finished"
    assert committed(tmp_path / "run") == committed(tmp_path / "whole")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_finished_run_that_is_resumed_has_nothing_left_to_do(toy, tmp_path):
    first = toy.run(tmp_path / "run")
    toy.log.clear()
    again = toy.run(tmp_path / "run", resume=True)
    assert (again.status, again.steps, again.heldout) == ("finished", 4, first.heldout)
    assert not any(call.startswith(("learner.step", "evaluate")) for call in toy.log)


def test_a_resumed_run_may_be_given_more_steps(toy, tmp_path):
    toy.run(tmp_path / "run")
    summary = toy.run(tmp_path / "run", resume=True, run={"steps": 6})
    assert (summary.status, summary.steps) == ("finished", 6)


def test_a_second_run_in_the_same_folder_is_refused_before_anything_starts(toy, tmp_path):
    toy.run(tmp_path / "run")
    toy.log.clear()
    with pytest.raises(RunDirError, match="already"):
        toy.run(tmp_path / "run")
    assert toy.log == []


@pytest.mark.parametrize("role", ["agent", "designer"])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"top_p": 0.9}, {"top_k": 20}])
def test_a_trained_role_must_be_sampled_from_what_the_learner_recomputes(toy, tmp_path, role, sampling):
    """Sampling with top-p and top-k, training on the whole softmax: the reference's importance ratio."""
    selfplay = toy.config().selfplay.model_dump()
    selfplay[f"{role}_sampling"] |= sampling
    with pytest.raises(ConfigError, match=role):
        toy.run(tmp_path / "run", selfplay=selfplay)
    assert toy.log == []


def test_a_run_in_another_thread_leaves_signals_alone(toy, tmp_path):
    found = []
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=lambda: found.append(toy.run(tmp_path / "run").status))
    thread.start()
    thread.join(60)
    assert found == ["finished"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_third_partys_life_cycle_hook_that_raises_is_counted_in_the_metrics(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(PluginManager, "hook_error_count", 3)
    toy.run(tmp_path / "run")
    with StoreReader(tmp_path / "run") as reader:
        assert reader.metrics()[-1].metrics["hook_errors"] == 3


def test_no_breach_of_the_signal_in_a_sound_run(toy, tmp_path):
    toy.run(tmp_path / "run")
    with StoreReader(tmp_path / "run") as reader:
        assert [row.metrics["audit/breaches"] for row in reader.metrics()] == [0, 0, 0, 0]
