"""Messages to tokens and back, for one model family, through the ``renderers`` package.

A renderer knows its family's chat format by hand: it renders a prompt, extends what was said by new messages without
touching a single earlier token, and reads a completion's tool calls. Nothing here re-tokenises a completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spade_agentic.errors import ConfigError

__all__ = ["Message", "Rendering", "build_rendering"]

Message = Mapping[str, Any]


class Rendering:
    """One tokenizer and the renderer of its model family. Holds no conversation; may be shared by all sessions."""

    def __init__(self, tokenizer: Any, renderer: Any) -> None:
        self.tokenizer = tokenizer
        self.renderer = renderer
        self.stop_token_ids: tuple[int, ...] = tuple(renderer.get_stop_token_ids())

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> list[int]:
        """The token ids of a whole conversation, up to where the assistant speaks next."""
        rendered = self.renderer.render(
            [dict(m) for m in messages], tools=_tool_list(tools), add_generation_prompt=True
        )
        return list(rendered.token_ids)

    def extension(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        new_messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
    ) -> list[int] | None:
        """The ids to append after ``prompt_ids + completion_ids`` to say ``new_messages`` and let the assistant speak.

        ``None`` where the family cannot extend this history (its template would drop or change what was said).
        """
        bridged = self.renderer.bridge_to_next_turn(
            list(prompt_ids), list(completion_ids), [dict(m) for m in new_messages], tools=_tool_list(tools)
        )
        if bridged is None:
            return None
        history = [*prompt_ids, *completion_ids]
        ids = list(bridged.token_ids)
        return ids[len(history) :] if ids[: len(history)] == history else None

    def text(self, token_ids: Sequence[int]) -> str:
        """What a completion says, without its stop token."""
        ids = list(token_ids)
        while ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def parse(self, completion_ids: Sequence[int], tools: Sequence[Mapping[str, Any]] | None, prompt_ids: Sequence[int]) -> Any:
        """The renderer's ``ParsedResponse`` of a completion.

        Raises ValueError or RecursionError for JSON that no interpreter of reasonable limits reads; callers treat
        that as malformed.
        """
        return self.renderer.parse_response(list(completion_ids), tools=_tool_list(tools), prompt_ids=list(prompt_ids))


def _tool_list(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    return [dict(t) for t in tools] if tools else None


def build_rendering(model_dir: Path, renderer: Mapping[str, Any] | None = None) -> Rendering:
    """The rendering of the model in ``model_dir``.

    ``renderer`` is the ``model.renderer`` section of the YAML: ``name`` is one of the ``renderers`` package's families
    (``qwen3``, ``glm-5``, ...; ``auto`` asks the tokenizer's name), every other key is an option of that family, such as
    ``enable_thinking`` or ``thinking_retention``. Raises ConfigError for an unknown family or option, or a folder
    without a tokenizer.
    """
    from pydantic import ValidationError
    from renderers import create_renderer

    options = dict(renderer or {"name": "auto"})
    name = str(options.pop("name", "auto"))
    configs = _renderer_configs()
    if name not in configs:
        known = ", ".join(sorted(configs))
        raise ConfigError(f"unknown renderer {name!r}", where="model.renderer.name", todo=f"choose one of {known}")
    try:
        config = configs[name](**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["model.renderer", *(str(part) for part in first["loc"])])
        raise ConfigError(
            f"the renderer {name!r} refuses an option: {first['msg']}",
            where=where,
            todo=f"its options are {', '.join(sorted(configs[name].model_fields))}",
        ) from error
    tokenizer = _load_tokenizer(model_dir)
    try:
        return Rendering(tokenizer, create_renderer(tokenizer, config))
    except (AssertionError, ValueError) as error:
        raise ConfigError(
            f"the tokenizer of {model_dir} does not fit the renderer {name!r}: {error}",
            where="model.renderer.name",
            todo="choose the renderer of this model's family",
        ) from error


def _load_tokenizer(model_dir: Path) -> Any:
    from transformers import AutoTokenizer

    if not model_dir.is_dir():
        raise ConfigError(f"there is no model folder {model_dir}", where="model.path", todo="give a folder with a model")
    try:
        return AutoTokenizer.from_pretrained(str(model_dir), local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the tokenizer of {model_dir} does not load: {error}",
            where="model.path",
            todo="the folder needs tokenizer.json and tokenizer_config.json",
        ) from error


def _renderer_configs() -> dict[str, Any]:
    """Every typed renderer config of the ``renderers`` package, by its name."""
    from pydantic import BaseModel
    from renderers import configs

    base: type[BaseModel] = configs.BaseRendererConfig
    found: dict[str, Any] = {}
    for value in vars(configs).values():
        if isinstance(value, type) and issubclass(value, base):
            field = value.model_fields.get("name")
            if field is not None and isinstance(field.default, str):
                found[field.default] = value
    return found
