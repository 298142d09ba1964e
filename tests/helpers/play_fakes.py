"""A toy game for the tests of plays and of the loop: a scripted engine, a sandbox in this process, and a world of one door.

The engine answers by a policy that reads the prompt's text; everything else on the way (rendering, parsing, sessions, the
scheduler, the environment contract) is the product's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from spade_agentic.envs.contract import ToolEnv, load_environment
from spade_agentic.errors import EnvironmentFault, EnvironmentTimeout
from spade_agentic.hooks.kinds import StepObservation, TrainSequence
from spade_agentic.hooks.records import (
    Arm,
    Completion,
    Draft,
    Environment,
    FinishReason,
    GateReport,
    Play,
    Program,
    ProgramKind,
    Refusal,
    Role,
    Sampling,
    Segment,
    Skill,
    StopReason,
    Trajectory,
)
from spade_agentic.rollout.runner import RolloutRunner
from spade_agentic.rollout.scheduler import Admission
from spade_agentic.runs.codec import pack, unpack
from spade_agentic.selfplay.batch import BatchMaker
from spade_agentic.selfplay.delay import DelayBuffer
from spade_agentic.selfplay.histories import IntervalHistories
from spade_agentic.selfplay.loop import SelfPlay, StepRecord
from spade_agentic.selfplay.pool import Pool
from spade_agentic.selfplay.rounds import RoundMaker
from spade_agentic.selfplay.state import LoopState
from spade_agentic_plugins.rewards import HintRegret, HintRegretOptions
from spade_agentic_plugins.round_robin import RoundRobin, RoundRobinOptions
from spade_agentic_plugins.sqlite_memory import MemoryOptions, SqliteMemory

HELPERS = Path(__file__).parent
SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)


# --- tokens ------------------------------------------------------------------------------------------------------------


def write_tokenizer(folder: Path) -> Path:
    """A tokenizer of single bytes with Qwen3's special tokens, in a folder of a model without a single tensor."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(s, special=s.startswith("<|"), normalized=False) for s in SPECIALS])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False, "model_max_length": 32768,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


def call(name: str, **arguments: Any) -> str:
    """A tool call as the policy writes it."""
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


# --- the engine --------------------------------------------------------------------------------------------------------

Policy = Callable[[str, random.Random, str], str]
"""From the prompt's text, the request's own randomness and the request's id to what is said."""


@dataclass
class ScriptedEngine:
    """Answers by ``policy``. Log-probs say at which place a token was sampled, so that a shift by one shows.

    ``delay(request_id)`` gives how many turns of the event loop an answer takes. ``waves`` records what left together.
    """

    tokenizer: Any
    policy: Policy
    version: int = 0
    delay: Callable[[str], int] = lambda request_id: 0
    base_url: str = "http://scripted"
    requests: list[str] = field(default_factory=list)
    prompts: dict[str, list[int]] = field(default_factory=dict)
    completions: dict[str, Completion] = field(default_factory=dict)
    samplings: dict[str, Sampling] = field(default_factory=dict)
    waves: dict[str, list[str]] = field(default_factory=dict)
    published: list[tuple[Path, int]] = field(default_factory=list)
    started: list[Path] = field(default_factory=list)
    stopped: int = 0
    _gates: dict[str, asyncio.Event] = field(default_factory=dict)

    async def start(self, model_dir: Path) -> None:
        self.started.append(model_dir)

    async def stop(self) -> None:
        self.stopped += 1

    async def publish(self, weights_dir: Path, version: int) -> None:
        self.published.append((weights_dir, version))
        self.version = version

    async def complete(
        self, token_ids: Sequence[int], sampling: Sampling, *, seed: int, request_id: str, stop_token_ids: Sequence[int],
        wave: tuple[str, int] | None = None,
    ) -> Completion:
        self.requests.append(request_id)
        self.prompts[request_id] = list(token_ids)
        self.samplings[request_id] = sampling
        if wave is not None:
            await self._gather(wave, request_id)
        for _ in range(self.delay(request_id)):
            await asyncio.sleep(0)
        text = self.policy(self.tokenizer.decode(list(token_ids)), random.Random(seed), request_id)
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), stop_token_ids[0]]
        finish = FinishReason.STOP
        if len(ids) > sampling.max_tokens:
            ids, finish = ids[: sampling.max_tokens], FinishReason.LENGTH
        logprobs = tuple(-(1.0 + (len(token_ids) + i) / 1000.0) for i in range(len(ids)))
        completion = Completion(tuple(ids), logprobs, (self.version,) * len(ids), finish, prompt_tokens=len(token_ids))
        self.completions[request_id] = completion
        return completion

    async def _gather(self, wave: tuple[str, int], request_id: str) -> None:
        """As the real engine: nothing starts before all of the wave is there."""
        name, size = wave
        members = self.waves.setdefault(name, [])
        members.append(request_id)
        gate = self._gates.setdefault(name, asyncio.Event())
        assert len(members) <= size, f"{name} has more members than its size {size}"
        if len(members) == size:
            members.sort()
            gate.set()
        await gate.wait()


