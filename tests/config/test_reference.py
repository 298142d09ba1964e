"""The schema as documentation: every key is explained, and the reference page is made from it."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, Field

from spade_agentic import Options, PluginManager
from spade_agentic.config.reference import OptionRow, option_rows, reference_page
from spade_agentic.config.schema import RunConfig
from spade_agentic.config.suggest import did_you_mean, nearest


def test_every_key_of_a_run_has_a_description() -> None:
    rows = option_rows(RunConfig)
    assert len(rows) > 30
    assert [row.name for row in rows if not row.doc] == []


def test_the_json_schema_refuses_unknown_keys_and_knows_the_sections() -> None:
    schema = RunConfig.model_json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(RunConfig.model_fields)
    json.dumps(schema)


def test_every_key_and_every_plugin_is_on_the_reference_page(manager: PluginManager) -> None:
    page = reference_page(manager)
    for row in option_rows(RunConfig):
        assert f"`{row.name}`" in page
    for hook in ("env_designer", "designer_reward", "learner", "tool_sim", "sandbox"):
        for name in manager.factories(hook):
            assert f"#### `{name}`" in page


def test_the_reference_page_is_the_same_every_time(manager: PluginManager) -> None:
    assert reference_page(manager) == reference_page(manager)


class Inner(BaseModel):
    depth: int = Field(default=2, description="how deep")


class Sample(Options):
    needed: str
    pair: tuple[float, float] = (0.1, 0.9)
    names: list[str] | None = Field(default=None, description="which | ones")
    inner: Inner = Inner()
    maybe: Inner | None = None


def test_rows_say_type_default_and_meaning_in_the_words_of_a_yaml_file() -> None:
    assert option_rows(Sample) == [
        OptionRow("needed", "text", None, ""),
        OptionRow("pair", "list of 2: number", "[0.1, 0.9]", ""),
        OptionRow("names", "list of text or null", "null", "Which | ones."),
        OptionRow("inner.depth", "whole number", "2", "How deep."),
        OptionRow("maybe", "mapping or null", "null", ""),
        OptionRow("maybe.depth", "whole number", "2", "How deep."),
    ]


@pytest.mark.parametrize(
    ("name", "expected"), [("rewrad", "reward"), ("Hint-Regret", "hint_regret"), ("regret", "hint_regret"), ("zzz", None)]
)
def test_the_nearest_name_is_found_whatever_its_case_and_dashes(name: str, expected: str | None) -> None:
    assert nearest(name, ["reward", "hint_regret", "ema"]) == expected


def test_a_suggestion_lists_what_there_is() -> None:
    assert did_you_mean("zzz", ["b", "a"], noun="key") == "use one of: a, b"
    assert did_you_mean("x", [], noun="key") == "there is no key to choose from"
