"""Seven faults that would spoil a run without a word. Each is planted, and seen by the check that is there for it; and the
same check finds nothing where the fault is not.

docs/conformance.md has the table of them; its test is at the end.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from planted_faults import (
    KillsTheGroupOnly,
    OneInstanceForAll,
    mask_off_by_one_in_the_batch,
    mask_off_by_one_in_the_learner,
    mask_off_by_one_when_recorded,
    nobody_looks_after_loading,
    stale_cache,
    swapped_arms,
    wrong_normaliser,
)
from play_fakes import any_door, game_policy, make_game

from spade_agentic.envs.gates import GateOptions, run_gates
from spade_agentic.errors import EnvironmentFault
from spade_agentic.hooks.kinds import TrainSequence
from spade_agentic.hooks.records import GateReport, Play, Program, Role, Sampling, Segment, StopReason, Trajectory
from spade_agentic.inference.engine import EmbeddedEngine
from spade_agentic.inference.options import EmbeddedOptions
from spade_agentic.learning.options import TorchOptions
from spade_agentic.learning.torch_backend import TorchLearner
from spade_agentic.sandbox.backend import PooledSandbox
from spade_agentic.selfplay.audit import audit_step
from spade_agentic.selfplay.batch import BatchMaker
from spade_agentic.testing import InProcessSandbox, sample_play, sample_program, tiny_model
from spade_agentic.testing.contracts_engines import engine_forgets_what_old_weights_computed, learner_trains_what_the_mask_says
from spade_agentic.testing.contracts_worlds import (
    sandbox_keeps_plays_apart,
    sandbox_lets_no_process_escape,
    sandbox_lets_plays_leave_no_notes,
)
from spade_agentic.testing.rules import Rule, run_rules
from spade_agentic.testing.samples import COUNTER_SOURCE


async def breaches(rendering: Any, fault: Any) -> list[list[str]]:
    """The named breaches of each of the two steps of a run of the real loop, with ``fault`` planted."""
    game = make_game(
        rendering, game_policy(any_door, lambda level: 0.5), steps=2, environments=2, regenerate_every=2, seeds=2, repeats=3
    )
    with fault:
        await game.loop.run()
    prefix = "audit/breach/"
    return [sorted(m.removeprefix(prefix) for m in r.metrics if m.startswith(prefix)) for r, _ in game.commits]


def named(steps: list[list[str]]) -> set[str]:
    """The breaches of all steps."""
    return {check for step in steps for check in step}


def found(rule: Rule, make: Any) -> str | None:
    """What a contract's rule says of the object; ``None`` where it holds."""
    (result,) = run_rules([rule], make, subject="planted")
    return None if result.passed else result.detail


async def gated(program: Program, sandbox: PooledSandbox) -> GateReport:
    """What the gates say of a program that nobody has seen before."""
    return await run_gates(program, sandbox, options=GateOptions(), known=lambda _: False, reserved=lambda _: None)


async def test_a_run_without_a_fault_has_no_breach(rendering: Any) -> None:
    """What the following tests of the loop compare with."""
    assert await breaches(rendering, nullcontext()) == [[], []]


# --- 1. advantages are normalised by the wrong thing ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nothing", "sample", "batch"])
async def test_a_wrong_normaliser_is_named_by_the_audit(rendering: Any, kind: str) -> None:
    assert "agent_advantages" in named(await breaches(rendering, wrong_normaliser(kind)))


# --- 2. the engine reads keys and values of old weights ---------------------------------------------------------------


def engine(folder: Path) -> EmbeddedEngine:
    return EmbeddedEngine(EmbeddedOptions(threads=1))


def test_a_stale_cache_is_found_by_the_contract_of_engines() -> None:
    with stale_cache():
        detail = found(engine_forgets_what_old_weights_computed, engine)
    assert detail is not None
    assert "of a fresh engine" in detail
    assert found(engine_forgets_what_old_weights_computed, engine) is None


@pytest.mark.parametrize("stale", [False, True])
async def test_a_stale_cache_is_named_by_the_audit(tmp_path: Path, stale: bool) -> None:
    """The learner trains on the published weights, the engine sampled with the old ones' keys and values.

    The mean ratio alone would not show it: under whatever sampled, its expectation is 1.
    """
    weights = tiny_model(tmp_path / "next", seed=1)
    with stale_cache() if stale else nullcontext():
        serving = engine(tmp_path)
        await serving.start(tiny_model(tmp_path / "model"))
        try:
            await sampled(serving, 0)
            await serving.publish(weights, 1)
            plays = await sampled(serving, 1)
        finally:
            await serving.stop()
    batch, _ = BatchMaker(Sampling(), Sampling(), "environment", -1.0, 50.0, 4).make(plays, [])
    learner = TorchLearner(weights, TorchOptions(threads=1))
    trained = learner.step(batch)
    metrics = audit_step(1, plays, [], batch, trained, agent_group="environment")
    learner.close()
    assert [name for name in metrics if name.startswith("audit/breach/")] == (["audit/breach/agent_mismatch"] if stale else [])


