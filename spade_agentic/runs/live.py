"""How a run looks while it goes: a live panel on a terminal, one plain line a step anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO, Any, Protocol

from spade_agentic.hooks.records import Arm

from .progress import Progress

__all__ = ["NoView", "PlainView", "TerminalView", "View", "duration", "evaluation_lines", "open_view", "panel", "step_line"]


class View(Protocol):
    """Draws a :class:`Progress`. ``changed`` is called often and must cost next to nothing."""

    def open(self, progress: Progress) -> None: ...
    def changed(self) -> None: ...
    def step_done(self) -> None: ...
    def evaluated(self, step: int, name: str, result: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


def open_view(stream: IO[str] | None = None) -> View:
    """The view that fits ``stream`` (default: standard error, so that standard output stays for results)."""
    stream = stream or sys.stderr
    return TerminalView(stream) if stream.isatty() else PlainView(stream)


class NoView:
    """Where nobody can look any more."""

    def open(self, progress: Progress) -> None:
        """Nothing."""

    def changed(self) -> None:
        """Nothing."""

    def step_done(self) -> None:
        """Nothing."""

    def evaluated(self, step: int, name: str, result: Mapping[str, Any]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainView:
    """One line for every step and every evaluation."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def open(self, progress: Progress) -> None:
        self._progress = progress

    def changed(self) -> None:
        """Nothing: only whole steps make a line."""

    def step_done(self) -> None:
        self._say(step_line(self._progress))

    def evaluated(self, step: int, name: str, result: Mapping[str, Any]) -> None:
        for line in evaluation_lines(step, name, result):
            self._say(line)

    def close(self) -> None:
        self._stream.flush()

    def _say(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class TerminalView:
    """A panel that is redrawn once a second, with the lines of finished steps above it."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._progress: Progress | None = None
        self._console = Console(file=stream)
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=1, transient=True)

    def open(self, progress: Progress) -> None:
        self._progress = progress
        self._live.start()

    def changed(self) -> None:
        """Nothing: the panel redraws itself."""

    def step_done(self) -> None:
        assert self._progress is not None
        self._live.console.print(step_line(self._progress), highlight=False, markup=False)

    def evaluated(self, step: int, name: str, result: Mapping[str, Any]) -> None:
        for line in evaluation_lines(step, name, result):
            self._live.console.print(line, highlight=False, markup=False)

    def close(self) -> None:
        self._live.stop()

    def _render(self) -> Any:
        return "" if self._progress is None else panel(self._progress)


def panel(progress: Progress) -> Any:
    """The live panel, for a rich console to print."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in panel_rows(progress):
        table.add_row(name, Text(value))  # not markup: a reason or an id may hold brackets
    return Panel(table, title=Text(progress.run_id), title_align="left", expand=False)


def panel_rows(progress: Progress) -> list[tuple[str, str]]:
    """The rows of the live panel: name and value."""
    done = sum(progress.plays_done.values())
    plays = f"{len(progress.in_flight)} in flight, {done}" + (
        f" of {progress.plays_expected} done" if progress.plays_expected else " done"
    )
    if progress.plays_void:
        plays += f", {progress.plays_void} void"
    stage_s = progress.clock() - progress.stage_since
    rows = [
        ("step", f"{progress.step} of {progress.steps}, {progress.stage} for {duration(stage_s)}"),
        ("plays", plays),
        ("success", _success(progress)),
        ("regret", _regret(progress)),
        ("drafts", f"{progress.rounds} rounds, {progress.admitted} admitted, {_refused(progress)}"),
        ("speed", "-" if progress.tokens_per_s is None else f"{progress.tokens_per_s:,.0f} tokens/s"),
        ("left", "-" if progress.left_s is None else duration(progress.left_s)),
    ]
    slowest = sorted(progress.in_flight.values(), key=lambda p: p.progressed)[:3]
    if slowest:
        now = progress.clock()
        waits = (f"{p.play_id} turn {p.turn}, {duration(now - p.progressed)}" for p in slowest)
        rows.append(("waiting longest", "; ".join(waits)))
    return rows


def step_line(progress: Progress) -> str:
    """A finished step in one line."""
    parts = [
        f"step {progress.step}/{progress.steps}",
        f"success {_success(progress)}",
        f"regret {_regret(progress)}",
        f"admitted {progress.admitted}, {_refused(progress)}",
    ]
    if progress.tokens_per_s is not None:
        parts.append(f"{progress.tokens_per_s:,.0f} tokens/s")
    if progress.last_step_s is not None:
        parts.append(f"{progress.last_step_s:.1f} s")
    if progress.left_s is not None and progress.step < progress.steps:
        parts.append(f"{duration(progress.left_s)} left")
    return "  ".join(parts)


def evaluation_lines(step: int, name: str, result: Mapping[str, Any]) -> list[str]:
    """An evaluation as text: every rate in it that comes with an interval, and those of a part (``reserved``) by themselves."""
    parts: dict[str, list[str]] = {}
    for key, value in result.items():
        if f"{key}_low" in result and f"{key}_high" in result:
            part, _, rate = key.rpartition("/")
            ends = f"[{result[key + '_low']:.3f}, {result[key + '_high']:.3f}]"
            parts.setdefault(part or name, []).append(f"{rate} {value:.3f} {ends}")
    lines = [f"{part} at step {step}: {', '.join(rates)}" for part, rates in parts.items()]
    return lines or [f"{name} at step {step}: no rates"]


def duration(seconds: float) -> str:
    """``42s``, ``3m05s`` or ``2h07m``."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _success(progress: Progress) -> str:
    shown = [f"{arm.value} {progress.success[arm]:.2f}" for arm in Arm if arm in progress.success]
    return ", ".join(shown) or "-"


def _regret(progress: Progress) -> str:
    if progress.regret is None:
        return "-"
    mean, stderr, count = progress.regret
    return f"{mean:+.3f} ± {stderr:.3f} ({count})"


def _refused(progress: Progress) -> str:
    total = sum(progress.refused.values())
    reasons = ", ".join(f"{reason} {n}" for reason, n in progress.refused.most_common(4))
    more = ", ..." if len(progress.refused) > 4 else ""
    return f"{total} refused" + (f" ({reasons}{more})" if reasons else "")
