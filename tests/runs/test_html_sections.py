"""What the sections of a report say, on small runs in real stores."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from stored_runs import CONFIG, StepOf, World, play, records_of, refused, write_run

from spade_agentic.evals.stats import clustered_wilson
from spade_agentic.hooks.records import Arm, ParseOutcome, Skill, StopReason, Turn
from spade_agentic.runs.html import designer
from spade_agentic.runs.html.designer import choices_section, gates_section, learnable_section
from spade_agentic.runs.html.facts import Facts, read_facts
from spade_agentic.runs.html.gallery import MOST_CHARACTERS, MOST_TURNS, Text, _view, choose, read_gallery
from spade_agentic.runs.html.machinery import mismatch_section, time_section
from spade_agentic.runs.html.model import Figure, Funnel, Lines, Section, Stack, Table, table_of
from spade_agentic.runs.html.page import sections_of
from spade_agentic.runs.html.success import heldout_section, regret_section, training_section
from spade_agentic.runs.store import RunStore
from spade_agentic.selfplay import metrics

WON, LOST, HINT_DECIDES = (True, True), (False, False), (False, True)


def figure(section: Section, title: str) -> Figure:
    return next(f for f in section.figures if f.title == title)


def lines(section: Section, title: str) -> dict[str, dict[float, float]]:
    """The curves of a figure: name to x to y."""
    chart = figure(section, title).chart
    assert isinstance(chart, Lines)
    return {series.name: {p.x: p.y for p in series.points} for series in chart.series}


def stack(section: Section, title: str) -> dict[str, tuple[float, ...]]:
    chart = figure(section, title).chart
    assert isinstance(chart, Stack)
    return {part.name: part.values for part in chart.parts}


def rows(section: Section, title: str) -> dict[Any, tuple[Any, ...]]:
    table = next(t for t in section.tables if t.title.startswith(title))
    return {row[0]: row[1:] for row in table.rows}


@pytest.fixture
def facts(tmp_path: Path, evaluation: Any) -> Facts:
    """Two rounds: banking with two environments, then support with one, which is played on; refusals in both."""
    support = World(
        "r1s0", 1, Skill.ERROR_RECOVERY, {"domain": "support", "goals": ["a", "b"], "mods": {"fault": "x", "turns": 0}},
        pairs=[WON, WON], regret=0.0,
    )  # fmt: skip
    first = StepOf(
        [World("r0s0", pairs=[HINT_DECIDES, HINT_DECIDES], regret=1.0), World("r0s1", pairs=[WON, HINT_DECIDES], regret=0.5)],
        [refused("x1", "blueprint", "malformed"), refused("x2", "leak", "leak"), refused("x3", "static", "syntax")],
        metrics={
            "round/drafts": 5, "round/draft_tokens": 10.0, "agent/ratio_p50": 1.0, "agent/mismatch_kl": 0.25, "agent/tokens": 7,
        },
    )  # fmt: skip
    second = StepOf([support], [refused("x4", "blueprint", "malformed", round_index=1)], metrics={"agent/ratio_p50": math.e})
    third = StepOf(again=[support], regrets={"r0s0": -1.0}, metrics={"agent/mismatch_kl": 0.5})
    held = {step: evaluation(rate, rate) | {"heldout/sampled/banking": rate} for step, rate in ((0, 0.25), (3, 0.75))}
    return read_facts(write_run(tmp_path / "run", [first, second, third], evaluations=held))


def test_held_out_success_is_drawn_with_its_interval_and_the_change_is_paired(facts: Facts) -> None:
    section = heldout_section(facts)
    chart = figure(section, "Success: heldout").chart
    assert isinstance(chart, Lines)
    assert [series.name for series in chart.series] == ["sampled", "greedy", "hinted"]
    last = chart.series[0].points[-1]
    assert (last.x, last.y, last.low, last.high) == (3, 0.75, pytest.approx(0.7), pytest.approx(0.8))
    assert rows(section, "heldout: first and last")["sampled"][2] == "+50.0 points [+33.8, +66.2]"
    assert rows(section, "heldout by part") == {"sampled/banking": (0.25, 0.75)}


def test_rates_that_an_evaluator_adds_are_drawn_without_being_known(tmp_path: Path) -> None:
    result = {f"heldout/new_domain/sampled{end}": value for end, value in (("", 0.5), ("_low", 0.4), ("_high", 0.6))}
    section = heldout_section(read_facts(write_run(tmp_path / "run", [], evaluations={0: result})))
    assert lines(section, "Success: heldout/new_domain") == {"sampled": {0: 0.5}}
    assert rows(section, "heldout: first and last")["new_domain/sampled"] == ("0.500 [0.400, 0.600] (step 0)", None, None)


def test_the_win_rate_of_a_step_has_environments_as_its_sample(facts: Facts) -> None:
    section = training_section(facts)
    assert lines(section, "Win rate by step") == {"plain": {1: 0.25, 2: 1.0, 3: 1.0}, "hinted": {1: 1.0, 2: 1.0}}
    chart = figure(section, "Win rate by step").chart
    assert isinstance(chart, Lines)
    point, expected = chart.series[0].points[0], clustered_wilson([(0, 2), (1, 2)])
    assert (point.low, point.high) == (expected.low, expected.high)
    assert lines(section, "skill error_recovery") == {"plain": {1: 1.0}, "hinted": {1: 1.0}}
    assert lines(section, "domain banking") == {"plain": {0: 0.25}, "hinted": {0: 1.0}}


def test_void_plays_are_in_no_win_rate(tmp_path: Path) -> None:
    world = World("e1", pairs=[WON])
    draft, environment, plays = records_of(world, 1)
    void = play(world, 1, 9, Arm.PLAIN, False, stop=StopReason.ENVIRONMENT_FAULT)
    store = RunStore.create(tmp_path / "run", "run", CONFIG)
    checkpoint = store.checkpoints.write(1, lambda folder: None)
    store.commit_step(
        step=1, checkpoint=checkpoint, state={}, plays=[*plays, void], drafts=[draft], environments=[environment]
    )
    store.close()
    assert lines(training_section(read_facts(tmp_path / "run")), "Win rate by step")["plain"] == {1: 1.0}


def test_of_every_environment_the_first_regret_counts_in_the_round_that_made_it(facts: Facts) -> None:
    section = regret_section(facts)
    assert lines(section, "Regret by round") == {"mean": {0: 0.75, 1: 0.0}}
    chart = figure(section, "Regret by round").chart
    assert isinstance(chart, Lines)
    assert sorted((p.x, p.y) for p in chart.dots[0].points) == [(0, 0.5), (0, 1.0), (1, 0.0)]
    mean = chart.series[0].points[0]
    assert (mean.low, mean.high) == (pytest.approx(0.5), pytest.approx(1.0)), "one standard error, which is .25 here"
    assert chart.series[0].points[1].low is None, "a single environment has no error"
    assert lines(section, "domain support") == {"support": {1: 0.0}}
    small = [f.chart for f in section.figures if f.small]
    assert len({chart.y_range for chart in small if isinstance(chart, Lines)}) == 1, "charts beside each other share an axis"


def test_the_designers_choices_are_counted_by_round(facts: Facts) -> None:
    section = choices_section(facts)
    assert stack(section, "Domains") == {"banking": (2.0, 0.0), "support": (0.0, 1.0)}
    assert stack(section, "Skills") == {"data_retrieval": (2.0, 0.0), "error_recovery": (0.0, 1.0)}
    assert stack(section, "Goals per program") == {"1 goal": (2.0, 0.0), "2 goals": (0.0, 1.0)}
    assert rows(section, "Modifiers") == {"hide_id": (1.0, 0.0), "fault": (0.0, 1.0)}, "one that is off is none"
    assert rows(section, "Goals")["pay"] == (2, 0.25, 1.0, 0.75)


def test_a_designer_without_goals_and_modifiers_is_said_to_have_none(tmp_path: Path) -> None:
    facts = read_facts(write_run(tmp_path / "run", [StepOf([World("e1", origin={"designer": "letters"})])]))
    section = choices_section(facts)
    assert stack(section, "Domains") == {"(not said)": (1.0,)}
    assert [note.partition(" (")[0] for note in section.notes] == ["Goals", "Modifiers"]
    assert all(note.endswith("not recorded.") for note in section.notes)


def test_the_funnel_loses_at_each_gate_what_it_refused_in_the_order_of_the_gates(facts: Facts) -> None:
    section = gates_section(facts)
    chart = figure(section, "From drafts to environments").chart
    assert isinstance(chart, Funnel)
    assert chart.stages == (("drafts", 7), ("after blueprint", 5), ("after static", 4), ("after leak", 3))
    assert rows(section, "Refusals")["blueprint:malformed"] == (2, pytest.approx(2 / 7), "so it is")
    assert stack(section, "Drafts by outcome")["admitted"] == (2.0, 1.0)
    assert stack(section, "Drafts by outcome")["blueprint:malformed"] == (1.0, 1.0)


def test_many_reasons_are_one_colour_and_none_is_lost(tmp_path: Path) -> None:
    many = [refused(f"x{n}", "blueprint", f"code_{n:02}") for n in range(12)]
    section = gates_section(read_facts(write_run(tmp_path / "run", [StepOf(refusals=many)])))
    parts = stack(section, "Drafts by outcome")
    assert len(parts) == 8
    assert parts["other reasons"] == (6.0,)
    assert sum(values[0] for values in parts.values()) == 12
    assert len(rows(section, "Refusals")) == 12


def test_an_environment_is_learnable_between_two_tenths_and_eight_tenths(facts: Facts) -> None:
    section = learnable_section(facts)
    assert lines(section, "Learnable share by round") == {"learnable": {0: 0.5, 1: 0.0}}
    chart = figure(section, "Win rates of the environments").chart
    assert isinstance(chart, Lines)
    assert [(p.x, p.y) for p in chart.dots[0].points] == [(0, 0.0), (0, 0.5), (1, 1.0)]


def test_the_learnable_range_is_that_of_the_metrics() -> None:
    assert designer.LEARNABLE == metrics.LEARNABLE


def test_log_probability_differences_are_logarithms_of_the_ratios(facts: Facts) -> None:
    section = mismatch_section(facts)
    assert lines(section, "Log-probability difference, agent") == {"p50": {1: 0.0, 2: pytest.approx(1.0)}}
    assert lines(section, "Mismatch") == {"agent": {1: 0.25, 3: 0.5}}
    assert section.notes == ["Log-probability differences of the designer: not recorded.", "Staleness: not recorded."]


def test_time_by_stage_adds_up_with_what_came_after_the_last_commit(tmp_path: Path) -> None:
    times = {"time/playing_s": 6.0, "time/updating_s": 2.0}
    run = write_run(tmp_path / "run", [StepOf(metrics=times), StepOf(metrics=times)], stage_s={"evaluating": 4.0})
    section = time_section(read_facts(run))
    assert stack(section, "Time by step") == {"playing": (6.0, 6.0), "updating": (2.0, 2.0)}
    assert rows(section, "Time by stage") == {"playing": ("12s", 0.6), "updating": ("4s", 0.2), "evaluating": ("4s", 0.2)}


def test_an_old_run_without_times_by_stage_says_so_and_shows_its_steps(facts: Facts) -> None:
    section = time_section(facts)
    assert "Time per stage: not recorded." in section.notes
    assert list(stack(section, "Time by step")) == ["step"]
    assert stack(section, "Sampled tokens by step")["drafts"] == (50.0, 0.0, 0.0)
    assert rows(section, "Tokens over the run")["agent: trained"] == (7,)


def test_a_run_that_committed_nothing_says_what_is_missing(tmp_path: Path) -> None:
    facts = read_facts(write_run(tmp_path / "run", [], status="failed"))
    for section in sections_of(facts):
        assert section.notes, section.title
        assert section.figures == []
    assert read_gallery(tmp_path / "run", facts, limit=3).cards == ()


# --- the gallery -----------------------------------------------------------------------------------------------------------


def test_the_gallery_takes_the_largest_regret_of_every_round_in_turn(tmp_path: Path) -> None:
    regrets = [[0.1, 0.9, None], [0.5, 0.2]]
    steps = [
        StepOf([World(f"r{r}s{i}", r, regret=value) for i, value in enumerate(values)]) for r, values in enumerate(regrets)
    ]
    facts = read_facts(write_run(tmp_path / "run", steps))
    assert [e.env_id for e in choose(facts, 3)] == ["r0s1", "r0s0", "r1s0"]
    assert [e.env_id for e in choose(facts, 99)] == ["r0s1", "r0s0", "r0s2", "r1s0", "r1s1"]
    assert choose(facts, 0) == []


def test_a_card_shows_the_first_pair_that_the_hint_decided_side_by_side(tmp_path: Path) -> None:
    world = World("e1", pairs=[LOST, (True, False), HINT_DECIDES, HINT_DECIDES, WON])
    run = write_run(tmp_path / "run", [StepOf([world], again=[])])
    (card,) = read_gallery(run, read_facts(run), limit=5).cards
    assert [(p.arm, p.won) for p in card.plays] == [("plain", False), ("hinted", True)]
    assert card.seed == 102
    assert card.pairs == {"both won": 1, "hinted only": 2, "plain only": 1, "both lost": 1}
    assert card.plays[0].exchanges[0].calls[0].shown == 'pay(to="Rosa", sum=2)'
    assert card.plays[0].exchanges[0].said.length == 0, "the call is shown once"
    assert card.parting == 2
    assert (card.plain_rate, card.hinted_rate) == (0.4, 0.6)


def test_without_hinted_plays_one_play_is_shown_and_pairs_are_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [StepOf([World("e1", hint=None, regret=None)])])
    (card,) = read_gallery(run, read_facts(run), limit=5).cards
    assert [p.arm for p in card.plays] == ["plain"]
    assert card.pairs == {}
    assert (card.regret, card.hint, card.parting) == (None, None, None)


def test_texts_and_plays_are_cut_and_say_how_long_they_are(tmp_path: Path) -> None:
    long = play(World("e1"), 1, 0, Arm.PLAIN, True, turns=[Turn("x", ParseOutcome.NO_CALL, (), ())] * (MOST_TURNS + 5))
    view = _view(long)
    assert (len(view.exchanges), view.turns) == (MOST_TURNS, MOST_TURNS + 5)
    text = Text.cut("y" * (MOST_CHARACTERS + 1))
    assert (len(text.shown), text.length, text.was_cut) == (MOST_CHARACTERS, MOST_CHARACTERS + 1, True)
    assert not Text.cut("y").was_cut


def test_every_table_has_a_cell_under_every_head(facts: Facts) -> None:
    sections = sections_of(facts)
    tables: list[Table] = [t for s in sections for t in (*s.tables, *(table_of(f) for f in s.figures))]
    assert len(tables) > 20
    assert [t.title for t in tables if any(len(row) != len(t.heads) for row in t.rows)] == []
