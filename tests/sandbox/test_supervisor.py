"""What the supervisor sees of a process, and how it sees it."""

from __future__ import annotations

import subprocess
import sys

from spade_agentic.sandbox.supervisor import _look_at

CHURN = "import os\nprint(flush=True)\nwhile True:\n    os.close(os.open('/dev/null', os.O_RDONLY))"


def test_a_process_that_opens_and_closes_descriptors_can_be_looked_at() -> None:
    """A descriptor may be gone between being listed and being read: it is not held then, and nothing is wrong."""
    with subprocess.Popen([sys.executable, "-c", CHURN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            seen = [_look_at(process.pid) for _ in range(2000)]
        finally:
            process.kill()
    assert all({"0", "1", "2"} <= look["descriptors"].keys() for look in seen)
    assert {look["threads"] for look in seen} == {1}
