"""A choice of environments with both arms' plays side by side, bounded in every direction, and saying where it was cut."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_agentic.hooks.records import Arm, Draft, Environment, ParseOutcome, Play, Turn

from ..reader import EnvironmentPlays, PlayName, StoreReader
from .facts import Facts, domain_of, goals_of, modifiers_of, win_rate

__all__ = ["MOST_CHARACTERS", "MOST_TURNS", "Card", "Exchange", "Gallery", "PlayView", "Text", "choose", "read_gallery"]

MOST_CHARACTERS = 4000
"""Of one text: a message, a hint, a program."""
MOST_TURNS = 30
"""Of one play."""
_CALL_BLOCK = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """A text that may have been cut; ``length`` is that of the whole."""

    shown: str
    length: int

    @classmethod
    def cut(cls, text: str, most: int = MOST_CHARACTERS) -> Text:
        return cls(text[:most], len(text))

    @property
    def was_cut(self) -> bool:
        return len(self.shown) < self.length


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn: what the agent said beside its calls, its calls in short, what came back, and how it failed, if it did."""

    said: Text
    calls: tuple[Text, ...]
    answers: tuple[Text, ...]
    outcome: str | None


@dataclass(frozen=True, slots=True)
class PlayView:
    """One play as it is shown. ``turns`` counts all of them."""

    play_id: str
    arm: str
    won: bool
    void: bool
    reward: float
    stop: str
    fault: str | None
    turns: int
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """One environment. ``pairs`` counts pairs by outcome; ``parting`` is the first turn (from 1) where the two plays differ."""

    env_id: str
    skill: str
    domain: str
    round_index: int
    goals: tuple[str, ...]
    modifiers: tuple[str, ...]
    regret: float | None
    regret_stderr: float | None
    plain_rate: float | None
    hinted_rate: float | None
    pairs: Mapping[str, int]
    hint: Text | None
    draft: Text | None
    source: Text
    seed: int | None
    step: int | None
    request: Text | None
    plays: tuple[PlayView, ...]
    parting: int | None


@dataclass(frozen=True, slots=True)
class Gallery:
    """The chosen environments, in the order of their rounds; ``total`` counts all that there are."""

    cards: tuple[Card, ...]
    total: int


def read_gallery(run_dir: Path, facts: Facts, *, limit: int) -> Gallery:
    """Read ``limit`` environments of the run with one pair of plays each. Raises as :func:`~.facts.read_facts` does."""
    texts = {draft.draft_id: draft for draft in facts.drafts}
    cells: dict[str, list[EnvironmentPlays]] = defaultdict(list)
    for cell in facts.plays:
        cells[cell.env_id].append(cell)
    with StoreReader(run_dir) as reader, reader.snapshot():
        cards = [
            _card(reader, facts, environment, texts.get(environment.draft_id), cells[environment.env_id])
            for environment in choose(facts, limit)
        ]
    return Gallery(tuple(cards), len(facts.environments))


def choose(facts: Facts, limit: int) -> list[Environment]:
    """``limit`` environments: of every round in turn the one with the largest regret that is left; those without come last."""
    rounds: dict[int, list[Environment]] = defaultdict(list)
    for environment in facts.environments.values():
        rounds[environment.round_index].append(environment)

    def rank(environment: Environment) -> tuple[bool, float, int]:
        regret = facts.regrets.get(environment.env_id)
        return regret is None, 0.0 if regret is None else -regret.mean, environment.slot

    queues = [sorted(rounds[index], key=rank) for index in sorted(rounds)]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*queues))
    chosen = list(itertools.islice((environment for environment in turns if environment is not None), limit))
    return sorted(chosen, key=lambda environment: (environment.round_index, *rank(environment)))


