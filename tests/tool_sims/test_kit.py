"""Chains, modifiers, faults and the registry of domains."""

from __future__ import annotations

import random
from itertools import permutations, product

import pytest
from sim_worlds import DOMAINS, follow, play_calls, solution, tells

from spade_agentic import Skill, ToolError, UserError
from spade_agentic_sims.demonstrate import demonstrate
from spade_agentic_sims.kit import (
    HELD_OUT_SEED,
    Alternative,
    Chain,
    Mods,
    SimEnv,
    Step,
    build_env,
    chain_hint,
    chain_skills,
    default_turns,
    describe_domain,
    draw_chain,
    get_domain,
    is_reserved,
)

each_domain = pytest.mark.parametrize("domain", DOMAINS)


def kinds(domain: str) -> list[str]:
    return sorted(get_domain(domain).goal_kinds)


# --- reserved chains -----------------------------------------------------------------------------------------------------


@each_domain
def test_about_one_chain_in_five_is_reserved(domain: str) -> None:
    pairs = [pair for pair in product(kinds(domain), repeat=2) if pair[0] <= pair[1]]
    share = sum(is_reserved(domain, pair) for pair in pairs) / len(pairs)
    assert 0.12 < share < 0.28


@each_domain
def test_no_single_goal_is_reserved(domain: str) -> None:
    assert not any(is_reserved(domain, [name]) for name in kinds(domain))


@each_domain
def test_the_order_of_goals_is_no_disguise(domain: str) -> None:
    rng = random.Random(3)
    for _ in range(100):
        goals = [rng.choice(kinds(domain)) for _ in range(3)]
        assert len({is_reserved(domain, order) for order in permutations(goals)}) == 1


@each_domain
@pytest.mark.parametrize("reserved", [False, True])
def test_chains_are_drawn_on_the_side_that_was_asked_for(domain: str, reserved: bool) -> None:
    rng = random.Random(5)
    for _ in range(50):
        chain = draw_chain(rng, domain, 2, reserved=reserved)
        assert is_reserved(domain, chain.goals) == reserved
        assert len(chain.goals) == 2


def test_a_chain_that_cannot_be_drawn_is_the_callers_mistake() -> None:
    with pytest.raises(UserError, match="no such chain"):
        draw_chain(random.Random(1), "banking", 1, reserved=True)


def test_goals_and_skill_confine_the_draw() -> None:
    rng = random.Random(2)
    goals = ("move_own", "report_limit", "top_up_pay")
    drawn = {draw_chain(rng, "banking", 1, goals=goals, skill=Skill.ERROR_RECOVERY).goals for _ in range(20)}
    assert drawn == {("top_up_pay",)}


def test_training_and_evaluation_seeds_are_apart() -> None:
    assert HELD_OUT_SEED == 10**6


# --- domains -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["no_such_domain", "", "a.b", "kit"])
def test_an_unknown_domain_names_the_known_ones(name: str) -> None:
    for domain in DOMAINS:
        get_domain(domain)
    with pytest.raises(UserError) as caught:
        get_domain(name)
    assert "banking" in str(caught.value.todo)


@each_domain
def test_a_description_is_plain_data(domain: str) -> None:
    import json

    description = describe_domain(domain)
    assert json.loads(json.dumps(description)) == description
    assert set(description["goals"]) == set(kinds(domain))
    assert "fault" in description["modifiers"]


def test_equal_chains_share_one_class_and_instances_share_nothing() -> None:
    first, second = build_env("banking", ("sweep",)), build_env("banking", ("sweep",))
    assert type(first) is type(second)
    first.reset(seed=1)
    second.reset(seed=2)
    assert first.state is not second.state
    assert type(first) is not type(build_env("banking", ("sweep",), Mods(hide_id=True)))


def test_a_domain_without_records_is_not_finished() -> None:
    class Unfinished(SimEnv):
        domain = "unfinished"

    with pytest.raises(NotImplementedError):
        Unfinished().reset(seed=1)


# --- modifiers -----------------------------------------------------------------------------------------------------------


@each_domain
def test_hidden_ids_are_names_in_the_request(domain: str) -> None:
    for name in kinds(domain):
        plain, hidden = (build_env(domain, (name,), Mods(hide_id=hide)) for hide in (False, True))
        request = plain.reset(seed=4)[0]
        assert any(f"ustomer {key}" in request for key in plain.state["customers"])
        text = hidden.reset(seed=4)[0]
        names = [item["name"] for item in hidden.state["customers"].values()]
        assert sum(tells(text.lower(), who.lower()) for who in names) == 1
        assert "find_customer" in hidden.exposed_tools()


@each_domain
def test_a_leak_shows_the_solution_and_a_plain_world_does_not(domain: str) -> None:
    import json

    for leak in (False, True):
        env = build_env(domain, kinds(domain)[:1], Mods(leak=leak))
        calls = solution(env, 3)
        assert (json.dumps(calls[0]) in env.reset(seed=3)[0]) == leak


@each_domain
def test_a_turn_limit_that_is_too_small_loses(domain: str) -> None:
    env = build_env(domain, kinds(domain)[:1], Mods(turns=1))
    assert env.max_turns == 1
    assert not follow(env, 3).won


@each_domain
def test_the_default_turn_limit_leaves_two_calls_to_waste(domain: str) -> None:
    for name in kinds(domain):
        for mods in (Mods(), Mods(hide_id=True), Mods(fault=get_domain(domain).goal_kinds[name].tools[0])):
            env = build_env(domain, (name,), mods)
            longest = max(len(solution(env, seed)) for seed in range(30))
            assert env.max_turns == default_turns(domain, (name,), mods) == longest + 3


