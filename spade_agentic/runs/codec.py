"""Records to JSON-able data and back, exactly.

``from_json(type(x), to_json(x)) == x`` for every record of :mod:`spade_agentic.hooks.records` and :mod:`~.hooks.kinds`,
with floats equal bit for bit (Python writes the shortest digits that read back the same; the three values that JSON has
no word for travel as the strings ``nan``, ``inf`` and ``-inf``). Fields of type ``Any`` must hold JSON-able values.

:func:`pack` and :func:`unpack` turn JSON-able data into compressed bytes and back. ``pack`` refuses what would come back as
something else (a tuple, a key that is no string), because a resumed run would then differ from the one that was killed.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from itertools import compress, groupby
from typing import Any, TypeVar

from spade_agentic.errors import PluginError, StoreError
from spade_agentic.hooks.records import Segment

__all__ = ["from_json", "pack", "to_json", "unpack"]

T = TypeVar("T")
Coder = Callable[[Any], Any]

_SCALARS = frozenset({int, str, bool, type(None), float})
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_json(value: Any) -> Any:
    """JSON-able form of a record (a dataclass instance), or of a list, tuple or string-keyed mapping of records."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _coders(type(value))[0](value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {k: to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    return _encode_float(value) if isinstance(value, float) else value


def from_json(kind: type[T], data: Any) -> T:
    """The record of type ``kind`` that ``data`` was made from.

    Raises :class:`~spade_agentic.errors.StoreError` where ``data`` is not such a record. A field that ``data`` lacks takes its
    default; a field that ``kind`` lacks is an error.
    """
    try:
        return typing.cast(T, _coders(typing.cast(collections.abc.Hashable, kind))[1](data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"not a stored {getattr(kind, '__name__', kind)}: {error}") from error


_JSON_ONLY = "let the plugin keep it as dict (with text for keys), list, str, int, float, bool and None only"


def pack(data: Any, *, what: str = "state", level: int = 1) -> bytes:
    """Compressed JSON of ``data``. Raises :class:`~spade_agentic.errors.PluginError` naming the part that JSON would change."""
    check_json(data, what)
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode(), level)


def unpack(blob: bytes) -> Any:
    """What :func:`pack` was given. Raises :class:`~spade_agentic.errors.StoreError` where the bytes are damaged."""
    try:
        return json.loads(zlib.decompress(blob))
    except (zlib.error, ValueError) as error:
        raise StoreError(f"a stored value is damaged: {error}") from error


def check_json(value: Any, path: str) -> None:
    """Raise :class:`~spade_agentic.errors.PluginError` unless ``value`` reads back from JSON as it is.

    What is stored that is not of our own making comes from a plugin: its state, or data on a program, a draft or an evaluation.
    """
    kind = type(value)
    if kind in _SCALARS:
        return
    if kind is list:
        if not _SCALARS.issuperset(set(map(type, value))):
            for i, item in enumerate(value):
                check_json(item, f"{path}[{i}]")
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise PluginError(f"{path} has the key {key!r}, which is no string", where=path, todo=_JSON_ONLY)
            check_json(item, f"{path}.{key}")
    else:
        raise PluginError(
            f"{path} is of type {kind.__name__}, which JSON would change or cannot hold", where=path, todo=_JSON_ONLY
        )


# --- coders, one pair per type, built once ---------------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _encode_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def _decode_float(value: float | str) -> float:
    return _NON_FINITE[value] if isinstance(value, str) else value


def _encode_floats(values: Any) -> list[Any]:
    return list(values) if all(map(math.isfinite, values)) else [_encode_float(v) for v in values]


def _decode_floats(values: list[Any]) -> list[float]:
    return [_decode_float(v) for v in values] if any(isinstance(v, str) for v in values) else list(values)


