"""The tokenizer of ``spade-tiny``: a byte-level BPE with Qwen3's special tokens and chat template.

Two choices make copying easy for a model of a million parameters. Every number below 100 is one token, so that an
identifier is copied in one step; and words never merge with the punctuation or space before them, so that a name has the
same tokens in an instruction, in a tool's answer and inside a JSON string. Phrases that every conversation repeats
(:data:`BOILERPLATE`) are one token each, which shortens prompts.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["CHAT_TEMPLATE", "SPECIAL_TOKENS", "capitalised", "train_tokenizer"]

SPECIAL_TOKENS: tuple[str, ...] = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)
_SPECIAL_FLAG = frozenset({"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
"""Qwen3 marks only these as special; the tags stay visible when a completion is decoded."""

_PIECES = r"\d{1,2}|[A-Za-z_]+|\n|[^A-Za-z0-9_\n]+"

_TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
    "signatures within <tools></tools> XML tags:\n<tools>\n"
)
_TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
)
BOILERPLATE: tuple[str, ...] = (
    _TOOLS_HEAD,
    _TOOLS_TAIL,
    '{"type": "function", "function": {"name": "',
    '", "description": "',
    '", "parameters": {"properties": {"',
    '": {"type": "string"}',
    '": {"type": "integer"}',
    '}, "required": ["',
    '"], "type": "object"}}}',
    '", "parameters": {"properties": {}, "type": "object"}}}',
    '{"name": "',
    '", "arguments": {"',
    '", "arguments": {}}',
)
"""What the chat template and the JSON of schemas and calls repeat word for word."""

# Qwen3's layout of roles, tools and tool answers, for models that do not think. It renders exactly what the Qwen3
# renderer extends turn by turn, so that a served conversation has the very tokens of training.
CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{%- if not loop.first or message.content %}{{- '\\n' }}{%- endif %}
{%- set function = call.function if call.function else call %}
{{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
{%- if function.arguments is string %}{{- function.arguments }}{%- else %}{{- function.arguments | tojson }}{%- endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


ROLES = ("system", "user", "assistant")
SURE_WEIGHT = 10_000
"""How often every number and role counts as seen: enough for each to be merged before any other word is."""


def train_tokenizer(texts: Iterable[str], folder: Path, *, vocab_size: int, phrases: Iterable[str] = ()) -> None:
    """Train on ``texts`` and write ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja`` to ``folder``.

    ``vocab_size`` bounds the BPE's vocabulary, special tokens included. Each of ``phrases`` becomes one token more, as those
    of :data:`BOILERPLATE` do.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(t, special=t in _SPECIAL_FLAG, normalized=False) for t in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sure = (text for text in (*ROLES, *(str(number) for number in range(100))) for _ in range(SURE_WEIGHT))
    tokenizer.train_from_iterator(itertools.chain(texts, sure), trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*BOILERPLATE, *phrases)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def capitalised(vocabulary: Mapping[str, int]) -> list[tuple[int, int]]:
    """The ids of every word that is in the vocabulary in small letters and with a capital: ``(savings, Savings)``."""
    words = sorted(word for word in vocabulary if word.isascii() and word.isalpha() and word.islower())
    return [(vocabulary[word], vocabulary[word.capitalize()]) for word in words if word.capitalize() in vocabulary]
