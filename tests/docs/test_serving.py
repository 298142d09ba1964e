"""What the documentation shows about serving a trained agent works."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from spade_agentic.config import resolve_model
from spade_agentic.inference.embedded.__main__ import _arguments

SERVER = "python -m spade_agentic.inference.embedded "


def test_the_serving_command_has_the_options_shown(page) -> None:
    for _, body in page.blocks():
        for line in body.splitlines():
            if line.startswith(SERVER):
                _arguments(shlex.split(line.removeprefix(SERVER)))


@pytest.mark.slow
def test_the_client_of_the_scale_page_plays_a_world_with_the_served_agent(page_named) -> None:
    [client] = [body for language, body in page_named("docs/scale.md").blocks() if language == "python"]
    model = resolve_model("spade-tiny")
    command = [sys.executable, "-m", "spade_agentic.inference.embedded", "--model", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            assert ":8000/" in client
            script = client.replace(":8000/", f":{port}/")
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
        finally:
            server.terminate()
    assert done.returncode == 0, done.stderr
    assert "{'type': 'call'" in done.stdout, "the agent called no tool"
    assert done.stdout.splitlines()[-1] in {"reward 0.0", "reward 1.0"}
