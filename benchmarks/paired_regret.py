"""How many plays the same standard error of regret costs, paired against unpaired.

    python benchmarks/paired_regret.py [--environments 24] [--seeds 8] [--repeats 4] [--model spade-tiny] [--json FILE]

Paired is what a run does: both arms play the same seeds with the same repeats on the same sampling noise, and the standard
error is over per-seed differences. Unpaired gives each arm instances of its own, as many, with as many repeats. Worlds are
drawn as the warm start draws them, a skill in turn, checked by the gates, and played in both arms by the policy through the
run's own rollout path, deterministically: the same command gives the same figure on another machine.

Both designs are priced from these plays. The error of an environment's mean regret over n seeds has the variance v / n, where

    paired    v = var(h - p)            h, p: a seed's mean return over its repeats, with the hint and without
    unpaired  v = var(h) + var(p)       (two sets of instances are independent)

so that the plays for a given error are in proportion to v, and ``cost`` = sum of v paired / sum of v unpaired, over the
environments: 0.33 means a third of the plays. Its interval resamples environments. Where the arms do not move together from
instance to instance, pairing saves nothing and the cost is 1.

The parts of v say why: a seed's mean has a part of its instance (``instance_*``) and a part of its repeats' sampling noise
(``noise_*``, divided by the repeats), and the arms share some of each (``*_shared``). From the parts follows what fewer
repeats of more instances would cost (``designs``), relative to unpaired plays of one instance each.

Prints the figures and writes JSON with the machine it ran on.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from machine import machine

from spade_agentic import Arm, BuildContext, Environment, Play, PluginManager, Program, Skill, resolve_model
from spade_agentic.cli.logs import configure_logs
from spade_agentic.config.load import load_config
from spade_agentic.config.schema import RunConfig
from spade_agentic.envs.gates import GateOptions, run_gates
from spade_agentic.rollout.rendering import build_rendering
from spade_agentic.rollout.runner import RolloutRunner, pair_requests
from spade_agentic.rollout.seeding import instance_seeds
from spade_agentic.selfplay.build import PLAYS_AT_ONCE
from spade_agentic_plugins.blueprint import (
    BlueprintError,
    compile_blueprint,
    parse_blueprint,
    random_blueprint,
    reserved_reason,
)

AIM = 1 / 3
WORLDS_AT_ONCE = 12
RESAMPLES = 2000

Pairs = Sequence[tuple[float, float]]
"""One seed: the returns (hinted, plain) of each of its repeats."""


# --- the estimator --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parts:
    """Variances of one environment's returns, estimated without bias, each of them perhaps a little below 0.

    Of one play: ``instance_*`` between instances, ``noise_*`` between repeats of an instance; ``*_shared`` are covariances of
    the two arms. ``repeats`` is how many of these make a seed's mean in what was played.
    """

    repeats: int
    instance_hinted: float
    instance_plain: float
    instance_shared: float
    noise_hinted: float
    noise_plain: float
    noise_shared: float

    def unpaired(self, repeats: int | None = None) -> float:
        """Variance of the difference of two seeds' means, one of each arm."""
        noise = (self.noise_hinted + self.noise_plain) / (repeats or self.repeats)
        return self.instance_hinted + self.instance_plain + noise

    def paired(self, repeats: int | None = None) -> float:
        """Variance of one seed's difference of means."""
        return self.unpaired(repeats) - 2 * (self.instance_shared + self.noise_shared / (repeats or self.repeats))