def _encode_any(value: Any) -> Any:
    """A JSON-able value, with mappings and sequences as plain dicts and lists."""
    if isinstance(value, Mapping):
        return {k: _encode_any(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_any(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    return value


@cache
def _coders(kind: Any) -> tuple[Coder, Coder]:
    """The encoder and the decoder of a type annotation."""
    if kind is Segment:
        return _encode_segment, _decode_segment
    if kind is float:
        return _encode_float, _decode_float
    if kind is Any:
        return _encode_any, _same
    if kind in (int, str, bool, type(None)):
        return _same, _same
    if isinstance(kind, type) and issubclass(kind, Enum):
        return (lambda v: v.value), kind
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass_coders(kind)
    return _generic_coders(kind)


def _generic_coders(kind: Any) -> tuple[Coder, Coder]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        if len(inner) == 1 and len(args) == 2:
            enc, dec = _coders(inner[0])
            return (lambda v: None if v is None else enc(v)), (lambda v: None if v is None else dec(v))
    if origin is list or (origin is tuple and len(args) == 2 and args[1] is Ellipsis):
        if args[0] is float:
            return _encode_floats, (_decode_floats if origin is list else lambda v: tuple(_decode_floats(v)))
        enc, dec = _coders(args[0])
        if enc is _same and dec is _same:
            return list, origin
        return (lambda v: [enc(x) for x in v]), (lambda v: origin(dec(x) for x in v))
    if origin is tuple:
        pairs = [_coders(a) for a in args]
        return (
            lambda v: [enc(x) for (enc, _), x in zip(pairs, v, strict=True)],
            lambda v: tuple(dec(x) for (_, dec), x in zip(pairs, v, strict=True)),
        )
    if origin in (dict, collections.abc.Mapping):
        enc, dec = _coders(args[1])
        return (lambda v: {k: enc(x) for k, x in v.items()}), (lambda v: {k: dec(x) for k, x in v.items()})
    raise StoreError(f"the codec has no rule for the type {kind!r}")


def _dataclass_coders(kind: Any) -> tuple[Coder, Coder]:
    hints = typing.get_type_hints(kind)
    fields = [(f.name, *_coders(hints[f.name])) for f in dataclasses.fields(kind) if f.init]
    decoders = {name: dec for name, _, dec in fields}

    def encode(value: Any) -> dict[str, Any]:
        return {name: enc(getattr(value, name)) for name, enc, _ in fields}

    def decode(data: Any) -> Any:
        return kind(**{name: decoders[name](item) for name, item in data.items()})

    return encode, decode


# --- segments: most tokens are context, with log-prob 0.0 and version -1 by definition --------------------------------


def _encode_segment(segment: Segment) -> dict[str, Any]:
    """Ids, lengths of the alternating context and sampled runs, and log-probs and versions of the sampled tokens alone.

    A segment whose context tokens carry anything but 0.0 and -1 is written out in full.
    """
    mask = segment.mask
    context = [not m for m in mask]
    plain = set(map(repr, compress(segment.logprobs, context))) <= {"0.0"} and set(
        compress(segment.versions, context)
    ) <= {-1}
    if not plain or not len(segment.token_ids) == len(mask) == len(segment.logprobs) == len(segment.versions):
        return {
            "ids": list(segment.token_ids),
            "mask": list(mask),
            "logprobs": _encode_floats(segment.logprobs),
            "versions": list(segment.versions),
        }
    runs = [(sampled, sum(1 for _ in group)) for sampled, group in groupby(mask)]
    lengths = [n for _, n in runs]
    return {
        "ids": list(segment.token_ids),
        "runs": [0, *lengths] if runs and runs[0][0] else lengths,
        "logprobs": _encode_floats(list(compress(segment.logprobs, mask))),
        "versions": [[v, sum(1 for _ in g)] for v, g in groupby(compress(segment.versions, mask))],
    }


def _decode_segment(data: Mapping[str, Any]) -> Segment:
    logprobs = _decode_floats(data["logprobs"])
    if "runs" not in data:
        return Segment(list(data["ids"]), list(data["mask"]), logprobs, list(data["versions"]))
    mask: list[bool] = []
    for i, length in enumerate(data["runs"]):
        mask.extend([i % 2 == 1] * length)
    sampled_logprobs = iter(logprobs)
    sampled_versions = (v for v, n in data["versions"] for _ in range(n))
    return Segment(
        list(data["ids"]),
        mask,
        [next(sampled_logprobs) if m else 0.0 for m in mask],
        [next(sampled_versions) if m else -1 for m in mask],
    )
