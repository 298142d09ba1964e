"""The warm start: what the demonstrations are, what the tokenizer keeps whole, what a fresh model can do."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import AutoModelForCausalLM

from spade_agentic.bootstrap import corpus
from spade_agentic.bootstrap.demonstrator import FAVOURITE, HINTED_RIGHT, RIGHT, play
from spade_agentic.bootstrap.tokenizer import SPECIAL_TOKENS, capitalised, train_tokenizer
from spade_agentic.bootstrap.warmstart import Sample, Schedule, Target, TinyShape, liken, make_model, train
from spade_agentic.config.load import resolve_model
from spade_agentic.rollout.rendering import Rendering, build_rendering
from spade_agentic_plugins.blueprint import Blueprint, parse_blueprint
from spade_agentic_sims.kit import HELD_OUT_SEED, is_reserved

PLAIN = corpus.Mixture(hinted=0.0, blueprints=0.0)
HINTED = corpus.Mixture(hinted=1.0, blueprints=0.0)


@pytest.fixture(scope="module")
def shipped() -> Path:
    return resolve_model("spade-tiny")


@pytest.fixture(scope="module")
def rendering(shipped: Path) -> Rendering:
    return build_rendering(shipped, {"name": "qwen3"})


# --- demonstrations ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_no_demonstration_is_of_a_held_out_chain(seed: int) -> None:
    chain = corpus.draw_world(random.Random(seed), corpus.Mixture())
    assert not is_reserved(chain.domain, chain.goals)


def test_no_demonstration_is_of_a_held_out_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(corpus, "play", lambda chain, seed, rng, **how: (seen.append(seed), play(chain, seed, rng, **how))[1])
    rng = random.Random(0)
    for _ in range(50):
        corpus.draw_play(rng, corpus.Mixture())
    assert len(seen) == 50
    assert max(seen) < HELD_OUT_SEED


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_no_demonstrated_blueprint_is_of_a_held_out_chain_and_each_has_the_skill_that_was_asked_for(seed: int) -> None:
    messages, text = corpus.draw_design(random.Random(seed), corpus.Mixture())
    blueprint = parse_blueprint(text)
    assert isinstance(blueprint, Blueprint)
    assert not is_reserved(blueprint.domain, blueprint.goals)
    assert f"skill: {blueprint.skill.value}" in messages[-1]["content"]
    assert f"domain: {blueprint.domain}" in messages[-1]["content"]
    assert all(f"{goal}: " in messages[-1]["content"] for goal in blueprint.goals)


def test_the_demonstrator_follows_hints_and_leaves_decisions_open_without() -> None:
    """With a hint it wins most plays; without, clearly fewer; and taking the likeliest action everywhere wins no more."""
    rng = random.Random(3)
    worlds = [corpus.draw_world(rng, corpus.Mixture(lengths=(0.0, 1.0, 0.0))) for _ in range(300)]
    won = {
        name: sum(play(world, seed, rng, **how).won for seed, world in enumerate(worlds)) / len(worlds)
        for name, how in {"plain": {}, "hinted": {"hinted": True}, "greedy": {"greedy": True}}.items()
    }
    assert won["hinted"] > 0.75
    assert 0.15 < won["plain"] < 0.45
    assert won["greedy"] < won["plain"] + 0.1


def test_demonstrations_with_closed_decisions_win_without_a_hint_too() -> None:
    """The first stage of the warm start teaches to look at what is asked; the second opens the decisions."""
    won = {}
    for open_decisions in (False, True):
        rng, mixture = random.Random(5), corpus.Mixture(hinted=0.0, open_decisions=open_decisions)
        won[open_decisions] = sum(corpus.draw_play(rng, mixture).play.won for _ in range(200)) / 200
    assert won[False] > 0.85
    assert won[True] < 0.6


def test_every_kind_of_decision_in_the_simulators_has_its_share_of_right_actions() -> None:
    rng, seen = random.Random(0), set()
    for seed in range(400):
        env = corpus.draw_world(rng, corpus.Mixture(faults=0.5)).env()
        env.reset(seed=seed)
        steps = [*env.script(), *(fix for step in env.script() for fix in env.recovery(step.call))]
        seen |= {step.decision for step in steps if step.alternatives}
    assert seen - {None} <= set(RIGHT)
    assert set(RIGHT) - {"recover"} <= seen
    assert all(0 < right < HINTED_RIGHT for right in RIGHT.values())


def test_in_half_of_the_kinds_of_decision_the_likeliest_action_is_wrong() -> None:
    """So that taking the likeliest action everywhere does not win, and there is something to learn."""
    wrong = [kind for kind, right in RIGHT.items() if right < (1 - right) * FAVOURITE]
    assert len(wrong) >= len(RIGHT) / 2


def test_options_are_a_distribution_that_holds_what_was_done() -> None:
    """With a hint the demonstrator has no choice; without, it considers right and wrong, and how often it is right is RIGHT."""
    rng, right, faced = random.Random(1), 0, 0
    for seed in range(300):
        for hinted in (False, True):
            decided = play(corpus.draw_world(rng, corpus.Mixture()), seed, rng, hinted=hinted)
            for exchange, options in zip(decided.shown.exchanges, decided.options, strict=True):
                assert sum(share for _, share in options) == pytest.approx(1.0)
                assert exchange.action in [action for action, _ in options]
                assert len(options) == 1 or not hinted
                if not hinted and exchange.step.decision in ("near_synonym", "precondition", "branch"):
                    faced, right = faced + 1, right + exchange.right
    assert right / faced == pytest.approx(0.45, abs=0.06)


def test_open_tokens_carry_the_distribution_of_the_demonstrators_choice(rendering: Rendering) -> None:
    """At every open place the shares sum to one, the token that was said is one of them, and it was the demonstrator's."""
    opened = 0
    for sample in itertools.islice(corpus.samples(2, rendering, PLAIN), 60):
        for position, targets in itertools.groupby(sample.targets, key=lambda target: target.position):
            shares = {target.token: target.share for target in targets}
            opened += 1
            assert sample.mask[position]
            assert sample.token_ids[position] in shares
            assert len(shares) > 1
            assert sum(shares.values()) == pytest.approx(1.0)
    assert opened > 60
    assert not any(sample.targets for sample in itertools.islice(corpus.samples(2, rendering, HINTED), 20))


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=5, unique_by=tuple), st.data())
@settings(deadline=None)
def test_the_chance_of_a_text_is_the_product_over_its_open_tokens(texts: list[list[int]], data: st.DataObject) -> None:
    """Whatever the options: their probabilities multiply along the tokens to the share of the text that was said."""
    endings = [[*text, 9] for text in texts]  # no text is the beginning of another
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(endings), max_size=len(endings)))
    options = [(text, weight / sum(weights)) for text, weight in zip(endings, weights, strict=True)]
    for spoken, share in options:
        chance = 1.0
        for at, token, part in corpus._open_tokens(spoken, options):
            chance *= part if spoken[at] == token else 1.0
        assert chance == pytest.approx(share)


