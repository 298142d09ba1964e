"""A rendering over single bytes, and a running sandbox of each backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sandboxes
from play_fakes import write_tokenizer

from spade_agentic.rollout.rendering import build_rendering
from spade_agentic.sandbox.backend import BubblewrapSandbox, PooledSandbox, ProcessSandbox
from spade_agentic.sandbox.options import SandboxOptions

BACKENDS = {"process": ProcessSandbox, "bubblewrap": BubblewrapSandbox}


@pytest.fixture(scope="session")
def rendering(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build_rendering(write_tokenizer(tmp_path_factory.mktemp("tokenizer")), {"name": "qwen3"})


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Any:
    """Makes a sandbox of each backend, as a contract wants it."""

    def make(folder: Path | None = None) -> PooledSandbox:
        made: PooledSandbox = BACKENDS[request.param](SandboxOptions(), run="conformance")
        return made

    return make


@pytest_asyncio.fixture
async def sandbox(backend: Any) -> AsyncIterator[PooledSandbox]:
    running = await sandboxes.started(backend())
    yield running
    await running.stop()
