"""A random Qwen3 that is small enough for every test: two layers, hidden size 64, a byte-level tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["TINY_VOCABULARY", "tiny_model", "tiny_tokenizer"]

TINY_VOCABULARY = 320
"""Tokens of the tiny model: 256 bytes, the special tokens, and a few merges. Divisible by 4."""

_TEXT = 'Use the tools, then answer done. {"name": "set_to", "arguments": {"n": 1}} Hint: call the tool with the number.'


def tiny_model(folder: Path, *, seed: int = 0, hidden: int = 64, layers: int = 2) -> Path:
    """Write a randomly initialised Qwen3 with its tokenizer to ``folder`` and return it.

    Two heads and two key/value heads of dimension 32, tied embeddings, float32. Equal arguments give equal bytes. It is
    ready for the embedded engine, for the torch learner and for the ``qwen3`` renderer.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen3Config, Qwen3ForCausalLM

    ids = tiny_tokenizer(folder)
    config = Qwen3Config(
        vocab_size=TINY_VOCABULARY, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=2, num_key_value_heads=2, head_dim=32, max_position_embeddings=4096, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=ids["<|im_end|>"], pad_token_id=ids["<|endoftext|>"], dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    config.architectures = ["Qwen3ForCausalLM"]
    config.save_pretrained(folder)
    # Not model.save_pretrained, which draws a progress bar. The output layer is the embedding, so it is not stored.
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def tiny_tokenizer(folder: Path) -> dict[str, int]:
    """Write a byte-level tokenizer with spade-tiny's special tokens and chat template; returns the special tokens' ids."""
    from tokenizers import AddedToken, Tokenizer, decoders, models as tokenizer_models, pre_tokenizers, trainers

    from spade_agentic.bootstrap.tokenizer import CHAT_TEMPLATE, SPECIAL_TOKENS

    visible = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
    tokenizer = Tokenizer(tokenizer_models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TINY_VOCABULARY,
        special_tokens=[AddedToken(token, special=token not in visible, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT] * 4, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "model_max_length": 4096, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return {token: vocabulary[token] for token in SPECIAL_TOKENS}