def parts_of(seeds: Sequence[Pairs]) -> Parts:
    """The parts of one environment. Raises ``ValueError`` with fewer than two seeds or repeats, or unequal repeats."""
    repeats = len(seeds[0]) if seeds else 0
    if len(seeds) < 2 or repeats < 2 or any(len(pairs) != repeats for pairs in seeds):
        raise ValueError(f"variances need two seeds or more with the same two repeats or more, not {[len(s) for s in seeds]}")
    arms = [[[pair[arm] for pair in pairs] for pairs in seeds] for arm in (0, 1)]
    means = [[statistics.fmean(returns) for returns in arm] for arm in arms]

    def split(first: int, second: int) -> tuple[float, float]:
        """Covariance of two arms (variance, of one with itself): between instances, and between repeats."""
        within = statistics.fmean(map(_covariance, arms[first], arms[second]))
        return _covariance(means[first], means[second]) - within / repeats, within

    hinted, plain, shared = split(0, 0), split(1, 1), split(0, 1)
    return Parts(repeats, hinted[0], plain[0], shared[0], hinted[1], plain[1], shared[1])


def _covariance(first: Sequence[float], second: Sequence[float]) -> float:
    a, b = statistics.fmean(first), statistics.fmean(second)
    return math.fsum((x - a) * (y - b) for x, y in zip(first, second, strict=True)) / (len(first) - 1)


def cost_of(environments: Sequence[Parts], repeats: int | None = None) -> float:
    """Plays of the paired design over those of the unpaired one, at the same error of the pool's mean regret."""
    return math.fsum(e.paired(repeats) for e in environments) / math.fsum(e.unpaired(repeats) for e in environments)