async def sampled(serving: EmbeddedEngine, version: int) -> list[Play]:
    """Plays of 24 tokens behind prompts of 60, the same ones at every call."""
    plays = []
    for number in range(8):
        segment = Segment()
        segment.append_context([(17 * i + 31 * number) % 250 for i in range(60)])
        completion = await serving.complete(
            segment.token_ids, Sampling(max_tokens=24), seed=number, request_id=f"v{version}-{number}", stop_token_ids=()
        )
        segment.append_completion(completion)
        play = sample_play(float(number % 2), seed=number, stop=StopReason.TURN_LIMIT)
        play.trajectory = Trajectory(Role.AGENT, [segment])
        plays.append(play)
    return plays


# --- 3. the mask is off by one ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [1, -1])
async def test_a_mask_off_by_one_is_named_by_the_audit_where_it_was_recorded(rendering: Any, by: int) -> None:
    assert "mask" in named(await breaches(rendering, mask_off_by_one_when_recorded(by)))


@pytest.mark.parametrize("by", [1, -1])
async def test_a_mask_off_by_one_is_named_by_the_audit_where_the_batch_has_it(rendering: Any, by: int) -> None:
    assert "hinted_tokens" in named(await breaches(rendering, mask_off_by_one_in_the_batch(by)))


@pytest.mark.parametrize("by", [1, -1])
def test_a_mask_off_by_one_in_a_learner_is_found_by_the_contract_of_learners(by: int) -> None:
    with mask_off_by_one_in_the_learner(by):
        detail = found(learner_trains_what_the_mask_says, learner_of_random)
    expected = "behind the last masked one" if by == 1 else "changes nothing"
    assert detail is not None
    assert expected in detail


def test_a_learner_that_reads_the_mask_right_is_not_accused() -> None:
    assert found(learner_trains_what_the_mask_says, learner_of_random) is None


def learner_of_random(folder: Path) -> TorchLearner:
    return TorchLearner(tiny_model(folder / "model"), TorchOptions(threads=1))


@pytest.mark.parametrize("by", [0, 1, -1])
def test_a_learner_that_reads_other_tokens_shows_in_the_ratio(tmp_path: Path, by: int) -> None:
    """The second line: what it recomputes is not what was sampled."""
    model = tiny_model(tmp_path / "model")
    batch = own_samples(model)
    learner = TorchLearner(model, TorchOptions(threads=1))
    with mask_off_by_one_in_the_learner(by) if by else nullcontext():
        trained = learner.step(batch)
    learner.close()
    plays = []
    for index, sequence in enumerate(batch):
        segment = Segment(list(sequence.token_ids), list(sequence.mask), list(sequence.rollout_logprobs),
                          [0 if on else -1 for on in sequence.mask])
        play = sample_play(float(index % 2), seed=index, play_id=sequence.sequence_id.rpartition("#")[0])
        play.trajectory = Trajectory(Role.AGENT, [segment])
        plays.append(play)
    metrics = audit_step(0, plays, [], batch, trained, agent_group="environment")
    assert ("audit/breach/agent_ratio" in metrics) is (by != 0)


def own_samples(model: Path) -> list[TrainSequence]:
    """Tokens with the log-probs that the model itself gives them, in two plays with opposite advantages."""
    import torch
    from transformers import AutoModelForCausalLM

    network: Any = AutoModelForCausalLM.from_pretrained(model)
    batch = []
    for index in range(2):
        ids = [(31 * index + 7 * i * i + 11) % 250 for i in range(14)]
        with torch.no_grad():
            table = torch.log_softmax(network(torch.tensor([ids])).logits[0], dim=-1)
        mask = tuple(8 <= i < 12 for i in range(14))
        logprobs = tuple(float(table[i - 1, token]) if mask[i] else 0.0 for i, token in enumerate(ids))
        batch.append(TrainSequence(f"p{index}#0", Role.AGENT, tuple(ids), mask, logprobs, advantage=2.0 * index - 1.0))
    return batch


# --- 4. arms are swapped ----------------------------------------------------------------------------------------------


async def test_swapped_arms_are_named_by_the_audit_in_every_step(rendering: Any) -> None:
    """In the second step there are no hinted plays to compare with; the prompt's own text says it."""
    assert await breaches(rendering, swapped_arms()) == [["arms"], ["arms"]]


# --- 5. plays share a state -------------------------------------------------------------------------------------------


def test_plays_that_share_an_instance_are_found_by_the_contract_of_sandboxes() -> None:
    detail = found(sandbox_keeps_plays_apart, lambda folder: OneInstanceForAll())
    assert detail is not None
    assert "which the first one wrote" in detail
    assert found(sandbox_keeps_plays_apart, lambda folder: InProcessSandbox()) is None


