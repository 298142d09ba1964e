"""``env list|show|play|check``: look at tool simulators and programs, play them by hand, run the gates."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Command, Group, Json, Plugins, emit_json, print_table, say

if TYPE_CHECKING:
    from spade_agentic.hooks.kinds import SandboxPlay, StepObservation
    from spade_agentic.hooks.records import GateReport, Program

__all__ = ["app"]

app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None, help="Look at environments and play them.")

Target = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A tool simulator's name, or a program's source file.")]
SandboxName = Annotated[str, typer.Option("--sandbox", metavar="NAME", help="Sandbox that runs the program.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the instance.")]
SkillName = Annotated[str | None, typer.Option("--skill", metavar="NAME", help="Skill that the program claims to train.")]


# --- list and show -----------------------------------------------------------------------------------------------------


@app.command("list", cls=Command)
def list_(plugin: Plugins = None, as_json: Json = False) -> None:
    """List the tool simulators with their goals and tools."""
    from .programs import build_sim, load_manager

    manager = load_manager(plugin)
    found = [
        {"name": name, "doc": factory.doc, "module": (sim := build_sim(manager, name)).module, **_names(sim.describe())}
        for name, factory in manager.factories("tool_sim").items()
    ]
    if as_json:
        emit_json(found)
        return
    for sim in found:
        say(f"{sim['name']}: {sim['doc']}")
        say(f"  goals ({len(sim['goals'])}): {', '.join(sim['goals'])}")
        say(f"  tools ({len(sim['tools'])}): {', '.join(sim['tools'])}")


def _names(description: dict[str, Any]) -> dict[str, list[str]]:
    """Names of the goals and tools in what a simulator says of itself."""
    return {
        "goals": list(description.get("goals", {})),
        "tools": [tool["function"]["name"] for tool in description.get("tools", [])],
    }


@app.command(cls=Command)
def show(
    name: Target,
    seed: Seed = 1,
    sandbox: SandboxName = "auto",
    source: Annotated[bool, typer.Option("--source", help="Print the program's source and nothing else.")] = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show a tool simulator (goals, phrasings, tools), or a program as an agent meets it."""
    from .programs import build_sim, load_manager, named_program

    manager = load_manager(plugin)
    if source:
        text = named_program(manager, name, seed=seed).source
        emit_json({"name": name, "source": text}) if as_json else say(text.rstrip())
    elif Path(name).is_file() or name not in manager.factories("tool_sim"):
        program = named_program(manager, name)
        shown = asyncio.run(_look_at(manager, program, sandbox, seed))
        emit_json({"name": name, **shown}) if as_json else _print_program(shown)
    else:
        description = build_sim(manager, name).describe()
        emit_json(description) if as_json else _print_sim(name, description)


async def _look_at(manager: Any, program: Program, sandbox: str, seed: int) -> dict[str, Any]:
    from .programs import opened_sandbox

    async with opened_sandbox(manager, sandbox) as box:
        loaded = await box.load(program)
        play = await loaded.play()
        first = await play.reset(seed)
        hidden = dict(await play.probe())
        await play.close()
        shown = {**loaded.manifest, "seed": seed, "first_observation": first.text, **hidden}
        await loaded.close()
    return shown


def _print_program(shown: dict[str, Any]) -> None:
    say(f"system: {shown.get('system', '')}")
    say(f"turns: {shown.get('max_turns')}")
    _print_tools(shown.get("tools") or [])
    say(f"seed {shown['seed']}: {shown['first_observation']}")
    for index, part in enumerate(shown.get("solution") or []):
        say(f"  solution {index + 1}: " + "; ".join(action_line(item) for item in part))


def _print_sim(name: str, description: dict[str, Any]) -> None:
    say(name)
    _print_tools(description.get("tools", []))
    for goal, about in description.get("goals", {}).items():
        say(f"\n{goal}: {', '.join(about.get('skills', []))}")
        for phrasing in about.get("phrasings", []):
            say(f"  {phrasing}")
        if about.get("hint"):
            say(f"  hint: {about['hint']}")
    if description.get("modifiers"):
        say(f"\nmodifiers: {', '.join(description['modifiers'])}")


def _print_tools(tools: list[dict[str, Any]]) -> None:
    if not tools:
        return
    print_table(("tool", "arguments", "what it does"), [_tool_row(tool["function"]) for tool in tools])


