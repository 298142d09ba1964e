"""Metrics for TensorBoard, in ``tensorboard/`` of the run directory: ``tensorboard --logdir runs``.

A continued run writes the event files anew from what is committed, so that they hold every committed row once, whatever a
kill kept from being written or left behind.
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

        for stale in folder.glob("events.out.tfevents.*"):
            stale.unlink()
        self._writer = SummaryWriter(log_dir=str(folder))
        for row in committed:
            self._write(row.step, row.metrics, row.recorded_at)
        self._writer.flush()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write(step, metrics, None)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, step: int, metrics: Mapping[str, float], at: float | None) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, global_step=step, walltime=at)


def _build(options: Options, context: Any) -> TensorBoardTracker:
    if context.run_dir is None:
        raise PluginError("the tracker 'tensorboard' needs a run directory", where="trackers", todo="use it in a run")
    return TensorBoardTracker(Path(context.run_dir) / FOLDER_NAME, committed_metrics(context.run_dir))


@hookimpl
def tracker() -> list[Factory[Tracker]]:
    """The hook ``tracker``."""
    return [Factory("tensorboard", _build, doc="Event files for TensorBoard in the run directory.")]
