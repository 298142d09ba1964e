"""What a model folder must hold, read as far as is cheap: half a download is named before anything heavy starts."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from spade_agentic.errors import ConfigError

__all__ = ["check_model_folder"]

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
"""Files that a tokenizer is read from; one of them is enough."""
_LONGEST_HEADER = 100_000_000
_AGAIN = "copy or download the folder again, or name another one in model.path"


def check_model_folder(folder: Path) -> None:
    """Raise :class:`ConfigError` for the first file of ``folder`` that is missing, cut short, or not what its name says.

    Of the weights only the headers are read: that every tensor lies inside of its file, not what it holds.
    """
    _json_object(folder / "config.json")
    _check_tokenizer(folder)
    for file in _weight_files(folder):
        _check_safetensors(file)


def _check_tokenizer(folder: Path) -> None:
    found = [name for name in TOKENIZERS if (folder / name).is_file()]
    if not found:
        raise ConfigError(
            "this model has no tokenizer", where=str(folder), todo=f"it needs tokenizer.json (or {', '.join(TOKENIZERS[1:])})"
        )
    for name in (found[0], "tokenizer_config.json"):
        if name.endswith(".json") and (folder / name).is_file():
            _json_object(folder / name)


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if index.is_file():
        shards = _json_object(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise ConfigError("the index of the weights has no weight_map", where=str(index), todo=_AGAIN)
        return [folder / name for name in sorted(set(shards.values()))]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(
            "this model has no weights", where=str(folder),
            todo="it needs model.safetensors, or shards with model.safetensors.index.json",
        )
    return files


def _check_safetensors(path: Path) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if start == b"version ":
                raise _damaged(path, "is a pointer of Git LFS, not the weights (git lfs pull fetches them)")
            if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
                raise _damaged(path, f"has {size} bytes and no readable header")
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        end = max(ends, default=0)
    except FileNotFoundError as error:
        raise ConfigError("a file of this model's weights is missing", where=str(path), todo=_AGAIN) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(path, f"has a header that cannot be read: {error}") from error
    if size != 8 + length + end:
        raise _damaged(path, f"has {size} bytes, and its header says {8 + length + end}")


def _json_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise _damaged(path, f"is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise _damaged(path, f"holds {type(data).__name__} where an object is wanted")
    return data


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the model cannot be read: {error.strerror}", where=str(path), todo="make the file readable")


def _damaged(path: Path, how: str) -> ConfigError:
    return ConfigError(f"the model is damaged: {path.name} {how}", where=str(path), todo=_AGAIN)