# --- the sandbox -------------------------------------------------------------------------------------------------------


@dataclass
class InProcessPlay:
    environment: Any
    kind: ProgramKind

    async def reset(self, seed: int) -> StepObservation:
        text, info = self.environment.reset(seed=seed)
        return StepObservation(text, info=info)

    async def step(self, action: Mapping[str, Any]) -> StepObservation:
        try:
            taken = self.environment.step(action["text"] if self.kind is ProgramKind.TEXT else action)
        except Exception as error:
            raise EnvironmentFault("crash", f"{type(error).__name__}: {error}") from error
        text, reward, terminated, truncated, info = taken
        return StepObservation(text, reward, terminated, truncated, info)

    async def probe(self) -> Mapping[str, Any]:
        return self.environment.probe() if isinstance(self.environment, ToolEnv) else {}

    async def close(self) -> None:
        return None


@dataclass
class InProcessProgram:
    program: Program
    manifest: Mapping[str, Any]
    sandbox: InProcessSandbox

    async def play(self) -> InProcessPlay:
        return InProcessPlay(load_environment(self.program.source), self.program.kind)

    async def close(self) -> None:
        self.sandbox.loaded.remove(self.program.program_id)


@dataclass
class InProcessSandbox:
    """Runs programs right here. ``loaded`` lists the ids of programs that are loaded now."""

    name: str = "inprocess"
    loaded: list[str] = field(default_factory=list)
    running: bool = False
    most_loaded: int = 0

    async def start(self) -> None:
        self.running = True

    async def load(self, program: Program) -> InProcessProgram:
        environment = load_environment(program.source)
        tools = environment.tools() if isinstance(environment, ToolEnv) else []
        manifest = {
            "kind": program.kind.value, "tools": tools, "system": environment.system, "max_turns": environment.max_turns,
            "lines": program.source.count("\n"),
        }
        self.loaded.append(program.program_id)
        self.most_loaded = max(self.most_loaded, len(self.loaded))
        return InProcessProgram(program, manifest, self)

    async def stop(self) -> None:
        self.running = False


# --- the world ---------------------------------------------------------------------------------------------------------

DOOR = '''
from spade_agentic.envs.contract import Instruction, ToolCall, ToolEnv, ToolError, tool


class Door(ToolEnv):
    system = "Open the door."
    max_turns = {turns}

    def setup(self, rng):
        self.key, self.open = rng.randint(100, 999), False
        self.extra = {extra!r}
        return [Instruction(f"Door {level}: the key is {{self.key}}.", lambda: self.open,
                            [ToolCall("unlock", {{"key": self.key}})])]

    @tool
    def unlock(self, key: int) -> str:
        """Try a key."""
        if {crash} and key == self.key:
            raise RuntimeError("the door fell on someone")
        if key != self.key:
            raise ToolError("the key does not fit")
        self.open = True
        return "open"
'''
KEY = re.compile(r"the key is (\d+)")
LEVEL = re.compile(r"Door (\d+):")


def door_source(level: int = 0, *, turns: int = 4, crash: bool = False, extra: str = "") -> str:
    return DOOR.format(level=level, turns=turns, crash=crash, extra=extra)


def door(level: int = 0, *, skill: Skill = Skill.DATA_RETRIEVAL, hint: str = "Say the key.", **options: Any) -> Program:
    """A program whose agent must repeat a number. ``level`` is what a scripted policy may go by."""
    return Program(door_source(level, **options), skill, origin={"level": level, "hint": hint})


def in_pool(program: Program, env_id: str = "r0s0", slot: int = 0, *, hint: str | None = None) -> Environment:
    return Environment(env_id, program, round_index=0, slot=slot, draft_id=f"draft-{env_id}", max_turns=4, hint=hint)


def door_policy(skill_of: Callable[[int], float], *, hinted: float = 1.0) -> Policy:
    """An agent that opens a door of level ``n`` with probability ``skill_of(n)``, and with ``hinted`` where it has a hint."""

    def policy(prompt: str, rng: random.Random, request_id: str) -> str:
        if "open\n</tool_response>" in prompt:
            return "done"
        if "does not fit" in prompt:
            return "I give up"
        key, level = int(KEY.findall(prompt)[-1]), int(LEVEL.findall(prompt)[-1])
        chance = hinted if "\n\nHint: " in prompt else skill_of(level)
        return call("unlock", key=key if rng.random() < chance else 0)

    return policy


# --- records -------------------------------------------------------------------------------------------------------------


