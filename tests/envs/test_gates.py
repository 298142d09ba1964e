"""The gates, in the real sandboxes: every code is given for its fault, and the least change that mends it takes it away."""

from __future__ import annotations

import ast
import json
import random
import re
import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
import sandboxes
from hypothesis import given, strategies as st

import spade_agentic
from spade_agentic import GateReport, Program, ProgramKind, Skill
from spade_agentic.envs.gates import GATE_SEED, GATES, GateOptions, _shows, _squeezed, _tells, run_gates
from spade_agentic.sandbox.backend import AutoSandbox, BubblewrapSandbox, PooledSandbox, ProcessSandbox
from spade_agentic.sandbox.options import SandboxOptions
from spade_agentic.testing import InProcessSandbox
from spade_agentic_plugins.blueprint import DEFAULT_DOMAINS, compile_blueprint, parse_blueprint
from spade_agentic_sims.kit import Chain, Mods, draw_chain, get_domain, needed_tools
from spade_agentic_sims.source import chain_program

on_loop = pytest.mark.asyncio(loop_scope="session")

PACKAGE = Path(spade_agentic.__file__).parent
LIMITS = SandboxOptions(load_timeout_s=5.0, step_timeout_s=2.0, memory_mb=512, tree_memory_mb=256, plays=24)

WORLD = '''
from spade_agentic import Instruction, TextEnv, ToolCall, ToolEnv, ToolError, tool


class World(ToolEnv):
    max_turns = 5

    def setup(self, rng):
        self.value, target = 0, rng.randint(100, 999)
        return [Instruction(f"Set it to {target}.", lambda: self.value == target, [ToolCall("set_to", {"n": target})])]

    @tool
    def set_to(self, n: int) -> str:
        """Change the number."""
        self.value = n
        return "ok"

    @tool
    def look(self) -> int:
        """See what it is."""
        return self.value
'''
"""Sound: one instruction, won by one call."""

ECHO = '''
import random
from spade_agentic import TextEnv


class Echo(TextEnv):
    max_turns = 2

    def reset(self, *, seed):
        self.number = str(random.Random(seed).randint(1000, 9999))
        return f"Say {self.number}.", {}

    def step(self, text):
        return "", float(text == self.number), True, False, {}

    def solution(self):
        return [self.number]
'''
"""Sound, without tools."""


def changed(source: str, *changes: tuple[str, str]) -> str:
    """``source`` with each first text, which stands in it once, replaced by the second."""
    for old, new in changes:
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in\n{source}"
        source = source.replace(old, new)
    return source


def added(source: str) -> tuple[str, str]:
    """A change: further lines at the end of WORLD's class."""
    last = "        return self.value\n"
    return last, last + "\n" + textwrap.indent(textwrap.dedent(source).strip("\n"), " " * 4) + "\n"


def first(source: str) -> tuple[str, str]:
    """A change: lines that run when the program is loaded."""
    return "\n\n\nclass World", "\n" + textwrap.dedent(source) + "\n\nclass World"


CALL = 'ToolCall("set_to", {"n": target})'
LOOK = 'ToolCall("look")'
SOLUTION = f"[{CALL}]"
BODY = "self.value = n\n"
CRITERION = "lambda: self.value == target"
DRAW = "rng.randint(100, 999)"


@dataclass(frozen=True)
class Case:
    """A fault: ``bad`` makes it of the sound program, ``mend`` is the least that takes it away; then it is admitted."""

    gate: str
    code: str
    bad: tuple[tuple[str, str], ...]
    mend: tuple[str, str]
    says: str
    of: str = WORLD

    def __str__(self) -> str:
        return f"{self.gate}-{self.code}"

    def programs(self) -> tuple[Program, Program]:
        source = changed(self.of, *self.bad)
        return made(source), made(changed(source, self.mend))


def made(source: str) -> Program:
    return Program(source, Skill.STATE_MODIFICATION, ProgramKind.TEXT if "(TextEnv)" in source else ProgramKind.TOOL)