@each_domain
def test_a_fault_fails_once_and_is_mended(domain: str) -> None:
    cls = get_domain(domain)
    met = set()
    for seed in range(20):
        env = build_env(domain, kinds(domain)[:1], Mods(fault=cls.goal_kinds[kinds(domain)[0]].tools[0]))
        played = follow(env, seed)
        errors = [exchange.observation for exchange in played.exchanges if exchange.observation.startswith('{"error"')]
        assert played.won
        assert len(errors) == 1
        met.add("busy" if "busy" in errors[0] else "expired")
        assert (cls.mend_tool in errors[0]) == ("expired" in errors[0])
    assert met == {"busy", "expired"}


@each_domain
def test_a_second_try_on_an_expired_session_locks_out_for_good(domain: str) -> None:
    first = kinds(domain)[0]
    tool = get_domain(domain).goal_kinds[first].tools[0]
    env = build_env(domain, (first,), Mods(fault=tool))
    for seed in range(20):
        calls = solution(env, seed)
        if calls[1]["name"] != env.mend_tool:
            continue
        env.reset(seed=seed)
        mend = {"type": "call", "name": env.mend_tool, "arguments": {}}
        texts = [env.step(action)[0] for action in ({"type": "call", **calls[0]}, {"type": "call", **calls[0]}, mend)]
        assert "locked out" in texts[1]
        assert "locked out" in env.step({"type": "call", **calls[0]})[0]
        return
    raise AssertionError("no session expired")


@each_domain
def test_a_tool_that_always_fails_cannot_be_mended(domain: str) -> None:
    for name in kinds(domain):
        tool = solution(build_env(domain, (name,)), 1)[-1]["name"]
        env = build_env(domain, (name,), Mods(fault=tool, fault_always=True, turns=20))
        reward, shown = play_calls(env, 1, [*solution(env, 1)] * 2)
        assert reward == 0.0
        assert "service down" in "".join(shown)


@each_domain
def test_a_list_that_is_never_shown_leaves_the_solution_without_sources(domain: str) -> None:
    """A replayed solution knows the ids; that nobody can read them is what the gate on sources refuses."""
    for name in kinds(domain):
        reader = get_domain(domain).goal_kinds[name].tools[0]
        env = build_env(domain, (name,), Mods(fault=reader, fault_always=True))
        calls = solution(env, 1)
        _, shown = play_calls(env, 1, calls)
        told = "".join(shown)
        values = [value for item in calls for value in item["arguments"].values()]
        assert not all(tells(told, value) for value in values)


def test_a_hint_tells_of_modifiers_only_where_they_are() -> None:
    plain = chain_hint("banking", ("sweep",), Mods())
    hinted = chain_hint("banking", ("sweep", "sweep"), Mods(hide_id=True, fault="move_money"))
    assert "find_customer" not in plain
    assert "renew_session" not in plain
    assert "find_customer" in hinted
    assert "renew_session" in hinted
    assert hinted.count("whole balance") == 1


def test_modifiers_and_length_add_skills() -> None:
    assert chain_skills("banking", ("report_limit",), Mods()) == {Skill.DATA_RETRIEVAL}
    added = chain_skills("banking", ("move_own", "move_own"), Mods(hide_id=True, fault="move_money"))
    assert {Skill.DATA_RETRIEVAL, Skill.ERROR_RECOVERY, Skill.MULTI_STEP_WORKFLOWS} <= added


@each_domain
def test_a_breach_is_on_record_for_good(domain: str) -> None:
    goal = {
        "banking": "set_limit", "support": "close_ticket", "retail": "set_price", "smart_home": "set_heat",
        "telecom": "set_speed",
    }[domain]  # fmt: skip
    env = build_env(domain, (goal,))

    def careless(step: Step) -> Alternative | None:
        return step.alternatives[0] if step.decision == "precondition" and not env.state["breaches"] else None

    played = demonstrate(env, seed=3, choose=careless)
    assert env.state["breaches"] == 1
    assert all(env.probe()["criteria"])
    assert not played.won


# --- goals of one chain ----------------------------------------------------------------------------------------------------


@each_domain
def test_goals_of_a_chain_touch_different_customers(domain: str) -> None:
    for name in kinds(domain):
        env = build_env(domain, (name,) * 3)
        for seed in range(5):
            env.reset(seed=seed)
            owners = [env.goals[index].steps[0].call.arguments["customer"] for index in range(3)]
            assert len(set(owners)) == 3


@each_domain
def test_requests_are_revealed_one_by_one(domain: str) -> None:
    goals = kinds(domain)[:3]
    env = build_env(domain, goals)
    played = follow(env, 6)
    texts = env.probe()["instructions"]
    assert played.first == texts[0]
    everything = "\n".join(exchange.observation for exchange in played.exchanges)
    assert all(everything.count(text) == 1 for text in texts[1:])


def test_a_hidden_tool_is_no_tool() -> None:
    env = build_env("banking", ("report_limit",))
    env.reset(seed=1)
    with pytest.raises(ToolError, match="unknown tool"):
        env.call_tool("move_money", {"source": "A1", "target": "A2", "amount": 5})


def test_a_missing_record_is_an_error_of_the_call() -> None:
    env = build_env("banking", ("report_limit",))
    env.reset(seed=1)
    with pytest.raises(ToolError, match="no such id in customers"):
        env.call_tool("list_cards", {"customer": "C1"})


def test_a_chain_makes_its_environment() -> None:
    env = Chain("support", ("ship_order",), Mods(turns=9)).env()
    assert (env.domain, env.chain, env.max_turns) == ("support", ("ship_order",), 9)
