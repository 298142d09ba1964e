"""What the warm start reads: demonstrated plays and blueprints, as the very tokens that a run would see.

Chains come from training seeds only, and reserved chains are never drawn, so nothing of the held-out evaluation is in here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spade_agentic_plugins.blueprint import prompt_messages, random_blueprint
from spade_agentic_sims.kit import HELD_OUT_SEED, Chain, Mods, chain_hint, draw_chain, get_domain

from spade_agentic.envs.contract import ToolCall
from spade_agentic.hooks.records import Skill
from spade_agentic.rollout.episode import with_hint
from spade_agentic.rollout.rendering import Rendering

from .demonstrator import RIGHT, Demonstration, demonstrate
from .warmstart import Sample

__all__ = ["Mixture", "action_text", "draw_demonstration", "samples", "texts"]

END_OF_TURN = "<|im_end|>"


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of the warm start. What is neither hinted nor a blueprint is a plain play."""

    domains: tuple[str, ...] = ("banking", "support")
    hinted: float = 0.35
    blueprints: float = 0.12
    lengths: tuple[float, float, float] = (0.5, 0.4, 0.1)
    """Shares of chains of one, two and three goals."""
    hidden: float = 0.4
    """Share of worlds that give names instead of ids."""
    faults: float = 0.3
    """Share of worlds in which one tool fails at first."""


def action_text(action: ToolCall | str) -> str:
    """An action as the policy writes it, without the end of turn."""
    if isinstance(action, str):
        return action
    body = json.dumps({"name": action.name, "arguments": dict(action.arguments)}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def draw_demonstration(rng: random.Random, mixture: Mixture, *, hinted: bool | None = None) -> Demonstration:
    """One play of a drawn, never reserved chain."""
    chain = _draw_chain(rng, mixture)
    hinted = rng.random() < mixture.hinted if hinted is None else hinted
    hint = chain_hint(chain.domain, chain.goals, chain.mods) if hinted else None
    return demonstrate(chain, rng.randrange(HELD_OUT_SEED), rng, hint=hint, right=RIGHT)


def _draw_chain(rng: random.Random, mixture: Mixture) -> Chain:
    domain = rng.choice(mixture.domains)
    length = rng.choices((1, 2, 3), mixture.lengths)[0]
    chain = draw_chain(rng, domain, length)
    fault = None
    if rng.random() < mixture.faults:
        kinds = get_domain(domain).goal_kinds
        fault = rng.choice(sorted({tool for goal in chain.goals for tool in kinds[goal].tools}))
    mods = Mods(hide_id=rng.random() < mixture.hidden, fault=fault, distract=rng.randrange(3))
    return Chain(domain, chain.goals, mods)


def samples(seed: int, rendering: Rendering, mixture: Mixture) -> Iterator[Sample]:
    """An endless stream of demonstrations."""
    rng = random.Random(seed)
    while True:
        if rng.random() < mixture.blueprints:
            yield _blueprint_sample(rendering, rng)
        else:
            yield _play_sample(rendering, draw_demonstration(rng, mixture))


def texts(seed: int, mixture: Mixture, count: int) -> Iterator[str]:
    """The texts that the tokenizer is trained on, in the shares in which a run will read them."""
    rng = random.Random(seed)
    for _ in range(count):
        play = draw_demonstration(rng, mixture)
        yield play.system
        yield from (json.dumps(tool, ensure_ascii=False) for tool in play.tools)
        yield with_hint(play.first_observation, play.hint)
        for exchange in play.exchanges:
            yield action_text(exchange.action)
            yield exchange.observation
        if rng.random() < mixture.blueprints * 2:
            request, blueprint = _draw_blueprint(rng)
            yield from (str(message["content"]) for message in prompt_messages(request))
            yield blueprint


def _play_sample(rendering: Rendering, play: Demonstration) -> Sample:
    tools = list(play.tools)
    messages: list[dict[str, object]] = [
        {"role": "system", "content": play.system},
        {"role": "user", "content": with_hint(play.first_observation, play.hint)},
    ]
    ids = rendering.prompt(messages, tools)
    mask = [False] * len(ids)
    for index, exchange in enumerate(play.exchanges):
        said = rendering.tokenizer.encode(action_text(exchange.action) + END_OF_TURN, add_special_tokens=False)
        prompt = list(ids)
        ids += said
        mask += [True] * len(said)
        if index + 1 < len(play.exchanges):
            new = rendering.extension(prompt, said, [{"role": "tool", "content": exchange.observation}], tools)
            assert new is not None, "the renderer cannot extend a demonstrated play"
            ids += new
            mask += [False] * len(new)
    return Sample(ids, mask)
