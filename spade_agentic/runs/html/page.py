"""Pages: sections drawn into one self-contained HTML file.

Everything that a model or a generated program wrote is hostile here. Templates escape whatever is put into them, charts escape
their own text, characters that a reader could be fooled by are written out, and the page's Content-Security-Policy allows one
style sheet by its hash and nothing else: no script, no image, no font, no connection.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from markupsafe import Markup

from spade_agentic import __version__
from spade_agentic.evals.heldout import RESERVED_RATES

from ..files import replace_file
from ..layout import RunDir
from ..live import duration
from ..report import gains, points_text
from ..summary import RunSummary
from ..visible import visible
from .designer import choices_section, gates_section, learnable_section
from .facts import Facts, read_facts
from .gallery import read_gallery
from .machinery import mismatch_section, time_section
from .model import COLOURS, Cell, Figure, Section, Table, bounded, table_of
from .success import heldout_section, regret_section, reserved_section, training_section
from .svg import draw, legend_of

__all__ = ["GALLERY", "render", "report_page", "sections_of", "write_report"]

GALLERY = 12
"""Environments in the gallery, unless more are asked for."""


def write_report(run_dir: Path, path: Path | None = None, *, gallery: int = GALLERY) -> Path:
    """Write the report of the run in ``run_dir`` to ``path`` (default: ``report.html`` in its folder), whole or not at all.

    Returns the path. Raises :class:`~spade_agentic.errors.RunDirError` where there is no run, StoreError for a broken one, and
    ``OSError`` where the file cannot be written.
    """
    target = path or RunDir(Path(run_dir)).report
    replace_file(target, report_page(run_dir, gallery=gallery).encode(), durable=False)
    return target


def report_page(run_dir: Path, *, gallery: int = GALLERY) -> str:
    """The report as HTML; raises as :func:`write_report` does."""
    facts = read_facts(run_dir)
    files = [("weights", facts.summary.checkpoint)] if facts.summary.checkpoint else []
    files += [(what, path) for what, path in facts.summary.paths.items() if what != "report"]
    table = Table("Files", ("what", "path"), tuple(files))
    extra = [("gallery", "Gallery of environments"), ("config", "Configuration and files")]
    return render(
        "report.html.jinja", sections_of(facts), extra, run=facts.summary, headline=_headline(facts.summary, facts),
        gallery=read_gallery(run_dir, facts, limit=gallery), files=table,
        config=yaml.safe_dump(facts.config, sort_keys=False, allow_unicode=True),
    )  # fmt: skip


def sections_of(facts: Facts) -> list[Section]:
    """All sections of a run's report, in order."""
    reserved = reserved_section(facts)
    return [
        heldout_section(facts), *([] if reserved is None else [reserved]), training_section(facts), regret_section(facts),
        choices_section(facts), gates_section(facts), learnable_section(facts), mismatch_section(facts), time_section(facts),
    ]


def _headline(run: RunSummary, facts: Facts) -> list[tuple[str, str, str]]:
    """``(name, value, detail)`` of what to look at first."""
    items = []
    for rate, pair in run.evaluation.items():
        before, after = (None if pair[when] is None else pair[when]["value"] for when in ("before", "after"))  # type: ignore[index]
        what = "reserved domains" if rate in RESERVED_RATES else "held-out success"
        items.append((f"{what}, {rate.rpartition('/')[2]}", f"{percent(before)} → {percent(after)}", _change(facts, rate)))
    return [
        *items,
        ("regret, first round → last", f"{_regret(run, 'first')} → {_regret(run, 'last')}", _errors(run)),
        ("drafts", f"{run.drafts:,}", f"{run.admitted:,} admitted, {sum(run.refused.values()):,} refused, {run.rounds} rounds"),
        ("plays", f"{run.plays:,}", f"{run.plays_void:,} void, {run.sampled_tokens:,} sampled tokens"),
        ("time", duration(run.wall_s), f"{run.steps} steps"),
        ("audit breaches", f"{sum(run.breaches.values())}" if run.steps_audited else "–", _breached(run)),
    ]


def _regret(run: RunSummary, when: str) -> str:
    regret = run.regret[when]
    return "–" if regret is None else f"{regret['mean']:+.2f}"


def _breached(run: RunSummary) -> str:
    if not run.steps_audited:
        return "no step audited"
    return ", ".join(f"{check} in {count}" for check, count in run.breaches.items()) or f"{run.steps_audited} steps audited"


def _errors(run: RunSummary) -> str:
    known = [regret for when in ("first", "last") if (regret := run.regret[when]) is not None]
    return ", ".join(f"± {r['stderr']:.2f} over {r['environments']:g} environments" for r in known)


def _change(facts: Facts, rate: str) -> str:
    name = facts.config.get("evaluation", {}).get("name", "heldout")
    found = gains([row for row in facts.evaluations if row.name == name]).get(rate)
    return "" if found is None else f"{points_text(found)}, paired"


# --- rendering -------------------------------------------------------------------------------------------------------------


def render(template: str, sections: list[Section], extra: list[tuple[str, str]], **values: Any) -> str:
    """``template`` with ``sections`` drawn; ``extra`` are the other entries of the contents, as ``(anchor, title)``."""
    style = _environment().get_template("style.css.jinja").render(colours=COLOURS)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = _environment().get_template(template).render(
        sections=[_drawn(section) for section in sections], version=__version__, style=Markup(style),
        style_hash=f"sha256-{digest}", contents=[*((s.anchor, s.title) for s in sections), *extra], **values,
    )  # fmt: skip
    return visible(page)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("spade_agentic.runs.html", "."), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"cell": cell, "cell_class": _cell_class, "percent": percent}
    return environment


def _drawn(section: Section) -> Mapping[str, Any]:
    """A section with its figures drawn, small ones grouped so that they stand beside each other."""
    drawn = [_drawn_figure(bounded(figure), f"{section.anchor}-{number}") for number, figure in enumerate(section.figures)]
    groups = [list(group) for _, group in itertools.groupby(drawn, key=lambda item: item["figure"].small)]
    return {"section": section, "groups": groups}


def _drawn_figure(figure: Figure, ident: str) -> dict[str, Any]:
    legend = [(Markup(key), name) for key, name in legend_of(figure)]
    return {"figure": figure, "svg": Markup(draw(figure, ident)), "legend": legend, "table": table_of(figure)}


def percent(share: float | None) -> str:
    """A share as per cent; a dash where it is not known."""
    return "–" if share is None else f"{share * 100:.1f} %"


def cell(value: Cell, share: bool) -> str:
    """A table's cell as text; ``share``: fractions are per cent."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if share:
        return f"{value * 100:.0f} %"
    return f"{int(value):,}" if math.isfinite(value) and value == int(value) else f"{value:.3g}"


def _cell_class(value: Cell, share: bool) -> Markup:
    if value is None or isinstance(value, str):
        return Markup("")
    shade = f" h{round(min(1.0, max(0.0, value)) * 10)}" if share else ""
    return Markup(' class="n{}"').format(shade)
