"""Reading the documentation: its pages, fenced blocks, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(spade-agentic [^`\n]+)`(?!`)")
_FILE = re.compile(r"# file: (\S+?)(, continued)?$")


@dataclass(frozen=True)
class Page:
    """One Markdown page."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self) -> list[tuple[str, str]]:
        """``(language, body)`` of every fenced block, in order."""
        return _FENCE.findall(self.text)

    def prose(self) -> str:
        """The page without its fenced blocks."""
        return _FENCE.sub("", self.text)

    def files(self) -> dict[str, str]:
        """Files that the page's blocks make up: each begins with ``# file: NAME``, its later parts with ``, continued``."""
        found: dict[str, str] = {}
        for _, body in self.blocks():
            first, _, rest = body.partition("\n")
            match = _FILE.match(first)
            if match is None:
                continue
            name, continued = match.groups()
            assert (name in found) == bool(continued), f"{self.name}: {first}"
            found[name] = found.get(name, "") + rest
        return found

    def commands(self) -> Iterator[list[str]]:
        """Every ``spade-agentic`` command line, in blocks (with or without a ``$``) and between backticks, as words."""
        lines = [line.strip().removeprefix("$ ") for _, body in self.blocks() for line in body.splitlines()]
        lines += _INLINE.findall(self.prose())
        for line in lines:
            words = shlex.split(line.removesuffix("..."), comments=True) if line.startswith("spade-agentic ") else []
            if len(words) > 1:
                yield words[1 : words.index(">") if ">" in words else None]

    def console(self) -> list[str]:
        """The command lines of ``console`` blocks: what a reader is asked to type, in order."""
        return [
            line.removeprefix("$ ")
            for language, body in self.blocks()
            if language == "console"
            for line in body.splitlines()
            if line.startswith("$ ")
        ]


@pytest.fixture(params=PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def page(request: pytest.FixtureRequest) -> Page:
    """Every page, one after the other."""
    return Page(request.param)


@pytest.fixture
def page_named():
    """``page_named("docs/runs.md")``."""
    return lambda name: Page(ROOT / name)
