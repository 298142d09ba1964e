"""The page and the tests agree: every row is tested, and every test of a bad day has its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bad_day_page import ROOT, marked, rows

ELSEWHERE: dict[str, str] = {
    "a wrong answer to a factory hook": "tests/hooks/test_manager.py::"
        "test_a_wrong_answer_of_a_factory_hook_names_plugin_hook_and_what_is_wrong",
}
"""Rows whose test stands beside what it tests."""


def test_every_row_has_a_test_and_every_test_a_row() -> None:
    tested = set(marked(Path(__file__).parent))
    assert tested.isdisjoint(ELSEWHERE)
    assert tested | set(ELSEWHERE) == set(rows())


def test_every_row_quotes_what_is_seen() -> None:
    """Else a test that checks the row checks nothing."""
    assert [row.what for row in rows().values() if not row.quoted and row.code is None] == []


@pytest.mark.parametrize("row", ELSEWHERE)
def test_a_row_that_is_tested_elsewhere_is_tested_there(row: str) -> None:
    file, _, name = ELSEWHERE[row].partition("::")
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
