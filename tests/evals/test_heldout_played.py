"""The held-out worlds, played through the run's own rollout path: rendering, parsing, episode and environment are real."""

from __future__ import annotations

from typing import Any

import pytest

from spade_agentic.hooks.records import Sampling
from spade_agentic.selfplay.evaluation import EvaluationRunner
from spade_agentic_plugins.heldout import HeldOutOptions, evaluator


@pytest.fixture(scope="module")
def rendering(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from play_fakes import write_tokenizer

    from spade_agentic.rollout.rendering import build_rendering

    return build_rendering(write_tokenizer(tmp_path_factory.mktemp("tokenizer")), {"name": "qwen3"})


async def test_an_agent_that_answers_at_once_loses_every_held_out_instance_and_none_is_void(rendering: Any) -> None:
    from play_fakes import make_game

    game = make_game(rendering, lambda text, rng, request_id: "done")
    (factory,) = evaluator()
    options = HeldOutOptions(domains=("banking", "support"), chains=4, reserved_chains=3, instances=2, repeats=2)
    held_out = factory.build(options, None)
    runner = EvaluationRunner(game.loop.runner, game.loop.rounds, game.loop.pool, Sampling(max_tokens=96), 0)
    result = await held_out.evaluate(runner, step=0)
    assert (result["heldout/plays"], result["heldout/void"]) == (2 * 4 * 2 * 4, 0)
    assert [result[f"heldout/{rate}"] for rate in ("sampled", "greedy", "hinted")] == [0.0, 0.0, 0.0]
    assert result["heldout/sampled_high"] < 0.25
    assert (result["heldout/reserved/plays"], result["heldout/reserved/void"]) == (3 * 2 * 4, 0), "the reserved domain too"
    assert [result[f"heldout/reserved/{rate}"] for rate in ("sampled", "greedy", "hinted")] == [0.0, 0.0, 0.0]
