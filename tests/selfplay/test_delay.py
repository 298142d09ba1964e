"""Designer samples wait by age, whatever the regeneration interval is, and none is lost at the end."""

import pytest
from hypothesis import given, strategies as st
from play_fakes import trajectory

from spade_agentic.hooks.records import Draft, Refusal, Role, Skill
from spade_agentic.runs.codec import pack, unpack
from spade_agentic.selfplay.delay import DelayBuffer, WaitingDraft


def waiting(name, step, env_id=None, **options):
    draft = Draft(name, Skill.DATA_RETRIEVAL, 0, 0, 0, trajectory(Role.DESIGNER), "text", **options)
    return WaitingDraft(draft, step, env_id)


@given(delay=st.integers(0, 12), interval=st.integers(1, 9), steps=st.integers(1, 40))
def test_every_draft_is_trained_once_for_any_delay_and_interval(delay, interval, steps):
    """In the reference a delay that was no multiple of the interval never trained the designer, and the last round never."""
    buffer, taken = DelayBuffer(delay), []
    for t in range(steps):
        if t % interval == 0:
            buffer.put([waiting(f"r{t}", t)])
        for due in buffer.take(t, flush=t == steps - 1):
            taken.append(due.draft.draft_id)
            assert t - due.step >= delay or t == steps - 1
            assert t - due.step <= delay, "none waits longer than it must"
    assert taken == [f"r{t}" for t in range(0, steps, interval)]
    assert len(buffer) == 0


def test_a_reward_comes_at_the_end_of_the_interval_and_stays():
    buffer = DelayBuffer(4)
    buffer.put([waiting("a", 0, "e0"), waiting("b", 0, "e1"), waiting("c", 0)])
    buffer.settle({"e0": 0.5, "e1": None})
    buffer.settle({"e0": 0.9})
    assert [(w.reward, w.settled) for w in buffer.take(4)] == [(0.5, True), (None, True), (None, False)]


def test_a_draft_that_is_due_before_its_interval_ends_is_named():
    buffer = DelayBuffer(2)
    buffer.put([waiting("a", 0, "e0"), waiting("b", 1, "e1"), waiting("c", 0)])
    assert buffer.unsettled(2) == ["e0"]
    assert buffer.unsettled(2, flush=True) == ["e0", "e1"]
    buffer.settle({"e0": 0.1})
    assert buffer.unsettled(2) == []


def test_the_buffer_survives_a_resume():
    buffer, resumed = DelayBuffer(3), DelayBuffer(3)
    buffer.put([waiting("a", 0, "e0"), waiting("b", 0, refusal=Refusal("parse", "syntax", "line 3"))])
    buffer.settle({"e0": 0.25})
    resumed.load_state_dict(unpack(pack(buffer.state_dict())))
    assert resumed.take(3) == buffer.take(3)


def test_a_negative_delay_is_a_mistake_of_ours():
    with pytest.raises(AssertionError):
        DelayBuffer(-1)
