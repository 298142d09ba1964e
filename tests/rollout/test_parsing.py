"""Malformed tool calls are data: counted, answered by a fixed error, never executed."""

import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from play_fakes import call

from spade_agentic.hooks.records import Completion, FinishReason, ParseOutcome
from spade_agentic.rollout.parsing import parse_completion

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look", "description": "d",
            "parameters": {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]},
        },
    }
]


def read(rendering, text, finish=FinishReason.STOP):
    ids = [*rendering.tokenizer.encode(text, add_special_tokens=False), rendering.stop_token_ids[0]]
    completion = Completion(tuple(ids), (0.0,) * len(ids), (0,) * len(ids), finish)
    return parse_completion(rendering, completion, TOOLS)


def test_a_clean_call_is_a_call_with_its_arguments(rendering):
    parsed = read(rendering, call("look", thing="lamp"))
    assert parsed.outcome is ParseOutcome.CALL
    assert parsed.calls == ({"name": "look", "arguments": {"thing": "lamp"}},)


def test_nested_arguments_arrive_whole(rendering):
    """The reference turned three levels of nesting into {} and ran the call all the same."""
    deep = {"a": {"b": {"c": {"d": [1, {"e": None}]}}}}
    parsed = read(rendering, call("look", thing=deep))
    assert parsed.calls[0]["arguments"] == {"thing": deep}


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"thing\": \"lamp\"}\n</tool_call>",
        "<tool_call>\n{'name': 'look', 'arguments': {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"look\", \"arguments\": \"lamp\"}\n</tool_call>",
        "<tool_call>\n{\"name\": \"look\", \"arguments\": [1]}\n</tool_call>",
        "<tool_call>\n{\"arguments\": {\"thing\": \"lamp\"}}\n</tool_call>",
        "<tool_call>\n{\"name\": 3, \"arguments\": {}}\n</tool_call>",
        "<tool_call>\nlook(thing='lamp')\n</tool_call>",
        "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"thing\": NaN}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"thing\": \"\\ud800\"}}\n</tool_call>",
        "<tool_call>\n" + "[" * 3000 + "\n</tool_call>",
        "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"n\": " + "9" * 6000 + "}}\n</tool_call>",
    ],
)
def test_what_is_not_clean_json_with_name_and_arguments_is_malformed(rendering, text):
    parsed = read(rendering, text)
    assert parsed.outcome is ParseOutcome.MALFORMED
    assert parsed.calls == ()


def test_one_malformed_call_stops_the_clean_one_beside_it(rendering):
    parsed = read(rendering, call("look", thing="lamp") + "\n<tool_call>\n{\"name\": \n</tool_call>")
    assert parsed.outcome is ParseOutcome.MALFORMED
    assert parsed.calls == ()


def test_an_unknown_tool_is_still_a_call_that_the_environment_answers(rendering):
    parsed = read(rendering, call("fly", height=3))
    assert parsed.outcome is ParseOutcome.CALL


def test_text_without_a_call_is_an_answer(rendering):
    parsed = read(rendering, "All done.")
    assert (parsed.outcome, parsed.text) == (ParseOutcome.NO_CALL, "All done.")


def test_a_cut_completion_is_truncated_whatever_it_holds(rendering):
    parsed = read(rendering, call("look", thing="lamp"), FinishReason.LENGTH)
    assert parsed.outcome is ParseOutcome.TRUNCATED
    assert parsed.calls == ()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(
        st.sampled_from(
            ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>", "<|im_start|>", "\n", "{", "}", '"name"', ": ",
             '"look"', '"arguments"', "[", "]", ",", "NaN", "1e999", "-", "9" * 50, "é", "\\u00", '"thing"']
        ),
        max_size=14,
    )
)
def test_reading_a_completion_never_raises_and_calls_are_always_json_objects(rendering, pieces):
    parsed = read(rendering, "".join(pieces))
    for made in parsed.calls:
        assert isinstance(made["name"], str)
        assert isinstance(made["arguments"], dict)
        json.dumps(made, allow_nan=False).encode()
