"""Files that survive a crash: written whole or not at all, on the disk before anyone counts on them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from spade_agentic.errors import RunDirError

__all__ = ["fsync_folder", "fsync_tree", "replace_file", "run_dir_error"]

_LOW_SPACE_BYTES = 1 << 20


def replace_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write ``data`` to ``path`` so that a reader sees the old content or the new one, never a part.

    ``durable`` also waits for the disk; without it a power cut may bring the old content back.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Wait until the names in ``folder`` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Wait until every file and every folder below ``folder``, and ``folder`` itself, is on the disk."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            descriptor = os.open(Path(parent) / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        fsync_folder(Path(parent))


def run_dir_error(doing: str, path: Path, error: BaseException) -> RunDirError | None:
    """The user's view of a failed write: a full or a broken disk, or a folder that may not be written. ``None`` otherwise.

    Libraries report a full disk in their own ways (torch as ``RuntimeError``), so a disk without room left counts as
    the cause whatever the exception is.
    """
    number = error.errno if isinstance(error, OSError) else None
    existing = next(p for p in (path, *path.parents) if p.exists())
    if number in (errno.ENOSPC, errno.EDQUOT) or shutil.disk_usage(existing).free < _LOW_SPACE_BYTES:
        return RunDirError(
            f"no space left while {doing}", where=str(path),
            todo="free some space, then continue with --resume: everything up to the last committed step is kept",
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return RunDirError(
            f"not allowed to write while {doing}: {os.strerror(number)}", where=str(path),
            todo="make the folder writable, or choose another one with --run-dir",
        )
    if number == errno.EIO:
        return RunDirError(
            f"the disk failed while {doing}: {os.strerror(number)}", where=str(path),
            todo="look at the disk (dmesg), copy the run's folder to a sound one, and continue there with --resume",
        )
    if number in (errno.ENOTDIR, errno.EEXIST):
        return RunDirError(
            f"a file is in the way while {doing}", where=str(path), todo="choose another folder with --run-dir"
        )
    return None