def interval_of(
    environments: Sequence[Parts], repeats: int | None = None, *, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """A 95 % interval of :func:`cost_of`, by a bootstrap over environments.

    A resample in which no return varies has no cost and is drawn again. Raises ``ValueError`` where fewer than two
    environments vary: one says nothing about another.
    """
    if sum(e.unpaired() > 0 for e in environments) < 2:
        raise ValueError("fewer than two environments have returns that vary: draw more environments")
    draw, found = random.Random(0), list[float]()
    while len(found) < resamples:
        chosen = draw.choices(environments, k=len(environments))
        if any(e.unpaired() > 0 for e in chosen):
            found.append(cost_of(chosen, repeats))
    cuts = statistics.quantiles(found, n=40, method="inclusive")
    return cuts[0], cuts[-1]


def designs_of(environments: Sequence[Parts], *, resamples: int = RESAMPLES) -> list[dict[str, float]]:
    """For 1, 2, 4 ... repeats: plays at equal error, relative to unpaired plays of one instance each.

    Never more repeats than were played: with fewer, no variance can come out below 0.
    """
    unit, rows, repeats = math.fsum(e.unpaired(1) for e in environments), list[dict[str, float]](), 1
    while repeats <= environments[0].repeats:
        paired = repeats * math.fsum(e.paired(repeats) for e in environments) / unit
        unpaired = repeats * math.fsum(e.unpaired(repeats) for e in environments) / unit
        low, high = interval_of(environments, repeats, resamples=resamples)
        rows.append({
            "repeats": repeats, "paired": paired, "unpaired": unpaired, "cost": cost_of(environments, repeats),
            "cost_low": low, "cost_high": high,
        })  # fmt: skip
        repeats *= 2
    return rows


def summary(environments: Sequence[Parts]) -> dict[str, Any]:
    """All figures of these environments, JSON-able. Parts are means over environments."""
    low, high = interval_of(environments)
    names = [name for name in Parts.__dataclass_fields__ if name != "repeats"]
    return {
        "cost": cost_of(environments), "cost_low": low, "cost_high": high, "aim": AIM,
        "varying": sum(e.unpaired() > 0 for e in environments),
        "parts": {name: statistics.fmean(getattr(e, name) for e in environments) for name in names},
        "designs": designs_of(environments),
    }  # fmt: skip


# --- the plays ------------------------------------------------------------------------------------------------------------


def pairs_of(plays: Sequence[Play]) -> list[Pairs]:
    """The seeds of one environment, without those in which a play is void."""
    found: dict[int, dict[int, dict[Arm, Play]]] = defaultdict(lambda: defaultdict(dict))
    for play in plays:
        found[play.seed][play.repeat][play.arm] = play
    return [
        [(arms[Arm.HINTED].reward, arms[Arm.PLAIN].reward) for _, arms in sorted(repeats.items())]
        for _, repeats in sorted(found.items())
        if not any(play.void for arms in repeats.values() for play in arms.values())
    ]


async def draw_worlds(count: int, domains: Sequence[str], sandbox: Any, *, seed: int) -> list[Environment]:
    """``count`` different worlds that pass the gates, drawn as the warm start draws them, a skill in turn."""
    rng, worlds = random.Random(f"paired_regret|{seed}"), dict[str, Environment]()
    for skill in itertools.cycle(Skill):
        if len(worlds) == count:
            return list(worlds.values())
        domain = rng.choice(domains)
        try:
            program = compile_blueprint(parse_blueprint(random_blueprint(rng, skill, domain=domain)))
        except BlueprintError:  # now and then a bad one is drawn, as a designer may write one
            continue
        report = await run_gates(
            program, sandbox, options=GateOptions(), known=worlds.__contains__, reserved=reserved_reason
        )
        if report.refusal is None:
            worlds[program.canonical_hash] = _environment(program, len(worlds), report.max_turns)
    raise AssertionError("a cycle has no end")


def _environment(program: Program, slot: int, max_turns: int) -> Environment:
    return Environment(
        f"w{slot}", program, round_index=0, slot=slot, draft_id="", max_turns=max_turns, hint=str(program.origin["hint"])
    )


async def play_worlds(
    runner: RolloutRunner, worlds: Sequence[Environment], config: RunConfig, *, seeds: int, repeats: int,
    told: Callable[[str], None] = lambda text: None,
) -> dict[str, list[Play]]:
    """Both arms of every world, a pool's worth of worlds at a time. By environment id."""
    plays: dict[str, list[Play]] = {world.env_id: [] for world in worlds}
    for first in range(0, len(worlds), WORLDS_AT_ONCE):
        some = worlds[first : first + WORLDS_AT_ONCE]
        units = [
            pair_requests(world, seed, repeat, arms=list(Arm), label="paired")
            for world in some
            for seed in instance_seeds(seeds, runner.run_seed, "paired_regret", world.env_id)
            for repeat in range(repeats)
        ]
        for unit in await runner.play(f"worlds{first}", units, config.selfplay.agent_sampling.sampling()):
            for play in unit:
                plays[play.env_id].append(play)
        await runner.shelf.keep_only([])
        told(f"{first + len(some)} of {len(worlds)} worlds played")
    return plays


def measure(arguments: argparse.Namespace, folder: Path, told: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Draw, play and price. JSON-able."""
    config = load_config(
        "tooluse.yaml", [f"run.seed={arguments.seed}", f"model.path={arguments.model}", f"sandbox={arguments.sandbox}"]
    )
    manager = PluginManager.load()
    context = BuildContext(folder, config.run.seed, config, manager)
    sandbox = manager.build("sandbox", config.sandbox, context)  # before there is an event loop, as in a run
    started = time.perf_counter()
    worlds, plays = asyncio.run(_play(arguments, config, manager, context, sandbox, told))
    wall_s = time.perf_counter() - started
    rows, parts = list[dict[str, Any]](), list[Parts]()
    for world in worlds:
        seeds = pairs_of(plays[world.env_id])
        if len(seeds) < 2:
            rows.append({**_described(world), "seeds": len(seeds)})
            continue
        parts.append(parts_of(seeds))
        rows.append({
            **_described(world), "seeds": len(seeds), "paired": parts[-1].paired(), "unpaired": parts[-1].unpaired(),
            "hinted": statistics.fmean(h for pairs in seeds for h, _ in pairs),
            "plain": statistics.fmean(p for pairs in seeds for _, p in pairs), "parts": asdict(parts[-1]),
        })  # fmt: skip
    measured = [row for row in rows if "plain" in row]
    every = [play for of_one in plays.values() for play in of_one]
    return {
        **summary(parts), "plays": len(every), "void": sum(play.void for play in every), "wall_s": wall_s,
        "hinted": statistics.fmean(row["hinted"] for row in measured),
        "plain": statistics.fmean(row["plain"] for row in measured), "environments": rows,
    }  # fmt: skip


def _described(world: Environment) -> dict[str, Any]:
    origin = world.program.origin
    return {"skill": world.program.skill.value, "domain": origin["domain"], "goals": list(origin["goals"])}


async def _play(
    arguments: argparse.Namespace, config: RunConfig, manager: PluginManager, context: BuildContext, sandbox: Any,
    told: Callable[[str], None],
) -> tuple[list[Environment], dict[str, list[Play]]]:
    model_dir = resolve_model(config.model.path)
    async with AsyncExitStack() as closing:
        closing.push_async_callback(sandbox.stop)
        await sandbox.start()
        engine = manager.build("inference_engine", config.engine, context)
        closing.push_async_callback(engine.stop)
        await engine.start(model_dir)
        worlds = await draw_worlds(
            arguments.environments, [sim.name for sim in config.tool_sims], sandbox, seed=config.run.seed
        )
        told(f"{len(worlds)} worlds drawn")
        renderer = config.model.renderer
        runner = RolloutRunner(
            engine=engine, rendering=build_rendering(model_dir, {"name": renderer.name, **renderer.options}), sandbox=sandbox,
            run_seed=config.run.seed, context_tokens=config.model.context_tokens, slots=PLAYS_AT_ONCE, deterministic=True,
        )
        closing.push_async_callback(runner.shelf.close)
        plays = await play_worlds(runner, worlds, config, seeds=arguments.seeds, repeats=arguments.repeats, told=told)
        return worlds, plays


# --- the command ----------------------------------------------------------------------------------------------------------


def _print(result: dict[str, Any]) -> None:
    print(f"{result['plays']} plays ({result['void']} void) in {len(result['environments'])} environments, "
          f"{result['varying']} with returns that vary, {result['wall_s']:.0f} s; mean return {result['plain']:.2f} plain, "
          f"{result['hinted']:.2f} hinted")
    print(f"the same standard error of regret costs {result['cost']:.2f} [{result['cost_low']:.2f}, {result['cost_high']:.2f}] "
          f"times the plays when paired (aim: {result['aim']:.2f})")
    parts = result["parts"]
    for kind in ("instance", "noise"):
        both = (parts[f"{kind}_hinted"] + parts[f"{kind}_plain"]) / 2
        shared = parts[f"{kind}_shared"]
        print(f"  variance of a return by its {kind}: {both:.4f} an arm, of which both arms share {shared:.4f}")
    print("  plays at equal error, relative to unpaired plays of one instance each:")
    for row in result["designs"]:
        print(f"    {row['repeats']:2.0f} repeats: {row['paired']:.2f} paired, {row['unpaired']:.2f} unpaired; "
              f"cost {row['cost']:.2f} [{row['cost_low']:.2f}, {row['cost_high']:.2f}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=8, help="instances of each environment")
    parser.add_argument("--repeats", type=int, default=4, help="plays of each instance, in each arm")
    parser.add_argument("--seed", type=int, default=0, help="which worlds, instances and noise")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--model", default="spade-tiny", help="name or folder of the policy, such as a checkpoint's weights")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/paired_regret.json"))
    arguments = parser.parse_args()
    configure_logs(debug=False)
    described = {"machine": machine(), "arguments": {k: str(v) for k, v in vars(arguments).items()}}
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, Path(folder), told=lambda text: print(text, flush=True))
    _print(result)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({**described, **result}, indent=2) + "\n")
    print(f"written to {arguments.json}")


if __name__ == "__main__":
    main()