def trajectory(role: Role = Role.AGENT, *, prompt: int = 3, sampled: int = 4, version: int = 0, first: int = 10) -> Trajectory:
    segment = Segment()
    segment.append_context(list(range(first, first + prompt)))
    segment.append_completion(
        Completion(tuple(range(50, 50 + sampled)), (-0.5,) * sampled, (version,) * sampled, FinishReason.STOP)
    )
    return Trajectory(role, [segment])


def make_play(
    env_id: str = "e0", seed: int = 0, repeat: int = 0, arm: Arm = Arm.PLAIN, reward: float = 1.0, *,
    stop: StopReason = StopReason.ANSWERED, version: int = 0, sampled: int = 4, fault: str | None = None,
) -> Play:
    """A play without an environment, for everything that only looks at returns and tokens."""
    return Play(
        f"t0-{env_id}-{seed}-{repeat}-{arm.value}", env_id, seed, repeat, arm,
        trajectory(version=version, sampled=sampled), reward, reward >= 1.0, stop, fault=fault,
    )


class TimeoutSandbox(InProcessSandbox):
    """Every step of a play misses its deadline the first ``misses`` times it is asked for."""

    def __init__(self, misses: int) -> None:
        super().__init__()
        self.misses = misses

    async def load(self, program: Program) -> InProcessProgram:
        loaded = await super().load(program)
        sandbox, play = self, loaded.play

        async def slow() -> InProcessPlay:
            opened = await play()
            step = opened.step

            async def late(action: Mapping[str, Any]) -> StepObservation:
                if sandbox.misses > 0:
                    sandbox.misses -= 1
                    raise EnvironmentTimeout("2 s")
                return await step(action)

            opened.step = late  # type: ignore[method-assign]
            return opened

        loaded.play = slow  # type: ignore[method-assign]
        return loaded


# --- the designer's side -------------------------------------------------------------------------------------------------


class DoorDesigner:
    """The policy writes ``door <level>``; ``door <level> crash`` makes a program that breaks. Anything else is refused."""

    async def design(self, request: Any, policy: Any) -> Draft:
        seen = " ".join(entry.source for entry in request.seeds)
        text, _ = await policy.say([{"role": "user", "content": f"Design for {request.skill.value}. Seeds: {seen}"}])
        draft = Draft(
            request.draft_id, request.skill, request.round_index, request.slot, request.attempt,
            trajectory=policy.trajectory, text=text,
        )
        found = re.fullmatch(r"door (\d+)( crash)?", text)
        if found is None:
            draft.refusal = Refusal("parse", "no_door", text[:40])
        else:
            draft.program = door(int(found[1]), skill=request.skill, crash=bool(found[2]))
        return draft


class OriginHints:
    async def write(self, program: Program, policy: Any, *, seed: int) -> str | None:
        return program.origin.get("hint")


class CallingHints:
    """A hint writer that asks the policy, so that its tokens could end up somewhere they must not."""

    async def write(self, program: Program, policy: Any, *, seed: int) -> str | None:
        text, _ = await policy.say([{"role": "user", "content": f"Hint for level {program.origin['level']}"}])
        return text


async def door_gates(program: Program, known: Callable[[str], bool]) -> GateReport:
    """Refuses duplicates; admits everything else with four turns."""
    refusal = Refusal("duplicate", "duplicate") if known(program.canonical_hash) else None
    return GateReport(refusal, max_turns=4)


@dataclass
class ToyLearner:
    """One number: how likely a plain door is opened. Moves by the agent's advantages and by nothing else."""

    weight: float = 0.0
    lr: float = 0.5
    batches: list[list[TrainSequence]] = field(default_factory=list)
    closed: int = 0

    def step(self, batch: Sequence[TrainSequence]) -> dict[str, float]:
        self.batches.append(list(batch))
        metrics: dict[str, float] = {}
        for role in Role:
            mine = [s for s in batch if s.role is role]
            metrics[f"{role.value}/tokens"] = float(sum(sum(s.mask) for s in mine))
            if mine:
                metrics[f"{role.value}/ratio_mean"] = 1.0
                metrics[f"{role.value}/signal"] = sum(abs(s.advantage * s.weight) * sum(s.mask) for s in mine)
        gains = [s.advantage * sum(s.mask) for s in batch if s.role is Role.AGENT]
        self.weight += self.lr * sum(max(0.0, g) for g in gains) / max(1, len(gains)) / 100.0
        return metrics

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "toy.json").write_text(json.dumps({"weight": self.weight}))

    def save_weights(self, folder: Path) -> None:
        self.save(folder)

    def load(self, folder: Path) -> None:
        self.weight = json.loads((folder / "toy.json").read_text())["weight"]

    def close(self) -> None:
        self.closed += 1


