"""Tools: schemas from signatures, and arguments that are checked before a tool runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, Field

from spade_agentic import Instruction, ToolCall, ToolEnv, ToolError, tool
from spade_agentic.envs.contract import MAX_ARGUMENT_CHARS


class Item(BaseModel):
    title: str
    count: int = 1


class Shop(ToolEnv):
    """Tools of every type; each keeps what it was given."""

    def setup(self, rng: random.Random) -> Sequence[Instruction]:
        self.seen: list[Any] = []
        return [Instruction("Buy it.", lambda: "bought" in self.seen, [ToolCall("buy", {"name": "bought"})])]

    @tool
    def buy(self, name: str) -> str:
        """Buy something.

        This line is for readers of the code.
        """
        self.seen.append(name)
        return "ok"

    @tool
    def count(self, n: int, factor: float = 1.5, *, loud: bool = False) -> float:
        """Count."""
        self.seen.append((n, factor, loud))
        return n * factor

    @tool
    def choose(self, colour: Literal["red", "green"], size: Annotated[int, Field(ge=1, le=9, description="How big.")]) -> str:
        """Choose."""
        self.seen.append((colour, size))
        return f"{colour} {size}"

    @tool
    def order(self, items: list[Item], notes: dict[str, str] | None = None) -> list[Item]:
        """Order several things."""
        self.seen.append((items, notes))
        return items

    @tool
    def due(self) -> date:
        return date(2026, 1, 2)

    @tool
    def fail(self) -> str:
        """Refuse."""
        raise ToolError("not today")

    @tool
    def broken(self) -> Any:
        """Return what JSON cannot hold."""
        return object()

    @tool
    def infinite(self) -> float:
        """Return what JSON has no word for."""
        return float("inf")

    def helper(self) -> None:
        """No tool."""


@pytest.fixture
def shop() -> Shop:
    env = Shop()
    env.reset(seed=1)
    return env


def schema(env: ToolEnv, name: str) -> dict[str, Any]:
    return next(item["function"] for item in env.tools() if item["function"]["name"] == name)


def say(env: ToolEnv, name: Any, /, arguments: Any = None) -> tuple[str, bool]:
    observation, _, _, _, info = env.step({"type": "call", "name": name, "arguments": {} if arguments is None else arguments})
    return observation, info["error"]


# --- schemas -------------------------------------------------------------------------------------------------------------


def test_every_marked_method_is_a_function_in_order_of_definition(shop: Shop) -> None:
    names = [item["function"]["name"] for item in shop.tools()]
    assert names == ["buy", "count", "choose", "order", "due", "fail", "broken", "infinite"]
    assert {item["type"] for item in shop.tools()} == {"function"}


def test_the_first_line_of_the_docstring_describes_the_tool(shop: Shop) -> None:
    assert schema(shop, "buy")["description"] == "Buy something."
    assert schema(shop, "due")["description"] == "due"


def test_parameters_become_json_schema(shop: Shop) -> None:
    assert schema(shop, "buy")["parameters"] == {
        "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
    }  # fmt: skip
    parameters = schema(shop, "count")["parameters"]
    assert parameters["required"] == ["n"]
    assert [parameters["properties"][name]["type"] for name in ("n", "factor", "loud")] == ["integer", "number", "boolean"]


def test_choices_ranges_and_descriptions_are_in_the_schema(shop: Shop) -> None:
    properties = schema(shop, "choose")["parameters"]["properties"]
    assert properties["colour"]["enum"] == ["red", "green"]
    assert properties["size"] == {"type": "integer", "minimum": 1, "maximum": 9, "description": "How big."}


def test_nested_models_keep_properties_that_are_named_like_keywords(shop: Shop) -> None:
    item = schema(shop, "order")["parameters"]["$defs"]["Item"]
    assert set(item["properties"]) == {"title", "count"}
    assert item["properties"]["title"] == {"type": "string"}


def test_a_tool_without_parameters_has_an_empty_object(shop: Shop) -> None:
    assert schema(shop, "due")["parameters"] == {"type": "object", "properties": {}}


def test_a_caller_cannot_damage_the_schemas(shop: Shop) -> None:
    shop.tools()[0]["function"]["name"] = "stolen"
    assert shop.tools()[0]["function"]["name"] == "buy"


def test_subclasses_inherit_change_and_hide_tools() -> None:
    class Corner(Shop):
        @tool
        def buy(self, name: str, price: int) -> str:
            """Buy at a price."""
            return "ok"

        def count(self) -> None:  # type: ignore[override]
            """No tool any more."""

    names = [item["function"]["name"] for item in Corner().tools()]
    assert "count" not in names
    assert names.count("buy") == 1
    assert set(schema(Corner(), "buy")["parameters"]["properties"]) == {"name", "price"}
    assert "count" in [item["function"]["name"] for item in Shop().tools()]


@pytest.mark.parametrize("bad", ["unannotated", "star", "keywords"])
def test_a_tool_whose_parameters_have_no_names_or_types_is_an_error(bad: str) -> None:
    class Bad(ToolEnv):
        def setup(self, rng: random.Random) -> Sequence[Instruction]:
            return []

    def unannotated(self, x):
        return "ok"

    def star(self, *x: int) -> str:
        return "ok"

    def keywords(self, **x: int) -> str:
        return "ok"

    method = {"unannotated": unannotated, "star": star, "keywords": keywords}[bad]
    setattr(Bad, bad, tool(method))
    with pytest.raises(TypeError, match=f"tool {bad}: parameter x"):
        Bad().tools()


# --- validation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("buy", {}, "name: field required"),
        ("buy", {"name": 5}, "name: input should be a valid string"),
        ("buy", {"name": None}, "name: "),
        ("buy", {"name": "a", "extra": 1}, "extra: extra inputs are not permitted"),
        ("count", {"n": "5"}, "n: input should be a valid integer"),
        ("count", {"n": 5.5}, "n: "),
        ("count", {"n": True}, "n: "),
        ("count", {"n": 5, "loud": "yes"}, "loud: "),
        ("choose", {"colour": "blue", "size": 3}, "colour: input should be 'red' or 'green'"),
        ("choose", {"colour": "red", "size": 10}, "size: "),
        ("order", {"items": [{"title": "a"}, {"title": 2}]}, "items.1.title: "),
        ("buy", [1, 2], "arguments must be an object"),
        ("buy", "name", "arguments must be an object"),
        ("buy", {"name": "x" * MAX_ARGUMENT_CHARS}, "arguments too long"),
        ("count", {"n": 1, "factor": float("nan")}, "arguments are not JSON"),
        ("buy", {"name": object()}, "arguments are not JSON"),
    ],
)
def test_wrong_arguments_never_reach_the_tool(shop: Shop, name: str, arguments: Any, words: str) -> None:
    observation, failed = say(shop, name, arguments)
    assert failed
    assert observation.startswith('{"error": "')
    assert words.lower() in observation.lower()
    assert shop.seen == []


def test_deeply_nested_arguments_are_refused(shop: Shop) -> None:
    nested: Any = "x"
    for _ in range(100_000):
        nested = [nested]
    observation, failed = say(shop, "buy", {"name": nested})
    assert failed
    assert "arguments are not JSON" in observation
    while isinstance(nested, list):  # taken apart by hand, or the interpreter recurses while it frees the list
        nested = nested.pop()


@pytest.mark.parametrize("name", ["helper", "reset", "setup", "_call", "__init__", "", None, 7, ["buy"]])
def test_only_tools_can_be_called(shop: Shop, name: Any) -> None:
    observation, failed = say(shop, name)
    assert (observation, failed) == ('{"error": "unknown tool"}', True)


def test_a_tool_gets_values_of_its_own_types(shop: Shop) -> None:
    assert say(shop, "order", {"items": [{"title": "a"}, {"title": "b", "count": 2}], "notes": {"k": "v"}})[1] is False
    (items, notes) = shop.seen[0]
    assert [type(item) for item in items] == [Item, Item]
    assert notes == {"k": "v"}
    say(shop, "count", {"n": 2})
    assert shop.seen[1] == (2, 1.5, False)


def test_results_are_text_as_it_is_or_json(shop: Shop) -> None:
    assert say(shop, "choose", {"colour": "red", "size": 3}) == ("red 3", False)
    assert say(shop, "count", {"n": 2, "factor": 2.0}) == ("4.0", False)
    assert say(shop, "order", {"items": [{"title": "é"}]}) == ('[{"title": "é", "count": 1}]', False)
    assert say(shop, "due") == ('"2026-01-02"', False)


def test_a_refusal_of_a_tool_is_an_observation_and_the_play_goes_on(shop: Shop) -> None:
    assert say(shop, "fail") == ('{"error": "not today"}', True)
    assert say(shop, "buy", {"name": "bought"}) == ("ok", False)


@pytest.mark.parametrize("name", ["broken", "infinite"])
def test_a_result_that_json_cannot_hold_is_the_programs_fault(shop: Shop, name: str) -> None:
    with pytest.raises(TypeError, match=f"tool {name} returned what JSON cannot hold"):
        say(shop, name)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["buy", "count", "choose", "order", "due", "nothing"]), _JSON)
@settings(max_examples=200, deadline=None)
def test_no_arguments_crash_an_environment(name: str, arguments: Any) -> None:
    env = Shop()
    env.reset(seed=1)
    observation, failed = say(env, name, arguments)
    assert isinstance(observation, str)
    assert failed == observation.startswith('{"error"')
