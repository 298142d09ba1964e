"""Admission under the staleness bound, and the lockstep of deterministic runs."""

import asyncio
import random

import pytest
from hypothesis import given, settings, strategies as st

from spade_agentic.rollout.scheduler import Admission, Job, Lockstep, Scheduler

# --- admission ---------------------------------------------------------------------------------------------------------


@given(
    batch=st.integers(1, 50), eta=st.integers(0, 4), version=st.integers(0, 100), accepted=st.integers(0, 5000),
    running=st.integers(0, 200), free=st.integers(0, 300),
)
def test_capacity_is_the_rule_and_never_negative(batch, eta, version, accepted, running, free):
    capacity = Admission(batch, eta, version, accepted, running).capacity(free)
    assert capacity == max(0, min(free, (eta + version + 1) * batch - accepted - running))


def test_synchronous_training_admits_one_batch_and_no_more():
    admission = Admission(batch=8)
    assert admission.capacity(100) == 8
    admission.running = 8
    assert admission.capacity(100) == 0
    admission.running, admission.accepted = 0, 8
    assert admission.capacity(100) == 0, "nothing starts before the weights have changed"
    admission.version = 1
    assert admission.capacity(100) == 8


def test_staleness_lets_that_many_batches_run_ahead():
    assert Admission(batch=8, eta=2).capacity(100) == 24


async def test_a_unit_waits_until_the_rule_lets_it_in():
    admission, started = Admission(batch=2), []

    async def run(ticket):
        started.append(1)
        return 1

    scheduler = Scheduler(slots=8, deterministic=False)
    with pytest.raises(AssertionError, match="1 units were never admitted"):
        await scheduler.run("b", [[Job(f"j{i}", run)] for i in range(3)], admission=admission)
    assert len(started) == 2


async def test_what_was_accepted_and_what_runs_is_counted_in_units():
    admission = Admission(batch=3)

    async def run(ticket):
        assert admission.running >= 1
        return 1

    units = [[Job(f"u{u}j{j}", run) for j in range(2)] for u in range(3)]
    await Scheduler(slots=8, deterministic=False).run("b", units, admission=admission)
    assert (admission.accepted, admission.running) == (3, 0)


# --- lockstep ----------------------------------------------------------------------------------------------------------


async def waves_of(lengths, *, slots, seed, unit_size=2):
    """Run jobs that take ``lengths[i]`` turns each, with random latencies; returns who left in which wave."""
    rng, waves = random.Random(seed), {}

    def job(number):
        async def run(ticket):
            for _ in range(lengths[number]):
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
                name, size = await ticket()
                waves.setdefault(name, (size, []))[1].append(number)
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
            return number

        return Job(f"j{number}", run)

    jobs = [job(i) for i in range(len(lengths))]
    units = [jobs[i : i + unit_size] for i in range(0, len(jobs), unit_size)]
    results = await Scheduler(slots=slots, deterministic=True).run("b", units)
    assert [r for unit in results for r in unit] == list(range(len(lengths)))
    return {name: (size, sorted(members)) for name, (size, members) in waves.items()}


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=14), slots=st.integers(2, 8), seeds=st.tuples(
    st.integers(0, 2**32), st.integers(0, 2**32)))
async def test_waves_are_the_same_whatever_the_machine_is_doing(lengths, slots, seeds):
    first = await waves_of(lengths, slots=slots, seed=seeds[0])
    assert first == await waves_of(lengths, slots=slots, seed=seeds[1])
    assert all(size == len(members) <= slots for size, members in first.values())
    assert sum(len(members) for _, members in first.values()) == sum(lengths)


async def test_a_wave_waits_for_its_slowest_member():
    lockstep, left = Lockstep("b"), []
    for member in ("a", "b"):
        lockstep.join(member)

    async def go(member):
        left.append((member, await lockstep.ticket(member)))

    first = asyncio.create_task(go("a"))
    await asyncio.sleep(0.01)
    assert left == []
    await asyncio.gather(first, go("b"))
    assert sorted(left) == [("a", ("b-w0", 2)), ("b", ("b-w0", 2))]


async def test_who_leaves_is_not_waited_for():
    lockstep = Lockstep("b")
    for member in ("a", "b"):
        lockstep.join(member)
    waiting = asyncio.create_task(lockstep.ticket("a"))
    await asyncio.sleep(0)
    lockstep.leave("b")
    assert await waiting == ("b-w0", 1)


async def test_without_lockstep_there_are_no_waves():
    async def run(ticket):
        return await ticket()

    assert await Scheduler(slots=2, deterministic=False).run("b", [[Job("a", run)], [Job("b", run)]]) == [[None], [None]]


# --- units and failures ------------------------------------------------------------------------------------------------


async def test_the_arms_of_a_pair_start_together_even_when_slots_are_few():
    running, seen = set(), []

    def job(name):
        async def run(ticket):
            running.add(name)
            await asyncio.sleep(0)
            seen.append(frozenset(running))
            await asyncio.sleep(0)
            running.discard(name)
            return name

        return Job(name, run)

    units = [[job(f"{pair}plain"), job(f"{pair}hinted")] for pair in range(5)]
    await Scheduler(slots=3, deterministic=False).run("b", units)
    for together in seen:
        assert len(together) <= 3
        for name in together:
            other = name.replace("plain", "hinted") if "plain" in name else name.replace("hinted", "plain")
            assert other in together


async def test_a_failure_cancels_the_rest_and_is_raised_as_itself():
    cancelled = []

    async def fail(ticket):
        raise ValueError("broken")

    async def wait(ticket):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    with pytest.raises(ValueError, match="broken"):
        await Scheduler(slots=4, deterministic=False).run("b", [[Job("a", wait)], [Job("b", fail)]])
    assert cancelled == [1]


async def test_nothing_to_do_is_done_at_once():
    assert await Scheduler(slots=1, deterministic=True).run("b", []) == []