OWN = [
    Case(
        "reset", "nondeterministic", (("= 5", "= 2 + hash('spade') % 200"),), ("hash(", "len("), "two .* describe .* write"
    ),
    Case(
        "reset", "nondeterministic", ((DRAW, "__import__('random').randint(100, 999)"),), ("__import__('random')", "rng"),
        f"seed {GATE_SEED}: two processes make .* draw everything from the rng",
    ),
    Case(
        "reset", "nondeterministic",
        (
            ("max_turns = 5", "made, max_turns = [], 5"), ("Set it to {target}.", "{len(self.made)}: set it to {target}."),
            ("self.value, target", "self.made.append(1)\n        self.value, target"),
        ),
        ("self.made.append(1)", "self.made = [1]"), f"seed {GATE_SEED + 1}: .* resets before it; make all state anew",
    ),
    Case("reset", "constant", ((DRAW, "500"),), ("500", DRAW), "all 3 seeds .* draw something"),
    Case(
        "reset", "done_at_reset", ((CRITERION, "lambda: True"),), ("lambda: True", CRITERION),
        f"seed {GATE_SEED}: the criterion of instruction 1 holds before .* start from",
    ),
    Case(
        "reset", "no_instruction", (added("""
            def reset(self, *, seed):
                start = super().reset(seed=seed)
                self._instructions = []
                return start
        """),), ("self._instructions = []", "pass"), f"seed {GATE_SEED}: .*no instruction; return one",
    ),
    Case("solution", "unsolvable", ((BODY, "self.value = -n\n"),), ("-n", "n + 0"), "ends the play with reward 0; mend"),
    Case(
        "solution", "unsolvable", (added("def probe(self):\n    return super().probe() | {'solution': [[7]]}"),),
        (" | {'solution': [[7]]}", ""), "no call: 7; give name and arguments",
    ),
    Case("solution", "unsolvable", (("[self.number]", "[]"),), ("[]", "[self.number]"), "is empty; return", of=ECHO),
    Case(
        "solution", "unsolvable", (("True, False, {}", "False, True, {}"),), ("False, True, {}", "True, False, {}"),
        "is cut off with reward 1; mend", of=ECHO,
    ),
    Case(
        "solution", "unsolvable", (("True, False, {}", "False, False, {}"),), ("False, False, {}", "True, False, {}"),
        "does not end the play with reward 1; mend", of=ECHO,
    ),
    Case("solution", "too_long", (("= 5", "= 1"),), ("= 1", "= 2"), "need 2 turns, 1 are allowed; raise max_turns"),
    Case(
        "solution", "secret", (("Set it to {target}.", "Set it."),), ("Set it.", "Set it to {target}."),
        r"\d+, for .*'set_to'.* say it",
    ),
    Case(
        "solution", "nondeterministic", (('"ok"', '"ok %d" % hash("spade")'),), ("hash(", "len("),
        f"seed {GATE_SEED}: two processes answer the solution differently; let tools",
    ),
    Case(  # it is told, but only after it was used
        "solution", "secret",
        (
            ("Set it to {target}.", "Set it to what look says."), (SOLUTION, f"[{CALL}, {LOOK}]"),
            ("self.value\n", "self.goal\n"), ("return [Instr", "self.goal = target\n        return [Instr"),
        ),
        (f"{CALL}, {LOOK}", f"{LOOK}, {CALL}"), r"\d+, for .* shown before",
    ),
    Case(
        "solution", "secret",
        (
            ("n: int", "n: dict[str, bool]"), (BODY, "self.value = int(max(n, default='k0')[1:])\n"),
            ('{"n": target}', '{"n": {f"k{target}": True}}'), ("Set it to {target}.", "Set it."),
        ),
        ("Set it.", "Set it to k{target}."), r"'k\d+', for the argument 'n'",
    ),
    Case(
        "solution", "secret",
        (
            (BODY, "self.value = n if hasattr(self, 'is_open') else 0\n"), (SOLUTION, f'[ToolCall("open"), {CALL}]'), added("""
                @tool
                def open(self) -> None:
                    self.is_open = True

                def tools(self):
                    return super().tools()[:2]
            """),
        ),
        ("()[:2]", "()"), "the tool 'open' stands in nothing .* offer it in a schema",
    ),
    Case(
        "solution", "secret",
        (
            ('{"n": target}', '{"n": target, "force": True}'), ("n: int", "n: int, force: bool = False"),
            (BODY, "self.value = n * force\n"), added("""
                def tools(self):
                    schemas = super().tools()
                    schemas[0]["function"]["parameters"]["properties"].pop("force")
                    return schemas
            """),
        ),
        ('.pop("force")', '.get("force")'), "the argument 'force' of 'set_to'",
    ),
    Case(
        "leak", "leak", (('f"Set it to {target}."', """'Set it: {"name":"set_to", "arguments": {"n":%d } }' % target"""),),
        ('"name":', ""), "seed .* 'set_to'; show facts",
    ),
    Case(
        "idle", "won_by_answering", (("== self.number", "in (self.number, 'done')"),), ("'done'", "'other'"),
        f"seed {GATE_SEED}: an answer at once wins; ask", of=ECHO,
    ),
    Case(
        "idle", "won_by_nothing", ((CRITERION, CRITERION + " or self._turn >= 4"),), (">= 4", ">= 5"),
        f"seed {GATE_SEED}: 4 turns of nothing and an answer win; reward only",
    ),
    Case(
        "idle", "won_at_random", ((CRITERION, "lambda: self.value > 0"),), ("self.value > 0", "self.value == target"),
        f"seed {GATE_SEED + 1_000}: random calls win; ask for",
    ),
    *(  # arguments whose schema has a reference or alternatives
        Case(
            "idle", "won_at_random",
            (
                first(extra), ("n: int", f"n: {kind}"), (BODY, f"self.value = {value}\n"),
                (CRITERION, "lambda: self.value > 0"), ('{"n": target}', f'{{"n": {given_as}}}'),
            ),
            ("self.value > 0", "self.value == target"), "random calls win",
        )
        for kind, value, given_as, extra in [
            ("int | None", "n or 1", "target", ""),
            ("Amount", "n.much", '{"much": target}', "from pydantic import BaseModel\nclass Amount(BaseModel):\n    much: int"),
        ]
    ),
    Case(
        "idle", "won_at_random", (("== self.number", "not in ('', 'done')"),), ("not in ('', 'done')", "== self.number"),
        "random texts win; ask for", of=ECHO,
    ),
]  # fmt: skip
"""What the gates find themselves, in their order; what needs no process is further down."""

