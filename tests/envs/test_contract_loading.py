"""Programs: from source to an environment, and what is wrong with a source that gives none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spade_agentic import EnvironmentFault, TextEnv, ToolEnv, load_environment
from spade_agentic.testing import sample_program, sample_text_program

HEAD = """
from spade_agentic import Instruction, TextEnv, ToolCall, ToolEnv, tool

class Base(ToolEnv):
    def setup(self, rng):
        self.value = 0
        return [Instruction("Set it to 3.", lambda: self.value == 3, [ToolCall("set_to", {"n": 3})])]

    @tool
    def set_to(self, n: int) -> str:
        '''Set it.'''
        self.value = n
        return "ok"
"""


def test_a_program_of_tools_and_one_of_text_load() -> None:
    assert isinstance(load_environment(sample_program().source), ToolEnv)
    assert isinstance(load_environment(sample_text_program().source), TextEnv)


def test_a_loaded_environment_plays() -> None:
    env = load_environment(HEAD)
    assert isinstance(env, ToolEnv)
    assert env.reset(seed=1)[0] == "Set it to 3."
    env.step({"type": "call", "name": "set_to", "arguments": {"n": 3}})
    assert env.step({"type": "text", "text": "done"})[1] == 1.0


def test_the_last_class_is_the_environment() -> None:
    env = load_environment(HEAD + "\nclass Other(Base):\n    system = 'other'\n")
    assert type(env).__name__ == "Other"


def test_a_class_may_be_named_instead() -> None:
    env = load_environment(HEAD + "\nclass Other(Base):\n    pass\n\nENVIRONMENT = Base\n")
    assert type(env).__name__ == "Base"


def test_abstract_and_imported_classes_do_not_count() -> None:
    source = HEAD + "\nclass Unfinished(TextEnv):\n    pass\n\nfrom spade_agentic_sims.banking import Banking\n"
    assert type(load_environment(source)).__name__ == "Base"


def test_a_dataclass_and_a_model_in_a_program_find_their_module() -> None:
    source = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom pydantic import BaseModel\n"
        "@dataclass\nclass Record:\n    n: int\n\nclass Row(BaseModel):\n    record: Record | None = None\n"
        + HEAD
        + "\n    @tool\n    def add(self, row: Row) -> str:\n        '''Add.'''\n        return str(row.record.n)\n"
    )
    env = load_environment(source)
    assert isinstance(env, ToolEnv)
    env.reset(seed=1)
    assert env.step({"type": "call", "name": "add", "arguments": {"row": {"record": {"n": 4}}}})[0] == "4"


def test_equal_sources_have_separate_classes_and_equal_behaviour() -> None:
    first, second = load_environment(HEAD), load_environment(HEAD)
    assert first.reset(seed=5) == second.reset(seed=5)
    assert type(first) is not type(second)


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("def broken(:\n", "syntax", "invalid syntax"),
        ("x = '\0'", "syntax", "null"),
        ("(" * 500, "syntax", ""),
        ("import no_such_module_anywhere", "import_failed", "ModuleNotFoundError"),
        ("raise ValueError('no')", "import_failed", "ValueError: no"),
        ("1 / 0", "import_failed", "ZeroDivisionError"),
        ("", "no_environment", "no concrete"),
        ("x = 1", "no_environment", "no concrete"),
        ("from spade_agentic_sims.banking import Banking", "no_environment", "no concrete"),
        (HEAD + "ENVIRONMENT = 5", "no_environment", "no concrete"),
        (HEAD + "class Half(TextEnv):\n    pass\nENVIRONMENT = Half", "no_environment", "no concrete"),
        (HEAD.replace("n: int", "n"), "import_failed", "parameter n must be named and annotated"),
        (HEAD.replace("n: int", "n: Unknown"), "import_failed", "Unknown"),
        (HEAD + "\n    def __init__(self):\n        raise OSError('disk')\n", "import_failed", "OSError: disk"),
        (HEAD + "\n    def __init__(self, needed):\n        pass\n", "import_failed", "needed"),
    ],
)
def test_every_fault_of_a_source_has_its_code(source: str, code: str, words: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        load_environment(source)
    assert caught.value.code == code
    assert words in caught.value.detail


def test_a_source_of_broken_characters_is_a_syntax_fault() -> None:
    with pytest.raises(EnvironmentFault) as caught:
        load_environment("x = '\ud800'")
    assert caught.value.code == "syntax"


def test_the_contract_is_light() -> None:
    """It is loaded in every worker: the standard library and pydantic, nothing else."""
    heavy = ("torch", "transformers", "openai", "aiohttp", "numpy", "pluggy", "yaml", "rich", "typer", "structlog")
    code = f"import sys, spade_agentic.envs.contract; print([name for name in {heavy!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
