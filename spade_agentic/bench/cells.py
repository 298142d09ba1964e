"""The cells of a table: one config with one seed each, in a run directory of its own.

A cell is an ordinary run. Everything that is known about it is read from its directory, so that a job which was killed
anywhere goes on where its runs are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spade_agentic.config.files import find_config, shipped_configs
from spade_agentic.config.load import load_config
from spade_agentic.config.schema import RunConfig
from spade_agentic.config.suggest import did_you_mean
from spade_agentic.errors import ConfigError, RunDirError
from spade_agentic.hooks.resolution import Cost, run_cost
from spade_agentic.runs.compare import config_differences
from spade_agentic.runs.layout import RunDir
from spade_agentic.runs.lock import Holder, holder
from spade_agentic.runs.reader import StoreReader
from spade_agentic.runs.store import has_run
from spade_agentic.runs.summary import RunSummary, show_run

__all__ = ["REFERENCE", "Cell", "CellState", "ShippedAblation", "plan_cells", "shipped_ablations", "stored_cells"]

FOLDER = "ablations/"
"""Where the shipped ablations lie among the shipped configs."""

REFERENCE = "self_play"
"""What the others are compared with, where it is in the table."""

_CELL = re.compile(r"(?P<name>.+)-seed(?P<seed>[0-9]+)")
_MAY_DIFFER = ("run.dir",)

CellState = Literal["new", "unfinished", "running", "finished"]


@dataclass(frozen=True, slots=True)
class ShippedAblation:
    """A config below ``ablations/``: its short name, its first comment, and what a run of it costs."""

    name: str
    config: str
    doc: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the table. ``source`` is what ``train`` is told; ``config`` is what that resolves to, overrides and all."""

    name: str
    seed: int
    folder: Path
    source: str
    config: RunConfig

    @property
    def label(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def log(self) -> Path:
        """What the run printed; beside its folder, which is the run's own."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def state(self) -> CellState:
        """Where the run stands. Raises :class:`RunDirError` for one with other settings, and for one that cannot be read."""
        if holder(RunDir(self.folder).lock) is not None:
            return "running"
        if not has_run(RunDir(self.folder).store):
            return "new"
        self._check_settings()
        run = show_run(self.folder)
        return "finished" if run.status == "finished" and run.steps >= self.config.run.steps else "unfinished"

    def holder(self) -> Holder | None:
        """The process that runs this cell now."""
        return holder(RunDir(self.folder).lock)

    def summary(self) -> RunSummary | None:
        """What there is of the run; ``None`` before it has begun."""
        return show_run(self.folder) if has_run(RunDir(self.folder).store) else None

    def _check_settings(self) -> None:
        with StoreReader(self.folder) as reader:
            stored = RunConfig.model_validate(reader.meta()["config"]).to_data()
        differing = config_differences({"here": stored, "wanted": self.config.to_data()})
        keys = [d.key for d in differing if d.key not in _MAY_DIFFER]
        if keys:
            first = next(d for d in differing if d.key == keys[0])
            raise RunDirError(
                f"this cell was run with other settings: {', '.join(keys)} ({first.key} was {first.values['here']!r},"
                f" not {first.values['wanted']!r})",
                where=str(self.folder), todo="give this table a folder of its own with --dir, or remove that cell",
            )


def shipped_ablations() -> list[ShippedAblation]:
    """The ablations that come with the package; the one that the others are compared with first."""
    return [
        ShippedAblation(name, config, _first_comment(find_config(config).text), run_cost(load_config(config)))
        for name, config in _shipped().items()
    ]


def _shipped() -> dict[str, str]:
    """The shipped ablations: their configs by their short names, the reference first."""
    configs = [config for config in shipped_configs() if config.startswith(FOLDER)]
    named = {config.removeprefix(FOLDER).rpartition(".")[0]: config for config in configs}
    return dict(sorted(named.items(), key=lambda item: (item[0] != REFERENCE, item[0])))


def _first_comment(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ").strip()


def plan_cells(
    names: Sequence[str], seeds: Sequence[int], root: Path, *, sets: Sequence[str] = (), plugins: Sequence[str] = ()
) -> list[Cell]:
    """The cells of a table below ``root``, seed by seed, so that whole comparisons are finished first.

    A name is that of a shipped ablation, or of a config as ``train`` takes it. Raises :class:`ConfigError`.
    """
    seeds = list(dict.fromkeys(seeds))
    sources = {_short(source): source for source in map(_source, names)}
    if len(sources) < len(set(names)):
        raise ConfigError(
            "two of these configs are called the same", where=", ".join(names),
            todo="rename one: their runs would share folders",
        )
    for override in sets:
        if override.partition("=")[0].strip() in ("run.seed", "run.dir"):
            raise ConfigError("the table chooses this itself", where=f"--set {override}", todo="use --seeds and --dir")
    return [
        Cell(
            name, seed, root / f"{name}-seed{seed}", source,
            load_config(source, [*sets, f"run.seed={seed}"], [Path(p) if Path(p).exists() else p for p in plugins]),
        )
        for seed in seeds
        for name, source in sources.items()
    ]  # fmt: skip


def _source(name: str) -> str:
    if name in (shipped := _shipped()):
        return shipped[name]
    if "/" not in name and "." not in name:
        raise ConfigError(
            f"there is no ablation called {name!r}", where=name,
            todo=did_you_mean(name, shipped, noun="ablation") + "; a config of your own is named with its ending",
        )
    find_config(name)
    return name


def _short(source: str) -> str:
    return re.sub(r"\.ya?ml$", "", source.rpartition("/")[2])


def stored_cells(root: Path, names: Sequence[str] = (), seeds: Sequence[int] | None = None) -> list[Cell]:
    """The cells that were begun below ``root``, of these names and seeds where given, as they are on record."""
    found = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        match = _CELL.fullmatch(folder.name)
        if match is None or not has_run(RunDir(folder).store):
            continue
        name, seed = match["name"], int(match["seed"])
        if (not names or name in names) and (seeds is None or seed in seeds):
            with StoreReader(folder) as reader:
                config = RunConfig.model_validate(reader.meta()["config"])
            found.append(Cell(name, seed, folder, str(RunDir(folder).config), config))
    if not found:
        raise RunDirError(
            "there are no runs of a table here", where=str(root), todo="name the folder that bench was given with --dir"
        )
    order = list(_shipped())
    return sorted(found, key=lambda c: (c.seed, order.index(c.name) if c.name in order else len(order), c.name))

