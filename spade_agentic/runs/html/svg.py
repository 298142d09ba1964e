"""Charts as inline SVG: what :mod:`.model` describes, drawn. Colours are classes, so that a page's style sheet decides them.

The elements are built as a tree, so every text in them is escaped on the way out. Each mark has a ``<title>``: browsers show it
when one points at it, and screen readers read it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from .axes import nice_ticks
from .model import COLOURS, Dots, Figure, Funnel, Lines, Part, Point, Series, Stack

__all__ = ["draw", "legend_of"]

LARGE, SMALL = (640, 280), (320, 200)
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 42
_Element = ElementTree.Element


def draw(figure: Figure, ident: str) -> str:
    """The chart as one ``<svg>`` element, titled and described; ``ident`` makes its ids unique on the page."""
    width, height = SMALL if figure.small else LARGE
    chart = figure.chart
    if isinstance(chart, Funnel):
        height = 26 * len(chart.stages) + 8
    root = _Element("svg", {
        "viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height), "role": "img",
        "aria-labelledby": f"{ident}-title {ident}-desc", "class": "chart",
    })  # fmt: skip
    _text(root, "title", figure.title, {"id": f"{ident}-title"})
    _text(root, "desc", figure.caption, {"id": f"{ident}-desc"})
    if isinstance(chart, Lines):
        _draw_lines(root, chart, width, height)
    elif isinstance(chart, Stack):
        _draw_stack(root, chart, width, height)
    else:
        _draw_funnel(root, chart, width)
    return _serialise(root)


def legend_of(figure: Figure) -> list[tuple[str, str]]:
    """``(mark, name)`` of what a chart shows side by side, the mark as ``<svg>``; empty where there is only one thing."""
    chart = figure.chart
    if isinstance(chart, Funnel):
        return []
    named: Sequence[Series | Dots | Part] = chart.items if isinstance(chart, Lines) else chart.parts
    return [(_key(index, item), item.name) for index, item in enumerate(named)] if len(named) > 1 else []


def _key(index: int, item: Series | Dots | Part) -> str:
    root = _Element("svg", {"viewBox": "0 0 14 14", "width": "14", "height": "14", "class": "key", "aria-hidden": "true"})
    if isinstance(item, Series):
        _mark(root, index, 7, 7, "")
    elif isinstance(item, Dots):
        _add(root, "circle", cx=7, cy=7, r=2.5, cls=f"dot c{index % COLOURS}")
    else:
        _add(root, "rect", x=2, y=2, width=10, height=10, cls=f"part c{index % COLOURS}")
    return _serialise(root)


# --- scales ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Frame:
    """The plane of a chart: data to pixels."""

    width: int
    height: int
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_range
        return _LEFT + (value - low) / (high - low) * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        share = (min(max(value, low), high) - low) / (high - low)
        return self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM)


def _frame(chart: Lines, width: int, height: int) -> tuple[_Frame, list[float], list[float]]:
    """The frame that holds all of ``chart``, and the ticks of both axes."""
    points = [point for item in chart.items for point in item.points]
    xs = [point.x for point in points]
    ends = [value for point in points for value in (point.y, point.low, point.high)]
    ys = [value for value in ends if value is not None and math.isfinite(value)]
    low_x, high_x = chart.x_range or (min(xs, default=0.0), max(xs, default=1.0))
    if low_x == high_x:
        low_x, high_x = low_x - 0.5, high_x + 0.5
    margin = (high_x - low_x) * 0.03
    x_ticks = [t for t in nice_ticks(low_x, high_x, 4 if width < 400 else 8) if low_x <= t <= high_x]
    if all(x == int(x) for x in xs):  # steps and rounds are counted: no half ones
        x_ticks = [t for t in x_ticks if t == int(t)]
    low_y, high_y = chart.y_range or (min(ys, default=0.0), max(ys, default=1.0))
    if chart.zero:
        low_y, high_y = min(low_y, 0.0), max(high_y, 0.0)
    y_ticks = nice_ticks(low_y, high_y, 5)
    y_range = chart.y_range or (y_ticks[0], y_ticks[-1])
    return _Frame(width, height, (low_x - margin, high_x + margin), y_range), x_ticks, y_ticks


# --- lines -----------------------------------------------------------------------------------------------------------------


def _draw_lines(root: _Element, chart: Lines, width: int, height: int) -> None:
    frame, x_ticks, y_ticks = _frame(chart, width, height)
    if chart.zone is not None:
        top, bottom = frame.y(chart.zone[1]), frame.y(chart.zone[0])
        _add(root, "rect", x=_LEFT, y=top, width=width - _LEFT - _RIGHT, height=bottom - top, cls="zone")
    _axes(root, frame, [(frame.x(t), _number(t)) for t in x_ticks], y_ticks, chart.x_label, chart.y_label, chart.percent)
    if chart.zero:
        _add(root, "line", x1=_LEFT, x2=width - _RIGHT, y1=frame.y(0), y2=frame.y(0), cls="zero")
    for index, series in enumerate(chart.series):
        _band(root, frame, series, index)
    for index, series in enumerate(chart.series):
        _curve(root, frame, series, index, percent=chart.percent, x_label=chart.x_label)
    for index, dots in enumerate(chart.dots, start=len(chart.series)):
        _dots(root, frame, dots, index, percent=chart.percent)


def _band(root: _Element, frame: _Frame, series: Series, index: int) -> None:
    """The intervals of neighbouring points as one area; of a point that stands alone, a bar."""
    for has_band, run in itertools.groupby(series.points, key=_has_band):
        points = list(run)
        if not has_band:
            continue
        edge = [(frame.x(p.x), frame.y(p.high or 0.0)) for p in points]
        edge += [(frame.x(p.x), frame.y(p.low or 0.0)) for p in reversed(points)]
        if len(points) == 1:
            (x, high), (_, low) = edge
            _add(root, "line", x1=x, x2=x, y1=low, y2=high, cls=f"bar c{index % COLOURS}")
        else:
            _add(root, "polygon", points=_path(edge), cls=f"band c{index % COLOURS}")


def _has_band(point: Point) -> bool:
    return all(end is not None and math.isfinite(end) for end in (point.low, point.high))


def _curve(root: _Element, frame: _Frame, series: Series, index: int, *, percent: bool, x_label: str) -> None:
    places = [(frame.x(p.x), frame.y(p.y)) for p in series.points]
    if len(places) > 1:
        _add(root, "polyline", points=_path(places), cls=f"curve c{index % COLOURS}")
    for (x, y), point in zip(places, series.points, strict=True):
        band = f" [{_value(point.low or 0.0, percent)}, {_value(point.high or 0.0, percent)}]" if _has_band(point) else ""
        said = f"{series.name}, {x_label} {_number(point.x)}: {_value(point.y, percent)}{band}"
        _mark(root, index, x, y, said)


def _dots(root: _Element, frame: _Frame, dots: Dots, index: int, *, percent: bool) -> None:
    for point, label in zip(dots.points, dots.labels, strict=True):
        dot = _add(root, "circle", cx=frame.x(point.x), cy=frame.y(point.y), r=2.5, cls=f"dot c{index % COLOURS}")
        _text(dot, "title", f"{label}: {_value(point.y, percent)}")


def _mark(root: _Element, index: int, x: float, y: float, said: str) -> None:
    cls, size = f"mark c{index % COLOURS}", 3.5
    shape = index % 4
    if shape == 0:
        element = _add(root, "circle", cx=x, cy=y, r=size, cls=cls)
    elif shape == 1:
        element = _add(root, "rect", x=x - size, y=y - size, width=2 * size, height=2 * size, cls=cls)
    else:
        up = -1 if shape == 2 else 1
        corners = [(x - size, y - up * size), (x + size, y - up * size), (x, y + up * size)]
        element = _add(root, "polygon", points=_path(corners), cls=cls)
    if said:
        _text(element, "title", said)


def _axes(
    root: _Element, frame: _Frame, x_ticks: Iterable[tuple[float, str]], y_ticks: Sequence[float], x_label: str, y_label: str,
    percent: bool,
) -> None:
    bottom, right = frame.height - _BOTTOM, frame.width - _RIGHT
    for tick in y_ticks:
        if frame.y_range[0] <= tick <= frame.y_range[1]:
            y = frame.y(tick)
            _add(root, "line", x1=_LEFT, x2=right, y1=y, y2=y, cls="grid")
            _label(root, _LEFT - 6, y + 4, _value(tick, percent), "end")
    _add(root, "line", x1=_LEFT, x2=right, y1=bottom, y2=bottom, cls="axis")
    for x, tick_name in x_ticks:
        _add(root, "line", x1=x, x2=x, y1=bottom, y2=bottom + 4, cls="axis")
        _label(root, x, bottom + 16, tick_name, "middle")
    _label(root, (_LEFT + right) / 2, frame.height - 6, x_label, "middle", cls="name")
    middle = (_TOP + bottom) / 2
    name = _label(root, 12, middle, y_label, "middle", cls="name")
    name.set("transform", f"rotate(-90 12 {middle:g})")


# --- stacks and funnels ----------------------------------------------------------------------------------------------------


def _draw_stack(root: _Element, chart: Stack, width: int, height: int) -> None:
    totals = [math.fsum(part.values[i] for part in chart.parts) for i in range(len(chart.columns))]
    y_ticks = nice_ticks(0.0, 1.0 if chart.shares else max(totals, default=1.0) or 1.0, 5)
    frame = _Frame(width, height, (0.0, max(1.0, len(chart.columns))), (0.0, y_ticks[-1]))
    every = max(1, math.ceil(len(chart.columns) / 14))
    ticks = [(frame.x(i + 0.5), name) for i, name in enumerate(chart.columns) if i % every == 0]
    _axes(root, frame, ticks, y_ticks, chart.x_label, chart.y_label, chart.shares)
    for i, column in enumerate(chart.columns):
        below = 0.0
        for index, part in enumerate(chart.parts):
            value = part.values[i] / totals[i] if chart.shares and totals[i] else part.values[i]
            if value <= 0:
                continue
            left, right = frame.x(i + 0.12), frame.x(i + 0.88)
            top, bottom = frame.y(below + value), frame.y(below)
            rect = _add(root, "rect", x=left, y=top, width=right - left, height=bottom - top, cls=f"part c{index % COLOURS}")
            _text(rect, "title", f"{part.name}, {chart.x_label} {column}: {_number(part.values[i])} of {_number(totals[i])}")
            below += value


def _draw_funnel(root: _Element, chart: Funnel, width: int) -> None:
    most = max((left for _, left in chart.stages), default=0) or 1
    names, bar = 150, width - 150 - 60
    for row, (stage, left) in enumerate(chart.stages):
        y, length = 4 + 26 * row, bar * left / most
        _label(root, names - 8, y + 15, stage, "end")
        rect = _add(root, "rect", x=names, y=y, width=length, height=20, cls="part c0")
        _text(rect, "title", f"{stage}: {left} {chart.unit}")
        _label(root, names + length + 6, y + 15, str(left), "start")


# --- elements --------------------------------------------------------------------------------------------------------------


def _add(parent: _Element, tag: str, *, cls: str, **attributes: float | str) -> _Element:
    written = {k: v if isinstance(v, str) else f"{v:.2f}".rstrip("0").rstrip(".") for k, v in attributes.items()}
    return ElementTree.SubElement(parent, tag, {"class": cls, **written})


def _text(parent: _Element, tag: str, text: str, attributes: dict[str, str] | None = None) -> _Element:
    element = ElementTree.SubElement(parent, tag, attributes or {})
    element.text = text
    return element


def _label(parent: _Element, x: float, y: float, text: str, anchor: str, *, cls: str = "tick") -> _Element:
    element = _add(parent, "text", x=x, y=y, cls=cls)
    element.set("text-anchor", anchor)
    element.text = text
    return element


def _path(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _value(value: float, percent: bool) -> str:
    return f"{value * 100:.0f} %" if percent else _number(value)


def _number(value: float) -> str:
    """Short, and without an exponent where that is not needed."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _serialise(root: _Element) -> str:
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)
