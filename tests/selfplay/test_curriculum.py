"""Six skills, three active per round, round robin."""

import pytest
from pydantic import ValidationError

from spade_agentic.hooks.records import Skill
from spade_agentic_plugins.round_robin import RoundRobin, RoundRobinOptions


def test_environment_i_of_a_round_takes_active_skill_i_mod_3():
    skills = RoundRobin(RoundRobinOptions()).skills(0, 7)
    assert skills == [list(Skill)[i % 3] for i in range(7)]


def test_every_skill_has_its_turn_within_two_rounds():
    curriculum = RoundRobin(RoundRobinOptions())
    assert {*curriculum.skills(0, 6), *curriculum.skills(1, 6)} == set(Skill)
    assert curriculum.skills(2, 6) == curriculum.skills(0, 6)


def test_fewer_skills_than_active_ones_take_turns_as_well():
    one = RoundRobin(RoundRobinOptions(skills=(Skill.TOOL_SELECTION,)))
    assert one.skills(5, 3) == [Skill.TOOL_SELECTION] * 3


def test_a_skill_named_twice_is_refused():
    with pytest.raises(ValidationError, match="named twice"):
        RoundRobinOptions(skills=(Skill.TOOL_SELECTION, Skill.TOOL_SELECTION))
