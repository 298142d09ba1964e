"""Charts: values land where they should, and are said in words."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, strategies as st

from spade_agentic.runs.html.axes import nice_ticks
from spade_agentic.runs.html.model import (
    MOST_COLUMNS,
    MOST_POINTS,
    Dots,
    Figure,
    Funnel,
    Lines,
    Part,
    Point,
    Series,
    Stack,
    bounded,
    table_of,
)
from spade_agentic.runs.html.svg import draw, legend_of

finite = st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9)


def drawn(chart: Lines | Stack | Funnel, **options: bool) -> ElementTree.Element:
    return ElementTree.fromstring(draw(Figure("A title", "What it shows", chart, **options), "fig"))


def by_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [e for e in root.iter() if name in (e.get("class") or "").split()]


def ticks_of(root: ElementTree.Element, anchor: str) -> list[tuple[str, float]]:
    """Text and place of the labels of an axis: the vertical one's are aligned to their end."""
    side = "y" if anchor == "end" else "x"
    shift = 4 if anchor == "end" else 0
    return [(e.text or "", float(e.get(side, "nan")) - shift) for e in by_class(root, "tick") if e.get("text-anchor") == anchor]


def number(text: str) -> float:
    return float(text.replace(",", "").replace(" %", "")) / (100 if text.endswith("%") else 1)


def at(ticks: list[tuple[str, float]], place: float) -> float:
    """The value at ``place``, by the labels of the axis alone: what a person would read off."""
    (first, x0), (last, x1) = ticks[0], ticks[-1]
    return number(first) + (place - x0) / (x1 - x0) * (number(last) - number(first))


CURVE = Series("plain", (Point(1, 0.2, 0.1, 0.3), Point(2, 0.5, 0.4, 0.7), Point(4, 0.8, None, None)))


def test_a_curve_can_be_read_off_its_axes() -> None:
    root = drawn(Lines("step", "win rate", (CURVE,), y_range=(0.0, 1.0), percent=True))
    marks = by_class(root, "mark")
    across, up = ticks_of(root, "middle"), ticks_of(root, "end")
    read = [(at(across, float(m.get("cx", "nan"))), at(up, float(m.get("cy", "nan")))) for m in marks]
    assert [x for x, _ in read] == pytest.approx([1, 2, 4], abs=0.02)
    assert [y for _, y in read] == pytest.approx([0.2, 0.5, 0.8], abs=0.005)
    assert [label for label, _ in up] == ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]


def test_a_band_goes_from_the_lower_ends_to_the_upper_ones_where_there_are_any() -> None:
    root = drawn(Lines("step", "win rate", (CURVE,), y_range=(0.0, 1.0)))
    (band,) = by_class(root, "band")
    ys = [float(pair.split(",")[1]) for pair in band.get("points", "").split()]
    assert [at(ticks_of(root, "end"), y) for y in ys] == pytest.approx([0.3, 0.7, 0.4, 0.1], abs=0.01)
    alone = drawn(Lines("step", "y", (Series("s", (Point(1, 0.5, 0.25, 0.75),)),), y_range=(0.0, 1.0)))
    (bar,) = by_class(alone, "bar")
    ends = sorted(at(ticks_of(alone, "end"), float(bar.get(side, "nan"))) for side in ("y1", "y2"))
    assert ends == pytest.approx([0.25, 0.75], abs=0.01)


def test_every_mark_says_its_value_in_words() -> None:
    root = drawn(Lines("step", "win rate", (CURVE,), y_range=(0.0, 1.0), percent=True))
    said = [mark.findtext("title") for mark in by_class(root, "mark")]
    assert said == ["plain, step 1: 20 % [10 %, 30 %]", "plain, step 2: 50 % [40 %, 70 %]", "plain, step 4: 80 %"]


def test_a_chart_is_an_image_with_a_title_and_a_description() -> None:
    root = drawn(Lines("step", "win rate", (CURVE,)))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "fig-title fig-desc"
    assert {e.get("id"): e.text for e in root if e.get("id")} == {"fig-title": "A title", "fig-desc": "What it shows"}
    assert not any(e.get("style") for e in root.iter()), "a style attribute would be refused by the page's policy"


def test_dots_and_the_zone_lie_on_the_same_plane_as_curves() -> None:
    dots = Dots("environments", (Point(0, 0.2), Point(3, 0.8)), ("e1", "e2"))
    root = drawn(Lines("round", "win rate", (), dots=(dots,), y_range=(0.0, 1.0), zone=(0.2, 0.8)))
    low, high = by_class(root, "dot")
    (zone,) = by_class(root, "zone")
    top, height = float(zone.get("y", "nan")), float(zone.get("height", "nan"))
    assert (float(high.get("cy", "nan")), float(low.get("cy", "nan"))) == (
        pytest.approx(top, abs=0.02), pytest.approx(top + height, abs=0.02),
    )  # fmt: skip
    assert low.findtext("title") == "e1: 0.2"


