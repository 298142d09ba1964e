"""Whole runs through the command line, of toys that take a second: what a user sees when a part of one has a bad day."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from play_fakes import HELPERS, write_tokenizer

from spade_agentic.runs.reader import StoreReader

__all__ = ["ToyRuns"]


@dataclass
class ToyRuns:
    """Runs ``train`` in this process on a toy game of four steps in ``folder``. ``toy`` is the module of its plugins."""

    folder: Path
    cli: Callable[..., Any]
    toy: Any
    place: Path | None = None
    """Where the run is, if not in ``folder``."""

    @property
    def run(self) -> Path:
        return self.place or self.folder / "run"

    def config(self, plugins: list[str], **changes: Any) -> Path:
        """Writes ``toy.yaml``; ``changes`` replace what stands below a section."""
        model = write_tokenizer(self.folder / "model")
        (model / "config.json").write_text("{}")
        data: dict[str, Any] = {
            "run": {"name": "toy", "steps": 4, "seed": 1}, "model": {"path": str(model), "context_tokens": 8192},
            "engine": {"name": "scripted", "options": {"model": str(model)}}, "learner": "toy", "sandbox": "inprocess",
            "evaluation": {"name": "doors"}, "trackers": ["jsonl"],
            "plugins": [str(HELPERS / "toy_plugin.py"), *plugins],
            "selfplay": {
                "designer": "door", "hint_writer": "calling", "environments": 2, "regenerate_every": 2, "seeds": 2,
                "repeats": 2, "agent_sampling": {"max_tokens": 512}, "designer_sampling": {"max_tokens": 512},
                "hint_sampling": {"max_tokens": 512},
            },
        }
        for section, values in changes.items():
            data[section] = {**data[section], **values} if isinstance(values, dict) else values
        path = self.folder / "toy.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    def plugin(self, source: str, name: str = "mine") -> str:
        """Writes a third party's plugin and returns its path; ``broken()`` in it is true until :meth:`mend`."""
        path = self.folder / f"{name}.py"
        head = f"from pathlib import Path\n\ndef broken():\n    return Path({str(self.folder / 'broken')!r}).exists()\n"
        path.write_text(head + textwrap.dedent(source))
        (self.folder / "broken").touch()
        return str(path)

    def mend(self) -> None:
        (self.folder / "broken").unlink()

    def train(self, *arguments: object, plugins: list[str] | None = None, **changes: Any) -> Any:
        """``train toy.yaml --run-dir run``."""
        return self.cli("train", self.config(plugins or [], **changes), "--run-dir", self.run, *arguments)

    def resume(self, *arguments: object) -> Any:
        return self.cli("train", "--resume", "--run-dir", self.run, *arguments)

    def steps(self) -> int:
        """Committed steps."""
        with StoreReader(self.run) as reader:
            return reader.last_step() or 0

    def status(self) -> str:
        with StoreReader(self.run) as reader:
            return str(reader.meta()["status"])

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (self.run / "events.jsonl").read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def content(self) -> Any:
        """All that a run stored, without times."""
        with StoreReader(self.run) as reader:
            plays = [(r.step, r.play.play_id, r.play.reward, r.play.trajectory) for r in reader.plays(tokens=True)]
            commit = reader.last_commit()
            assert commit is not None
            weights = (self.run / "checkpoints" / commit.checkpoint / "weights" / "toy.json").read_bytes()
            return plays, weights, commit.state, [(e.step, e.result) for e in reader.evaluations()]


def toy_module() -> Any:
    """The module of the toy's plugins, loaded as the plugin manager loads it."""
    from spade_agentic.hooks.loading import load_reference

    (loaded,) = load_reference(HELPERS / "toy_plugin.py", base=HELPERS)
    assert loaded.module.__name__ in sys.modules
    return loaded.module
