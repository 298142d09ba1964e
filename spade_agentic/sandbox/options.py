"""The options of the first-party sandboxes."""

from __future__ import annotations

from pydantic import Field

from spade_agentic.hooks.kinds import Options

__all__ = ["SandboxOptions"]


class SandboxOptions(Options):
    """Sizes, limits and deadlines. Times are in seconds, sizes in MB (2^20 bytes) or KB."""

    workers: int = Field(default=192, ge=1, le=1024, description="Most programs that are loaded at once.")
    plays: int = Field(default=192, ge=1, le=1024, description="Most plays of one loaded program at once.")
    concurrency: int = Field(default=8, ge=1, le=256, description="Calls into programs at once; the clock of others waits.")
    load_timeout_s: float = Field(default=10.0, gt=0, description="Deadline for loading a program.")
    step_timeout_s: float = Field(default=5.0, gt=0, description="Deadline for a reset, a step or a probe.")
    start_timeout_s: float = Field(default=30.0, gt=0, description="Deadline for starting the sandbox, or one worker.")
    wait_timeout_s: float = Field(default=120.0, gt=0, description="Longest wait for room before the run is stopped.")
    memory_mb: int = Field(default=512, ge=96, description="Address space of one process.")
    tree_memory_mb: int = Field(default=1024, ge=96, description="Memory of a program with all of its plays.")
    disk_mb: int = Field(default=16, ge=1, description="Size of a program's private folder, where it has its own file system.")
    file_mb: int = Field(default=4, ge=1, description="Largest file that a program may write.")
    play_cpu_s: int = Field(default=30, ge=1, description="CPU time of one play.")
    worker_cpu_s: int = Field(default=600, ge=1, description="CPU time of a loaded program itself, forking its plays included.")
    max_text_chars: int = Field(default=16_384, ge=1, description="Longest observation.")
    message_kb: int = Field(default=256, ge=4, le=1000, description="Largest message from a program.")
    packages: tuple[str, ...] = Field(default=(), description="Further top-level modules that programs may import.")
    preload: tuple[str, ...] = Field(
        default=("spade_agentic_sims.kit",), description="Modules that are imported once, before any program is."
    )

    def guest_limits(self) -> dict[str, int]:
        """What supervisors and runners need to know."""
        names = ("memory_mb", "tree_memory_mb", "disk_mb", "file_mb", "play_cpu_s", "worker_cpu_s", "message_kb")
        return {name: getattr(self, name) for name in names} | {"processes": self.plays + 16}
