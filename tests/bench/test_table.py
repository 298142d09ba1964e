"""The table of an ablation: success in reserved domains stands in sections of its own, and changes none of the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from spade_agentic.bench.cells import plan_cells
from spade_agentic.bench.job import run_cells
from spade_agentic.bench.table import Table, make_table, table_markdown, table_text

FAKE = (sys.executable, str(Path(__file__).parents[1] / "helpers" / "fake_train.py"))
STEPS = ("run.steps=1",)
HELD_OUT, RESERVED = "Held-out success, sampled (%, 95 % intervals)", "Reserved domains, sampled (%, 95 % intervals)"


def made_table(folder: str, **order: object) -> Table:
    """Of ``self_play`` and ``fixed_pool``, one seed each."""
    Path("fake.json").write_text(json.dumps(order))
    cells = plan_cells(["self_play", "fixed_pool"], [0], Path(folder), sets=STEPS)
    run_cells(cells, Path(folder), sets=STEPS, train=FAKE)
    return make_table(cells)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Table, Table]:
    """The same runs, first without reserved domains, then with them: measured by ``self_play`` alone."""
    monkeypatch.chdir(tmp_path)
    name = plan_cells(["self_play"], [0], Path("x"), sets=STEPS)[0].config.run.name
    return made_table("without"), made_table("with", reserved={name: 0.4})


def section(table: Table, title: str) -> dict[str, str]:
    """Its rows by the config's name."""
    lines = table_text(table).split(f"{title}\n")[1].split("\n\n")[0].splitlines()
    return {line.split()[0]: line for line in lines if line.split()[0] in ("self_play", "fixed_pool")}


def test_reserved_domains_have_sections_of_their_own_with_intervals_and_the_gain(tables: tuple[Table, Table]) -> None:
    _, table = tables
    row = section(table, RESERVED)["self_play"]
    assert "15.0 [5.0, 25.0]" in row
    assert "40.0 [30.0, 50.0]" in row
    assert "+25.0 [" in row
    assert f"### {RESERVED}" in table_markdown(table)
    assert table.rates == ["sampled", "greedy", "hinted", "reserved/sampled", "reserved/greedy", "reserved/hinted"]


def test_the_sections_of_held_out_success_are_those_without_them(tables: tuple[Table, Table]) -> None:
    without, table = tables
    assert section(table, HELD_OUT) == section(without, HELD_OUT)
    for ours, theirs in zip(table.rows, without.rows, strict=True):
        assert {rate: ours.success[rate] for rate in without.rates} == theirs.success


def test_where_no_run_measured_them_there_is_no_section_and_where_one_did_not_there_are_dashes(
    tables: tuple[Table, Table],
) -> None:
    without, table = tables
    assert "Reserved" not in table_text(without)
    assert section(table, RESERVED)["fixed_pool"].split()[2:] == ["-", "-", "-", "-"]
