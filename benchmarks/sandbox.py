"""What a sandbox costs, how long a hanging program holds its place, and what is left where a run is killed.

    python benchmarks/sandbox.py [--deadline 1.0] [--quick] [--json FILE]

Every backend that works on this machine is measured with the default options and the default run's tool simulators; one
that does not work is named with the reason. Programs are the simulators' examples; the first few of everything warm up.

- program load: from a source to a worker that has loaded it, been audited and waits; one at a time, with pauses.
- play start: fork of a loaded program and the first observation; one at a time, with pauses.
- step: round trips of the reference solutions' calls.
- hanging step: a tool loops for ever. The program may have one play (one worker, one call at a time), and another play is
  waiting for that place: from the call to the other play's first observation, and how far beyond the deadline of calls
  that is. "Taken over" is a program whose runner does not answer either when it shall stop the play: it is given another
  second, then it loses its worker, and the next play starts with a load.
- gates: rounds of as many distinct programs at once as a run has environments, as the self-play loop checks them.
- left after SIGKILL: a process owns loaded programs with running plays, one play that hangs, one program that forked a
  daemon and hangs in its import, and loads and closes others all the time. It is killed; whatever had its label or was
  under it counts. Exit status 1 where something is left after 10 seconds.

Prints a table and writes JSON with the machine it ran on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from machine import machine

from spade_agentic import (
    AutoSandbox,
    BubblewrapSandbox,
    BuildContext,
    EnvironmentTimeout,
    PluginManager,
    ProcessSandbox,
    Program,
    RunConfig,
    SandboxOptions,
    SandboxUnavailable,
    Skill,
    sandbox_for_run,
)
from spade_agentic.envs.gates import GateOptions, run_gates
from spade_agentic.sandbox import linux
from spade_agentic.sandbox.backend import LoadedProgram, PooledSandbox
from spade_agentic.sandbox.owners import reap_orphans

BACKENDS: dict[str, type[PooledSandbox]] = {"process": ProcessSandbox, "bubblewrap": BubblewrapSandbox}
GONE_WITHIN_S = 10.0
BUSY_WITHIN_S = 15.0
PHASES_WITHIN_S = 0.3  # the victim is killed at another moment of its work each time
VICTIM_PROGRAMS, VICTIM_PLAYS = 6, 4
HANG_NAME, FORK_NAME = "bench-hang", "bench-fork"

_HANGING = '''
import ctypes
from spade_agentic import Instruction, ToolCall, ToolEnv, tool
{before}
class World(ToolEnv):
    max_turns = 5

    def setup(self, rng):
        self.value, target = 0, rng.randint(2, 9)
        return [Instruction(f"Set it to {{target}}.", lambda: self.value == target, [ToolCall("set_to", {{"n": target}})])]

    @tool
    def set_to(self, n: int) -> str:
        """Set the counter."""
        self.value = n
        return "ok"

    @tool
    def hang(self) -> str:
        """Never answer."""
        name_process("{name}")
        while True:
            pass


def name_process(name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
'''
_TAKE_OVER = """
import time
from spade_agentic.sandbox import runner
runner._stop = lambda plays, number: time.sleep(3600)
"""
_DAEMON = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"{FORK_NAME}", 0, 0, 0)
        while True:
            time.sleep(1)
    os._exit(0)
while True:
    pass
"""


@dataclass(frozen=True)
class Sizes:
    """How often each thing is measured; ``steps`` in whole plays, ``rounds`` of the gates."""

    loads: int = 300
    starts: int = 600
    steps: int = 300
    hangs: int = 10
    rounds: int = 8
    kills: int = 10


QUICK = Sizes(loads=8, starts=8, steps=4, hangs=1, rounds=1, kills=1)
WARM_UP = 3
QUIET_S = 0.02  # the kernel takes its time to clear away what has ended, which is not to be charged to the next


def hanging(before: str = "") -> Program:
    """A program whose tool ``hang`` never answers; ``before`` runs when it is loaded."""
    return Program(_HANGING.format(before=before, name=HANG_NAME), Skill.STATE_MODIFICATION)


