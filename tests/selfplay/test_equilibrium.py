"""Every pure Nash equilibrium of a small game (paper, appendix E), by enumeration, with the product's own regret and reward.

The designer chooses one environment, the agent one action for each. The agent is paid its return without the hint; the
designer whatever its reward says. With the hint the agent acts as well as the environment allows (hints attain the optimum),
and it can act so without the hint too (what hints teach can be internalised).
"""

import itertools

import pytest
from play_fakes import door, in_pool, make_play

from spade_agentic.hooks.kinds import EnvironmentHistory, RewardInput
from spade_agentic.hooks.records import Arm
from spade_agentic.selfplay.regret import PlayRecord, paired_regret
from spade_agentic_plugins.rewards import HintRegret, HintRegretOptions

EASY, SUBTLE, MIXED, UNSOLVABLE = "easy", "subtle", "mixed", "unsolvable"
RETURNS = {
    EASY: (1.0, 1.0, 0.0),
    SUBTLE: (0.0, 0.0, 1.0),
    MIXED: (0.5, 1.0, 0.0),
    UNSOLVABLE: (0.0, 0.0, 0.0),
}
"""What each of three actions returns in each environment."""
GAME = {name: (returns, max(returns)) for name, returns in RETURNS.items()}
"""Each environment's returns, and what the hinted agent gets."""


def history(plain, hinted):
    """Four paired seeds of one environment, as the loop would see them."""
    plays = [
        make_play("e", seed, 0, arm, value) for seed in range(4) for arm, value in ((Arm.PLAIN, plain), (Arm.HINTED, hinted))
    ]
    regret = paired_regret(map(PlayRecord.of, plays), min_pairs=2)
    return RewardInput(EnvironmentHistory(in_pool(door()), tuple(plays), regret, 0), float(plain >= 1.0), plain, 0.0)


def hint_regret(plain, hinted):
    return HintRegret(HintRegretOptions()).reward(history(plain, hinted))


def make_it_hard(plain, hinted):
    return -history(plain, hinted).mean_return


def equilibria(game, reward):
    """Every (environment, strategy) from which neither side gains by changing its own choice alone."""
    names = list(game)
    pays = {(name, a): reward(game[name][0][a], game[name][1]) for name in names for a in range(3)}
    for strategy in itertools.product(range(3), repeat=len(names)):
        acts = dict(zip(names, strategy, strict=True))
        best = max(pays[name, acts[name]] for name in names)
        for chosen in names:
            agent_is_content = game[chosen][0][acts[chosen]] == max(game[chosen][0])
            if agent_is_content and pays[chosen, acts[chosen]] == best:
                yield chosen, acts


def is_optimal_without_hints(acts, game=GAME):
    return all(game[name][0][action] == max(game[name][0]) for name, action in acts.items())


def regrets(acts, game=GAME):
    return {name: hint_regret(game[name][0][action], game[name][1]) for name, action in acts.items()}


def test_every_pure_nash_equilibrium_has_zero_regret_and_an_agent_that_is_optimal_without_hints():
    found = list(equilibria(GAME, hint_regret))
    assert len(found) == 2 * 3 * len(GAME), "both ways to be optimal in the easy one, any act in the unsolvable, any choice"
    for _, acts in found:
        assert set(regrets(acts).values()) == {0.0}
        assert is_optimal_without_hints(acts)


def test_every_agent_that_is_optimal_without_hints_is_in_an_equilibrium():
    optimal = [acts for acts in strategies() if is_optimal_without_hints(acts)]
    found = [acts for _, acts in equilibria(GAME, hint_regret)]
    assert optimal
    assert all(acts in found for acts in optimal)


def strategies():
    return [dict(zip(GAME, actions, strict=True)) for actions in itertools.product(range(3), repeat=len(GAME))]


def test_under_make_it_hard_the_designer_hides_in_the_unsolvable_and_the_agent_need_not_learn():
    found = list(equilibria(GAME, make_it_hard))
    assert any(chosen == UNSOLVABLE and not is_optimal_without_hints(acts) for chosen, acts in found)
    assert max(value for _, acts in found for value in regrets(acts).values()) > 0.0


def test_hint_regret_pays_nothing_for_the_unsolvable_and_make_it_hard_pays_it_most():
    assert hint_regret(0.0, 0.0) == 0.0
    assert make_it_hard(0.0, 0.0) == max(make_it_hard(r, 1.0) for returns in RETURNS.values() for r in returns)


@pytest.mark.parametrize("secret", [1.0, 0.5])
def test_an_environment_whose_secret_only_the_hint_knows_keeps_regret_for_ever(secret):
    """Why a gate asks where every argument of the solution comes from: the theorem needs hints that can be internalised."""
    unsound = {**GAME, "secret": ((0.0, 0.0, 0.0), secret)}
    found = list(equilibria(unsound, hint_regret))
    assert found
    assert all(chosen == "secret" or regrets(acts, unsound)[chosen] >= secret for chosen, acts in found)
    assert any(not is_optimal_without_hints({k: v for k, v in acts.items() if k in GAME}) for _, acts in found)
