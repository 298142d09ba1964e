"""The ring of 200, its seeds and its counter-examples."""

from hypothesis import given, strategies as st

from spade_agentic.hooks.kinds import MemoryEntry
from spade_agentic.hooks.records import Skill
from spade_agentic_plugins.sqlite_memory import MemoryOptions, SqliteMemory

A, B = Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION


def entry(name, *, skill=A, win_rate=0.5, regret=0.1, admitted=True):
    return MemoryEntry(str(name), skill, f"source {name}", win_rate, regret, admitted, 0)


def filled(entries, **options):
    memory = SqliteMemory(MemoryOptions(**options))
    for one in entries:
        memory.add(one)
    return memory


def everything(memory):
    return [row[0] for row in memory.state_dict()["entries"]]


def test_the_ring_holds_200_and_evicts_the_oldest():
    memory = filled(entry(i) for i in range(250))
    assert len(memory) == 200
    assert everything(memory) == [str(i) for i in range(50, 250)]


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 5))
def test_the_ring_is_the_newest_entries_whatever_is_added(names, capacity):
    memory = filled((entry(n) for n in names), capacity=capacity)
    newest = list(dict.fromkeys(str(n) for n in reversed(names)))[:capacity]
    assert len(everything(memory)) == len(set(everything(memory))) <= capacity
    assert everything(memory)[-1:] == newest[:1]
    assert set(everything(memory)) <= {str(n) for n in names}


def test_seeds_are_of_the_same_skill_and_within_the_band():
    memory = filled(
        [entry("in"), entry("low", win_rate=0.1), entry("high", win_rate=0.9), entry("other", skill=B),
         entry("new", win_rate=None)]
    )
    seeds, _ = memory.sample(A, seed=0)
    assert [s.draft_id for s in seeds] == ["in"]


def test_seeds_are_two_of_the_best_ten_by_regret():
    memory = filled(entry(i, regret=i / 100) for i in range(30))
    drawn = {s.draft_id for seed in range(200) for s in memory.sample(A, seed=seed)[0]}
    assert drawn == {str(i) for i in range(20, 30)}
    assert all(len(memory.sample(A, seed=seed)[0]) == 2 for seed in range(20))


def test_the_counter_example_is_too_easy_or_too_hard():
    memory = filled([entry("mid"), entry("easy", win_rate=0.95), entry("hard", win_rate=0.05), entry("edge", win_rate=0.9)])
    drawn = {memory.sample(A, seed=seed)[1].draft_id for seed in range(50)}
    assert drawn == {"easy", "hard"}
    assert filled([entry("mid")]).sample(A, seed=0)[1] is None


def test_rejected_drafts_are_remembered_and_are_no_seeds():
    memory = filled([entry("refused", admitted=False, win_rate=None, regret=None)])
    assert len(memory) == 1
    assert memory.sample(A, seed=0) == ((), None)


def test_sampling_depends_on_its_seed_alone():
    memory = filled(entry(i, win_rate=[0.5, 0.95][i % 2]) for i in range(40))
    assert memory.sample(A, seed=7) == memory.sample(A, seed=7)
    assert len({memory.sample(A, seed=seed) for seed in range(30)}) > 10


def test_an_update_reaches_what_is_still_there_and_nothing_else():
    memory = filled([entry("a", win_rate=None, regret=None)], capacity=1)
    memory.update("a", win_rate=0.5, regret=0.3)
    memory.update("gone", win_rate=0.5, regret=0.3)
    [seed], _ = memory.sample(A, seed=0)
    assert (seed.win_rate, seed.regret) == (0.5, 0.3)


def test_the_memory_survives_a_resume_with_its_order():
    memory = filled((entry(i) for i in range(5)), capacity=5)
    resumed = SqliteMemory(MemoryOptions(capacity=5))
    resumed.load_state_dict(memory.state_dict())
    assert resumed.state_dict() == memory.state_dict()
    resumed.add(entry("new"))
    assert everything(resumed) == ["1", "2", "3", "4", "new"]
    assert resumed.sample(A, seed=3)[0] != ()