class Workplace:
    """Sandboxes as the default run has them, and programs to run in them."""

    def __init__(self) -> None:
        self.manager = PluginManager.load()
        self.config = RunConfig()
        self.context = BuildContext(run_dir=Path("benchmark"), run_seed=0, config=self.config, manager=self.manager)

    def sandbox(self, backend: type[PooledSandbox], **options: Any) -> PooledSandbox:
        return sandbox_for_run(backend, SandboxOptions(**options), self.context)

    def programs(self) -> Iterator[Program]:
        """Examples of the simulators in turn, each program once."""
        simulators = [self.manager.build("tool_sim", ref, self.context) for ref in self.config.tool_sims]
        seen: set[str] = set()
        for seed in itertools.count():
            program: Program = simulators[seed % len(simulators)].example(seed=seed)
            if program.canonical_hash not in seen:
                seen.add(program.canonical_hash)
                yield program


# -- costs -------------------------------------------------------------------------------------------------------------


def summary(seconds: list[float]) -> dict[str, float]:
    """Percentiles in milliseconds, and of how many."""
    ms = [1000 * value for value in seconds]
    cuts = statistics.quantiles(ms, n=100, method="inclusive") if len(ms) > 1 else ms * 99
    return {"p50": cuts[49], "p99": cuts[98], "count": len(ms)}


