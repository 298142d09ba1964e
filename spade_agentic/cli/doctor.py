"""``doctor``: what works on this machine, and what to install for the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from .output import Json, emit_json, print_table, say

__all__ = ["Finding", "doctor", "examine"]

TIMEOUT_S = 20.0
"""Longest time that one probe of another program may take."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``required``: the default run does not work without it."""

    name: str
    status: Literal["ok", "limited", "missing"]
    detail: str
    needed_for: str
    todo: str = ""
    required: bool = False


def doctor(as_json: Json = False) -> None:
    """Say what works on this machine and what to install for the rest. Exit code 1 where the default run cannot work."""
    findings = examine()
    broken = [f for f in findings if f.required and f.status == "missing"]
    if as_json:
        emit_json({"default_run_works": not broken, "findings": findings})
    else:
        print_table(("what", "state", "found", "needed for"), [(f.name, f.status, f.detail, f.needed_for) for f in findings])
        for finding in findings:
            if finding.todo:
                say(f"{finding.name}: {finding.todo}")
        say("\nthe default run works here" if not broken else f"\nthe default run needs: {', '.join(f.name for f in broken)}")
    if broken:
        raise typer.Exit(1)


def examine() -> list[Finding]:
    """Look at everything, in the order of the table. Never raises: a probe that fails is a finding."""
    probes: list[Callable[[], Finding]] = [
        _python, _torch, _cores, _memory, _model, _bubblewrap, _user_namespaces, _cgroup, _docker, _gpu, _sglang, _megatron,
    ]
    return [probe() for probe in probes]


# --- the machine -------------------------------------------------------------------------------------------------------


def _python() -> Finding:
    version, good = platform.python_version(), sys.version_info >= (3, 11)
    todo = "" if good else "install Python 3.11 or newer and make a new virtual environment"
    return Finding("python", "ok" if good else "missing", version, "everything", todo, required=True)


def _torch() -> Finding:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        todo = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        return Finding("torch", "missing", "not installed", "training", todo, required=True)
    return Finding("torch", "ok", version, "training", required=True)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    status: Literal["ok", "limited"] = "ok" if cores >= 2 else "limited"
    todo = "" if cores >= 2 else "the default run takes about twice as long on one core"
    return Finding("cores", status, str(cores), "engine and learner side by side", todo)