def test_stacked_parts_are_as_high_as_their_values_and_do_not_overlap() -> None:
    stack = Stack("round", "drafts", ("0", "1"), (Part("admitted", (3.0, 0.0)), Part("refused", (1.0, 4.0))))
    root = drawn(stack)
    up = ticks_of(root, "end")
    boxes = [(float(e.get("x", "0")), float(e.get("y", "0")), float(e.get("height", "0"))) for e in by_class(root, "part")]
    assert len(boxes) == 3, "an empty part is no box"
    assert [at(up, y) for _, y, _ in boxes] == pytest.approx([3, 4, 4], abs=0.02)
    assert [at(up, y + h) for _, y, h in boxes] == pytest.approx([0, 3, 0], abs=0.02)
    assert by_class(root, "part")[0].findtext("title") == "admitted, round 0: 3 of 4"


def test_shares_fill_their_columns() -> None:
    root = drawn(Stack("round", "share", ("0", "1"), (Part("a", (3.0, 0.0)), Part("b", (1.0, 2.0))), shares=True))
    up = ticks_of(root, "end")
    tops = [at(up, float(e.get("y", "0"))) for e in by_class(root, "part")]
    assert tops == pytest.approx([0.75, 1.0, 1.0], abs=0.005)


def test_a_funnel_narrows_in_proportion() -> None:
    bars = by_class(drawn(Funnel("drafts", (("drafts", 200), ("after leak", 50), ("after idle", 0)))), "part")
    first, second, third = (float(bar.get("width", "nan")) for bar in bars)
    assert second / first == pytest.approx(0.25)
    assert third == 0.0


def test_what_is_one_thing_needs_no_legend_and_marks_differ_by_shape() -> None:
    assert legend_of(Figure("t", "c", Lines("x", "y", (CURVE,)))) == []
    many = Lines("x", "y", tuple(Series(f"s{n}", ()) for n in range(4)))
    keys = [key for key, _ in legend_of(Figure("t", "c", many))]
    shapes = {tuple((e.tag, len((e.get("points") or "").split())) for e in ElementTree.fromstring(k)) for k in keys[:3]}
    assert len(shapes) == 3
    assert len(set(keys)) == 4


@given(low=finite, high=finite)
@example(low=1e9, high=999999999.9999999)
def test_ticks_are_round_span_the_values_and_are_few(low: float, high: float) -> None:
    low, high = min(low, high), max(low, high)
    ticks = nice_ticks(low, high)
    assert ticks == sorted(set(ticks))
    assert 2 <= len(ticks) <= 9
    step = ticks[1] - ticks[0]
    assert ticks[0] <= low + step * 1e-6
    assert ticks[-1] >= high - step * 1e-6


@given(st.lists(st.tuples(finite, st.none() | finite, st.none() | finite), max_size=8))
def test_no_numbers_make_a_chart_that_is_no_image(values: list[tuple[float, float | None, float | None]]) -> None:
    points = tuple(Point(x, y, low, high) for x, (y, low, high) in enumerate(values))
    infinite = (*points, Point(99, 0.0, -math.inf, math.inf))
    for chart in (Lines("x", "y", (Series("s", points),)), Lines("x", "y", (Series("s", infinite),), zero=True)):
        for element in drawn(chart).iter():
            assert not any("nan" in value or "inf" in value for value in element.attrib.values()), element.attrib


def test_the_table_of_a_chart_has_all_its_numbers() -> None:
    dots = Dots("environments", (Point(2, 0.25),), ("e1",))
    table = table_of(Figure("t", "c", Lines("step", "y", (CURVE, Series("other", (Point(2, 1.0),))), dots=(dots,))))
    assert table.heads == ("step", "plain", "other", "environments")
    assert table.rows == (
        (1, "0.200 [0.100, 0.300]", None, None), (2, "0.500 [0.400, 0.700]", 1.0, None), (4, 0.8, None, None),
        ("2: e1", None, None, 0.25),
    )  # fmt: skip


def test_long_curves_keep_their_ends_and_say_that_points_are_left_out() -> None:
    points = tuple(Point(x, x / 10_000) for x in range(10_000))
    dots = Dots("d", points, tuple(f"e{p.x}" for p in points))
    figure = bounded(Figure("t", "c.", Lines("x", "y", (Series("s", points), Series("short", points[:3])), dots=(dots,))))
    assert isinstance(figure.chart, Lines)
    long, short = figure.chart.series
    assert len(long.points) <= MOST_POINTS + 1
    assert (long.points[0], long.points[-1]) == (points[0], points[-1])
    assert short.points == points[:3]
    assert [f"e{p.x}" for p in figure.chart.dots[0].points] == list(figure.chart.dots[0].labels)
    assert figure.caption == "c. Of long curves one point in 34 is shown."


@given(st.lists(st.integers(0, 100), min_size=1, max_size=500))
def test_wider_columns_lose_nothing(values: list[int]) -> None:
    stack = Stack("step", "s", tuple(map(str, range(len(values)))), (Part("a", tuple(map(float, values))),))
    chart = bounded(Figure("t", "c.", stack)).chart
    assert isinstance(chart, Stack)
    assert len(chart.columns) == len(chart.parts[0].values) <= MOST_COLUMNS
    assert math.fsum(chart.parts[0].values) == sum(values)
    assert (chart == stack) == (len(values) <= MOST_COLUMNS)