RESET = "def reset(self, *, seed):\n    return super().reset(seed=seed)[:1]"
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
CHILD = "import os, time\nif os.fork() == 0:\n    time.sleep(60)"
FORKS = "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        time.sleep(60)\ntime.sleep(1)"
HOG = "import time\nhog = bytearray(b'x') * (300 << 20)\ntime.sleep(1)"
NOISE = """
import os
for fd in range(3, 64):
    try:
        os.write(fd, bytes([255]) * 8)
    except OSError:
        pass
"""
FORGED = """
from spade_agentic.sandbox import wire
send = wire.send
wire.send = lambda socket, message: send(socket, {"fault": "\\ud800 forged", "detail": "made up"})
"""


def step_gives(answer: str) -> tuple[str, str]:
    """A change: what a step answers, in terms of what it should."""
    return added(f"""
        def step(self, action):
            text, reward, ended, cut, info = super().step(action)
            return {answer}
    """)


def acting(body: str) -> tuple[str, str]:
    """A change: what else ``set_to`` does."""
    return BODY, BODY + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) + "\n"


FAULTS = [
    Case("load", "syntax", (("(ToolEnv):", "(ToolEnv:"),), ("(ToolEnv:", "(ToolEnv):"), "invalid syntax"),
    Case("load", "import_failed", (first("import absent"),), ("import absent", ""), "No module named 'absent'"),
    Case("load", "no_environment", (("(ToolEnv):", ":"),), ("World:", "World(ToolEnv):"), "no concrete ToolEnv"),
    Case("load", "bad_manifest", (("= 5", "= 257"),), ("= 257", "= 256"), "max_turns lie between 1 and 256"),
    Case("load", "extra_thread", (first(THREAD),), (".start()", ""), "1 threads"),
    Case("load", "extra_child", (first(CHILD),), ("os.fork()", "1"), "1 children"),
    Case("load", "extra_descriptor", (first("kept = open('/dev/null')"),), ("null')", "null').close()"), "1 descriptors"),
    Case("load", "shared_map", (first("import mmap\nboard = mmap.mmap(-1, 9)"),), ("(-1, 9)", "(-1, 9).close()"), "1 maps"),
    Case("load", "memory_limit", (first(HOG),), ("300 <<", "3 <<"), "too much: memory"),
    Case("load", "protocol", (first(FORGED),), ("wire.send = ", "unused = "), "made up"),
    Case("load", "crash", (first("import os\nos._exit(3)"),), ("os._exit(3)", ""), "ended its process"),
    Case("reset", "crash", (("return [Instr", "return [1 // 0, Instr"),), ("1 // 0, ", ""), r"ZeroDivisionError.*\(line 10\)"),
    Case("reset", "bad_type", (added(RESET),), ("[:1]", ""), "reset must give an observation and info"),
    Case("solution", "timeout", (acting("while n: pass"),), ("while n", "while not n"), "step took more than 2 s"),
    Case("solution", "memory", (acting("bytearray(1 << 30)"),), ("1 << 30", "1 << 10"), "out of memory"),
    Case("solution", "too_large", (acting("return 'x' * 16_385"),), ("16_385", "16_384"), "16385 characters, at most 16384"),
    Case("solution", "bad_type", (step_gives("text, reward, 0, cut, info"),), ("reward, 0,", "reward, ended,"), "terminated"),
    Case("solution", "bad_reward", (step_gives("text, reward * 2, ended, cut, info"),), (" * 2", ""), r"2.0 is not in"),
    Case("solution", "protocol", (acting(NOISE),), ("* 8", "* 0"), "step: .* bytes, at most"),
]  # fmt: skip
"""What the sandbox finds while a gate loads or plays. What else it may find, tests/sandbox shows."""


