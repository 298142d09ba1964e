"""Tokens are never re-made: what was sampled is what is trained, turn after turn."""

import random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from play_fakes import ScriptedEngine, call

from spade_agentic.errors import ContextOverflow
from spade_agentic.hooks.records import FinishReason, Role, Sampling
from spade_agentic.rollout.session import Session


def make_session(rendering, engine, *, context=4096, max_tokens=512, noise=(0, "x")):
    return Session(
        role=Role.AGENT, rendering=rendering, engine=engine, sampling=Sampling(max_tokens=max_tokens),
        noise_key=noise, request_id="play", context_tokens=context,
    )


async def converse(session, says):
    for said in says:
        await session.say(said)


ANSWERS = st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=30)
TURNS = st.lists(
    st.tuples(ANSWERS, st.lists(ANSWERS, min_size=1, max_size=3)), min_size=1, max_size=4
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=TURNS, seed=st.integers(0, 2**32))
async def test_a_trajectory_is_the_ids_as_sampled_plus_rendered_extensions(rendering, turns, seed):
    """Whatever the policy says (half a character, a stray tag, a call), its ids stand in the trajectory unchanged."""
    rng = random.Random(seed)

    def policy(prompt, _, request_id):
        text = turns[int(request_id.rpartition("_t")[2])][0]
        return rng.choice([text, call("look", thing=text), "<tool_call>" + text, text + "\n"])

    engine = ScriptedEngine(rendering.tokenizer, policy)
    session = make_session(rendering, engine, max_tokens=rng.choice([3, 40, 512]))
    first = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
    await converse(session, [first, *([{"role": "tool", "content": o} for o in obs] for _, obs in turns[1:])])
    [segment] = session.trajectory.segments
    lengths = {len(segment.token_ids), len(segment.mask), len(segment.logprobs), len(segment.versions)}
    assert len(lengths) == 1, "ids, mask, log-probs and versions grow together"
    for number in range(len(turns)):
        prompt, completion = engine.prompts[f"play_t{number}"], engine.completions[f"play_t{number}"]
        end = len(prompt) + len(completion.token_ids)
        assert segment.token_ids[: len(prompt)] == prompt, "each request is a prefix of the trajectory"
        assert tuple(segment.token_ids[len(prompt) : end]) == completion.token_ids
        assert tuple(segment.logprobs[len(prompt) : end]) == completion.logprobs
        assert tuple(segment.versions[len(prompt) : end]) == completion.versions
        assert all(segment.mask[len(prompt) : end])
    sampled = sum(len(c.token_ids) for c in engine.completions.values())
    assert sum(segment.mask) == session.trajectory.sampled_tokens == sampled
    unsampled = [(lp, v) for lp, v, m in zip(segment.logprobs, segment.versions, segment.mask, strict=True) if not m]
    assert set(unsampled) == {(0.0, -1)}


async def test_the_extension_keeps_the_newline_after_the_end_of_turn(rendering):
    """The reference lost it: an observation encoded by rendering twice and cutting strings."""
    engine = ScriptedEngine(rendering.tokenizer, lambda prompt, rng, name: call("look"))
    session = make_session(rendering, engine)
    await session.say([{"role": "user", "content": "go"}])
    await session.say([{"role": "tool", "content": "a lamp"}])
    text = rendering.tokenizer.decode(engine.prompts["play_t1"])
    assert "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\na lamp\n</tool_response><|im_end|>" in text


async def test_parallel_tool_results_share_one_turn_and_keep_their_order(rendering):
    engine = ScriptedEngine(rendering.tokenizer, lambda prompt, rng, name: call("a") + "\n" + call("b"))
    session = make_session(rendering, engine)
    await session.say([{"role": "user", "content": "go"}])
    await session.say([{"role": "tool", "content": "first"}, {"role": "tool", "content": "second"}])
    text = rendering.tokenizer.decode(engine.prompts["play_t1"])
    observed = text[text.rindex("<|im_start|>user") :]
    assert observed.count("<|im_start|>") == 2, "one user turn, then the assistant's"
    assert observed.index("first") < observed.index("second")


async def test_a_multi_turn_prompt_equals_a_full_render_of_what_was_said(rendering):
    """The bridge is not a format of its own: a server that renders the whole chat gets the very same tokens."""
    tools = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}]
    engine = ScriptedEngine(rendering.tokenizer, lambda prompt, rng, name: call("look", n=1))
    session = make_session(rendering, engine)
    opening = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
    await session.say(opening, tools=tools)
    await session.say([{"role": "tool", "content": "a lamp"}], tools=tools)
    said = {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "look", "arguments": {"n": 1}}}]}
    assert engine.prompts["play_t1"] == rendering.prompt([*opening, said, {"role": "tool", "content": "a lamp"}], tools)


async def test_history_that_cannot_be_extended_starts_a_new_segment(rendering, monkeypatch):
    engine = ScriptedEngine(rendering.tokenizer, lambda prompt, rng, name: f"answer {name}")
    session = make_session(rendering, engine)
    await session.say([{"role": "user", "content": "go"}])
    monkeypatch.setattr(rendering.renderer, "bridge_to_next_turn", lambda *a, **k: None)
    await session.say([{"role": "user", "content": "on"}])
    first, second = session.trajectory.segments
    assert session.breaks == 1
    assert tuple(first.token_ids[-len(engine.completions["play_t0"].token_ids) :]) == engine.completions["play_t0"].token_ids
    assert second.token_ids[: len(engine.prompts["play_t1"])] == engine.prompts["play_t1"]
    assert "answer play_t0" in rendering.tokenizer.decode(engine.prompts["play_t1"])
    assert sum(second.mask) == len(engine.completions["play_t1"].token_ids), "what was said before is context now"


async def test_a_completion_is_cut_at_what_the_context_holds(rendering):
    engine = ScriptedEngine(rendering.tokenizer, lambda prompt, rng, name: "x" * 500)
    session = make_session(rendering, engine, context=100, max_tokens=512)
    _, completion = await session.say([{"role": "user", "content": "go"}])
    assert completion.finish_reason is FinishReason.LENGTH
    assert len(session.trajectory.segments[0]) == 100
    assert session.room == 0


async def test_a_prompt_that_does_not_fit_is_an_overflow_and_appends_nothing(rendering):
    engine = ScriptedEngine(rendering.tokenizer, lambda prompt, rng, name: "fine")
    session = make_session(rendering, engine, context=80)
    await session.say([{"role": "user", "content": "go"}])
    before = len(session.trajectory.segments[0])
    with pytest.raises(ContextOverflow, match="fills the context of 80"):
        await session.say([{"role": "user", "content": "x" * 200}])
    assert len(session.trajectory.segments[0]) == before
    assert len(engine.requests) == 1


async def test_the_noise_of_a_turn_depends_on_its_key_alone(rendering):
    """A play that is repeated after a kill says the same again, whatever was said before it in another order."""

    async def said(noise):
        engine = ScriptedEngine(rendering.tokenizer, lambda prompt, rng, name: str(rng.random()))
        session = make_session(rendering, engine, noise=noise)
        return [(await session.say([{"role": "user", "content": "go"}]))[0] for _ in range(3)]

    assert await said((7, "t0", 1)) == await said((7, "t0", 1))
    assert len({*await said((7, "t0", 1)), *await said((7, "t0", 2)), *await said((8, "t0", 1))}) == 9
