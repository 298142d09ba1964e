"""The simulators as plugins, and programs made from chains."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sim_worlds import DOMAINS, follow

from spade_agentic import PluginManager, PluginRef, Program, Skill, load_environment
from spade_agentic.testing import check_tool_sim
from spade_agentic_sims.kit import Chain, Mods, is_reserved
from spade_agentic_sims.simulator import Simulator
from spade_agentic_sims.source import chain_program, chain_source

each_domain = pytest.mark.parametrize("domain", DOMAINS)


def simulator(domain: str) -> Simulator:
    return Simulator(domain, f"spade_agentic_sims.{domain}")


@each_domain
def test_the_plugin_offers_its_simulator(manager: PluginManager, domain: str) -> None:
    factory = manager.factories("tool_sim")[domain]
    assert factory.doc
    sim = factory.build(factory.options(), None)
    assert (sim.name, sim.module) == (domain, f"spade_agentic_sims.{domain}")
    assert PluginRef(name=domain).name == sim.name


@each_domain
def test_the_simulator_keeps_the_contract(domain: str) -> None:
    check_tool_sim(lambda folder: simulator(domain))


@each_domain
def test_examples_can_be_won_and_are_not_reserved(domain: str) -> None:
    sources = set()
    for seed in range(12):
        program = simulator(domain).example(seed=seed)
        assert program == simulator(domain).example(seed=seed)
        assert not is_reserved(domain, program.origin["goals"])
        assert follow(load_environment(program.source), seed).won
        sources.add(program.source)
    assert len(sources) > 6


def test_a_program_says_what_it_is_and_carries_its_hint() -> None:
    mods = Mods(hide_id=True, fault="freeze_card", distract=2)
    program = chain_program(Chain("banking", ("freeze_card", "refund"), mods))
    assert program.skill == Skill.DATA_RETRIEVAL
    assert program.origin == {
        "domain": "banking",
        "goals": ["freeze_card", "refund"],
        "mods": {"hide_id": True, "fault": "freeze_card", "distract": 2},
        "hint": program.origin["hint"],
    }
    assert "freeze_card on the card" in program.origin["hint"]
    assert program.source.startswith('"""banking: freeze_card, then refund')
    assert "Requests give names, not ids, freeze_card fails once" in program.source


@pytest.mark.parametrize(
    ("mods", "summary"),
    [
        (Mods(), "A plain world."),
        (Mods(hide_secret=True), "One value is told nowhere."),
        (Mods(fault="list_cards", fault_always=True), "List_cards never works."),
        (Mods(leak=True), "Requests show their solution."),
    ],
)
def test_a_source_says_in_words_how_its_world_is_changed(mods: Mods, summary: str) -> None:
    assert f'"""{summary}"""' in chain_source(Chain("banking", ("freeze_card",), mods), Skill.TOOL_SELECTION)


@each_domain
def test_a_program_loads_in_a_fresh_process(domain: str) -> None:
    program: Program = simulator(domain).example(seed=1)
    code = "import sys; from spade_agentic import load_environment; print(load_environment(sys.stdin.read()).reset(seed=5)[0])"
    out = subprocess.run([sys.executable, "-c", code], input=program.source, capture_output=True, text=True, check=True)
    assert out.stdout.rstrip("\n") == load_environment(program.source).reset(seed=5)[0]


@each_domain
def test_a_program_needs_neither_torch_nor_the_engine(domain: str) -> None:
    code = (
        f"import sys, spade_agentic_sims.{domain}; "
        "print([name for name in ('torch', 'transformers', 'openai', 'aiohttp', 'tensorboard') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