def _card(
    reader: StoreReader, facts: Facts, environment: Environment, draft: Draft | None, cells: Sequence[EnvironmentPlays]
) -> Card:
    pairs = _pairs(reader.play_names(environment.env_id))
    pair = _best(pairs)
    plays = [reader.play(name.play_id).play for name in pair]
    regret = facts.regrets.get(environment.env_id)
    rates = {arm: win_rate(cell for cell in cells if cell.arm is arm) for arm in Arm}
    origin, source = environment.program.origin, environment.program.source
    text = draft.text if draft is not None else ""
    return Card(
        env_id=environment.env_id, skill=environment.program.skill.value, domain=domain_of(origin),
        round_index=environment.round_index, goals=tuple(goals_of(origin) or ()), modifiers=tuple(modifiers_of(origin) or ()),
        regret=None if regret is None else regret.mean, regret_stderr=None if regret is None else regret.stderr,
        plain_rate=_value(rates[Arm.PLAIN]), hinted_rate=_value(rates[Arm.HINTED]), pairs=_outcomes(pairs),
        hint=None if environment.hint is None else Text.cut(environment.hint),
        draft=Text.cut(text) if text.strip() and text.strip() != source.strip() else None, source=Text.cut(source),
        seed=plays[0].seed if plays else None, step=pair[0].step if pair else None,
        request=Text.cut(plays[0].first_observation) if plays else None, plays=tuple(map(_view, plays)),
        parting=_parting(plays),
    )  # fmt: skip


def _value(rate: Any) -> float | None:
    return None if rate is None else rate.value


_Pair = tuple[PlayName, ...]


def _pairs(names: Iterable[PlayName]) -> list[_Pair]:
    """Plays of the same step, seed and repeat, the plain one first; of an environment without hinted plays, single ones."""
    grouped: dict[tuple[int, int, int], dict[Arm, PlayName]] = defaultdict(dict)
    for name in names:
        grouped[name.step, name.seed, name.repeat][name.arm] = name
    both = [tuple(group[arm] for arm in Arm) for group in grouped.values() if len(group) == len(Arm)]
    return both or [(name,) for group in grouped.values() for name in group.values()]


def _best(pairs: Sequence[_Pair]) -> _Pair:
    """The first pair that the hint decided, else the first whose ends differ, else the first that lived, else the first."""
    wanted: tuple[Callable[[_Pair], bool], ...] = (
        lambda pair: len(pair) == 2 and not pair[0].won and pair[1].won and not _void(pair),
        lambda pair: len(pair) == 2 and pair[0].won != pair[1].won and not _void(pair),
        lambda pair: not _void(pair),
        lambda pair: True,
    )
    return next((pair for good in wanted for pair in pairs if good(pair)), ())


def _void(pair: _Pair) -> bool:
    return any(play.void for play in pair)


def _outcomes(pairs: Iterable[_Pair]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    names = {(True, True): "both won", (False, True): "hinted only", (True, False): "plain only", (False, False): "both lost"}
    for pair in pairs:
        if len(pair) == 2:
            counts["void" if _void(pair) else names[pair[0].won, pair[1].won]] += 1
    return {name: counts[name] for name in (*names.values(), "void") if counts[name]}


def _view(play: Play) -> PlayView:
    return PlayView(
        play.play_id, play.arm.value, play.won, play.void, play.reward, play.stop.value, play.fault, len(play.turns),
        tuple(_exchange(turn) for turn in play.turns[:MOST_TURNS]),
    )


def _exchange(turn: Turn) -> Exchange:
    said = turn.completion_text
    if turn.outcome is ParseOutcome.CALL:
        said = _CALL_BLOCK.sub("", said).strip()  # the call itself is shown in short
    bad = turn.outcome in (ParseOutcome.MALFORMED, ParseOutcome.TRUNCATED)
    return Exchange(
        Text.cut(said), tuple(Text.cut(_call(call)) for call in turn.calls),
        tuple(Text.cut(answer) for answer in turn.observations if answer), turn.outcome.value if bad else None,
    )


def _call(call: Mapping[str, Any]) -> str:
    """``name(key=value, ...)`` as a person reads it; whatever else a call may be, as JSON."""
    arguments = call.get("arguments")
    if not isinstance(arguments, Mapping):
        return json.dumps(dict(call), ensure_ascii=False, default=str)
    listed = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in arguments.items())
    return f"{call.get('name')}({listed})"


def _parting(plays: Sequence[Play]) -> int | None:
    if len(plays) < 2:
        return None
    said = [[(turn.completion_text, turn.observations) for turn in play.turns] for play in plays]
    for number, (ours, theirs) in enumerate(itertools.zip_longest(*said), start=1):
        if ours != theirs:
            return number
    return None
