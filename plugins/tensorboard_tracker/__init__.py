"""Metrics for TensorBoard, in ``tensorboard/`` of the run directory: ``tensorboard --logdir runs``.

A continued run tells TensorBoard to forget what an interrupted step wrote, and writes the last committed rows again, in case
the kill came between their commit and their event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spade_agentic import Factory, MetricsRow, Options, PluginError, Tracker, committed_metrics, hookimpl

__all__ = ["TensorBoardTracker", "tracker"]

FOLDER_NAME = "tensorboard"


class TensorBoardTracker:
    """Writes scalars below ``folder``; ``committed`` is what the run's store holds already."""

    def __init__(self, folder: Path, committed: Sequence[MetricsRow] = ()) -> None:
        from torch.utils.tensorboard import SummaryWriter

        last = max((row.step for row in committed), default=None)
        self._writer = SummaryWriter(log_dir=str(folder), purge_step=last)  # type: ignore[no-untyped-call]
        for row in committed:
            if row.step == last:
                self._write(row.step, row.metrics, row.recorded_at)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write(step, metrics, None)

    def close(self) -> None:
        self._writer.close()  # type: ignore[no-untyped-call]

    def _write(self, step: int, metrics: Mapping[str, float], at: float | None) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, global_step=step, walltime=at)  # type: ignore[no-untyped-call]


def _build(options: Options, context: Any) -> TensorBoardTracker:
    if context.run_dir is None:
        raise PluginError("the tracker 'tensorboard' needs a run directory", where="trackers", todo="use it in a run")
    return TensorBoardTracker(Path(context.run_dir) / FOLDER_NAME, committed_metrics(context.run_dir))


@hookimpl
def tracker() -> list[Factory[Tracker]]:
    """The hook ``tracker``."""
    return [Factory("tensorboard", _build, doc="Event files for TensorBoard in the run directory.")]
