"""``docs/bad-days.md`` as the tests read it: a row says what goes wrong, what is seen, and what to do about it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BadDay", "marked", "rows"]

ROOT = Path(__file__).parents[2]
_EXIT = re.compile(r"exit (\d+)")
_CODE = re.compile(r"``(.+?)``|`([^`]+)`")


@dataclass(frozen=True)
class BadDay:
    """One row. ``quoted`` is every piece of code in the second column, ``code`` the exit code that it names, if any."""

    what: str
    quoted: tuple[str, ...]
    code: int | None

    def seen_in(self, text: str) -> None:
        """All that the page quotes stands in ``text`` (``...`` for what differs), and there is no traceback."""
        missing = [piece for piece in self.quoted if not all(part in text for part in piece.split(" ... "))]
        assert not missing, f"{self.what}: the page promises {missing}; seen was:\n{text}"
        assert "Traceback" not in text

    def seen(self, result: Any) -> None:
        """A command (``code`` or ``returncode``, and what it wrote) ended as the page says."""
        code = getattr(result, "returncode", None) if hasattr(result, "returncode") else result.code
        said = result.stderr if hasattr(result, "stderr") else result.err
        assert code == self.code, f"{self.what}: exit code {code}, not {self.code}\n{said}"
        self.seen_in(said)


def rows() -> dict[str, BadDay]:
    """Every row of the page's tables by its first column."""
    days: dict[str, BadDay] = {}
    for line in (ROOT / "docs" / "bad-days.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) != 3 or cells[0] in ("", "what goes wrong") or set(cells[0]) <= set("-: "):
            continue
        what, see, todo = cells
        assert todo, f"{what}: the page does not say what to do"
        assert what not in days, f"{what} stands on the page twice"
        code = _EXIT.search(see)
        quoted = tuple((double or single).strip() for double, single in _CODE.findall(see))
        days[what] = BadDay(what, quoted, int(code[1]) if code else None)
    return days


def marked(folder: Path) -> dict[str, list[str]]:
    """The rows that ``@pytest.mark.bad_day(...)`` names in the tests of ``folder``, each with its tests."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in (d for top in node.decorator_list for d in ast.walk(top)):
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == "bad_day":
                    assert isinstance(mark.args[0], ast.Constant), f"{path.name}: {node.name} must name its row in words"
                    found.setdefault(str(mark.args[0].value), []).append(f"{path.name}::{node.name}")
    return found