def _tool_row(function: dict[str, Any]) -> tuple[str, str, str]:
    arguments = function["parameters"].get("properties", {})
    required = function["parameters"].get("required", [])
    shown = ", ".join(f"{key}{'' if key in required else '?'}: {_type_name(schema)}" for key, schema in arguments.items())
    return function["name"], shown, function.get("description", "")


def _type_name(schema: dict[str, Any]) -> str:
    """What may stand for an argument: its choices, else its type."""
    if "enum" in schema:
        return " | ".join(str(choice) for choice in schema["enum"])
    return " | ".join(map(_type_name, schema["anyOf"])) if "anyOf" in schema else str(schema.get("type", "any"))


# --- play --------------------------------------------------------------------------------------------------------------


@app.command(cls=Command)
def play(
    name: Target,
    seed: Seed = 1,
    solution: Annotated[bool, typer.Option("--solution", help="Replay the reference solution instead of asking.")] = False,
    sandbox: SandboxName = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Play one instance by hand: `tool key=value ...` calls a tool, `say TEXT` answers and ends the play."""
    from spade_agentic.errors import UserError

    from .programs import load_manager, named_program

    if as_json and not solution:
        raise UserError("--json is for a replay", where="spade-agentic env play", todo="add --solution, or leave --json out")
    manager = load_manager(plugin)
    program = named_program(manager, name, seed=seed)
    if as_json:
        emit_json(asyncio.run(_play(manager, program, sandbox, seed, solution, quiet=True)))
    else:
        asyncio.run(_play(manager, program, sandbox, seed, solution, quiet=False))


async def _play(manager: Any, program: Program, sandbox: str, seed: int, solution: bool, *, quiet: bool) -> dict[str, Any]:
    """Play to the end, or to the end of the input. Returns the transcript."""
    from .programs import opened_sandbox

    tell = (lambda text="": None) if quiet else say
    async with opened_sandbox(manager, sandbox) as box:
        loaded = await box.load(program)
        instance = await loaded.play()
        observation = await instance.reset(seed)
        tools = list(loaded.manifest.get("tools") or [])
        if not quiet:
            say(str(loaded.manifest.get("system", "")))
            _print_tools(tools)
            if not solution:
                say(_how_to_play(tools, loaded.manifest.get("max_turns")))
        tell(observation.text)
        turns: list[dict[str, Any]] = []
        moves = await _reference(instance) if solution else None
        while not (observation.terminated or observation.truncated):
            action = (moves.pop(0) if moves else None) if moves is not None else _ask(tools)
            if action is None:
                break
            observation = await instance.step(action)
            turns.append({"action": action, "observation": observation.text})
            if moves is not None:
                tell(f"> {action_line(action)}")
            tell(observation.text)
        await instance.close()
        await loaded.close()
    tell(_verdict(observation))
    return {"seed": seed, "turns": turns, "reward": observation.reward, "ended": observation.terminated}


def _how_to_play(tools: list[dict[str, Any]], max_turns: object) -> str:
    call = "a line calls a tool (TOOL key=value ...) or answers (say TEXT, which ends the play)" if tools else "a line is said"
    return f"{call}; at most {max_turns} lines\n"


async def _reference(instance: SandboxPlay) -> list[dict[str, Any]]:
    """The reference solution as actions, with the answer that ends the play."""
    found: list[dict[str, Any]] = []
    for part in (await instance.probe()).get("solution", []):
        # A program without tools is solved by texts.
        found += [{"type": "text", "text": item} if isinstance(item, str) else {"type": "call", **item} for item in part]
    if not found or found[-1]["type"] == "call":
        found.append({"type": "text", "text": "done"})
    return found


def _verdict(observation: StepObservation) -> str:
    if observation.terminated:
        return f"the play is over: reward {observation.reward:g}"
    return "the turns are used up: reward 0" if observation.truncated else "left before the end"


def _ask(tools: list[dict[str, Any]]) -> dict[str, Any] | None:
    """One action from the terminal; ``None`` at the end of the input. What cannot be read is asked for again."""
    from spade_agentic.errors import UserError

    while True:
        if sys.stdin.isatty():
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return None
        if not line.strip():
            continue
        try:
            return read_action(line.strip(), tools)
        except UserError as error:
            say(str(error))


def read_action(line: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """What a line of ``env play`` means. Raises :class:`UserError`.

    ``say TEXT`` answers; ``tool key=value`` calls, with values of the type that the tool's schema wants.
    """
    from spade_agentic.config.suggest import did_you_mean
    from spade_agentic.errors import UserError

    word, _, rest = line.partition(" ")
    if word == "say" or not tools:
        return {"type": "text", "text": rest if word == "say" else line}
    known = {tool["function"]["name"]: tool["function"]["parameters"].get("properties", {}) for tool in tools}
    if word not in known:
        todo = did_you_mean(word, known, noun="tool") + "; `say done` ends the play"
        raise UserError(f"there is no tool {word!r}", todo=todo)
    try:
        pairs = shlex.split(rest)
    except ValueError as error:
        raise UserError(f"this cannot be read: {error}", where=line, todo="close the quotation mark") from error
    arguments = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            todo = f"{word} takes: {', '.join(known[word]) or 'nothing'}; a value with spaces in it stands in quotation marks"
            raise UserError(f"{pair!r} is not key=value", where=line, todo=todo)
        if key not in known[word]:
            raise UserError(f"{word} has no argument {key!r}", where=line, todo=did_you_mean(key, known[word], noun="argument"))
        arguments[key] = _typed(value, known[word].get(key, {}))
    return {"type": "call", "name": word, "arguments": arguments}


def _typed(value: str, schema: dict[str, Any]) -> Any:
    """``value`` as JSON, unless the schema wants a string."""
    import json

    if schema.get("type") == "string" or "enum" in schema:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value  # the tool's own validation says what is wrong with it


def action_line(action: dict[str, Any] | str) -> str:
    """An action as :func:`read_action` reads it."""
    import json

    if isinstance(action, str):
        return action
    if "name" not in action:
        return f"say {action.get('text', '')}"
    values = {key: v if isinstance(v, str) else json.dumps(v) for key, v in action.get("arguments", {}).items()}
    return " ".join([action["name"], *(f"{key}={shlex.quote(value)}" for key, value in values.items())])


# --- check -------------------------------------------------------------------------------------------------------------


@app.command(cls=Command)
def check(
    names: Annotated[list[str], typer.Argument(metavar="NAME|FILE...", help="Source files, or simulators for their example.")],
    sandbox: SandboxName = "auto",
    skill: SkillName = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Run the gates on programs: would they be admitted, and if not, why? Exit code 2 where one is refused."""
    from .programs import load_manager, named_program

    manager = load_manager(plugin)
    programs = [named_program(manager, name, skill=skill) for name in names]
    reports = asyncio.run(_check(manager, programs, sandbox))
    if as_json:
        emit_json([_report_data(name, report) for name, report in zip(names, reports, strict=True)])
    else:
        for name, report in zip(names, reports, strict=True):
            _print_report(name, report)
    if any(report.refusal for report in reports):
        raise typer.Exit(2)


async def _check(manager: Any, programs: list[Program], sandbox: str) -> list[GateReport]:
    from spade_agentic.envs.gates import GateOptions, run_gates

    from .programs import opened_sandbox

    async with opened_sandbox(manager, sandbox) as box:
        return [
            await run_gates(program, box, options=GateOptions(), known=lambda _: False, reserved=lambda _: None)
            for program in programs
        ]


def _report_data(name: str, report: GateReport) -> dict[str, Any]:
    return {
        "name": name, "admitted": report.refusal is None, "refusal": report.refusal, "passed": list(report.passed),
        "max_turns": report.max_turns, "solution_calls": report.solution_calls, "tools": list(report.tools),
        "seconds": round(report.seconds, 3),
    }


def _print_report(name: str, report: GateReport) -> None:
    if report.refusal is None:
        say(f"{name}: admitted ({len(report.passed)} gates, {report.seconds:.2f} s)")
        say(f"  tools: {', '.join(report.tools)}; solution of {report.solution_calls} calls in {report.max_turns} turns")
        return
    refusal = report.refusal
    say(f"{name}: refused by the gate {refusal.gate!r}, reason {refusal.code}")
    say(f"  detail: {refusal.detail}")
    say(f"  passed before: {', '.join(report.passed) or 'nothing'}")