def test_the_demonstrations_are_the_same_for_the_same_seed(rendering: Rendering) -> None:
    first, second = (list(itertools.islice(corpus.samples(5, rendering, corpus.Mixture()), 20)) for _ in range(2))
    assert first == second
    assert list(itertools.islice(corpus.stream(5, rendering, corpus.Mixture()), 20)) == first


@pytest.mark.parametrize("mixture", [PLAIN, HINTED, corpus.Mixture(blueprints=1.0)], ids=["plain", "hinted", "blueprints"])
def test_a_sample_is_masked_exactly_where_the_demonstrator_spoke(rendering: Rendering, mixture: corpus.Mixture) -> None:
    for sample in itertools.islice(corpus.samples(1, rendering, mixture), 30):
        assert len(sample.token_ids) == len(sample.mask) == len(sample.values)
        spoken = rendering.tokenizer.decode([t for t, said in zip(sample.token_ids, sample.mask, strict=True) if said])
        turns = spoken.split(corpus.END_OF_TURN)
        assert turns.pop() == ""
        for turn in turns:
            call = turn.strip().removeprefix("<tool_call>").removesuffix("</tool_call>")
            assert turn == "done" or turn.startswith("domain: ") or set(json.loads(call)) == {"name", "arguments"}
        copied = [rendering.tokenizer.decode([t]) for t, v in zip(sample.token_ids, sample.values, strict=True) if v]
        assert all(piece.isdigit() or piece.istitle() for piece in copied)


# --- tokenizer ---------------------------------------------------------------------------------------------------------


