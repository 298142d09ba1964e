"""Whole runs as a user starts them: ``spade-agentic train`` in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

SMALL = """
run: {{name: small, steps: 3, seed: 5}}
model: {{path: {model}, context_tokens: 1024}}
engine: {{name: embedded, options: {{threads: 1}}}}
learner: {{name: torch, options: {{lr: 0.001, threads: 1}}}}
sandbox: process
selfplay:
  designer: letters
  hint_writer: letters
  environments: 4
  regenerate_every: 2
  seeds: 2
  repeats: 2
  min_pairs: 1
  agent_sampling: {{max_tokens: 60}}
  designer_sampling: {{max_tokens: 16}}
  hint_sampling: {{temperature: 0.3, max_tokens: 8}}
evaluation: {{name: letters, every: 2}}
trackers: [jsonl]
plugins: [{here}/text_worlds.py]
"""


@dataclass(frozen=True)
class Trainer:
    """Runs ``train`` with a small config in ``folder``; ``model`` is a random Qwen3."""

    folder: Path
    model: Path

    def train(
        self, *arguments: str, kill: dict[str, Any] | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        self.write()
        order = self.folder / "kill.json"
        order.unlink(missing_ok=True)
        if kill is not None:
            order.write_text(json.dumps(kill))
        return subprocess.run(
            [sys.executable, "-m", "spade_agentic.cli.main", "train", *arguments], cwd=self.folder, text=True,
            capture_output=True, timeout=timeout, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
        )

    def write(self) -> None:
        """``small.yaml`` in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "small.yaml").write_text(SMALL.format(model=self.model, here=HERE))

    def weights(self, run: str = "run") -> bytes:
        """The bytes of the weights of the last commit."""
        from spade_agentic.runs.reader import StoreReader

        with StoreReader(self.folder / run) as reader:
            name = reader.last_checkpoint()
            assert name is not None
            return (self.folder / run / "checkpoints" / name / "weights" / "model.safetensors").read_bytes()


@pytest.fixture(scope="session")
def trainer_in(tiny_model_dir: Path) -> Callable[[Path], Trainer]:
    return lambda folder: Trainer(folder, tiny_model_dir)
