"""The run directory: store, checkpoints, metrics, events, transcripts, and how a run is shown.

What writes: :class:`RunRecorder` (one per running run), over :class:`RunStore` and :class:`Checkpoints`. What reads, from any
process: :class:`StoreReader`, :func:`list_runs`, :func:`show_run`, :func:`report_run`, :func:`compare_runs`,
:func:`watch_run`; and, as pages, :func:`write_report` and :func:`write_comparison`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_EXPORTS: dict[str, str] = {
    "Checkpoints": "checkpoints",
    "Commit": "reader",
    "Comparison": "compare",
    "EventLog": "events",
    "MetricsRow": "reader",
    "RunDir": "layout",
    "RunRecorder": "recorder",
    "RunStore": "store",
    "RunSummary": "summary",
    "StoreReader": "reader",
    "WatchUpdate": "watch",
    "committed_metrics": "reader",
    "compare_runs": "compare",
    "comparison_text": "compare",
    "find_run": "layout",
    "last_committed_step": "reader",
    "list_runs": "summary",
    "new_run_id": "layout",
    "report_data": "report",
    "report_run": "report",
    "run_dirs": "layout",
    "show_run": "summary",
    "watch_run": "watch",
    "write_comparison": "html",
    "write_report": "html",
}

__all__ = [*sorted(_EXPORTS)]

if TYPE_CHECKING:
    from .checkpoints import Checkpoints as Checkpoints
    from .compare import Comparison as Comparison, compare_runs as compare_runs, comparison_text as comparison_text
    from .events import EventLog as EventLog
    from .html import write_comparison as write_comparison, write_report as write_report
    from .layout import RunDir as RunDir, find_run as find_run, new_run_id as new_run_id, run_dirs as run_dirs
    from .reader import (
        Commit as Commit,
        MetricsRow as MetricsRow,
        StoreReader as StoreReader,
        committed_metrics as committed_metrics,
        last_committed_step as last_committed_step,
    )
    from .recorder import RunRecorder as RunRecorder
    from .report import report_data as report_data, report_run as report_run
    from .store import RunStore as RunStore
    from .summary import RunSummary as RunSummary, list_runs as list_runs, show_run as show_run
    from .watch import WatchUpdate as WatchUpdate, watch_run as watch_run


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the codec is wanted by parts that need no store."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value