async def started(backend: type[PooledSandbox], **wanted: bool) -> PooledSandbox:
    return await sandboxes.started(backend(LIMITS, run="gates", wanted=wanted))


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=[ProcessSandbox, BubblewrapSandbox])
async def box(request: pytest.FixtureRequest) -> AsyncIterator[PooledSandbox]:
    """Both backends, one after the other."""
    running = await started(request.param)
    yield running
    await running.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def auto() -> AsyncIterator[PooledSandbox]:
    """The backend that a run takes here where it is not told which: for what lies with the gates alone."""
    running = await started(AutoSandbox)
    yield running
    await running.stop()


async def gated(program: Program, sandbox: PooledSandbox | InProcessSandbox, options: GateOptions | None = None) -> GateReport:
    return await run_gates(
        program, sandbox, options=options or GateOptions(), known=lambda canonical: False, reserved=lambda program: None
    )


# --- one fault, one code ------------------------------------------------------------------------------------------------


@on_loop
@pytest.mark.parametrize("case", OWN, ids=str)
async def test_a_fault_has_its_code_and_says_what_to_do_and_the_least_change_mends_it(auto: PooledSandbox, case: Case) -> None:
    await check(case, auto)


@on_loop
@pytest.mark.parametrize("case", FAULTS, ids=str)
async def test_what_a_sandbox_finds_is_refused_under_the_gate_that_met_it(box: PooledSandbox, case: Case) -> None:
    await check(case, box)


async def check(case: Case, sandbox: PooledSandbox) -> None:
    refused, mended = [await gated(program, sandbox) for program in case.programs()]
    assert refused.refusal is not None
    assert (refused.refusal.gate, refused.refusal.code) == (case.gate, case.code), refused.refusal
    assert re.search(case.says, refused.refusal.detail), refused.refusal
    assert refused.passed == GATES[: GATES.index(case.gate)]
    assert mended.refusal is None
    assert mended.passed == GATES


