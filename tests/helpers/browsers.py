"""A real browser without a screen, or the reason why there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Browser:
    """Chromium. Every call is a process and a profile of its own."""

    program: str

    def dom(self, page: Path) -> tuple[str, str]:
        """The document after all scripts that run have run, and what the browser logged (violations of the page's policy)."""
        return self._run(page, "--dump-dom", "--enable-logging=stderr")

    def screenshot(self, page: Path, output: Path, *, width: int = 1200, height: int = 2000, dark: bool = False) -> None:
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        self._run(page, f"--screenshot={output}", f"--window-size={width},{height}", "--hide-scrollbars", *scheme)

    def _run(self, page: Path, *arguments: str) -> tuple[str, str]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            command = [
                self.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                f"--user-data-dir={profile}", "--virtual-time-budget=3000", *arguments, page.as_uri(),
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr


def chromium() -> Browser:
    """The browser; where there is none the test is skipped with the reason, in CI (``.ci/run`` sets it) it fails."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        reason = f"none of {', '.join(NAMES)} is installed"
        if os.environ.get("CI"):
            pytest.fail(f"CI needs a browser: {reason}")
        pytest.skip(reason)
    return Browser(program)
