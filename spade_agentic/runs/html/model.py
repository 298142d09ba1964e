"""What a page of a report is made of, as plain data: sections with figures and tables.

Whoever extracts knows nothing of drawing, and whoever draws knows nothing of runs. All text in here is raw; it is escaped where
it is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TypeVar

__all__ = [
    "COLOURS", "Cell", "Dots", "Figure", "Funnel", "Lines", "Part", "Point", "Section", "Series", "Stack", "Table", "bounded",
    "table_of",
]

T = TypeVar("T")

Cell = str | int | float | None
"""``None`` is drawn as a dash: not recorded, or nothing that could be said."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value with, where it is known, its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """A named curve; ``points`` in order of ``x``."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Dots:
    """Single values without a line through them (environments, say); ``labels`` say what each is."""

    name: str
    points: tuple[Point, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves with bands over a common axis.

    ``x_range`` and ``y_range`` fix an axis, else it fits what is shown. ``percent``: values are fractions and read as per cent.
    ``zone`` shades a horizontal stripe. ``zero`` draws a line at 0.
    """

    x_label: str
    y_label: str
    series: tuple[Series, ...]
    dots: tuple[Dots, ...] = ()
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    percent: bool = False
    zone: tuple[float, float] | None = None
    zero: bool = False

    @property
    def items(self) -> list[Series | Dots]:
        """All that is drawn, in the order of its colours."""
        return [*self.series, *self.dots]


@dataclass(frozen=True, slots=True)
class Part:
    """One layer of a stacked chart: a value for every column."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """Columns of parts; ``shares``: every column is scaled to 1."""

    x_label: str
    y_label: str
    columns: tuple[str, ...]
    parts: tuple[Part, ...]
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Funnel:
    """How many are left after each stage: ``(stage, left)`` from the widest on."""

    unit: str
    stages: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """``heads`` over ``rows``; the first cell of a row is its heading. ``shares`` shades cells by their value in [0, 1]."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its title and, in words, what it shows; ``small`` ones stand beside each other."""

    title: str
    caption: str
    chart: Lines | Stack | Funnel
    small: bool = False


@dataclass(slots=True)
class Section:
    """A part of a page with a place in its table of contents."""

    anchor: str
    title: str
    lead: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def missing(self, what: str) -> None:
        """Say that ``what`` is not in the store."""
        self.notes.append(f"{what}: not recorded.")


COLOURS = 8
"""Classes ``c0`` to ``c7`` in the style sheet; the shape of a mark tells curves apart where colour does not."""
MOST_POINTS = 300
"""Points of one curve, and dots of one kind."""
MOST_COLUMNS = 60
"""Columns of a stacked chart."""


def bounded(figure: Figure) -> Figure:
    """The figure, with fewer points or wider columns where it has too many to be drawn or read; its caption then says so."""
    chart, said = figure.chart, ""
    if isinstance(chart, Lines):
        series = tuple(replace(one, points=_thin(one.points)) for one in chart.series)
        dots = tuple(replace(one, points=_thin(one.points), labels=_thin(one.labels)) for one in chart.dots)
        every = max((_every(len(one.points)) for one in chart.items), default=1)
        chart, said = replace(chart, series=series, dots=dots), f" Of long curves one point in {every} is shown."
    elif isinstance(chart, Stack):
        every = -(-len(chart.columns) // MOST_COLUMNS)
        chart, said = _wider(chart, max(1, every)), f" A column sums up to {every}."
    else:
        every = 1
    return replace(figure, chart=chart, caption=figure.caption + said) if every > 1 else figure


def _every(count: int) -> int:
    return max(1, -(-count // MOST_POINTS))


def _thin(items: tuple[T, ...]) -> tuple[T, ...]:
    """Every so many of them, and the last."""
    every = _every(len(items))
    return items if every == 1 else (*items[:-1:every], items[-1])


def _wider(stack: Stack, every: int) -> Stack:
    places = range(0, len(stack.columns), every)
    ends = [(stack.columns[at], stack.columns[min(at + every, len(stack.columns)) - 1]) for at in places]
    parts = tuple(Part(part.name, tuple(math.fsum(part.values[at : at + every]) for at in places)) for part in stack.parts)
    return replace(stack, columns=tuple(a if a == b else f"{a}-{b}" for a, b in ends), parts=parts)


def table_of(figure: Figure) -> Table:
    """The numbers behind a chart, for those who do not see it and those who want them exactly."""
    chart = figure.chart
    if isinstance(chart, Funnel):
        return Table(figure.title, ("stage", chart.unit), chart.stages)
    if isinstance(chart, Stack):
        layers: list[tuple[Cell, ...]] = [(part.name, *part.values) for part in chart.parts]
        return Table(figure.title, (chart.x_label, *chart.columns), tuple(layers))
    return _table_of_lines(figure.title, chart)


def _table_of_lines(title: str, chart: Lines) -> Table:
    xs = sorted({point.x for series in chart.series for point in series.points})
    found = [{point.x: point for point in series.points} for series in chart.series]
    blanks = [None] * len(chart.dots)
    rows: list[tuple[Cell, ...]] = [(x, *(_with_band(points.get(x)) for points in found), *blanks) for x in xs]
    before, after = len(chart.series), len(chart.dots)
    for index, dots in enumerate(chart.dots):
        for label, point in zip(dots.labels, dots.points, strict=True):
            blank: list[Cell] = [None] * (before + after)
            blank[before + index] = point.y
            rows.append((f"{point.x:g}: {label}", *blank))
    return Table(title, (chart.x_label, *(item.name for item in chart.items)), tuple(rows))


def _with_band(point: Point | None) -> Cell:
    if point is None:
        return None
    if point.low is None or point.high is None:
        return point.y
    return f"{point.y:.3f} [{point.low:.3f}, {point.high:.3f}]"
