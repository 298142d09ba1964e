"""Continuous batching: what may and what may not change a request's tokens."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from spade_agentic.inference.embedded.scheduler import Refused


def _tokens(results):
    return [r.token_ids for r in results]


class Gate:
    """A watcher that holds the compute thread after ``at`` tokens until it is opened."""

    def __init__(self, at: int) -> None:
        self._at, self._seen = at, 0
        self.reached, self.open = threading.Event(), threading.Event()

    def push(self, token, logprob):
        self._seen += 1
        if self._seen == self._at:
            self.reached.set()
            assert self.open.wait(30)


def test_the_same_seed_gives_the_same_tokens_whoever_else_is_in_the_batch(bench, prompts):
    alone = [bench.one(p, seed=i, max_tokens=20) for i, p in enumerate(prompts)]
    together = bench.run([{"prompt": p, "seed": i, "max_tokens": 20} for i, p in enumerate(prompts)])
    assert _tokens(alone) == _tokens(together)
    for one, other in zip(alone, together, strict=True):
        assert np.allclose(one.logprobs, other.logprobs, atol=5e-5)


def test_another_seed_gives_other_tokens(bench, prompts):
    results = bench.run([{"prompt": prompts[0], "seed": s, "temperature": 1.5} for s in range(6)])
    assert len({tuple(r.token_ids) for r in results}) == 6


def test_sharing_a_prefix_changes_no_result(bench_of, model_dir, prompts):
    requests = [{"prompt": p, "seed": i} for i, p in enumerate(prompts)]
    apart = [bench_of(model_dir).one(**r) for r in requests[:4]]
    shared = bench_of(model_dir).run(requests)
    assert _tokens(apart) == _tokens(shared[:4])
    assert all(r.cached_tokens >= 50 for r in shared[2:8])


def test_a_later_turn_reads_the_earlier_ones_from_the_cache(bench, reference, prompts):
    first = bench.one(prompts[0], seed=1)
    longer = [*prompts[0], *first.token_ids, *prompts[1][:9]]
    second = bench.one(longer, seed=2)
    assert second.cached_tokens == len(prompts[0]) + len(first.token_ids) - 1
    assert np.allclose(second.logprobs, reference.logprobs(longer, second.token_ids), atol=5e-5)


def test_more_requests_than_rows_all_end(bench_of, model_dir, prompts):
    small = bench_of(model_dir, max_batch=3)
    requests = [{"prompt": prompts[i % 10], "seed": i, "max_tokens": 3 + i % 9} for i in range(25)]
    results = small.run(requests)
    assert [len(r.token_ids) for r in results] == [r["max_tokens"] for r in requests]
    assert _tokens(results) == _tokens(bench_of(model_dir).run(requests))


def test_a_cache_too_small_for_the_prompts_changes_no_result(bench_of, model_dir, prompts):
    requests = [{"prompt": p, "seed": i} for i, p in enumerate(prompts)] * 2
    named = [{**r, "rid": f"n{i}"} for i, r in enumerate(requests)]
    assert _tokens(bench_of(model_dir, pool_tokens=130).run(named)) == _tokens(bench_of(model_dir).run(named))


def test_a_stop_token_ends_a_request_and_is_its_last_token(bench, prompts):
    free = bench.one(prompts[0], seed=5, max_tokens=20)
    stop = free.token_ids[7]
    result = bench.one(prompts[0], seed=5, max_tokens=20, stop_token_ids=(stop,), ignore_eos=False)
    assert result.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert result.finish == {"type": "stop", "matched": stop}


def test_max_tokens_ends_a_request(bench, prompts):
    result = bench.one(prompts[0], max_tokens=1)
    assert len(result.token_ids) == 1
    assert result.finish == {"type": "length", "length": 1}


def test_a_hole_in_the_batch_outlives_any_number_of_steps(bench, prompts):
    """Rows whose request has ended stay in the batch until enough of them do."""
    requests = [{"prompt": p, "seed": i, "max_tokens": 2 if i == 3 else 200} for i, p in enumerate(prompts)]
    assert [len(r.token_ids) for r in bench.run(requests)] == [r["max_tokens"] for r in requests]


def test_an_abort_returns_the_tokens_so_far(bench, prompts):
    gate = Gate(4)
    stays = bench.submit(prompts[1], rid="stays", seed=2, max_tokens=50)  # first: none is taken in while the gate is shut
    wait = bench.submit(prompts[0], rid="goes", seed=1, max_tokens=50, watcher=gate)
    assert gate.reached.wait(30)
    aborted = bench.scheduler.abort("goes")
    gate.open.set()
    aborted.result(30)
    result = wait()
    assert result.finish["type"] == "abort"
    assert 4 <= len(result.token_ids) < 50
    assert result.token_ids == bench.one(prompts[0], seed=1, max_tokens=50).token_ids[: len(result.token_ids)]
    assert len(stays().token_ids) == 50


def test_two_running_requests_cannot_have_one_id(bench, prompts):
    gate = Gate(1)
    wait = bench.submit(prompts[0], rid="same", watcher=gate)
    assert gate.reached.wait(30)
    threading.Timer(0.1, gate.open.set).start()
    bench.scheduler.pause("in_place").result(30)
    with pytest.raises(Refused, match="same"):
        bench.submit(prompts[0], rid="same")
    bench.scheduler.resume().result(30)
    wait()


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_weights_change_in_flight_and_every_token_knows_its_version(
    mode, bench, prompts, other_weights, weights_of, reference, reference_of
):
    gate = Gate(5)
    wait = bench.submit(prompts[0], seed=3, max_tokens=20, watcher=gate)
    assert gate.reached.wait(30)
    done = [bench.scheduler.pause(mode), bench.scheduler.swap(weights_of(other_weights, "1")), bench.scheduler.resume()]
    gate.open.set()
    for future in done:
        future.result(30)
    result = wait()
    (old, start, cut), (new, again, end) = result.spans
    assert (old, start, new, end) == ("0", 0, "1", 20)
    assert cut == again
    assert 5 <= cut < 20
    assert np.allclose(result.logprobs[:cut], reference.logprobs(prompts[0], result.token_ids)[:cut], atol=5e-5)
    after = reference_of(other_weights).logprobs(prompts[0], result.token_ids)[cut:]
    agree = np.allclose(result.logprobs[cut:], after, atol=5e-5)
    assert agree == (mode == "retract"), "retracted tokens are recomputed, kept ones attend to the old keys and values"
    assert result.retractions == (1 if mode == "retract" else 0)


def test_nothing_computed_with_old_weights_is_read_by_a_new_request(bench, prompts, other_weights, weights_of, reference_of):
    bench.one(prompts[0])
    bench.scheduler.swap(weights_of(other_weights, "1")).result(30)
    result = bench.one(prompts[0], seed=1)
    assert result.cached_tokens == 0
    assert result.spans == [("1", 0, 12)]
    assert np.allclose(result.logprobs, reference_of(other_weights).logprobs(prompts[0], result.token_ids), atol=5e-5)


def test_a_request_that_kept_old_keys_through_a_swap_enters_no_cache(bench, prompts, other_weights, weights_of):
    gate = Gate(5)
    wait = bench.submit(prompts[0], seed=3, max_tokens=20, watcher=gate)
    assert gate.reached.wait(30)
    swapped = bench.scheduler.swap(weights_of(other_weights, "1"))
    gate.open.set()
    swapped.result(30)
    wait()
    assert bench.one(prompts[0]).cached_tokens == 0


def test_the_cache_is_not_flushed_under_running_requests(bench, prompts):
    gate = Gate(2)
    wait = bench.submit(prompts[0], watcher=gate)
    assert gate.reached.wait(30)
    flushed = bench.scheduler.flush()
    gate.open.set()
    with pytest.raises(Refused, match="while requests run"):
        flushed.result(30)
    wait()
    bench.scheduler.flush().result(30)
    assert bench.one(prompts[0]).cached_tokens == 0


def test_logits_that_are_not_finite_are_an_error_and_no_token(bench_of, model_dir, weights_of, prompts):
    bench = bench_of(model_dir)
    bench.one(prompts[0])
    spoiled = weights_of(model_dir, "1")
    spoiled.final_norm.fill_(float("nan"))
    bench.scheduler.swap(spoiled).result(30)
    result = bench.one(prompts[0])
    assert result.error is not None
    assert result.status == 500
