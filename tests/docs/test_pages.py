"""What the documentation says exists, exists."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from typer.testing import CliRunner

import spade_agentic
from spade_agentic.config.load import load_config
from spade_agentic.config.reference import reference_page

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_TITLE = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _anchor(title: str) -> str:
    """The fragment that GitHub gives a title."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def test_every_link_inside_the_documentation_resolves(page) -> None:
    for target in _LINK.findall(page.prose()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        path = (page.path.parent / file).resolve() if file else page.path
        assert path.exists(), f"{page.name} links to {target}"
        if fragment:
            assert fragment in map(_anchor, _TITLE.findall(path.read_text(encoding="utf-8"))), f"{page.name} links to {target}"


def test_every_documentation_page_can_be_reached_from_the_readme(page_named) -> None:
    linked = {target.partition("#")[0] for target in _LINK.findall(page_named("README.md").prose())}
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert pages <= linked


def _refused(command: list[str]) -> str | None:
    """What the command line says against ``command``; it is parsed, but help is asked for, so that nothing runs."""
    from spade_agentic.cli.main import app

    result = CliRunner().invoke(app, [*command, "--help"])
    return None if result.exit_code == 0 else result.output


def test_every_command_shown_exists_with_its_options(page) -> None:
    for command in page.commands():
        assert _refused(command) is None, f"{page.name}: spade-agentic {' '.join(command)}"


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert _refused(["train", "tooluse.yaml", "--dry-run"]) is None
    assert _refused(["trian", "tooluse.yaml"]) is not None
    assert _refused(["train", "tooluse.yaml", "--dry-rum"]) is not None


def test_every_config_override_shown_is_accepted(page) -> None:
    for command in page.commands():
        if command[0] == "train" and len(command) > 1 and command[1].endswith(".yaml"):
            sets = [value for flag, value in itertools.pairwise(command) if flag == "--set"]
            config = command[1] if not command[1].startswith("my") else "tooluse.yaml"
            load_config(config, sets)


def test_the_config_page_is_the_one_that_the_schema_makes(page_named) -> None:
    assert page_named("docs/config.md").text == reference_page(), "run: make config-page"


def test_the_changelog_has_the_version_of_the_package(page_named) -> None:
    titles = _TITLE.findall(page_named("CHANGELOG.md").text)
    assert titles[1] == spade_agentic.__version__


def test_the_readme_sets_up_with_exactly_two_commands(page_named) -> None:
    section = page_named("README.md").text.split("## Set up")[1].split("\n## ")[0]
    commands = [line for block in re.findall(r"^```\n(.*?)^```$", section, re.M | re.S) for line in block.splitlines()]
    assert commands == ["make train", "make test"]


def test_no_line_of_prose_is_longer_than_the_code_may_be(page) -> None:
    for line in page.prose().splitlines():
        assert len(line) <= 128 or line.startswith(("|", "#")) or page.name == "docs/config.md", f"{page.name}: {line}"
