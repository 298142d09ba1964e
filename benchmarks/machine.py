"""What the benchmarks share: a description of the machine that a figure was measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["machine"]


def machine() -> dict[str, Any]:
    """Processor, cores (all, and those that may be used), load before the measurement, and versions; JSON-able."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        name = next((line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line), name)
    return {
        "cpu": name, "cores": os.cpu_count(), "cores_used": len(os.sched_getaffinity(0)), "load_1min": os.getloadavg()[0],
        "root": os.geteuid() == 0, "python": platform.python_version(), "torch": version("torch"),
        "platform": platform.platform(),
    }