@on_loop
async def test_too_many_processes_have_their_code_where_a_worker_has_no_user_of_its_own() -> None:
    """With one, the kernel refuses the fork, and the program decides what comes of that."""
    source = changed(WORLD, first(FORKS))
    box = await started(ProcessSandbox, user=False)
    try:
        refused, mended = await gated(made(source), box), await gated(made(source.replace("(60)", "(0)", 1)), box)
    finally:
        await box.stop()
    assert refused.refusal is not None
    assert (refused.refusal.gate, refused.refusal.code) == ("load", "process_limit")
    assert "processes" in refused.refusal.detail
    assert mended.refusal is None


OUTSIDE = {("static", "too_large"), ("duplicate", "duplicate"), ("reserved", "reserved")}
"""Found before any process, by the three tests that follow."""


async def test_a_source_may_be_as_long_as_the_option_says_and_no_longer() -> None:
    most = len(WORLD)
    for limit in (most, most - 1):
        report = await gated(made(WORLD), InProcessSandbox(), GateOptions(max_source_chars=limit))
        assert (report.refusal is None) == (limit == most)
    assert report.refusal is not None
    assert (report.refusal.gate, report.refusal.code, report.passed) == ("static", "too_large", ())
    assert f"the source has {most} characters, at most {most - 1}" in report.refusal.detail
    assert "shorten" in report.refusal.detail


async def test_a_program_whose_canonical_form_is_known_is_a_duplicate_and_another_is_not() -> None:
    known = replace(made(WORLD), canonical="one world")
    disguised = replace(made(WORLD + "\n# otherwise"), canonical="one world")
    for program, expected in ((disguised, ("duplicate", "duplicate")), (replace(disguised, canonical="another"), None)):
        report = await run_gates(
            program, InProcessSandbox(), options=GateOptions(), known=lambda found: found == known.canonical_hash,
            reserved=lambda _: None,
        )
        assert ((report.refusal.gate, report.refusal.code) if report.refusal else None) == expected
        assert report.refusal is None or "an equal program" in report.refusal.detail
        assert report.refusal is None or "change what" in report.refusal.detail


@pytest.mark.parametrize("reason", ["held out: a chain", None])
async def test_a_reserved_program_is_refused_with_the_reason_of_who_keeps_it(reason: str | None) -> None:
    report = await run_gates(
        made(WORLD), InProcessSandbox(), options=GateOptions(), known=lambda _: False, reserved=lambda _: reason
    )
    if reason is None:
        assert report.refusal is None
    else:
        assert report.refusal is not None
        assert (report.refusal.gate, report.refusal.code) == ("reserved", "reserved")
        assert "(held out: a chain); make another" in report.refusal.detail


def test_every_code_that_the_gates_give_has_a_test_here() -> None:
    calls = [node for node in ast.walk(tree("envs/gates.py")) if isinstance(node, ast.Call)]
    raised = [call.args for call in calls if isinstance(call.func, ast.Name) and call.func.id == "_Refused"]
    declared = {(ast.literal_eval(gate), ast.literal_eval(code)) for gate, code, *_ in raised}
    assert declared == {(case.gate, case.code) for case in OWN} | OUTSIDE
    assert {gate for gate, _ in declared} <= set(GATES)


def test_every_code_that_the_sandbox_gives_has_a_test_here() -> None:
    """A code is what a fault is made with, what a runner answers as ``fault``, or an entry of a table of codes."""
    found: set[str] = {"timeout"}  # of EnvironmentTimeout
    for file in ("envs/contract.py", *(f"sandbox/{name}.py" for name in ("checks", "worker", "runner", "backend"))):
        for node in ast.walk(tree(file)):
            values: list[ast.expr | None] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "EnvironmentFault":
                values = [node.args[0]]
            elif isinstance(node, ast.Dict):
                values = [value for key, value in zip(node.keys, node.values, strict=True)
                          if isinstance(key, ast.Constant) and key.value == "fault"]
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("code", "_CODES"):
                values = [node.value]
            found |= {text for value in values for text in codes(value)}
    assert found == {case.code for case in FAULTS} | {"process_limit"}


