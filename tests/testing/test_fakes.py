"""The fakes that plugin authors test with behave like what they stand for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spade_agentic import Arm, EnvironmentFault, FinishReason, Sampling
from spade_agentic.evals.protocol import EvalRunner
from spade_agentic.hooks.kinds import Sandbox, SandboxPlay, SandboxProgram
from spade_agentic.testing import (
    InProcessSandbox,
    Scripted,
    ScriptedPolicy,
    ScriptedRunner,
    sample_completion,
    sample_draft,
    sample_history,
    sample_program,
    sample_reward_input,
    sample_sequences,
    sample_text_program,
    tiny_model,
)
from spade_agentic.testing.samples import COUNTER_SOURCE

# --- policy --------------------------------------------------------------------------------------------------------------


def say(policy: ScriptedPolicy, *texts: str) -> list[str]:
    async def talk() -> list[str]:
        return [(await policy.say([{"role": "user", "content": text}]))[0] for text in texts]

    return asyncio.run(talk())


def test_a_scripted_policy_says_its_script_and_keeps_the_conversation() -> None:
    policy = ScriptedPolicy(["one", "two"])
    assert say(policy, "a", "b") == ["one", "two"]
    assert [turn[0]["content"] for turn in policy.conversation] == ["a", "b"]


def test_a_scripted_policy_that_has_nothing_to_say_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="turn 2"):
        say(ScriptedPolicy(["one"]), "a", "b")


def test_a_scripted_policy_can_answer_what_it_is_asked() -> None:
    assert say(ScriptedPolicy(lambda messages: messages[-1]["content"].upper()), "a", "b") == ["A", "B"]


def test_what_a_scripted_policy_says_is_in_its_trajectory_token_for_token() -> None:
    policy = ScriptedPolicy(["ab", Scripted("c", FinishReason.LENGTH)])
    say(policy, "x", "y")
    (segment,) = policy.trajectory.segments
    assert [token for token, said in zip(segment.token_ids, segment.mask, strict=True) if said] == [97, 98, 256, 99]
    assert policy.trajectory.sampled_tokens == 4
    assert policy.trajectory.version_range == (0, 0)


# --- sandbox -------------------------------------------------------------------------------------------------------------


def with_step(body: str) -> str:
    """The counter with a ``step`` of its own."""
    first = "    @tool\n    def read_counter"
    return COUNTER_SOURCE.replace(first, f"    def step(self, action):\n        {body}\n\n{first}")


async def opened(source: str) -> tuple[Any, Any]:
    program = await InProcessSandbox().load(sample_program(source=source))
    return program, await program.play()


def test_the_in_process_sandbox_has_the_shape_of_a_sandbox_and_says_that_it_is_none() -> None:
    sandbox = InProcessSandbox()
    program, play = asyncio.run(opened(COUNTER_SOURCE))
    assert isinstance(sandbox, Sandbox)
    assert isinstance(program, SandboxProgram)
    assert isinstance(play, SandboxPlay)
    assert sandbox.unsafe
    assert "UNSAFE" in str(sys.modules[InProcessSandbox.__module__].__doc__)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise KeyError('x')", "crash"),
        ("return 'x', 2.0, True, False, {}", "bad_reward"),
        ("return 'x', float('nan'), True, False, {}", "bad_reward"),
        ("return 'x', 1.0, True", "protocol"),
        ("return 3, 1.0, True, False, {}", "protocol"),
    ],
)
def test_what_a_program_does_wrong_is_a_fault_with_a_code(body: str, code: str) -> None:
    async def play() -> None:
        _, instance = await opened(with_step(body))
        await instance.reset(1)
        await instance.step({"type": "text", "text": "done"})

    with pytest.raises(EnvironmentFault) as caught:
        asyncio.run(play())
    assert caught.value.code == code


def test_an_action_is_not_shared_with_the_program() -> None:
    action = {"type": "call", "name": "set_counter", "arguments": {"number": 5}}

    async def play() -> None:
        _, instance = await opened(with_step("action.clear(); return '', 0.0, False, False, {}"))
        await instance.reset(1)
        await instance.step(action)

    asyncio.run(play())
    assert action["arguments"] == {"number": 5}


# --- runner --------------------------------------------------------------------------------------------------------------


def test_a_scripted_runner_plays_every_instance_as_often_as_asked() -> None:
    runner = ScriptedRunner(lambda program, seed, repeat, arm: None if seed == 3 else float(repeat))
    assert isinstance(runner, EvalRunner)
    instances = [(sample_program(), 2), (sample_program(), 3)]
    plays = asyncio.run(runner.play(instances, 2, Arm.HINTED, Sampling(temperature=0.0), purpose="p"))
    assert [(p.seed, p.repeat, p.won, p.void) for p in plays] == [
        (2, 0, False, False), (2, 1, True, False), (3, 0, False, True), (3, 1, False, True)
    ]  # fmt: skip
    assert len({p.play_id for p in plays}) == 4
    assert {p.env_id for p in plays} == {sample_program().program_id}
    assert runner.requests[0].sampling.temperature == 0.0


# --- models and samples --------------------------------------------------------------------------------------------------


def test_the_tiny_model_is_the_same_every_time_and_another_for_another_seed(tiny_model_dir: Path, tmp_path: Path) -> None:
    weights = [tiny_model(tmp_path / str(seed), seed=seed) / "model.safetensors" for seed in (0, 1)]
    assert weights[0].read_bytes() == (tiny_model_dir / "model.safetensors").read_bytes()
    assert weights[0].read_bytes() != weights[1].read_bytes()


def test_the_tiny_model_has_the_shape_that_engines_want(tiny_model_dir: Path) -> None:
    config = json.loads((tiny_model_dir / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"], config["head_dim"]) == (64, 2, 32)
    assert config["vocab_size"] % 4 == 0
    assert config["num_key_value_heads"] % 2 == 0
    assert config["tie_word_embeddings"]


def test_the_tiny_tokenizer_says_every_text_and_has_the_special_tokens(tiny_model_dir: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    for text in ("Set the counter to 12.", "ünïcödé 漢字\n\t", '<tool_call>\n{"name": "x"}\n</tool_call>'):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token == "<|im_end|>"
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=True)
    assert ids["input_ids"][0] == tokenizer.convert_tokens_to_ids("<|im_start|>")


def test_sample_programs_are_won_by_their_solutions_only() -> None:
    async def rewards(program: Any) -> list[float]:
        found = []
        for solve in (True, False):
            play = await (await InProcessSandbox().load(program)).play()
            await play.reset(7)
            last = None
            for part in (await play.probe())["solution"] if solve else []:
                for item in part:
                    action = {"type": "text", "text": item} if isinstance(item, str) else {"type": "call", **item}
                    last = await play.step(action)
            if last is None or not last.terminated:
                last = await play.step({"type": "text", "text": "done"})
            found.append(last.reward)
        return found

    for program in (sample_program(), sample_text_program()):
        assert asyncio.run(rewards(program)) == [1.0, 0.0]


def test_sample_histories_agree_with_their_plays() -> None:
    history = sample_history((1.0, 0.0), (1.0, 1.0))
    assert history.regret is not None
    assert (history.regret.mean, history.regret.pairs) == (0.5, 2)
    item = sample_reward_input(history)
    assert (item.win_rate, item.mean_return, item.return_variance) == (0.5, 0.5, 0.25)
    assert sample_reward_input(sample_history((), ())).win_rate is None


def test_samples_can_be_changed_by_keyword() -> None:
    assert sample_draft(program=None).refusal is not None
    assert sample_draft().refusal is None
    assert sample_completion(5, finish_reason=FinishReason.LENGTH).finish_reason is FinishReason.LENGTH


def test_sample_sequences_are_a_batch_that_a_learner_takes() -> None:
    from spade_agentic.learning.batches import check_batch

    for count in (1, 4, 7):
        batch = sample_sequences(count)
        check_batch(batch)
        assert len({s.sequence_id for s in batch}) == count


def test_the_testing_package_needs_no_torch_for_a_reward() -> None:
    script = "import sys; from spade_agentic.testing import ScriptedPolicy, sample_history; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