class NoWatch:
    """Sees plays and counts them."""

    def __init__(self) -> None:
        self.expected, self.started, self.turns, self.finished = [], [], [], []
        self.stages: dict[str, list[str]] = {}

    def plays_expected(self, count: int) -> None:
        self.expected.append(count)

    def play_started(self, play_id: str, env_id: str, arm: Arm) -> None:
        self.started.append(play_id)

    def play_entered(self, play_id: str, stage: str) -> None:
        self.stages.setdefault(play_id, []).append(stage)

    def play_progressed(self, play_id: str) -> None:
        self.turns.append(play_id)

    def play_finished(self, play: Play) -> None:
        self.finished.append(play.play_id)


def game_policy(
    design: Callable[[random.Random, str], str], skill_of: Callable[[int], float], *, hinted: float = 1.0
) -> Policy:
    """Both roles: drafts by ``design(rng, request_id)``, plays by :func:`door_policy`."""
    play = door_policy(skill_of, hinted=hinted)

    def policy(prompt: str, rng: random.Random, request_id: str) -> str:
        if "Design for" in prompt:
            return design(rng, request_id)
        if "Hint for level" in prompt:
            return "Say the key."
        return play(prompt, rng, request_id)

    return policy


def any_door(rng: random.Random, request_id: str) -> str:
    return f"door {rng.randrange(100000)}"


@dataclass
class Game:
    """A :class:`SelfPlay` of toys, and what it did."""

    loop: SelfPlay
    engine: ScriptedEngine
    sandbox: InProcessSandbox
    learner: ToyLearner
    commits: list[tuple[StepRecord, dict[str, Any]]]
    hooks: list[tuple[str, dict[str, Any]]]
    watch: NoWatch

    def hook(self, name: str) -> list[dict[str, Any]]:
        return [arguments for hook, arguments in self.hooks if hook == name]


def make_game(
    rendering: Any, policy: Policy, *, reward: Any = None, designer: Any = None, hint_writer: Any = None,
    gates: Any = door_gates,
    steps: int = 6, environments: int = 3, regenerate_every: int = 2, attempts: int = 3, seeds: int = 2, repeats: int = 2,
    delay: int | None = None, hinted_every_step: bool = False, deterministic: bool = True, slots: int = 64,
    min_pairs: int = 1, memory: Any = None, run_seed: int = 0, refused_advantage: float = -1.0, agent_group: Any = "instance",
    delay_of: Callable[[str], int] = lambda request_id: 0, sandbox: InProcessSandbox | None = None,
    reserved: Callable[[Program], str | None] = lambda program: None, most_rounds: int | None = None,
    train_designer: bool = True, curriculum: Any = None,
) -> Game:
    """The loop over toys. Commits are kept as JSON text, so that a state that JSON would change cannot hide."""
    engine = ScriptedEngine(rendering.tokenizer, policy, delay=delay_of)
    sandbox = sandbox or InProcessSandbox()
    learner, commits, hooks, watch = ToyLearner(), [], [], NoWatch()
    runner = RolloutRunner(
        engine=engine, rendering=rendering, sandbox=sandbox, run_seed=run_seed, context_tokens=8192, slots=slots,
        deterministic=deterministic,
    )
    sampling = Sampling(max_tokens=512)

    async def publish(version: int) -> None:
        engine.version = version

    async def after(version: int) -> None:
        return None

    loop = SelfPlay(
        runner=runner,
        rounds=RoundMaker(
            runner=runner, designer=designer or DoorDesigner(), hint_writer=hint_writer or OriginHints(),
            curriculum=curriculum or RoundRobin(RoundRobinOptions()),
            memory=SqliteMemory(MemoryOptions()) if memory is None else memory, gates=gates,  # an empty one is false
            slots=environments, attempts=attempts, designer_sampling=sampling, hint_sampling=sampling,
        ),
        reward=reward or HintRegret(HintRegretOptions()), learner=learner,
        batches=BatchMaker(
            agent_sampling=sampling, designer_sampling=sampling, agent_group=agent_group,
            refused_advantage=refused_advantage, weight_cap=50.0, interval=regenerate_every,
        ),
        pool=Pool(environments), histories=IntervalHistories(min_pairs=min_pairs, version_gap=0),
        delay=DelayBuffer(regenerate_every if delay is None else delay),
        admission=Admission(batch=environments * seeds * repeats), state=LoopState(),
        commit=lambda record, state: commits.append((record, unpack(pack(dict(state))))), publish=publish,
        notify=lambda hook, **arguments: hooks.append((hook, arguments)), watch=watch, reserved=reserved, steps=steps,
        regenerate_every=regenerate_every, most_rounds=most_rounds, train_designer=train_designer, seeds=seeds,
        repeats=repeats, hinted_every_step=hinted_every_step, agent_sampling=sampling, after_step=after,
    )
    return Game(loop, engine, sandbox, learner, commits, hooks, watch)
