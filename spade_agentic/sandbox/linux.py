"""What the sandbox asks of Linux and the standard library does not offer: prctl, unshare, mount, Landlock, /proc.

Standard library alone; every function raises :class:`OSError` where the kernel says no.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable, Iterator

__all__ = [
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "Landlock",
    "become_subreaper",
    "borrow_user",
    "children_of",
    "descendants",
    "die_with_parent",
    "drop_capabilities",
    "enter_user_namespace",
    "kill_under",
    "landlock_abi",
    "make_dumpable",
    "make_read_only",
    "mount_tmpfs",
    "no_new_privileges",
    "private_mounts",
    "process_name",
    "resident_bytes",
    "set_limit",
    "shared_bytes",
    "start_ticks",
    "unmount",
    "unshare",
]

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME = 1, 4, 15
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_REC, _MS_PRIVATE = 1, 2, 4, 0x20, 0x4000, 1 << 18
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_SYS_LANDLOCK = 444  # create_ruleset, then add_rule and restrict_self; the same on every architecture
_PAGE = os.sysconf("SC_PAGE_SIZE")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel send this signal to us when our parent dies; exit at once where ``parent`` is dead already.

    ``parent`` is the pid that ``os.getppid`` must show; 0 for a parent outside our pid namespace.
    """
    _prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Have every orphan among our descendants become our child."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def make_dumpable() -> None:
    """Give /proc/self back to us after a change of user."""
    _prctl(_PR_SET_DUMPABLE, 1)


def process_name(name: str) -> None:
    """What ``ps`` shows as the command's short name (15 bytes)."""
    _check(_libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0), "prctl name")


def drop_capabilities() -> None:
    """Give up every capability for good (with :func:`no_new_privileges`)."""
    number = _SYS_CAPSET[os.uname().machine]
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.syscall(number, ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))), "capset")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def enter_user_namespace(flags: int = 0) -> None:
    """A user namespace in which we stay who we are but hold every capability; ``flags`` adds namespaces that it owns."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER | flags)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def private_mounts() -> None:
    """A mount namespace of our own, from which nothing propagates."""
    unshare(CLONE_NEWNS)
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount private")


def mount_tmpfs(path: str, *, size: int, uid: int, gid: int) -> None:
    """An empty file system of at most ``size`` bytes over ``path``."""
    data = f"size={size},nr_inodes=4096,mode=0700,uid={uid},gid={gid}".encode()
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    _check(_libc.mount(b"tmpfs", path.encode(), b"tmpfs", flags, data), "mount tmpfs")


def make_read_only(path: str) -> None:
    """The file system at ``path``, from now on; EBUSY where a file of it is open for writing."""
    flags = ctypes.c_ulong(_MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    _check(_libc.mount(None, path.encode(), None, flags, None), "remount read-only")


def unmount(path: str) -> None:
    _check(_libc.umount2(path.encode(), 2), "umount")  # MNT_DETACH


def set_limit(which: int, value: int) -> None:
    """Both limits, never above the hard one that we have."""
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


# --- Landlock ------------------------------------------------------------------------------------------------------------

_READ = 1 << 2 | 1 << 3  # read file, read directory
_TRUNCATE_ABI, _NET_ABI, _IOCTL_ABI, _SCOPE_ABI = 3, 4, 5, 6


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 where it has none."""
    version = _libc.syscall(_SYS_LANDLOCK, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, int(version))


class Landlock:
    """Confine this process and its children to some folders, for good.

    Nothing can be executed. From version 4 on there is no TCP, from 6 on no signal to and no abstract socket of a process
    outside.
    """

    def __init__(self) -> None:
        abi = landlock_abi()
        self._all = (1 << 13) - 1 | (1 << 13 if abi >= 2 else 0) | (1 << 14 if abi >= _TRUNCATE_ABI else 0)
        fields = [self._all | (1 << 15 if abi >= _IOCTL_ABI else 0)]
        if abi >= _NET_ABI:
            fields.append(0b11)
        if abi >= _SCOPE_ABI:
            fields.append(0b11)
        attributes = struct.pack(f"{len(fields)}Q", *fields)
        call = _libc.syscall(_SYS_LANDLOCK, ctypes.c_char_p(attributes), ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
        self._fd = _check(call, "landlock_create_ruleset")

    def allow(self, fd: int, *, write: bool = False) -> None:
        """Allow reading, or with ``write`` everything but executing, at and beneath the file that ``fd`` has open."""
        folder = os.stat(fd).st_mode & 0o170000 == 0o040000
        access = self._all & ~1 if write else _READ
        if not folder:
            access &= 1 << 1 | 1 << 2 | 1 << 14  # what makes sense on a file: write, read, truncate
        rule = struct.pack("=Qi", access & self._all, fd)
        call = _libc.syscall(_SYS_LANDLOCK + 1, self._fd, ctypes.c_int(1), ctypes.c_char_p(rule), ctypes.c_uint(0))
        _check(call, "landlock_add_rule")

    def enforce(self) -> None:
        _check(_libc.syscall(_SYS_LANDLOCK + 2, self._fd, ctypes.c_uint(0)), "landlock_restrict_self")
        os.close(self._fd)


# --- /proc ---------------------------------------------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    """Children of all threads of ``pid``; empty where it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found


def descendants(pid: int) -> Iterator[int]:
    """Every process under ``pid``, parents first, without ``pid`` itself."""
    for child in children_of(pid):
        yield child
        yield from descendants(child)


def kill_under(pid: int) -> None:
    """Kill ``pid`` and all under it that a walk finds, stopping them first so that none is born meanwhile."""
    seen: set[int] = set()
    while True:
        found = {pid, *descendants(pid)} - seen
        if not found:
            break
        _signal(found, signal.SIGSTOP)
        seen |= found
    _signal(seen, signal.SIGKILL)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def borrow_user(uid: int, gid: int) -> None:
    """Look at files, /proc among them, as this user would; 0 gives the own identity back to root."""
    _libc.setfsgid(gid)
    _libc.setfsuid(uid)


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; ``None`` where there is none (or only a zombie)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def resident_bytes(pids: Iterable[int]) -> int:
    """Sum of private memory, pages shared with a parent counted once for each process (an upper bound, cheap)."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                fields = file.read().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += (int(fields[1]) - int(fields[2])) * _PAGE
    return total


def shared_bytes(pids: Iterable[int]) -> int:
    """Sum of memory with every shared page divided among those that share it (exact, slower)."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                lines = file.read().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")))
    return total
