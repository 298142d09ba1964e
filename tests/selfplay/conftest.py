"""Renders with a real Qwen3 renderer over single bytes."""

import pytest


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory):
    from play_fakes import write_tokenizer

    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def rendering(tokenizer_dir):
    from spade_agentic.rollout.rendering import build_rendering

    return build_rendering(tokenizer_dir, {"name": "qwen3"})
