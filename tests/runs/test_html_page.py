"""The page as a whole: it needs nothing, runs nothing, escapes everything, and a real browser agrees."""

from __future__ import annotations

import dataclasses
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browsers import chromium
from hypothesis import given, settings, strategies as st
from stored_runs import CONFIG, StepOf, World, refused, write_run

from spade_agentic.errors import RunDirError
from spade_agentic.runs import StoreReader, find_run
from spade_agentic.runs.html import report_page, write_comparison, write_report
from spade_agentic.runs.html.gallery import Card, Exchange, Gallery, PlayView, Text
from spade_agentic.runs.html.model import Dots, Figure, Funnel, Lines, Part, Point, Section, Series, Stack, Table
from spade_agentic.runs.html.page import render
from spade_agentic.runs.summary import RunSummary
from spade_agentic.runs.visible import visible

HOSTILE = (
    "</pre></td></table></details><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<svg onload=\"document.title='owned'\"></svg><style>body{display:none}</style>"
    "<a href=\"javascript:document.title='owned'\">x</a>"
    "<iframe src='http://example.org'></iframe>&lt;b&gt; ' \" ]]> --> {{ 7 * 7 }} {% raw %} \x1b[2J\x00\u202e\ud800"
)


class Reader(HTMLParser):
    """The elements of a page in order, with the names of their attributes; links; and the text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.elements.append(("<!--", ()))


@pytest.fixture
def hostile(tmp_path: Path, evaluation: Any) -> Path:
    """A run in which everything that a model or a program writes tries to break out of the page."""
    world = World(
        HOSTILE.replace("\x00", "").replace("\ud800", ""), origin={"domain": HOSTILE, "goals": [HOSTILE], "mods": {HOSTILE: 1}},
        hint=HOSTILE, said=HOSTILE, answer=HOSTILE, text=HOSTILE, source=HOSTILE,
    )  # fmt: skip
    steps = [StepOf([world], [refused("x", "gate<script>", "code<script>", detail=HOSTILE)])]
    result = evaluation(0.25, 0.5) | {"heldout/sampled/<script>": 0.5}
    config = {**CONFIG, "note": "<script>document.title='owned'</script>"}
    return write_run(tmp_path / "run", steps, evaluations={0: result, 1: result}, config=config)


def test_the_page_holds_no_script_no_handler_and_no_address(hostile: Path) -> None:
    read = Reader(report_page(hostile))
    assert {tag for tag, _ in read.elements} & {"script", "img", "iframe", "link", "object", "embed", "form", "base"} == set()
    assert [v for v in read.values if v[1].startswith("on") or v[1] in ("src", "srcset", "action", "style")] == []
    assert all(value.startswith("#") for _, name, value in read.values if name in ("href", "xlink:href"))
    assert "url(" not in re.search(r"<style>(.*?)</style>", report_page(hostile), re.S)[1]  # type: ignore[index]
    assert "@import" not in report_page(hostile)


def test_what_was_written_is_shown_as_it_was_written(hostile: Path) -> None:
    page = report_page(hostile)
    shown = "".join(Reader(page).text)
    assert shown.count(visible(HOSTILE)) >= 7, "hint, draft, program, and what both plays said and were answered"
    assert "{{ 7 * 7 }}" in shown
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\ud800-\udfff]", page)
    page.encode()


def test_the_policy_allows_the_style_sheet_and_nothing_else(hostile: Path) -> None:
    read = Reader(report_page(hostile))
    (policy,) = [value for tag, name, value in read.values if tag == "meta" and "default-src" in value]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert set(rules) == {"default-src", "style-src", "base-uri", "form-action"}
    assert {rules[name] for name in ("default-src", "base-uri", "form-action")} == {"'none'"}
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", rules["style-src"])


def test_every_link_of_the_contents_leads_somewhere_and_ids_are_unique(hostile: Path) -> None:
    read = Reader(report_page(hostile))
    ids = [value for _, name, value in read.values if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value[1:] for tag, name, value in read.values if tag == "a" and name == "href"]
    assert len(targets) >= 10
    assert set(targets) <= set(ids)
    named = [part for _, name, value in read.values if name == "aria-labelledby" for part in value.split()]
    assert set(named) <= set(ids)


def test_every_chart_has_a_title_and_every_table_heads(hostile: Path) -> None:
    read = Reader(report_page(hostile))
    charts = sum(tag == "svg" and "role" in names for tag, names in read.elements)
    assert charts >= 8
    assert sum(tag == "desc" for tag, _ in read.elements) == charts
    tables = sum(tag == "table" for tag, _ in read.elements)
    assert sum(tag == "thead" for tag, _ in read.elements) == tables
    assert all("scope" in names for tag, names in read.elements if tag == "th")


# --- any text ----------------------------------------------------------------------------------------------------------------


def page_with(text: str, *, name: str | None = None) -> str:
    """A page that has ``text`` in every place that a text can have."""
    cut, n = Text.cut(text), name or text
    play = PlayView(n, "plain", False, True, 0.0, n, text, 1, (Exchange(cut, (cut,), (cut,), n),))
    card = Card(
        env_id=n, skill=n, domain=n, round_index=0, goals=(n,), modifiers=(n,), regret=0.5, regret_stderr=0.1, plain_rate=0.5,
        hinted_rate=None, pairs={n: 1}, hint=cut, draft=cut, source=cut, seed=1, step=1, request=cut,
        plays=(play, dataclasses.replace(play, void=False)), parting=1,
    )  # fmt: skip
    charts = (
        Lines(n, n, (Series(n, (Point(0, 1),)), Series(n, ())), dots=(Dots(n, (Point(0, 1),), (text,)),)),
        Stack(n, n, (n,), (Part(n, (1.0,)), Part(n, (2.0,)))), Funnel(n, ((n, 1),)),
    )
    section = Section(
        "a", n, text, [Figure(n, text, chart) for chart in charts], [Table(n, (n, n), ((text, text),))], [text]
    )
    return render(
        "report.html.jinja", [section], [("gallery", n)], run=RunSummary(n, n, n, n, n), headline=[(n, n, text)],
        gallery=Gallery((card,), 2), files=Table(n, (n, n), ((n, text),)), config=text,
    )  # fmt: skip


PIECES = st.sampled_from([
    "<script>", "</script>", "</pre>", "</title>", "</style>", "</svg>", "<!--", "-->", "]]>", "&", "&lt;", "&#60;script&#62;",
    '"', "'", "`", "=", "/", ">", "<", "<svg onload=x>", "{{", "}}", "{%", "{#", "\x00", "\u2028", "\ud800", "\u202e", "\r\n",
])  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=6), min_size=1, max_size=8).map("".join).filter(bool)
LEFT, RIGHT = "\u27e6", "\u27e7"
PLAIN = Reader(page_with(f"{LEFT}x{RIGHT}"))


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_no_text_makes_or_closes_an_element_or_an_attribute(text: str) -> None:
    read = Reader(page_with(f"{LEFT}{text}{RIGHT}"))
    assert read.elements == PLAIN.elements
    shown, times = "".join(read.text), "".join(PLAIN.text).count(f"{LEFT}x{RIGHT}")
    assert times > 40
    assert shown.count(f"{LEFT}{visible(text)}{RIGHT}") == times, "shown everywhere, as it was written"


# --- a real browser ----------------------------------------------------------------------------------------------------------

SCRIPT = "<script>document.title='owned'</script>"


def title_in(dom: str) -> str:
    found = re.search(r"<title>(.*?)</title>", dom, re.S)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_in_a_browser_a_hostile_transcript_runs_nothing(hostile: Path, tmp_path: Path) -> None:
    dom, log = chromium().dom(write_report(hostile))
    assert title_in(dom) == "run: report of a run"
    assert "<script" not in dom
    assert "Content Security Policy" not in log, "nothing even tried, and the style sheet is the one that is allowed"


@pytest.mark.slow
def test_in_a_browser_the_policy_stops_a_script_that_escaping_had_missed(hostile: Path, tmp_path: Path) -> None:
    browser, page = chromium(), report_page(hostile)
    broken, open_ = tmp_path / "broken.html", tmp_path / "open.html"
    broken.write_text(page.replace("</body>", SCRIPT + "</body>"))
    dom, log = browser.dom(broken)
    assert title_in(dom) == "run: report of a run"
    assert "Content Security Policy" in log
    open_.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", broken.read_text()))
    assert title_in(browser.dom(open_)[0]) == "owned", "without the policy the script runs, so the test could fail"


@pytest.mark.slow
def test_in_a_browser_a_changed_style_sheet_is_refused(hostile: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(report_page(hostile).replace("<style>", "<style>body{display:none}"))
    assert "Content Security Policy" in chromium().dom(changed)[1]


@pytest.mark.slow
def test_a_browser_draws_the_page_light_and_dark(hostile: Path, tmp_path: Path) -> None:
    browser, page = chromium(), write_report(hostile)
    light, dark = tmp_path / "light.png", tmp_path / "dark.png"
    browser.screenshot(page, light, height=600)
    browser.screenshot(page, dark, height=600, dark=True)
    assert first_pixel(light) == (255, 255, 255)
    assert max(first_pixel(dark)) < 40


def first_pixel(path: Path) -> tuple[int, int, int]:
    """Red, green and blue of the upper left corner of a PNG of 8 bits, whose first row no filter can have changed there."""
    data, at, body = path.read_bytes(), 8, b""
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        if kind == b"IDAT":
            body += data[at + 8 : at + 8 + length]
        at += length + 12
    red, green, blue = zlib.decompress(body)[1:4]
    return red, green, blue


# --- files and commands ------------------------------------------------------------------------------------------------------


def test_the_gallery_says_that_it_is_cut_and_how_to_see_all(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [StepOf([World(f"e{n}") for n in range(5)])])
    text = " ".join("".join(Reader(report_page(run, gallery=2)).text).split())
    assert "2 of 5 environments are shown" in text
    assert "--gallery 5" in text
    assert "All 5 environments are shown." in "".join(Reader(report_page(run, gallery=5)).text)


def test_a_cut_text_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [StepOf([World("e1", answer="y" * 5000)])])
    assert "Cut here: 4,000 of 5,000 characters are shown." in report_page(run)


def test_the_page_of_a_long_run_is_bounded_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    """A thousand rounds, and a designer that names every domain, goal, modifier and reason anew."""

    def world(n: int) -> World:
        origin = {"domain": f"domain {n}", "goals": [f"goal {n}"], "mods": {f"mod {n}": 1}}
        return World(f"e{n}", n, origin=origin, pairs=[(True, True)])

    steps = [
        StepOf(
            [world(n) for n in some],
            [refused(f"x{n}", "blueprint", f"code_{n}", round_index=n, detail="y" * 5000) for n in some],
            metrics={"agent/mismatch_kl": 0.1, "time/playing_s": 1.0},
        )
        for some in (range(at, at + 10) for at in range(0, 1000, 10))
    ]
    page = report_page(write_run(tmp_path / "run", steps))
    assert len(page) < 2_000_000
    text = "".join(Reader(page).text)
    for said in (
        "Of the domains, the 12 with the most environments are shown; there are 988 more.", "993 others", "one round in 63",
        "the 30 most used; there are 970 more", "the 20 most used of 1000", "the 40 most frequent of 1000 reasons",
        "Of long curves one point in 4 is shown.", "A column sums up to 17.", "A column sums up to 2.",
        "12 of 1000 environments are shown",
    ):  # fmt: skip
        assert said in text, said


def test_colours_stand_out_from_the_page_in_both_schemes() -> None:
    """WCAG 2: 4.5 to 1 for text, 3 to 1 for what is drawn."""
    style = re.search(r"<style>(.*?)</style>", page_with("x"), re.S)[1]  # type: ignore[index]
    schemes = re.findall(r":root \{(.*?)\}", style, re.S)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", scheme))
        for ground in ("page", "panel"):
            for name in ("ink", "soft", "good", "bad", "link"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for number in range(8):
            assert contrast(colours[f"c{number}"], colours["page"]) >= 3, number


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_report_is_written_whole_beside_its_run_and_takes_no_lock(hostile: Path) -> None:
    path = write_report(hostile)
    assert path == hostile / "report.html"
    assert path.read_text(encoding="utf-8") == report_page(hostile)
    assert [p.name for p in hostile.glob("*.tmp*")] == []


def test_runs_report_html_writes_the_page_and_prints_its_path(hostile: Path, cli: Any, tmp_path: Path) -> None:
    done = cli("runs", "report", hostile, "--html")
    assert (done.code, done.out.strip()) == (0, str(hostile / "report.html"))
    done = cli("runs", "report", hostile, "--html", "--output", tmp_path / "x.html", "--gallery", 0)
    assert done.out.strip() == str(tmp_path / "x.html")
    assert 'class="card"' not in (tmp_path / "x.html").read_text()
    done = cli("runs", "report", hostile, "--html", "--json")
    assert done.json()["html"] == str(hostile / "report.html")
    assert done.json()["run"]["run_id"] == "run"


def test_a_transcript_on_a_terminal_cannot_command_it(hostile: Path, cli: Any) -> None:
    with StoreReader(hostile) as reader:
        play_id = next(row.play.play_id for row in reader.plays())
    shown = cli("runs", "show", hostile, "--play", play_id).out
    assert r"\x1b[2J\x00\u202e\ud800" in shown
    assert not set(shown) & set("\x1b\x00\u202e")


def test_an_option_about_the_page_without_a_page_is_refused(hostile: Path, cli: Any, tmp_path: Path) -> None:
    done = cli("runs", "report", hostile, "--gallery", 3)
    assert (done.code, done.out) == (2, "")
    assert "add --html" in done.err
    done = cli("runs", "report", hostile, "--html", "-o", tmp_path / "no" / "x.html")
    assert done.code == 2
    assert "choose another file with --output" in done.err


def test_a_page_of_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="there is no run here"):
        report_page(tmp_path)
    with pytest.raises(RunDirError, match="there is no run"):
        find_run("x", tmp_path)


def test_a_comparison_is_a_page_of_the_same_kind(hostile: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other<script>", [StepOf([World("e1")])])
    page = write_comparison([hostile, other], tmp_path / "c.html").read_text()
    read = Reader(page)
    assert "script" not in {tag for tag, _ in read.elements}
    assert "other<script>" in "".join(read.text)
    assert "default-src 'none'" in page.replace("&#39;", "'")
