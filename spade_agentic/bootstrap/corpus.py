"""What the warm start reads: demonstrated plays and blueprints, as the very tokens that a run would see.

Instances have training seeds and reserved chains are never drawn, so that nothing of the held-out evaluation is in here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from spade_agentic.envs.contract import ToolCall, ToolEnv
from spade_agentic.hooks.kinds import DesignRequest, MemoryEntry
from spade_agentic.hooks.records import Skill
from spade_agentic.rollout.episode import with_hint
from spade_agentic.rollout.rendering import Rendering
from spade_agentic_plugins.blueprint import offer_for, prompt_messages, random_blueprint
from spade_agentic_sims.kit import HELD_OUT_SEED, Chain, Mods, SimEnv, chain_hint, draw_chain, get_domain, refuse_reserved

from .demonstrator import Decided, Options, play
from .warmstart import Sample, Target

__all__ = [
    "DOMAINS",
    "Demonstrated",
    "Mixture",
    "Turn",
    "action_text",
    "draw_design",
    "draw_play",
    "draw_world",
    "phrases",
    "samples",
    "stream",
    "texts",
]

DOMAINS = ("banking", "support", "retail", "telecom")
END_OF_TURN = "<|im_end|>"


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of the warm start. What is neither hinted nor a blueprint is a plain play.

    Raises :class:`~spade_agentic.errors.UserError` for a domain that is kept for evaluation.
    """

    domains: tuple[str, ...] = DOMAINS
    hinted: float = 0.5
    blueprints: float = 0.12
    lengths: tuple[float, float, float] = (0.5, 0.4, 0.1)
    """Shares of chains of one, two and three goals."""
    hidden: float = 0.4
    """Share of worlds that give names instead of ids."""
    faults: float = 0.3
    """Share of worlds in which one tool fails at first."""
    open_decisions: bool = True
    """Whether the demonstrator decides as it does without a hint where it has none; else it always decides as with one."""

    def __post_init__(self) -> None:
        refuse_reserved(self.domains, where="Mixture.domains")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the demonstrator said and the answer; ``options``, where it had a choice: what it might have said, how likely."""

    said: str
    answer: str = ""
    options: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Demonstrated:
    """A demonstrated play with all that the agent was shown around it."""

    env: SimEnv
    hint: str | None
    play: Decided

    @property
    def messages(self) -> list[dict[str, str]]:
        return [
            {"role": "system", "content": self.env.system},
            {"role": "user", "content": with_hint(self.play.shown.first, self.hint)},
        ]

    @property
    def turns(self) -> list[Turn]:
        return [
            Turn(action_text(e.action), e.observation, _as_texts(options))
            for e, options in zip(self.play.shown.exchanges, self.play.options, strict=True)
        ]


def _as_texts(options: Options) -> tuple[tuple[str, float], ...]:
    return tuple((action_text(action), share) for action, share in options) if len(options) > 1 else ()


def action_text(action: ToolCall | str) -> str:
    """An action as the policy writes it, without the end of turn."""
    if isinstance(action, str):
        return action
    body = json.dumps({"name": action.name, "arguments": dict(action.arguments)}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def draw_world(rng: random.Random, mixture: Mixture) -> Chain:
    """A chain that is never reserved, with modifiers."""
    domain = rng.choice(mixture.domains)
    length = rng.choices((1, 2, 3), mixture.lengths)[0]
    chain = draw_chain(rng, domain, length)
    fault = None
    if rng.random() < mixture.faults:
        kinds = get_domain(domain).goal_kinds
        fault = rng.choice(sorted({tool for goal in chain.goals for tool in kinds[goal].tools}))
    mods = Mods(hide_id=rng.random() < mixture.hidden, fault=fault, distract=rng.randrange(4))
    return Chain(domain, chain.goals, mods)


def draw_play(rng: random.Random, mixture: Mixture) -> Demonstrated:
    """One demonstrated play of a drawn world."""
    chain = draw_world(rng, mixture)
    hinted = rng.random() < mixture.hinted
    hint = chain_hint(chain.domain, chain.goals, chain.mods) if hinted else None
    sure = hinted or not mixture.open_decisions
    return Demonstrated(chain.env(), hint, play(chain, rng.randrange(HELD_OUT_SEED), rng, hinted=sure))


def samples(seed: int, rendering: Rendering, mixture: Mixture) -> Iterator[Sample]:
    """An endless stream of demonstrations."""
    rng = random.Random(seed)
    while True:
        if rng.random() < mixture.blueprints:
            messages, blueprint = draw_design(rng, mixture)
            yield _sample(rendering, messages, None, [Turn(blueprint)])
        else:
            shown = draw_play(rng, mixture)
            yield _sample(rendering, shown.messages, shown.env.tools(), shown.turns)


def stream(seed: int, rendering: Rendering, mixture: Mixture) -> Iterator[Sample]:
    """:func:`samples`, drawn by a process of its own while the model trains."""

    class Demonstrations(IterableDataset[Sample]):
        def __iter__(self) -> Iterator[Sample]:
            return samples(seed, rendering, mixture)

    return iter(DataLoader(Demonstrations(), batch_size=None, num_workers=1, prefetch_factor=256))


def texts(seed: int, mixture: Mixture, count: int) -> Iterator[str]:
    """The texts that the tokenizer is trained on, in the shares in which a run will read them."""
    rng = random.Random(seed)
    for _ in range(count):
        shown = draw_play(rng, mixture)
        yield from (message["content"] for message in shown.messages)
        yield from (json.dumps(tool, ensure_ascii=False) for tool in shown.env.tools())
        for turn in shown.turns:
            yield turn.said
            yield turn.answer
        if rng.random() < 2 * mixture.blueprints:
            messages, blueprint = draw_design(rng, mixture)
            yield from (message["content"] for message in messages)
            yield blueprint


def phrases(mixture: Mixture) -> list[str]:
    """What every prompt of a domain repeats word for word: its system text and the descriptions of its tools."""
    found = [text for name in mixture.domains for text in _fixed_texts(get_domain(name)())]
    return list(dict.fromkeys(found))


def _fixed_texts(env: SimEnv) -> list[str]:
    return [env.system, *(tool["function"]["description"] for tool in ToolEnv.tools(env))]


def draw_design(rng: random.Random, mixture: Mixture) -> tuple[list[dict[str, str]], str]:
    """A design request as a run would make it, with some memory, and a blueprint that answers it."""
    skill = rng.choice(list(Skill))
    remembered = [_remembered(rng, mixture, skill) for _ in range(rng.randrange(4))]
    request = DesignRequest(
        draft_id="draft", skill=skill, round_index=0, slot=0, attempt=0, seed=rng.getrandbits(32), seeds=tuple(remembered)
    )
    offer = offer_for(request, mixture.domains)
    blueprint = random_blueprint(rng, skill, domain=offer.domain, goals=offer.goals)
    return prompt_messages(request, mixture.domains), blueprint


def _remembered(rng: random.Random, mixture: Mixture, skill: Skill) -> MemoryEntry:
    source = random_blueprint(rng, skill, domain=rng.choice(mixture.domains))
    rate = None if rng.random() < 0.2 else rng.random()
    return MemoryEntry("draft", skill, source, rate, None, rate is not None, 0)


def _sample(
    rendering: Rendering, messages: Sequence[Mapping[str, Any]], tools: list[dict[str, Any]] | None, turns: Sequence[Turn]
) -> Sample:
    """Tokens as a session would make them; the mask is true on what the demonstrator said, the end of turn included."""
    ids = rendering.prompt(messages, tools)
    mask = [False] * len(ids)
    targets: list[Target] = []
    for index, turn in enumerate(turns):
        spoken = _spoken(rendering, turn.said)
        if turn.options:
            options = [(_spoken(rendering, said), share) for said, share in turn.options]
            targets += [Target(len(ids) + at, token, share) for at, token, share in _open_tokens(spoken, options)]
        prompt = list(ids)
        ids += spoken
        mask += [True] * len(spoken)
        if index + 1 < len(turns):
            new = rendering.extension(prompt, spoken, [{"role": "tool", "content": turn.answer}], tools)
            assert new is not None, "the renderer cannot extend a demonstrated play"
            ids += new
            mask += [False] * len(new)
    copied = _copied_tokens(rendering)
    return Sample(ids, mask, [chosen and token in copied for token, chosen in zip(ids, mask, strict=True)], targets)


def _spoken(rendering: Rendering, said: str) -> list[int]:
    ids: list[int] = rendering.tokenizer.encode(said + END_OF_TURN, add_special_tokens=False)
    return ids


def _open_tokens(spoken: list[int], options: Sequence[tuple[list[int], float]]) -> Iterator[tuple[int, int, float]]:
    """Where options that agree so far part: the place in ``spoken``, each next token and its probability there."""
    for at in range(len(spoken)):
        shares: dict[int, float] = {}
        for tokens, share in options:
            shares[tokens[at]] = shares.get(tokens[at], 0.0) + share
        if len(shares) > 1:
            yield from ((at, token, share / sum(shares.values())) for token, share in shares.items())
        options = [(tokens, share) for tokens, share in options if tokens[at] == spoken[at]]
        if len(options) == 1:
            return


@lru_cache(maxsize=4)
def _copied_tokens(rendering: Rendering) -> frozenset[int]:
    """Numbers and names: what the demonstrator copies from an instruction or an observation."""
    vocabulary = rendering.tokenizer.get_vocab().items()
    return frozenset(token for text, token in vocabulary if text.isascii() and (text.isdigit() or text.istitle()))
