"""The renderer of a run comes from its config."""

import pytest

from spade_agentic.errors import ConfigError
from spade_agentic.rollout.rendering import build_rendering


def test_an_unknown_renderer_is_refused_with_the_known_ones(tokenizer_dir):
    with pytest.raises(ConfigError, match=r"choose one of .*qwen3"):
        build_rendering(tokenizer_dir, {"name": "qwenn"})


def test_an_unknown_option_of_a_renderer_is_refused_with_the_known_ones(tokenizer_dir):
    with pytest.raises(ConfigError, match="enable_thinking"):
        build_rendering(tokenizer_dir, {"name": "qwen3", "think": True})


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        build_rendering(tmp_path, {"name": "qwen3"})
    with pytest.raises(ConfigError, match="no model folder"):
        build_rendering(tmp_path / "nowhere", {"name": "qwen3"})


def test_a_tokenizer_of_another_family_is_refused(tmp_path, tokenizer_dir):
    text = (tokenizer_dir / "tokenizer.json").read_text().replace("<tool_call>", "<other>")
    (tmp_path / "tokenizer.json").write_text(text)
    (tmp_path / "tokenizer_config.json").write_text((tokenizer_dir / "tokenizer_config.json").read_text())
    with pytest.raises(ConfigError, match="does not fit the renderer"):
        build_rendering(tmp_path, {"name": "qwen3"})


def test_text_of_a_completion_leaves_the_stop_token_out(rendering):
    ids = [*rendering.tokenizer.encode("done", add_special_tokens=False), rendering.stop_token_ids[0]]
    assert rendering.text(ids) == "done"
