"""Starting a real sandbox, or saying why there is none."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from spade_agentic.errors import SandboxUnavailable
from spade_agentic.sandbox.backend import PooledSandbox


def missing(reason: object) -> NoReturn:
    """Skip the test with the reason; ``.ci/run`` sets CI, and there nothing may be missing."""
    if os.environ.get("CI"):
        pytest.fail(f"CI needs bubblewrap: {reason}")
    pytest.skip(str(reason))


async def started(sandbox: PooledSandbox) -> PooledSandbox:
    """The sandbox, running; where bubblewrap does not work the test is skipped with the reason, in CI it fails."""
    try:
        await sandbox.start()
    except SandboxUnavailable as error:
        missing(error)
    return sandbox