def _memory() -> Finding:
    """Memory that this process may use: the machine's, or its cgroup's limit where that is smaller."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError) as error:
        return Finding("memory", "limited", f"unknown ({error})", "4 GB for the default run")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else "max"
    usable = min(total, int(text)) if text.isdigit() else total
    enough = usable >= 4 * 2**30
    todo = "" if enough else "lower selfplay.environments: the default run takes up to 4 GB"
    return Finding("memory", "ok" if enough else "limited", f"{usable / 2**30:.1f} GB", "4 GB for the default run", todo)


def _gpu() -> Finding:
    if not (shutil.which("nvidia-smi") or Path("/dev/nvidia0").exists()):
        return Finding("gpu", "missing", "none", "learner.options.device: cuda", "not needed for the default run")
    code, text = _run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    return Finding("gpu", "ok" if code == 0 else "limited", text, "learner.options.device: cuda")


# --- the model ---------------------------------------------------------------------------------------------------------


def _model() -> Finding:
    """Read the shipped model as the embedded engine does: shape, tokenizer, every weight."""
    from spade_agentic.config.load import resolve_model
    from spade_agentic.errors import UserError

    todo = "rebuild it with `spade-agentic bootstrap --output DIR` and set model.path, or reinstall spade-agentic"
    try:
        folder = resolve_model("spade-tiny")
        detail = _load_model(folder)
    except UserError as error:
        return Finding("spade-tiny", "missing", error.what, "the default run", todo, required=True)
    except Exception as error:
        # Whatever a damaged file makes a reader raise is what the user wants to know.
        detail = f"does not load: {type(error).__name__}: {error}"
        return Finding("spade-tiny", "missing", detail, "the default run", todo, required=True)
    return Finding("spade-tiny", "ok", detail, "the default run", required=True)


def _load_model(folder: Path) -> str:
    from safetensors import safe_open
    from tokenizers import Tokenizer

    from spade_agentic.inference.embedded.config import load_model_config

    shape = load_model_config(folder)
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    count = 0
    with safe_open(str(folder / "model.safetensors"), framework="numpy") as file:
        for key in file.keys():  # noqa: SIM118 - not a mapping
            count += file.get_tensor(key).size
    return f"loads: {count / 1e6:.2f} M parameters, {shape.num_layers} layers, {vocabulary} tokens"


# --- sandboxes ---------------------------------------------------------------------------------------------------------


def _bubblewrap() -> Finding:
    use = "sandbox: bubblewrap (no network, private files)"
    if shutil.which("bwrap") is None:
        todo = "apt-get install bubblewrap; or use sandbox: process"
        return Finding("bubblewrap", "missing", "bwrap is not installed", use, todo)
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    code, text = _run(command)
    if code == 0:
        return Finding("bubblewrap", "ok", _run(["bwrap", "--version"])[1], use)
    todo = "allow unprivileged user namespaces (in a container: --security-opt seccomp=unconfined); or sandbox: process"
    return Finding("bubblewrap", "limited", f"installed, but does not start: {text}", use, todo)


def _user_namespaces() -> Finding:
    use = "bubblewrap without root"
    if shutil.which("unshare") is None:
        return Finding("user namespaces", "limited", "unshare is not installed", use, "apt-get install util-linux")
    code, text = _run(["unshare", "--user", "--map-root-user", "true"])
    if code == 0:
        return Finding("user namespaces", "ok", "can be made", use)
    return Finding("user namespaces", "missing", text, use, "sysctl -w kernel.unprivileged_userns_clone=1 (as root)")


def _cgroup() -> Finding:
    """Whether limits can be set on a whole tree of processes: a cgroup v2 that we may make children in."""
    use = "memory and process limits on a whole program"
    root = Path("/sys/fs/cgroup")
    if not (root / "cgroup.controllers").is_file():
        return Finding("cgroup", "missing", "no cgroup v2 here", use, "the sandbox then limits each process on its own")
    own = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2].lstrip("/")
    folder = root / own
    if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
        return Finding("cgroup", "ok", f"{folder} is writable", use)
    todo = "run under `systemd-run --user --scope -p Delegate=yes`; without it each process is limited on its own"
    return Finding("cgroup", "limited", f"{folder} is read-only", use, todo)


def _docker() -> Finding:
    use = "containers as sandbox hosts"
    if shutil.which("docker") is None:
        return Finding("docker", "missing", "not installed", use, "install Docker and `pip install 'spade-agentic[docker]'`")
    code, text = _run(["docker", "info", "--format", "{{.ServerVersion}}"])
    if code == 0:
        return Finding("docker", "ok", f"server {text}", use)
    return Finding("docker", "limited", f"no server answers: {text}", use, "start the Docker daemon, or join the group docker")


# --- larger engines ----------------------------------------------------------------------------------------------------


def _sglang() -> Finding:
    use, todo = "serving models on GPUs", "install it in an environment of its own: its pins conflict with ours"
    if importlib.util.find_spec("sglang") is not None:
        return Finding("sglang", "ok", importlib.metadata.version("sglang"), use)
    return Finding("sglang", "missing", "not in this environment", use, todo)


def _megatron() -> Finding:
    use = "training on many GPUs"
    try:
        return Finding("megatron-core", "ok", importlib.metadata.version("megatron-core"), use)
    except importlib.metadata.PackageNotFoundError:
        return Finding("megatron-core", "missing", "not installed", use, "pip install 'spade-agentic[megatron]'")


def _run(command: list[str]) -> tuple[int, str]:
    """Exit code and the last line of what it printed; 124 and why where it could not be run to its end."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 124, str(error)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else ""
