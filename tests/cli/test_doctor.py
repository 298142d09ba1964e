"""``doctor``: what it finds is what is there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spade_agentic.cli import doctor
from spade_agentic.config import load

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def findings() -> dict[str, doctor.Finding]:
    return {finding.name: finding for finding in doctor.examine()}


def test_every_finding_that_is_not_ok_says_what_to_do(findings: dict[str, doctor.Finding]) -> None:
    assert [f.name for f in findings.values() if f.status == "missing" and not f.todo] == []
    assert all(f.detail and f.needed_for for f in findings.values())


def test_python_and_torch_are_found(findings: dict[str, doctor.Finding]) -> None:
    assert findings["python"].status == "ok"
    assert findings["torch"].status == "ok"


def test_bubblewrap_is_ok_only_where_it_starts(findings: dict[str, doctor.Finding]) -> None:
    if shutil.which("bwrap") is None:
        assert findings["bubblewrap"].status == "missing"
        return
    done = subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, check=False)
    assert (findings["bubblewrap"].status == "ok") == (done.returncode == 0)


def test_a_program_that_is_not_installed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = {f.name: f for f in (doctor._bubblewrap(), doctor._docker())}
    assert {f.status for f in found.values()} == {"missing"}
    assert "apt-get install bubblewrap" in found["bubblewrap"].todo


def test_a_program_that_fails_is_limited_and_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor, "_run", lambda command: (1, "no permission"))
    for probe in (doctor._bubblewrap, doctor._docker):
        assert probe().status == "limited"
        assert "no permission" in probe().detail


def test_a_probe_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TIMEOUT_S", 0.05)
    code, text = doctor._run(["sleep", "5"])
    assert code == 124
    assert "timed out" in text


def test_a_model_that_loads_is_ok(monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path) -> None:
    monkeypatch.setattr(load, "resolve_model", lambda name: tiny_model_dir)
    finding = doctor._model()
    assert (finding.status, finding.required) == ("ok", True)
    assert "2 layers" in finding.detail


def test_a_damaged_model_is_missing_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_model_dir, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"short")
    monkeypatch.setattr(load, "resolve_model", lambda name: tmp_path / "model")
    finding = doctor._model()
    assert finding.status == "missing"
    assert "does not load" in finding.detail


def test_the_exit_code_says_whether_the_default_run_works(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    good = doctor.Finding("a", "ok", "here", "everything", required=True)
    optional = doctor.Finding("b", "missing", "not here", "luxury", "install it")
    needed = doctor.Finding("c", "missing", "not here", "everything", "install this", required=True)
    monkeypatch.setattr(doctor, "examine", lambda: [good, optional])
    result = cli("doctor")
    assert result.code == 0
    assert "b: install it" in result.out
    assert "the default run works here" in result.out
    monkeypatch.setattr(doctor, "examine", lambda: [good, optional, needed])
    result = cli("doctor", "--json")
    assert result.code == 1
    assert result.json()["default_run_works"] is False
    assert [f["status"] for f in result.json()["findings"]] == ["ok", "missing", "missing"]
