"""Puts the toy game of ``tests/helpers`` within reach, and renders with a real Qwen3 renderer over single bytes."""

import sys
from pathlib import Path

import pytest

HELPERS = str(Path(__file__).parents[1] / "helpers")
if HELPERS not in sys.path:
    sys.path.insert(0, HELPERS)


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory):
    from play_fakes import write_tokenizer

    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def rendering(tokenizer_dir):
    from spade_agentic.rollout.rendering import build_rendering

    return build_rendering(tokenizer_dir, {"name": "qwen3"})
