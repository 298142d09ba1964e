"""Checkpoints: folders that are on the disk whole, or do not count.

A checkpoint is filled in a temporary folder, given a manifest (size and SHA-256 of every file), synced file by file and folder
by folder, renamed, and the rename synced. It counts once a row of the store names it; until then the next
:meth:`~spade_agentic.runs.store.RunStore.open` removes it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from spade_agentic.errors import RunDirError

from .files import fsync_folder, fsync_tree, run_dir_error
from .layout import RunDir

__all__ = ["Checkpoints", "Recovery"]

MANIFEST = "checkpoint.json"
HASH_LIMIT_BYTES = 1 << 30
"""Larger files are checked by size alone: hashing them would cost as much as the load that follows."""

_NAME = re.compile(r"step-\d{6,}")
_TEMPORARY = ".writing-"

FaultPoint = Callable[[str], None]
"""Called with the name of each point that a test may want to break at."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What an interrupted run left and :meth:`Checkpoints.recover` removed: folders half written, and whole but unnamed."""

    half_written: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.half_written or self.unnamed)


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints of one run; those of another (``run_id``) are refused.

    ``fault`` is called at ``begun``, ``filled``, ``synced``, ``renamed`` and ``durable``.
    """

    run_dir: Path
    run_id: str | None = None
    fault: FaultPoint = field(default=lambda point: None)

    @property
    def folder(self) -> Path:
        return RunDir(Path(self.run_dir)).checkpoints

    def path(self, name: str) -> Path:
        """The folder of the checkpoint ``name``."""
        return self.folder / name

    def names(self) -> list[str]:
        """The whole checkpoints on disk, oldest first, named by the store or not."""
        if not self.folder.is_dir():
            return []
        found = [p.name for p in self.folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()]
        return sorted(found, key=lambda name: int(name.split("-")[1]))

    def write(self, step: int, fill: Callable[[Path], None]) -> Path:
        """Let ``fill`` write the files of ``step`` into an empty folder, and make that folder ``step-<step>``, durably.

        A checkpoint of that name that no commit names is replaced. Raises :class:`RunDirError` for a full disk or a folder
        that may not be written, and whatever ``fill`` raises; nothing is left behind then.
        """
        final = self.path(f"step-{step:06d}")
        temporary = self.folder / f"{_TEMPORARY}{final.name}"
        assert final.name not in self.named(), f"{final.name} is committed; a step is checkpointed once"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            self.fault("begun")
            fill(temporary)
            self.fault("filled")
            _write_manifest(temporary, step, self.run_id)
            fsync_tree(temporary)
            self.fault("synced")
            if final.exists():
                shutil.rmtree(final)
            temporary.rename(final)
            self.fault("renamed")
            fsync_folder(self.folder)
            self.fault("durable")
        except Exception as error:
            mended = run_dir_error(f"writing checkpoint {final.name}", self.folder, error)
            shutil.rmtree(temporary, ignore_errors=True)
            if mended is not None:
                raise mended from error
            raise
        return final

    def verify(self, name: str) -> None:
        """Raise :class:`RunDirError` naming the first file of ``name`` that is missing, cut short or changed.

        A checkpoint of another run is refused, also where it is whole: nothing else would fit it.
        """
        folder = self.path(name)
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            files, run_id = manifest["files"], manifest.get("run_id", self.run_id)
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise _damaged(folder, f"its {MANIFEST} cannot be read ({error})") from error
        if self.run_id not in (None, run_id):
            raise RunDirError(
                f"the checkpoint {name} is of another run: {run_id}, not {self.run_id}", where=str(folder),
                todo="put this run's own folder back, or start a new run",
            )
        for relative, expected in files.items():
            path = folder / relative
            if not path.is_file():
                raise _damaged(folder, f"{relative} is missing")
            if path.stat().st_size != expected["bytes"]:
                raise _damaged(folder, f"{relative} has {path.stat().st_size} bytes, not {expected['bytes']}")
            if expected["sha256"] is not None and _sha256(path) != expected["sha256"]:
                raise _damaged(folder, f"{relative} is not what was written")

    def prune(self, keep: int) -> list[str]:
        """Remove all but the newest ``keep`` committed checkpoints; the one that the last commit names always stays.

        A checkpoint that no commit names yet is not touched. Returns the names removed.
        """
        committed = [name for name in self.named() if self.path(name).is_dir()]
        removed = committed[: -max(keep, 1)]
        for name in removed:
            # Renamed first: a kill in the middle of the removal must not leave half a folder under a whole one's name.
            doomed = self.folder / f"{_TEMPORARY}{name}"
            shutil.rmtree(doomed, ignore_errors=True)
            self.path(name).rename(doomed)
            shutil.rmtree(doomed)
        return removed

    def named(self) -> list[str]:
        """The checkpoints that commits of the store name, oldest first, whether or not they are still on disk."""
        store = RunDir(Path(self.run_dir)).store
        if not store.exists():
            return []
        with closing(sqlite3.connect(f"file:{store.resolve()}?mode=ro", uri=True, timeout=30)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'step'").fetchone() is None:
                return []
            return [name for (name,) in connection.execute("SELECT checkpoint FROM step ORDER BY step")]

    def recover(self) -> Recovery:
        """Remove what an interrupted run left: half-written folders, and whole ones that no commit names."""
        if not self.folder.is_dir():
            return Recovery()
        half = sorted(p.name for p in self.folder.iterdir() if p.name.startswith(_TEMPORARY))
        unnamed = sorted(set(self.names()) - set(self.named()))
        for name in (*half, *unnamed):
            shutil.rmtree(self.folder / name)
        return Recovery(tuple(n.removeprefix(_TEMPORARY) for n in half), tuple(unnamed))


def _write_manifest(folder: Path, step: int, run_id: str | None) -> None:
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        size = path.stat().st_size
        files[path.relative_to(folder).as_posix()] = {
            "bytes": size, "sha256": _sha256(path) if size <= HASH_LIMIT_BYTES else None,
        }
    manifest = {"step": step, **({} if run_id is None else {"run_id": run_id}), "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(folder: Path, how: str) -> RunDirError:
    return RunDirError(
        f"the checkpoint {folder.name} is damaged: {how}", where=str(folder),
        todo="restore the folder from a copy, or start a new run; the store and its transcripts are still readable",
    )
