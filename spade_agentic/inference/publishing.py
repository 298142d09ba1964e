"""Weights folders: reading and fingerprinting safetensors, and writing a folder that is there whole or not at all.

Nothing here imports torch: a fingerprint is over the numbers, not over a framework's objects. The checksum of a tensor
is the SHA-256 of its name's shape and its values as little-endian float32, so that a server that computes in float32 can
give the same checksum of what it holds in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UserError, WeightUpdateFailed

__all__ = ["atomic_folder", "combined_checksum", "folder_checksums", "read_weights", "tensor_checksum", "write_weights"]

Float32 = npt.NDArray[np.float32]

_DTYPES: dict[str, Any] = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}
_COMPANIONS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
               "special_tokens_map.json", "chat_template.jinja")


def _read_file(path: Path) -> Iterator[tuple[str, Float32]]:
    raw = path.read_bytes()
    if len(raw) < 8:
        raise ValueError("shorter than a header")
    (header_size,) = struct.unpack("<Q", raw[:8])
    if header_size > len(raw) - 8:
        raise ValueError("header is longer than the file")
    header: dict[str, Any] = json.loads(raw[8:8 + header_size])
    data = memoryview(raw)[8 + header_size:]
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"tensor {name!r} has dtype {entry['dtype']}")
        begin, end = entry["data_offsets"]
        if end > len(data):
            raise ValueError(f"tensor {name!r} ends after the end of the file")
        values = np.frombuffer(data[begin:end], dtype=_DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        yield name, np.ascontiguousarray(values, dtype="<f4").reshape(entry["shape"])


def read_weights(folder: Path) -> dict[str, Float32]:
    """Every tensor of a Hugging Face folder (``model.safetensors``, or the shards of its index), as float32.

    Raises :class:`UserError` naming the file that is missing, cut short or unreadable.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    files = [single]
    if not single.is_file() and index.is_file():
        files = [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    tensors: dict[str, Float32] = {}
    for path in files:
        try:
            tensors.update(_read_file(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"No readable weights: {error}", where=str(path),
                            todo="Write the folder again; a weights folder holds model.safetensors.") from error
    return tensors


def tensor_checksum(values: Float32) -> str:
    """SHA-256 over shape and little-endian float32 values of one tensor."""
    digest = hashlib.sha256(repr(tuple(values.shape)).encode())
    digest.update(np.ascontiguousarray(values, dtype="<f4").tobytes())
    return digest.hexdigest()


def folder_checksums(folder: Path) -> dict[str, str]:
    """Checksum of every tensor that a server of this folder holds: a tied ``lm_head.weight`` is left out."""
    tensors = read_weights(folder)
    config = folder / "config.json"
    if config.is_file() and json.loads(config.read_text(encoding="utf-8")).get("tie_word_embeddings"):
        tensors.pop("lm_head.weight", None)
    return {name: tensor_checksum(values) for name, values in tensors.items()}


def combined_checksum(checksums: Mapping[str, str]) -> str:
    """One checksum of all, whatever their order."""
    return hashlib.sha256("".join(f"{name}={checksums[name]};" for name in sorted(checksums)).encode()).hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A folder that appears under its name whole or not at all.

    Yields a hidden sibling to fill; at the end every file and folder in it is fsynced, it is renamed to ``target`` and
    the parent is fsynced. An exception leaves ``target`` as it was. Raises :class:`WeightUpdateFailed` if ``target``
    exists: a published folder never changes.
    """
    if target.exists():
        raise WeightUpdateFailed(f"{target} exists already; a published weights folder never changes")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.tmp-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for root, _, files in os.walk(temporary, topdown=False):
            for name in files:
                _fsync(Path(root) / name)
            _fsync(Path(root))
        temporary.rename(target)
        _fsync(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_weights(target: Path, tensors: Mapping[str, Float32], *, like: Path) -> None:
    """Write a complete model folder atomically: ``tensors`` as float32, config and tokenizer files copied from ``like``."""
    from safetensors.numpy import save_file

    with atomic_folder(target) as folder:
        save_file({name: np.ascontiguousarray(values, dtype=np.float32) for name, values in tensors.items()},
                  folder / "model.safetensors", metadata={"format": "pt"})
        for name in _COMPANIONS:
            if (like / name).is_file():
                shutil.copyfile(like / name, folder / name)
