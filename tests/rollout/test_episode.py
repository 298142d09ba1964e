"""One play, one function for both arms."""

import pytest
from play_fakes import (
    InProcessSandbox,
    NoWatch,
    ScriptedEngine,
    TimeoutSandbox,
    call,
    door,
    door_policy,
    door_source,
    in_pool,
)

from spade_agentic.errors import SandboxError
from spade_agentic.hooks.records import Arm, ParseOutcome, Program, ProgramKind, Sampling, Skill, StopReason
from spade_agentic.rollout.episode import with_hint
from spade_agentic.rollout.parsing import MALFORMED_OBSERVATION
from spade_agentic.rollout.runner import RolloutRunner, pair_requests


def make_runner(rendering, policy, *, sandbox=None, context=4096, deterministic=True, slots=8, **engine_options):
    engine = ScriptedEngine(rendering.tokenizer, policy, **engine_options)
    runner = RolloutRunner(
        engine=engine, rendering=rendering, sandbox=sandbox or InProcessSandbox(), run_seed=0, context_tokens=context,
        slots=slots, deterministic=deterministic,
    )
    return runner, engine


async def play_once(rendering, policy, program=None, *, arm=Arm.PLAIN, hint=None, max_tokens=512, seed=5, **options):
    runner, engine = make_runner(rendering, policy, **options)
    environment = in_pool(program or door(), hint=hint)
    environment.max_turns = 4
    [[play]] = await runner.play(
        "b", [pair_requests(environment, seed, 0, arms=[arm], label="t")], Sampling(max_tokens=max_tokens)
    )
    return play, engine


async def test_a_won_play_has_the_reward_of_its_answer(rendering):
    play, _ = await play_once(rendering, door_policy(lambda level: 1.0))
    assert (play.reward, play.won, play.stop) == (1.0, True, StopReason.ANSWERED)
    assert [t.outcome for t in play.turns] == [ParseOutcome.CALL, ParseOutcome.NO_CALL]
    assert play.turns[0].observations == ("open",)


async def test_whoever_watches_is_told_what_a_play_waits_for(rendering):
    runner, _ = make_runner(rendering, door_policy(lambda level: 1.0))
    watch = NoWatch()
    units = [pair_requests(in_pool(door()), 5, 0, arms=[Arm.PLAIN], label="t")]
    [[play]] = await runner.play("b", units, Sampling(max_tokens=512), watch=watch)
    assert watch.stages == {play.play_id: ["resetting", "sampling", "acting", "sampling", "acting"]}
    assert watch.turns == [play.play_id] * 2


async def test_a_play_that_uses_up_its_turns_returns_0(rendering):
    play, _ = await play_once(rendering, lambda prompt, rng, name: call("unlock", key=1))
    assert (play.reward, play.stop, len(play.turns)) == (0.0, StopReason.TURN_LIMIT, 4)


async def test_a_truncated_play_returns_0_and_keeps_its_tokens(rendering):
    play, _ = await play_once(rendering, lambda prompt, rng, name: "x" * 100, max_tokens=10)
    assert (play.reward, play.stop) == (0.0, StopReason.TRUNCATED)
    assert play.trajectory.sampled_tokens == 10


async def test_a_play_that_fills_its_context_returns_0(rendering):
    play, _ = await play_once(rendering, lambda prompt, rng, name: call("unlock", key=1), context=800)
    assert (play.reward, play.stop) == (0.0, StopReason.CONTEXT_LIMIT)


async def test_a_malformed_call_is_never_executed_and_gets_the_fixed_observation(rendering):
    """The key is right in it: had it run, the door would be open and the answer would win."""

    def policy(prompt, rng, name):
        if MALFORMED_OBSERVATION in prompt:
            return "done"
        key = prompt.partition("the key is ")[2][:3]
        return '<tool_call>\n{"name": "unlock", "arguments": {"key": ' + key + "}\n</tool_call>"

    play, _ = await play_once(rendering, policy)
    assert play.turns[0].outcome is ParseOutcome.MALFORMED
    assert play.turns[0].observations == (MALFORMED_OBSERVATION,)
    assert (play.reward, play.stop) == (0.0, StopReason.ANSWERED)


async def test_parallel_calls_are_answered_in_order_until_one_ends_the_play(rendering):
    def policy(prompt, rng, name):
        key = prompt.partition("the key is ")[2][:3]
        return "done" if "open\n</tool_response>" in prompt else call("unlock", key=1) + "\n" + call("unlock", key=int(key))

    play, _ = await play_once(rendering, policy)
    assert play.turns[0].observations == ('{"error": "the key does not fit"}', "open")
    assert play.won


async def test_a_crash_of_the_environment_voids_the_play_and_is_not_charged_to_the_agent(rendering):
    """The reference gave the agent -1 for it."""
    play, _ = await play_once(rendering, door_policy(lambda level: 1.0), door(crash=True))
    assert (play.void, play.reward, play.won) == (True, 0.0, False)
    assert play.stop is StopReason.ENVIRONMENT_FAULT
    assert "the door fell on someone" in play.fault


