"""A reserved domain is trained nowhere: each way in is refused by name, and it can be looked at all the same."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spade_agentic import ConfigError, PluginManager, Skill, UserError
from spade_agentic.bootstrap import corpus
from spade_agentic.config.files import shipped_configs
from spade_agentic.config.load import config_from_text, load_config
from spade_agentic.hooks.resolution import resolve_run
from spade_agentic_plugins.blueprint import DEFAULT_DOMAINS, Blueprint, BlueprintDesigner, compile_blueprint, reserved_reason
from spade_agentic_sims.kit import RESERVED_DOMAINS, draw_chain, get_domain

IN_PROCESS = """
from spade_agentic import Factory, hookimpl
from spade_agentic.testing import InProcessSandbox

@hookimpl
def sandbox():
    return [Factory("in_process", lambda options, context: InProcessSandbox(), doc="unsafe")]
"""

each_reserved = pytest.mark.parametrize("domain", RESERVED_DOMAINS)


def said(error: UserError, domain: str) -> None:
    """What happened, to which object, and what to do."""
    assert f"{domain} is reserved" in error.what.replace("'", "")
    assert error.where
    assert error.todo


@each_reserved
def test_a_reserved_domain_exists_and_no_default_names_it(domain: str) -> None:
    assert get_domain(domain).domain == domain
    assert importlib.util.find_spec(f"spade_agentic_sims.{domain}") is not None
    assert domain not in {*corpus.DOMAINS, *corpus.Mixture().domains, *DEFAULT_DOMAINS}
    assert not any(domain in {ref.name for ref in load_config(name).tool_sims} for name in shipped_configs())


@each_reserved
def test_a_run_whose_tool_sims_name_it_is_refused_before_anything_starts(
    manager: PluginManager, tiny_model_dir: Path, domain: str
) -> None:
    config = config_from_text(f"tool_sims: [banking, {domain}]", name="run.yaml", overrides=[f"model.path={tiny_model_dir}"])
    with pytest.raises(ConfigError) as caught:
        resolve_run(config, manager)
    said(caught.value, domain)
    assert "run.yaml:1" in str(caught.value)


@each_reserved
def test_a_blueprint_designer_that_is_given_it_is_refused(manager: PluginManager, tiny_model_dir: Path, domain: str) -> None:
    with pytest.raises(UserError) as caught:
        BlueprintDesigner(("banking", domain))
    said(caught.value, domain)
    text = f"selfplay: {{designer: {{name: blueprint, options: {{domains: [banking, {domain}]}}}}}}"
    config = config_from_text(text, name="run.yaml", overrides=[f"model.path={tiny_model_dir}"])
    with pytest.raises(ConfigError) as refused:
        resolve_run(config, manager)
    said(refused.value, domain)
    assert "run.yaml:1" in str(refused.value)


@each_reserved
def test_a_warm_start_that_draws_from_it_is_refused(domain: str) -> None:
    with pytest.raises(UserError) as caught:
        corpus.Mixture(domains=("support", domain))
    said(caught.value, domain)


@each_reserved
@pytest.mark.parametrize("length", [1, 2])
def test_every_program_of_it_is_kept_from_training_whatever_its_chain(domain: str, length: int) -> None:
    chain = draw_chain(random.Random(1), domain, length)
    program = compile_blueprint(Blueprint(domain, min(get_domain(domain).goal_kinds[chain.goals[0]].skills), chain.goals))
    assert reserved_reason(program) == f"the domain {domain} is kept for evaluation"
    assert isinstance(program.skill, Skill)


@each_reserved
@pytest.mark.parametrize("command", [("show",), ("check",), ("play", "--solution")], ids=lambda command: command[0])
def test_it_can_be_looked_at_played_and_checked(
    cli: Callable[..., Any], plugin_file: Callable[..., Path], domain: str, command: tuple[str, ...]
) -> None:
    sandbox = [] if command[0] == "show" else ["--plugin", plugin_file(IN_PROCESS, "in_process"), "--sandbox", "in_process"]
    assert cli("env", command[0], domain, *command[1:], *sandbox).code == 0