async def timed(what: Awaitable[Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = await what
    return time.perf_counter() - began, result


async def time_loads(sandbox: PooledSandbox, programs: list[Program], count: int) -> list[float]:
    seconds = []
    for program in itertools.islice(itertools.cycle(programs), WARM_UP + count):
        took, loaded = await timed(sandbox.load(program))
        await loaded.close()
        await asyncio.sleep(QUIET_S)
        seconds.append(took)
    return seconds[WARM_UP:]


async def time_starts(sandbox: PooledSandbox, programs: list[Program], count: int) -> list[float]:
    async def start(loaded: LoadedProgram, seed: int) -> Any:
        play = await loaded.play()
        await play.reset(seed)
        return play

    seconds = []
    loaded = [await sandbox.load(program) for program in programs]
    for seed in range(WARM_UP + count):
        took, play = await timed(start(loaded[seed % len(loaded)], seed))
        await play.close()
        await asyncio.sleep(QUIET_S)
        seconds.append(took)
    for item in loaded:
        await item.close()
    return seconds[WARM_UP:]


async def time_steps(sandbox: PooledSandbox, programs: list[Program], plays: int) -> list[float]:
    """Every step of ``plays`` plays that follow the reference solution to its end, the final answer included."""
    seconds: list[float] = []
    loaded = [await sandbox.load(program) for program in programs]
    for seed in range(WARM_UP + plays):
        play = await loaded[seed % len(loaded)].play()
        took = []
        for action in await solution(play, seed):
            spent, observation = await timed(play.step(action))
            took.append(spent)
        assert observation.reward == 1.0, f"the reference solution of seed {seed} lost"
        await play.close()
        seconds += took if seed >= WARM_UP else []
    for item in loaded:
        await item.close()
    return seconds


async def solution(play: Any, seed: int) -> list[dict[str, Any]]:
    """Reset the play; the actions that win it."""
    await play.reset(seed)
    calls = [call for part in (await play.probe())["solution"] for call in part]
    return [*({"type": "call", **call} for call in calls), {"type": "text", "text": "done"}]


# -- hanging programs --------------------------------------------------------------------------------------------------


async def time_hangs(sandbox: PooledSandbox, program: Program, count: int) -> list[float]:
    """Seconds from the call that hangs to the first observation of the play that waited for its place."""
    loaded = await sandbox.load(program)

    async def follower(seed: int) -> tuple[float, Any]:
        play = await loaded.play()
        await play.reset(seed)
        return time.perf_counter(), play

    seconds = []
    _, play = await follower(0)
    for seed in range(1, count + 1):
        waiting = asyncio.create_task(follower(seed))
        await asyncio.sleep(0.01)
        began = time.perf_counter()
        with contextlib.suppress(EnvironmentTimeout):
            await play.step({"type": "call", "name": "hang", "arguments": {}})
            raise AssertionError("a tool that never answers has answered")
        usable, play = await waiting
        seconds.append(usable - began)
    await loaded.close()
    return seconds


def beyond(seconds: list[float], deadline_s: float) -> dict[str, Any]:
    return {"total_ms": summary(seconds), "excess_ms": summary([value - deadline_s for value in seconds])}


# -- the gates ---------------------------------------------------------------------------------------------------------


async def time_gates(sandbox: PooledSandbox, programs: Iterator[Program], *, at_once: int, rounds: int) -> dict[str, Any]:
    """Rounds of ``at_once`` new programs each. The first round warms up and does not count."""
    rates, refused, seconds, reports = [], [], [], []
    for number in range(rounds + 1):
        drafts = list(itertools.islice(programs, at_once))
        checks = [
            run_gates(draft, sandbox, options=GateOptions(), known=lambda _: False, reserved=lambda _: None) for draft in drafts
        ]
        took, done = await timed(asyncio.gather(*checks))
        if not number:
            continue
        seconds.append(took)
        reports += done
        refused += [f"{item.refusal.gate}/{item.refusal.code}: {item.refusal.detail}" for item in done if item.refusal]
        rates.append(sum(item.refusal is None for item in done) / took)
    admitted = len(reports) - len(refused)
    return {
        "at_once": at_once, "programs": len(reports), "admitted": admitted, "refused": refused,
        "admitted_per_s": admitted / sum(seconds), "slowest_round_per_s": min(rates), "fastest_round_per_s": max(rates),
        "one_program_ms": summary([item.seconds for item in reports]),
    }


# -- what is left ------------------------------------------------------------------------------------------------------


async def be_victim(backend: str) -> None:
    """Own a busy sandbox, say on standard output what its label is, and go on until killed."""
    linux.die_with_parent(os.getppid())  # should the benchmark be stopped
    place = Workplace()
    sandbox = place.sandbox(BACKENDS[backend], load_timeout_s=3600, step_timeout_s=3600)
    await sandbox.start()
    programs = list(itertools.islice(place.programs(), VICTIM_PROGRAMS))

    async def playing(loaded: LoadedProgram, seed: int) -> None:
        play = await loaded.play()
        while True:
            for action in await solution(play, seed):
                await play.step(action)
            await asyncio.sleep(0.01)

    async def reloading() -> None:
        for program in itertools.cycle(programs):
            await (await sandbox.load(program)).close()

    async def stuck() -> None:
        play = await (await sandbox.load(hanging())).play()
        await play.reset(1)
        await play.step({"type": "call", "name": "hang", "arguments": {}})

    loaded = [await sandbox.load(program) for program in programs]
    work = [playing(item, seed) for item in loaded for seed in range(VICTIM_PLAYS)]
    tasks = [asyncio.create_task(item) for item in [*work, reloading(), stuck(), _forked(sandbox)]]
    assert sandbox._owner is not None
    print(json.dumps({"label": sandbox._owner.label, "folder": str(sandbox._owner.folder)}), flush=True)
    await asyncio.gather(*tasks)


async def _forked(sandbox: PooledSandbox) -> None:
    await sandbox.load(hanging(_DAEMON))


def processes_of(label: str) -> dict[int, tuple[int, str]]:
    """Pid to start ticks and short name, of every process with the owner's label in its arguments."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            arguments = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            ticks = linux.start_ticks(int(name))  # None for a zombie, which holds nothing any more
            if label.encode() in arguments and ticks is not None:
                found[int(name)] = ticks, Path(f"/proc/{name}/comm").read_text().strip()
    return found


def kill_owner(backend: str, *, wait_s: float) -> dict[str, Any]:
    """Start a victim, kill it ``wait_s`` after it was busy in every way, and watch what it had."""
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, __file__, "--victim", backend]
        victim = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert victim.stdout is not None
        try:
            said = victim.stdout.readline()
            if not said:
                errors.seek(0)
                raise RuntimeError(f"the process to be killed did not start:\n{errors.read()}")
            told = json.loads(said)
            names = _wait_until_busy(told["label"])
            time.sleep(wait_s)
            owned = processes_of(told["label"])
            under = {pid: linux.start_ticks(pid) for pid in linux.descendants(victim.pid)}
            owned |= {pid: (ticks, "") for pid, ticks in under.items() if ticks is not None and pid not in owned}
            victim.send_signal(signal.SIGKILL)
            began = time.perf_counter()
            while (left := _left(told["label"], owned)) and time.perf_counter() - began < GONE_WITHIN_S:
                time.sleep(0.001)
            gone_s = time.perf_counter() - began
        finally:
            victim.kill()
            victim.wait()
            victim.stdout.close()
    reap_orphans()  # what the next sandbox does when it starts
    return {
        "processes": len(owned), "hanging": HANG_NAME in names, "forked": FORK_NAME in names, "left": len(left),
        "left_names": sorted(left.values()), "gone_ms": None if left else 1000 * gone_s,
        "folder_left_after_next_start": Path(told["folder"]).exists(),
    }


def _wait_until_busy(label: str) -> set[str]:
    """Wait, within bounds, for the play that hangs and the daemon; the short names of what there is then."""
    ends = time.monotonic() + BUSY_WITHIN_S
    while True:
        names = {name for _, name in processes_of(label).values()}
        if {HANG_NAME, FORK_NAME} <= names or time.monotonic() > ends:
            return names
        time.sleep(0.02)


def _left(label: str, owned: dict[int, tuple[int, str]]) -> dict[int, str]:
    """Pid to name of what is still there: known from before, or labelled."""
    left = {pid: name for pid, (ticks, name) in owned.items() if linux.start_ticks(pid) == ticks}
    return left | {pid: name for pid, (_, name) in processes_of(label).items()}


def kill_owners(backend: str, count: int) -> dict[str, Any]:
    draw = random.Random(0)
    kills = [kill_owner(backend, wait_s=draw.random() * PHASES_WITHIN_S) for _ in range(count)]
    gone = [kill["gone_ms"] / 1000 for kill in kills if kill["gone_ms"] is not None]
    return {
        "kills": count, "processes": sum(kill["processes"] for kill in kills), "left": sum(kill["left"] for kill in kills),
        "hanging": all(kill["hanging"] for kill in kills), "forked": all(kill["forked"] for kill in kills),
        "folders_left": sum(kill["folder_left_after_next_start"] for kill in kills),
        "gone_ms": summary(gone) | {"most": 1000 * max(gone)} if gone else None, "each": kills,
    }


# -- the measurement ---------------------------------------------------------------------------------------------------


async def measure(backend: str, sizes: Sizes, *, deadline_s: float) -> dict[str, Any]:
    """Everything about one backend. Raises :class:`SandboxUnavailable` where it does not work here."""
    place = Workplace()
    drawn = place.programs()
    programs = list(itertools.islice(drawn, place.config.selfplay.environments))
    sandbox = place.sandbox(BACKENDS[backend])
    began = time.perf_counter()
    await sandbox.start()
    result: dict[str, Any] = {"start_ms": 1000 * (time.perf_counter() - began), "found": dict(sandbox.found)}
    try:
        result["load_ms"] = summary(await time_loads(sandbox, programs, sizes.loads))
        result["play_start_ms"] = summary(await time_starts(sandbox, programs, sizes.starts))
        result["step_ms"] = summary(await time_steps(sandbox, programs, sizes.steps))
        result["gates"] = await time_gates(sandbox, drawn, at_once=len(programs), rounds=sizes.rounds)
    finally:
        await sandbox.stop()
    result["hang"] = {"deadline_s": deadline_s}
    single = place.sandbox(BACKENDS[backend], workers=1, plays=1, concurrency=1, step_timeout_s=deadline_s)
    await single.start()
    try:
        for name, before in (("play", ""), ("taken_over", _TAKE_OVER)):
            result["hang"][name] = beyond(await time_hangs(single, hanging(before), sizes.hangs), deadline_s)
    finally:
        await single.stop()
    result["sigkill"] = kill_owners(backend, sizes.kills)
    return result


async def measure_all(sizes: Sizes, *, deadline_s: float) -> dict[str, Any]:
    """``backends`` by name, ``missing`` ones with the reason, and what ``auto`` takes here."""
    report: dict[str, Any] = {"backends": {}, "missing": {}}
    for backend in BACKENDS:
        try:
            report["backends"][backend] = await measure(backend, sizes, deadline_s=deadline_s)
        except SandboxUnavailable as error:
            report["missing"][backend] = str(error)
    auto = Workplace().sandbox(AutoSandbox)
    await auto.start()
    report["auto"] = auto.name
    await auto.stop()
    return report


def exit_status(report: dict[str, Any]) -> int:
    """1 where a killed owner left a process behind."""
    return int(any(result["sigkill"]["left"] for result in report["backends"].values()))


# -- the table ---------------------------------------------------------------------------------------------------------

_ROWS: tuple[tuple[str, Callable[[dict[str, Any]], dict[str, float] | None]], ...] = (
    ("program load, ms", lambda result: result["load_ms"]),
    ("play start, ms", lambda result: result["play_start_ms"]),
    ("step, ms", lambda result: result["step_ms"]),
    ("hanging step to next play, ms", lambda result: result["hang"]["play"]["total_ms"]),
    ("  beyond the deadline, ms", lambda result: result["hang"]["play"]["excess_ms"]),
    ("taken over, to next play, ms", lambda result: result["hang"]["taken_over"]["total_ms"]),
    ("  beyond the deadline, ms", lambda result: result["hang"]["taken_over"]["excess_ms"]),
    ("gates, a program of a round, ms", lambda result: result["gates"]["one_program_ms"]),
    ("SIGKILL of the owner to gone, ms", lambda result: result["sigkill"]["gone_ms"]),
)


def print_report(report: dict[str, Any]) -> None:
    where = report["machine"]
    print(f"{where['cpu']}, {where['cores_used']} of {where['cores']} cores, {'root' if where['root'] else 'not root'}; "
          f"calls have {report['deadline_s']:g} s; auto is {report['auto']}")
    results = report["backends"]
    print(f"{'':34}" + "".join(f"{name:>26}" for name in results))
    print(f"{'':34}" + f"{'p50':>10}{'p99':>9}{'of':>7}" * len(results))
    for label, pick in _ROWS:
        cells = []
        for result in results.values():
            row = pick(result)
            cells.append(f"{row['p50']:10.2f}{row['p99']:9.2f}{row['count']:7d}" if row else f"{'never':>10}{'':16}")
        print(f"{label:34}" + "".join(cells))
    for name, result in results.items():
        gates, kills = result["gates"], result["sigkill"]
        print(f"{name}: found {result['found']}")
        print(f"{name}: {gates['admitted']} of {gates['programs']} programs admitted, {gates['at_once']} at once, "
              f"{gates['admitted_per_s']:.1f} a second (rounds: {gates['slowest_round_per_s']:.1f} to "
              f"{gates['fastest_round_per_s']:.1f})")
        print(f"{name}: {kills['left']} of {kills['processes']} processes left after {kills['kills']} SIGKILL of the owner "
              f"(a play hung: {'yes' if kills['hanging'] else 'no'}, a program forked: {'yes' if kills['forked'] else 'no'})")
    for name, reason in report["missing"].items():
        print(f"{name}: not measured: {reason}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deadline", type=float, default=1.0, help="seconds that a call has where hanging is measured")
    parser.add_argument("--quick", action="store_true", help="everything once or a few times: whether it works")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/sandbox.json"))
    parser.add_argument("--victim", choices=BACKENDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("error"), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    if args.victim:
        asyncio.run(be_victim(args.victim))
        return 0
    sizes = QUICK if args.quick else Sizes()
    report = {"machine": machine(), "deadline_s": args.deadline, "quick": args.quick}
    report |= asyncio.run(measure_all(sizes, deadline_s=args.deadline))
    print_report(report)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {args.json}")
    return exit_status(report)


if __name__ == "__main__":
    sys.exit(main())
