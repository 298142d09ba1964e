"""``spade-agentic`` in a process of its own, with the toy's gates: as the fixture ``runs`` has it in the tests' process."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from play_fakes import door_gates

from spade_agentic.cli.main import main
from spade_agentic.selfplay import build

if __name__ == "__main__":
    build._gates = lambda sandbox, reserved: door_gates
    main(sys.argv[1:])
