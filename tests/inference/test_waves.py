"""Lockstep waves: the same bits whatever the arrival order, the cache's past, or who else is served."""

from __future__ import annotations

import random
import time


def _wave(bench, scope, number, prompts, *, seeds=range(100), order=None, **sampling):
    """Run one wave; returns token ids and log-probabilities by request, exactly."""
    requests = [
        {"prompt": p, "seed": s, "rid": f"{scope}-p{i:02d}_t{number}", "wave": (f"{scope}-w{number}", len(prompts)), **sampling}
        for i, (p, s) in enumerate(zip(prompts, seeds, strict=False))
    ]
    if order is not None:
        random.Random(order).shuffle(requests)
    results = bench.run(requests)
    return {r.request_id.partition("-p")[2]: (r.token_ids, r.logprobs) for r in results}


def _turns(bench, scope, prompts, *, order=None):
    """Two turns of ten plays, the second extending the first."""
    first = _wave(bench, scope, 0, prompts, order=order, max_tokens=15)
    said = [first[f"{i:02d}_t0"][0] for i in range(len(prompts))]
    longer = [[*p, *s, *prompts[0][:7]] for p, s in zip(prompts, said, strict=True)]
    return first | _wave(bench, scope, 1, longer, order=order, max_tokens=15)


def test_arrival_order_changes_no_bit(bench_of, model_dir, prompts):
    expected = _turns(bench_of(model_dir), "a", prompts)
    for order in range(3):
        assert _turns(bench_of(model_dir), "a", prompts, order=order) == expected


def test_what_the_server_did_before_changes_no_bit(bench_of, model_dir, prompts):
    """A killed run repeats its step on a cold server; the run that was not killed did other steps before."""
    expected = _turns(bench_of(model_dir), "step-1", prompts)
    warm = bench_of(model_dir)
    _turns(warm, "step-0", [p[:40] for p in prompts])
    _turns(warm, "evaluation", prompts[::-1])
    assert _turns(warm, "step-1", prompts) == expected


def test_other_peoples_requests_change_no_bit(bench_of, model_dir, prompts):
    expected = _turns(bench_of(model_dir), "a", prompts)
    busy = bench_of(model_dir)
    others = [busy.submit(prompts[i % 10], seed=i, max_tokens=60) for i in range(12)]
    assert _turns(busy, "a", prompts, order=1) == expected
    for wait in others:
        assert len(wait().token_ids) == 60


def test_a_second_turn_reads_the_first_from_the_cache(bench, prompts):
    _turns(bench, "a", prompts)
    assert bench.scheduler.stats.waves == 2
    again = [[*p, 9, 9] for p in prompts]
    waiting = [
        bench.submit(p, rid=f"q{i}", wave=("a-w2", len(again)), max_tokens=2) for i, p in enumerate(again)
    ]
    assert all(wait().cached_tokens >= len(p) for wait, p in zip(waiting, prompts, strict=True))


def test_a_wave_waits_for_its_last_member(bench, prompts):
    first = bench.submit(prompts[0], rid="a", wave=("s-w0", 2), max_tokens=3)
    time.sleep(0.2)
    assert bench.scheduler.load().result(10)["waiting"] == 1
    second = bench.submit(prompts[1], rid="b", wave=("s-w0", 2), max_tokens=3)
    assert len(first().token_ids) == len(second().token_ids) == 3


def test_a_wave_larger_than_the_batch_runs_in_parts_and_repeats(bench_of, model_dir, prompts):
    runs = [_wave(bench_of(model_dir, max_batch=4), "s", 0, prompts, order=order, max_tokens=9) for order in (None, 3)]
    assert runs[0] == runs[1]
    assert all(len(tokens) == 9 for tokens, _ in runs[0].values())


def test_a_wave_that_lost_a_member_lets_the_others_go(bench, prompts):
    waiting = [bench.submit(prompts[i], rid=f"m{i}", wave=("s-w0", 3)) for i in range(2)]
    bench.scheduler.abort("m1").result(10)
    results = [wait() for wait in waiting]
    assert [r.finish["type"] for r in results] == ["abort", "abort"]
    assert "lost a member" in results[0].finish["message"]


def test_a_retracted_wave_goes_on_after_new_weights(bench, prompts, other_weights, weights_of):
    class Hold:
        pushed = 0

        def push(self, token, logprob):
            self.pushed += 1
            if self.pushed == 3:
                futures.append(bench.scheduler.pause("retract"))
                futures.append(bench.scheduler.swap(weights_of(other_weights, "1")))
                futures.append(bench.scheduler.resume())

    futures: list = []
    waiting = [bench.submit(p, rid=f"h{i}", wave=("s-w0", 4), watcher=Hold() if i == 0 else None)
               for i, p in enumerate(prompts[:4])]
    results = [wait() for wait in waiting]
    assert all(r.spans == [("0", 0, 3), ("1", 3, 12)] for r in results)
    assert all(f.exception(10) is None for f in futures)