def codes(value: ast.expr | None) -> set[str]:
    """The texts that an expression may be: a constant, a choice, or an entry of a dictionary."""
    match value:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp():
            return codes(value.body) | codes(value.orelse)
        case ast.Dict():
            return {text for item in value.values for text in codes(item)}
        case ast.Subscript():
            return codes(value.value)
    return set()


def tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


# --- what is admitted ---------------------------------------------------------------------------------------------------


@on_loop
@pytest.mark.parametrize("domain", DEFAULT_DOMAINS)
async def test_programs_of_a_simulator_are_admitted(box: PooledSandbox, domain: str) -> None:
    """Chains of one to three goals, from plain worlds to such with look-ups, distraction and a tool that fails once."""
    rng = random.Random(domain)
    for index in range(4):
        goals = draw_chain(rng, domain, 1 + index % 3).goals
        mods = Mods(hide_id=index % 2 == 1, distract=index // 2)
        fault = rng.choice(sorted(needed_tools(get_domain(domain), goals, mods))) if index > 1 else None
        report = await gated(chain_program(Chain(domain, goals, replace(mods, fault=fault))), box)
        assert report.refusal is None, (goals, mods, fault, report.refusal)
        assert report.solution_calls < report.max_turns
        assert len(report.tools) > 2


@on_loop
@pytest.mark.parametrize("lines", ["", "hide: id", "fault: find_customer\nhide: id", "distract: 3", "turns: 12"])
async def test_blueprints_of_sound_worlds_are_admitted(auto: PooledSandbox, lines: str) -> None:
    program = compile_blueprint(parse_blueprint(f"domain: banking\nskill: tool_selection\ngoals: freeze_card\n{lines}"))
    assert (await gated(program, auto)).refusal is None


@on_loop
async def test_the_report_says_what_was_learnt_of_an_admitted_program(auto: PooledSandbox) -> None:
    report = await gated(made(changed(WORLD, (SOLUTION, f"[{LOOK}, {CALL}]"))), auto)
    assert (report.max_turns, report.solution_calls, report.tools) == (5, 2, ("set_to", "look"))


# --- where a value may stand --------------------------------------------------------------------------------------------


@on_loop
@pytest.mark.parametrize(
    "changes",
    [
        (("n: int", "n: float"), ("{target}", "${target}.50"), ('"n": target', '"n": target + 0.5'),
         ("== target", "== target + 0.5")),
        ((DRAW, "1000 * " + DRAW), ("{target}", "${target:,}.00")),
        (("n: int", "n: str"), ('"n": target', '"n": self.word'), (CRITERION, "lambda: self.value == self.word"),
         ("return [Instr", "self.word = f'{target} \"quick\"'\n        return [Instr"), ("-> int:", "-> dict:"),
         ("Set it to {target}.", "Set it to what look says."), ("return self.value\n", "return {'say': self.word}\n"),
         ("[ToolCall(", '[ToolCall("look"), ToolCall(')),
    ],
    ids=["a decimal that is padded", "a sum of money", "a quotation within JSON"],
)  # fmt: skip
async def test_a_value_that_can_be_read_is_no_secret(auto: PooledSandbox, changes: tuple[tuple[str, str], ...]) -> None:
    report = await gated(made(changed(WORLD, *changes)), auto)
    assert report.refusal is None


NUMBERS = st.integers(-(10**9), 10**9)
WORDS = st.text(min_size=1).filter(lambda word: not word.isspace())


@given(NUMBERS, st.integers(0, 99))
def test_a_number_is_told_however_it_is_written_and_its_neighbours_are_not(whole: int, cents: int) -> None:
    value = float(f"{whole}.{cents:02}")
    written = (f"{whole}.{cents:02}", f"{whole:,}.{cents:02}", repr(value))
    forms = ("pay {} now", "{}, now", '{{"amount": {}}}', "It is {}.")
    for text in (form.format(number) for number in written for form in forms):
        assert _tells(text, value), text
        assert not _tells(text, value + 0.25), text
        assert not _tells(text, abs(whole) + 1), text


@given(WORDS)
def test_a_text_is_told_where_json_escapes_it(word: str) -> None:
    for way in (True, False):
        assert _tells(json.dumps({"note": word}, ensure_ascii=way), word)
    assert not _tells(word, "")


@given(WORDS, WORDS, st.sampled_from([None, 0, 2]), st.booleans(), st.booleans())
def test_a_call_shows_however_json_spaces_and_escapes_it(
    name: str, value: str, indent: int | None, ascii_only: bool, again: bool
) -> None:
    call = {"name": name, "arguments": {"who": value}}
    text = json.dumps(call, indent=indent, ensure_ascii=ascii_only)
    shown = json.dumps([text], ensure_ascii=ascii_only) if again else f"Call {text} now."
    assert _shows(_squeezed(shown), call)
    assert not _shows(_squeezed(shown), call | {"arguments": {"who": value + "x"}})


# --- programs that mean the host harm, or are careless --------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": 5}, {"enum": None}, {"enum": []}, {"const": {"enum": 7}}, {"anyOf": []}, {"anyOf": 3},
        {"type": "array", "items": True}, {"type": "array", "items": [3]}, {"type": "object", "properties": 4},
        {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/nothing"}, {"type": ["integer", "null"]},
    ],
    ids=str,
)  # fmt: skip
async def test_no_schema_that_a_program_makes_up_breaks_the_gates(schema: dict[str, object]) -> None:
    """Such a program is as good as its plays are. Schemas are read on the host, so any sandbox will do."""
    tools = f"""
        def tools(self):
            [schema, _] = super().tools()
            schema["function"]["parameters"]["properties"]["n"] = {schema!r}
            schema["function"]["parameters"]["$defs"] = {{"A": {{"$ref": "#/$defs/A"}}}}
            return [schema]
    """
    report = await gated(made(changed(WORLD, added(tools))), InProcessSandbox())
    assert report.refusal is None


