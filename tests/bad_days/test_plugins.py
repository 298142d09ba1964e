"""Plugins of a third party that raise, or answer with the wrong thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_day_page import BadDay

Cli = Callable[..., Any]


@pytest.mark.bad_day("a plugin that raises when it is imported")
def test_a_plugin_that_raises_at_import(cli: Cli, day: BadDay, plugin_file: Callable[..., Path]) -> None:
    path = plugin_file("x = 1\ny = x / 0\n")
    result = cli("train", "tooluse", "--plugin", path, "--dry-run")
    day.seen(result)
    assert f"{path}:2" in result.err
