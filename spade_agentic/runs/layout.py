"""The run directory: which file is what.

::

    <run_dir>/
      config.yaml       the resolved configuration
      store.sqlite      every committed step: plays, drafts, environments, regrets, metrics, state (the truth)
      checkpoints/      step-000012/ ...: weights, optimizer, and a manifest of both
      metrics.jsonl     one line of metrics a step
      tensorboard/      the same for TensorBoard
      transcripts/      step-000012.jsonl: plays as a person reads them
      events.jsonl      what happened when
      report.html       the run as a page for people, written when it ends
      engine.log        the inference engine's own output
      status.json       what is in flight now (replaced while the run goes)
      run.lock          held by the process that runs here
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from spade_agentic.config.suggest import nearest
from spade_agentic.errors import RunDirError

__all__ = ["RunDir", "find_run", "new_run_id", "run_dirs"]


@dataclass(frozen=True, slots=True)
class RunDir:
    """The paths below one run's folder. Making one touches no disk."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def store(self) -> Path:
        return self.path / "store.sqlite"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def transcripts(self) -> Path:
        return self.path / "transcripts"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def engine_log(self) -> Path:
        return self.path / "engine.log"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def lock(self) -> Path:
        return self.path / "run.lock"


def new_run_id(name: str, *, now: float | None = None) -> str:
    """``<name>-<date>-<time>-<four hex digits>``, local time; fit to be a folder's name."""
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
    return f"{clean}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{secrets.token_hex(2)}"


def run_dirs(root: Path) -> list[Path]:
    """Every run directly below ``root`` (and ``root`` itself, if it is one). Empty where ``root`` does not exist."""
    if not root.is_dir():
        return []
    return [p for p in (root, *sorted(root.iterdir())) if RunDir(p).store.is_file()]


def find_run(name: str, root: Path) -> Path:
    """The run that a user means by ``name``: a path, a run's folder below ``root``, a unique beginning of one, or ``latest``
    (the one that worked last).

    Raises :class:`~spade_agentic.errors.RunDirError` where there is none, or more than one.
    """
    if RunDir(Path(name)).store.is_file():
        return Path(name)
    known = [p for p in run_dirs(root) if p != root]
    if name == "latest" and known:
        return max(known, key=_worked_at)
    exact = [p for p in known if p.name == name]
    matches = exact or [p for p in known if p.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RunDirError(
            f"{name!r} could be any of: {', '.join(p.name for p in matches)}", where=str(root), todo="give more of the name"
        )
    best = nearest(name, ["latest", *(p.name for p in known)])
    raise RunDirError(
        f"there is no run {name!r}", where=str(root),
        todo=(f"did you mean {best!r}? " if best and known else "")
        + "spade-agentic runs list shows the runs; --root or a path names one elsewhere",
    )


def _worked_at(run_dir: Path) -> int:
    """When the run last wrote; its database file alone may be old, since commits go to the log beside it first."""
    run = RunDir(run_dir)
    files = (run.store, run.store.with_name(run.store.name + "-wal"), run.status)
    return max(path.stat().st_mtime_ns for path in files if path.exists())
