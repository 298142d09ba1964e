"""Every first-party plugin satisfies the contract of its kind, as anybody's must."""

from __future__ import annotations

import pytest
from sandboxes import missing

from spade_agentic import PluginManager
from spade_agentic.hooks.specs import FACTORY_HOOKS
from spade_agentic.testing.checking import check_plugin
from spade_agentic.testing.contracts import CONTRACTS

PLUGINS = (
    "banking", "blueprint", "bubblewrap_sandbox", "embedded_engine", "heldout", "jsonl_tracker", "no_memory",
    "procedure_hints", "process_sandbox", "retail", "rewards", "round_robin", "smart_home", "sqlite_memory", "support",
    "telecom", "tensorboard_tracker", "torch_learner",
)  # fmt: skip
OPTIONAL = {"bubblewrap_sandbox": "sandbox bubblewrap"}
"""Plugins with a factory that does not work on every machine."""


def bubblewrap_works() -> bool:
    from spade_agentic.cli.doctor import _bubblewrap

    return _bubblewrap().status == "ok"


@pytest.mark.parametrize("name", PLUGINS)
def test_the_plugin_satisfies_every_rule_of_its_kinds(manager: PluginManager, name: str) -> None:
    if name in OPTIONAL and not bubblewrap_works():
        missing("bubblewrap does not work on this machine")
    results = check_plugin(manager, name)
    assert [f"{r.subject}: {r.rule}: {r.detail}" for r in results if not r.passed] == []


def test_no_first_party_plugin_is_forgotten(manager: PluginManager) -> None:
    assert {name for name, info in manager.plugins.items() if not info.third_party} == set(PLUGINS)


def test_every_kind_of_plugin_has_a_contract() -> None:
    assert set(CONTRACTS) == set(FACTORY_HOOKS)
    assert all(len(rules) >= 2 for rules in CONTRACTS.values())


def test_every_rule_is_a_claim() -> None:
    for rules in CONTRACTS.values():
        for rule in rules:
            assert rule.__doc__, rule
            assert rule.__doc__.splitlines()[0].endswith((".", "?")), rule