def test_the_shipped_tokenizer_knows_every_word_of_the_simulators(rendering: Rendering) -> None:
    """Every word and every number below 100 is one token, the same after a space, in a list and in a string.

    But for ``reset``, the status of a modem: read only after the tool that brings it about, it is too rare for a token.
    """
    pieces = {len(rendering.tokenizer.encode(str(number), add_special_tokens=False)) for number in range(100)}
    assert pieces == {1}
    tokenizer = rendering.tokenizer
    broken = set()
    for text in corpus.texts(77, corpus.Mixture(), 300):
        for word in "".join(c if c.isalpha() or c == "_" else " " for c in text).split():
            if len(tokenizer.encode(word, add_special_tokens=False)) > 1:
                broken.add(word)
    assert broken <= {"reset"}


@pytest.mark.parametrize("text", ["Savings57", '{"source": "Savings57"}', "Pay Rosa57 from Savings57.", "[Rosa57, Savings57]"])
def test_an_identifier_has_the_same_tokens_wherever_it_stands(rendering: Rendering, text: str) -> None:
    alone = rendering.tokenizer.encode("Savings57", add_special_tokens=False)
    ids = rendering.tokenizer.encode(text, add_special_tokens=False)
    assert any(ids[start : start + len(alone)] == alone for start in range(len(ids)))


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_the_tokenizer_gives_back_any_text(text: str) -> None:
    tokenizer = build_rendering(resolve_model("spade-tiny"), {"name": "qwen3"}).tokenizer
    if not any(special in text for special in SPECIAL_TOKENS):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_tokenizer_is_the_same_for_the_same_texts(tmp_path: Path) -> None:
    for name in ("first", "second"):
        train_tokenizer(corpus.texts(0, corpus.Mixture(), 40), tmp_path / name, vocab_size=1024)
    assert (tmp_path / "first/tokenizer.json").read_bytes() == (tmp_path / "second/tokenizer.json").read_bytes()


# --- the fresh model ---------------------------------------------------------------------------------------------------


def fresh(seed: int, vocabulary: int = 600) -> torch.nn.Module:
    torch.manual_seed(seed)
    return make_model(TinyShape(), vocabulary, eos_token_id=2, pad_token_id=0)


@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_a_fresh_model_continues_a_sequence_that_it_has_seen_before(seed: int) -> None:
    """``copying_heads`` gives it induction: after a random sequence once, its second half is the likeliest continuation."""
    model = fresh(seed)
    once = torch.randperm(590, generator=torch.Generator().manual_seed(seed))[:60] + 10
    ids = torch.cat([once, once])[None]
    predicted = model(input_ids=ids).logits[0].argmax(-1)
    repeated = predicted[len(once) + 2 : -1] == ids[0, len(once) + 3 :]
    assert repeated.float().mean() > 0.6  # the pointer heads, which look everywhere as yet, cost some
    novel = predicted[2 : len(once) - 1] == ids[0, 3 : len(once)]
    assert novel.float().mean() < 0.1


@torch.no_grad()
def test_only_the_induction_layer_copies() -> None:
    """Without its first group of heads the fresh model cannot continue a sequence: the copying is theirs."""
    model = fresh(0)
    once = torch.randperm(590, generator=torch.Generator().manual_seed(0))[:60] + 10
    ids = torch.cat([once, once])[None]
    model.model.layers[2].self_attn.o_proj.weight.zero_()
    predicted = model(input_ids=ids).logits[0].argmax(-1)
    assert (predicted[61:-1] == ids[0, 62:]).float().mean() < 0.1


@torch.no_grad()
def test_what_the_pointer_heads_attend_to_becomes_likely() -> None:
    """They attend everywhere as yet: what stands in the context is likelier than what does not, by this layer alone."""
    model = fresh(1)
    context = torch.randperm(590, generator=torch.Generator().manual_seed(1))[:8] + 10
    seen = torch.zeros(model.config.vocab_size, dtype=torch.bool)
    seen[context[:-1]] = True  # the last one is there anyway, by the tied embedding
    difference = []
    for pointing in (True, False):
        if not pointing:
            model.model.layers[3].self_attn.o_proj.weight.zero_()
        logits = model(input_ids=context[None]).logits[0, -1]
        difference.append(logits[seen].mean() - logits[~seen].mean())
    assert difference[0] > difference[1] + 0.05


def test_capitalised_pairs_words_that_differ_in_their_first_letter_alone() -> None:
    vocabulary = {"savings": 5, "Savings": 8, "done": 1, "Rosa": 2, "list_cards": 3, "List_cards": 4, "7": 6, "a": 7, "A": 9}
    assert capitalised(vocabulary) == [(7, 9), (5, 8)]