def test_a_map_that_plays_share_is_found_by_the_contract_where_nobody_looks_for_it(sandbox: Any, backend: Any) -> None:
    with nobody_looks_after_loading():
        detail = found(sandbox_lets_plays_leave_no_notes, backend)
    assert detail is not None
    assert "a shared map" in detail
    assert found(sandbox_lets_plays_leave_no_notes, backend) is None


@pytest.mark.parametrize("shared", [False, True])
async def test_a_program_whose_plays_would_share_a_map_is_refused(sandbox: PooledSandbox, shared: bool) -> None:
    """The same program with a map of its own passes."""
    flags = "mmap.MAP_SHARED" if shared else "mmap.MAP_PRIVATE"
    head = f"import mmap\nBOARD = mmap.mmap(-1, 4096, flags={flags} | mmap.MAP_ANONYMOUS)\n"
    program = sample_program(source=head + COUNTER_SOURCE)
    report = await gated(program, sandbox)
    assert (report.refusal.code if report.refusal else None) == ("shared_map" if shared else None)


# --- 6. a process escapes ---------------------------------------------------------------------------------------------


def test_a_daemon_that_escaped_is_found_by_the_contract_of_sandboxes() -> None:
    detail = found(sandbox_lets_no_process_escape, lambda folder: KillsTheGroupOnly())
    assert detail == "after the program was closed 1 of its processes are still there"


@pytest.mark.parametrize("looks", [True, False])
def test_no_daemon_escapes_a_sandbox_of_ours_even_where_nobody_looks_for_it(sandbox: Any, backend: Any, looks: bool) -> None:
    """It is refused when it is loaded; and were it not, it would be killed with the tree."""
    with nullcontext() if looks else nobody_looks_after_loading():
        assert found(sandbox_lets_no_process_escape, backend) is None


# --- 7. a program writes its own result -------------------------------------------------------------------------------

FORGE = """
    def _forge(self, number, answer):
        import json, os
        body = json.dumps({"n": number, "is": answer}).encode()
        for fd in range(3, 64):
            try:
                os.write(fd, len(body).to_bytes(4, "big") + body)
            except OSError:
                pass

    def _wish"""
WON = '["ok", 1.0, True, False, {}]'


def forging(call: str, at: str) -> Any:
    """The counter, in which ``call`` is made at the beginning of the method ``at``."""
    head = {"step": '"""Set the counter to a number."""\n', "reset": "def setup(self, rng):\n"}[at]
    source = COUNTER_SOURCE.replace("\n    def _wish", FORGE).replace(head, f"{head}        {call}\n")
    assert call in source
    return sample_program(source=source)


async def play_of(sandbox: PooledSandbox, program: Any) -> float:
    """The return of a play that sets the counter wrong twice and then answers."""
    loaded = await sandbox.load(program)
    try:
        play = await loaded.play()
        await play.reset(1)
        for number in (1, 2):
            last = await play.step({"type": "call", "name": "set_counter", "arguments": {"number": number}})
            if last.terminated:
                return last.reward
        return (await play.step({"type": "text", "text": "done"})).reward
    finally:
        await loaded.close()


@pytest.mark.parametrize(
    ("call", "at"),
    [
        (f"self._forge(2, {WON})", "step"),  # it takes the place of the true answer, which is then left over
        (f"self._forge(3, {WON})", "step"),  # it waits for the next call
        (f"self._forge(1, {WON})", "step"),
        ('self._forge(1, ["Set the counter to 1.", {}])', "reset"),
        (f"self._forge(2, {WON})", "reset"),
    ],
)
async def test_a_forged_result_is_a_fault_of_the_program(sandbox: PooledSandbox, call: str, at: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        await play_of(sandbox, forging(call, at))
    assert caught.value.code == "protocol"


async def test_a_program_that_forges_is_refused_by_the_gates(sandbox: PooledSandbox) -> None:
    report = await gated(forging(f"self._forge(2, {WON})", "step"), sandbox)
    assert report.refusal is not None
    assert report.refusal.code == "protocol"


async def test_the_same_program_that_forges_nothing_plays_and_passes_the_gates(sandbox: PooledSandbox) -> None:
    program = forging("pass", "step")
    assert await play_of(sandbox, program) == 0.0
    assert (await gated(program, sandbox)).refusal is None


# --- the page about them ------------------------------------------------------------------------------------------------


def test_every_test_that_the_page_names_is_here_and_every_fault_has_a_row() -> None:
    here = Path(__file__)
    page = (here.parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| \d \|", line)]
    assert [row.split("|")[1].strip() for row in rows] == [str(n) for n in range(1, 8)]
    tests = [re.findall(r"`(test_\w+)`", row) for row in rows]
    assert all(tests)
    defined = set(re.findall(r"def (test_\w+)", here.read_text(encoding="utf-8")))
    assert {name for row in tests for name in row} <= defined
