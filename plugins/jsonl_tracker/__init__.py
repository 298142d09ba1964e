"""Metrics as ``metrics.jsonl`` in the run directory: one JSON object a line.

Every row has ``step``, ``t`` (Unix time) and the metrics; an evaluation has a row of its own after its step. When a run is
continued, the file is first made equal to what was committed: rows of steps that were not committed go, and a row that a kill
kept from being written is added.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spade_agentic import Factory, MetricsRow, Options, PluginError, Tracker, committed_metrics, hookimpl

__all__ = ["JsonlTracker", "tracker"]

FILE_NAME = "metrics.jsonl"


class JsonlTracker:
    """Appends to ``path`` after making it say exactly what ``committed`` says."""

    def __init__(self, path: Path, committed: Sequence[MetricsRow] = ()) -> None:
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            for row in committed:
                file.write(_line(row.step, row.recorded_at, row.metrics))
        temporary.replace(path)
        self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._file.write(_line(step, time.time(), metrics))
        self._file.flush()  # whoever tails the file sees whole lines

    def close(self) -> None:
        self._file.close()


def _line(step: int, at: float, metrics: Mapping[str, float]) -> str:
    # JSON has no word for nan and the infinities; null is what readers of JSON lines expect there.
    numbers = {k: v if math.isfinite(v) else None for k, v in metrics.items()}
    return json.dumps({"step": step, "t": round(at, 3), **numbers}, allow_nan=False) + "\n"


def _build(options: Options, context: Any) -> JsonlTracker:
    if context.run_dir is None:
        raise PluginError("the tracker 'jsonl' needs a run directory", where="trackers", todo="use it in a run")
    return JsonlTracker(Path(context.run_dir) / FILE_NAME, committed_metrics(context.run_dir))


@hookimpl
def tracker() -> list[Factory[Tracker]]:
    """The hook ``tracker``."""
    return [Factory("jsonl", _build, doc="metrics.jsonl in the run directory, one line a step.")]