@torch.no_grad()
def test_likened_tokens_propose_each_other_when_one_is_copied() -> None:
    """With the likeness, a word in the context makes its capitalised twin likelier than any word that is not there."""
    context = torch.arange(10, 18)
    twins = context + 100
    chances = []
    for pairs in ([], list(zip(context.tolist(), twins.tolist(), strict=True))):
        model = fresh(2)
        liken(model, pairs)
        chances.append(model(input_ids=context[None]).logits[0, -1])
    assert (chances[1][twins].mean() - chances[0][twins].mean()) > 1.0
    assert (chances[1][twins].mean() - chances[1][200:].mean()) > 1.0


def test_training_lowers_the_loss_and_is_the_same_twice() -> None:
    """On one thread, the same samples and seed give the same weights bit for bit."""
    rng = random.Random(0)
    pool = [[rng.randrange(10, 40) for _ in range(12)] for _ in range(4)]
    samples = [Sample(ids, [False] * 4 + [True] * 8, [False] * 12) for ids in pool]
    schedule = Schedule(steps=30, tokens_per_step=48, warmup_steps=2, context_steps=10)
    losses, weights, threads = [], [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(2):
            torch.manual_seed(0)
            model = make_model(TinyShape(), 64, eos_token_id=2, pad_token_id=0)
            seen: list[float] = []
            report = lambda _, metrics, seen=seen: seen.append(metrics["loss"])
            train(model, itertools.cycle(samples), schedule, seed=1, pool=8, report=report)
            losses.append(seen)
            weights.append(model.state_dict())
    finally:
        torch.set_num_threads(threads)
    assert losses[0][-1] < 0.5 * losses[0][0]
    assert losses[0] == losses[1]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_choice_is_learned_as_the_probabilities_that_it_was_given() -> None:
    """Trained on one sample that shows token 11, told that it might have been 12: the model says so, in these shares."""
    ids = [10, 20, 21, 11, 30]
    sample = Sample(ids, [False, True, True, True, True], [False] * 5, [Target(3, 11, 0.3), Target(3, 12, 0.7)])
    torch.manual_seed(0)
    model = make_model(TinyShape(), 64, eos_token_id=2, pad_token_id=0)
    schedule = Schedule(steps=60, tokens_per_step=32, warmup_steps=2, context_steps=0, value_weight=1.0)
    train(model, itertools.repeat(sample), schedule, seed=1, pool=1)
    with torch.no_grad():
        chances = model(input_ids=torch.tensor([ids])).logits[0].softmax(-1)
    assert chances[2, 11].item() == pytest.approx(0.3, abs=0.05)
    assert chances[2, 12].item() == pytest.approx(0.7, abs=0.05)
    assert chances[3, 30] > 0.9


# --- the shipped model -------------------------------------------------------------------------------------------------


def test_the_shipped_model_is_small_and_plain(shipped: Path) -> None:
    """A Qwen3 of under 12 MB whose sizes tensor parallelism can halve, with a vocabulary that fits its tokenizer."""
    assert sum(file.stat().st_size for file in shipped.iterdir()) < 12e6
    config = json.loads((shipped / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["vocab_size"] % 4 == config["num_key_value_heads"] % 2 == 0
    assert config["vocab_size"] - 4 < len(build_rendering(shipped, {"name": "qwen3"}).tokenizer) <= config["vocab_size"]


@torch.no_grad()
def test_the_shipped_model_was_trained_on_these_simulators(shipped: Path, rendering: Rendering) -> None:
    """What a hinted demonstrator says is hardly a surprise to it, so neither tokenizer nor simulators have moved away."""
    model = AutoModelForCausalLM.from_pretrained(shipped)
    losses = []
    for sample in itertools.islice(corpus.samples(99, rendering, HINTED), 40):
        logits = model(input_ids=torch.tensor([sample.token_ids])).logits[0, :-1]
        spoken = torch.tensor(sample.mask[1:])
        losses.append(torch.nn.functional.cross_entropy(logits[spoken], torch.tensor(sample.token_ids[1:])[spoken]))
    assert sum(losses) / len(losses) < 0.15


def test_a_hidden_secret_has_no_place_in_the_warm_start() -> None:
    """Worlds that nobody can win teach nothing about acting: demonstrations have none."""
    rng = random.Random(0)
    mods = [corpus.draw_world(rng, corpus.Mixture()).mods for _ in range(300)]
    assert not any(m.hide_secret or m.fault_always or m.leak for m in mods)
    assert {m.hide_id for m in mods} == {True, False}
    assert any(m.fault for m in mods)
