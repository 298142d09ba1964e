from __future__ import annotations

import collections.abc
import dataclasses
import enum
import math
import types
import typing
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from spade_agentic.errors import PluginError, StoreError
from spade_agentic.hooks import kinds, records
from spade_agentic.runs.codec import from_json, pack, to_json, unpack

RECORDS = [
    getattr(module, name)
    for module in (records, kinds)
    for name in module.__all__
    if dataclasses.is_dataclass(getattr(module, name)) and name != "Factory"
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
floats = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def segments(draw: st.DrawFn) -> records.Segment:
    """Runs of context and of sampled tokens, as they grow; now and then with context that carries odd values."""
    segment = records.Segment()
    for _ in range(draw(st.integers(0, 4))):
        ids = draw(st.lists(st.integers(0, 10**6), max_size=5))
        if draw(st.booleans()):
            segment.append_context(ids)
        else:
            logprobs = tuple(draw(st.lists(floats, min_size=len(ids), max_size=len(ids))))
            versions = tuple(draw(st.lists(st.integers(0, 9), min_size=len(ids), max_size=len(ids))))
            segment.append_completion(records.Completion(tuple(ids), logprobs, versions, records.FinishReason.STOP))
    if len(segment) and draw(st.booleans()):
        segment.logprobs[0] = draw(st.sampled_from([-0.0, -1.5, math.nan]))
        segment.versions[0] = draw(st.integers(-1, 3))
    return segment


@st.composite
def completions(draw: st.DrawFn) -> records.Completion:
    n = draw(st.integers(0, 5))
    ids, versions = (tuple(draw(st.lists(st.integers(0, 999), min_size=n, max_size=n))) for _ in range(2))
    reason = draw(st.sampled_from(records.FinishReason))
    return records.Completion(ids, tuple(draw(st.lists(floats, min_size=n, max_size=n))), versions, reason)


SPECIAL = {
    Any: json_values, float: floats, int: st.integers(), str: st.text(max_size=8), bool: st.booleans(),
    records.Segment: segments(), records.Completion: completions(),
}  # fmt: skip


def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a record's type, or of one of its fields' types."""
    if kind in SPECIAL:
        return SPECIAL[kind]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{f.name: strategy(hints[f.name]) for f in dataclasses.fields(kind)})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return st.none() | strategy(next(a for a in args if a is not type(None)))
    if origin in (list, tuple):
        values = st.lists(strategy(args[0]), max_size=3)
        return values if origin is list else values.map(tuple)
    assert origin in (dict, collections.abc.Mapping), kind
    return st.dictionaries(st.text(max_size=4), strategy(args[1]), max_size=3)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda k: k.__name__)
@settings(max_examples=40)
@given(st.data())
def test_every_record_comes_back_exactly(kind: Any, data: st.DataObject) -> None:
    record = data.draw(strategy(kind))
    back = from_json(kind, unpack(pack(to_json(record))))
    # repr tells -0.0 from 0.0 and 0.1 from its neighbours, and nan equals nan
    assert repr(back) == repr(record)


@given(segments())
def test_a_segment_comes_back_token_by_token(segment: records.Segment) -> None:
    back = from_json(records.Segment, unpack(pack(to_json(segment))))
    assert repr(back) == repr(segment)
    assert type(back.mask[0]) is bool if back.mask else True


def test_context_tokens_take_no_room_for_what_they_do_not_have() -> None:
    segment = records.Segment()
    segment.append_context(list(range(1000)))
    assert sorted(to_json(segment)) == ["ids", "logprobs", "runs", "versions"]
    assert to_json(segment)["logprobs"] == []


@given(json_values)
def test_pack_gives_back_what_it_was_given(value: Any) -> None:
    assert repr(unpack(pack(value))) == repr(value)


@pytest.mark.parametrize(
    ("value", "where"),
    [({"a": [1, (2,)]}, r"state\.a\[1\] is of type tuple"), ({"a": {1: 2}}, "the key 1"), ({"b": {3}}, "set")],
)
def test_state_that_json_would_change_is_refused_by_its_path(value: Any, where: str) -> None:
    with pytest.raises(PluginError, match=where):
        pack(value)


def test_damaged_bytes_and_foreign_data_are_named() -> None:
    with pytest.raises(StoreError, match="damaged"):
        unpack(b"nonsense")
    with pytest.raises(StoreError, match="not a stored Regret"):
        from_json(records.Regret, {"mean": 1.0, "median": 2.0})


def test_a_field_that_came_later_takes_its_default() -> None:
    data = to_json(records.Refusal("gate", "code", "detail"))
    del data["detail"]
    assert from_json(records.Refusal, data) == records.Refusal("gate", "code")