@pytest.mark.parametrize("reward", ["float('nan')", "2.0", "-1.5", "float('inf')"])
async def test_a_reward_that_is_not_a_number_in_range_is_a_fault_of_the_program(rendering, reward):
    """NaN clipped to +1 in the reference."""
    source = door_source() + f"\n    def step(self, action):\n        return 'x', {reward}, True, False, {{}}\n"
    play, _ = await play_once(rendering, door_policy(lambda level: 1.0), Program(source, Skill.DATA_RETRIEVAL))
    assert play.void
    assert "bad_reward" in play.fault


async def test_the_hint_stands_at_the_end_of_the_first_observation_and_nowhere_else(rendering):
    play, engine = await play_once(rendering, door_policy(lambda level: 0.0), arm=Arm.HINTED, hint="Say the key.")
    first = rendering.tokenizer.decode(engine.prompts["t-r0s0-5-0-hinted_t0"])
    assert first.count("Hint: ") == 1
    assert with_hint(play.first_observation, "Say the key.") in first
    assert "Hint" not in play.first_observation
    last = rendering.tokenizer.decode(engine.prompts["t-r0s0-5-0-hinted_t1"])
    assert last.count("Hint: ") == 1


async def test_the_plain_arm_never_sees_the_hint(rendering):
    _, engine = await play_once(rendering, door_policy(lambda level: 0.5), arm=Arm.PLAIN, hint="Say the key.")
    assert all("Say the key" not in rendering.tokenizer.decode(ids) for ids in engine.prompts.values())


async def test_an_empty_hint_makes_the_arms_the_same_token_for_token(rendering):
    runner, _ = make_runner(rendering, door_policy(lambda level: 0.5))
    units = [pair_requests(in_pool(door(), hint=""), seed, r, arms=list(Arm), label="t") for seed in range(4) for r in range(2)]
    for plain, hinted in await runner.play("b", units, Sampling(max_tokens=512)):
        assert plain.trajectory == hinted.trajectory
        assert plain.reward == hinted.reward


async def test_a_text_environment_fits_the_same_play_function(rendering):
    source = '''
from spade_agentic.envs.contract import TextEnv


class Echo(TextEnv):
    system = "Repeat."

    def reset(self, *, seed):
        self.word = f"w{seed}"
        return self.word, {}

    def step(self, text):
        return ("right", 1.0, True, False, {}) if text == self.word else ("again", 0.0, False, False, {})

    def solution(self):
        return [self.word]
'''
    program = Program(source, Skill.DATA_RETRIEVAL, kind=ProgramKind.TEXT)
    play, _ = await play_once(rendering, lambda prompt, rng, name: "w5" if "again" in prompt else "what?", program)
    assert (play.won, play.stop, len(play.turns)) == (True, StopReason.TERMINATED, 2)


async def test_a_machine_that_was_only_busy_does_not_change_a_play(rendering):
    """What misses its deadline is opened again and brought to where it was."""
    policy = door_policy(lambda level: 1.0)
    calm, _ = await play_once(rendering, policy)
    busy, _ = await play_once(rendering, policy, sandbox=TimeoutSandbox(misses=2))
    calm.duration_s = busy.duration_s = 0.0
    assert busy == calm


async def test_a_deterministic_run_never_scores_a_timeout(rendering):
    with pytest.raises(SandboxError, match="never scores a timeout"):
        await play_once(rendering, door_policy(lambda level: 1.0), sandbox=TimeoutSandbox(misses=99))


async def test_elsewhere_a_timeout_voids_the_play_and_names_itself(rendering):
    play, _ = await play_once(
        rendering, door_policy(lambda level: 1.0), sandbox=TimeoutSandbox(misses=99), deterministic=False
    )
    assert play.void
    assert play.fault.startswith("timeout")


async def test_a_program_that_gives_another_world_for_the_same_seed_is_at_fault(rendering):
    source = "import itertools\ncount = itertools.count()\n" + door_source().replace(
        'f"Door 0: the key is {self.key}."', 'f"Door 0: the key is {self.key}. {next(count)}"'
    )
    program = Program(source + "\n", Skill.DATA_RETRIEVAL)
    shared = {}

    class OneModule(TimeoutSandbox):
        async def load(self, program):
            loaded = await super().load(program)
            environment = type((await loaded.play()).environment)
            inner = loaded.play

            async def play():
                opened = await inner()
                opened.environment = shared.setdefault("class", environment)()
                return opened

            loaded.play = play
            return loaded

    play, _ = await play_once(rendering, door_policy(lambda level: 1.0), program, sandbox=OneModule(misses=1))
    assert play.void
    assert "nondeterministic" in play.fault


async def test_a_program_that_does_not_load_voids_its_plays(rendering):
    play, engine = await play_once(
        rendering, door_policy(lambda level: 1.0), Program("raise ValueError('no')", Skill.DATA_RETRIEVAL)
    )
    assert play.void
    assert engine.requests == []