@on_loop
@pytest.mark.parametrize(
    ("depth", "code", "in_process"), [(200, "secret", False), (5_000, "bad_type", False), (5_000, "too_large", True)]
)
async def test_no_depth_of_a_programs_answers_breaks_the_gates(
    auto: PooledSandbox, depth: int, code: str, in_process: bool
) -> None:
    """Without a process nothing limits it; nor does the JSON reader of every Python."""
    deep = f"""
        def probe(self):
            value = "x"
            for _ in range({depth}):
                value = [value]
            probe = super().probe()
            probe["solution"][0][0]["arguments"]["n"] = value
            return probe
    """
    report = await gated(made(changed(WORLD, added(deep))), InProcessSandbox() if in_process else auto)
    assert report.refusal is not None
    assert report.refusal.code == code
    assert code != "too_large" or "nested too deeply; make it flatter" in report.refusal.detail


@on_loop
async def test_the_first_failing_seed_is_reported_however_long_it_takes(auto: PooledSandbox) -> None:
    """So that a program is refused with the same code every time."""
    source = changed(
        WORLD, ("Set it to {target}.", "Set it{' to ' + str(target) if self.first else ''}."), (BODY, "time.sleep(0.3)\n"),
        ("return [Instr", "self.first = rng.seed_is_first\n        return [Instr"), first("import time"),
        added(f"""
        def reset(self, *, seed):
            import random
            class Rng(random.Random):
                seed_is_first = seed == {GATE_SEED}
            real, random.Random = random.Random, Rng
            try:
                return super().reset(seed=seed)
            finally:
                random.Random = real
        """),
    )  # fmt: skip
    report = await gated(made(source), auto)
    assert report.refusal is not None
    assert report.refusal.code == "unsolvable"
    assert str(GATE_SEED) in report.refusal.detail
