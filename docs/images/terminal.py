"""Make a picture of a terminal's text: ``python docs/images/terminal.py OUTPUT.txt docs/images/run.svg --title "make train"``.

The text is what a command really printed, for example ``spade-agentic runs report latest > OUTPUT.txt``.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("svg", type=Path)
    parser.add_argument("--title", default="spade-agentic")
    arguments = parser.parse_args()
    lines = arguments.text.read_text(encoding="utf-8").rstrip().splitlines()
    console = Console(record=True, width=max(map(len, lines)) + 1, file=io.StringIO(), color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True)
    console.save_svg(str(arguments.svg), title=arguments.title, theme=MONOKAI)


if __name__ == "__main__":
    main()
