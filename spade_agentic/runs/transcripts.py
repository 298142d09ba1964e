"""Plays as a person reads them: ``transcripts/step-000012.jsonl``, one play a line, text and all.

Written after the commit of their step. A few plays of every environment are enough to see what goes on; all of them, with
their tokens, are in the store (:meth:`~spade_agentic.runs.reader.StoreReader.plays`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spade_agentic.hooks.records import Play

from .files import replace_file

__all__ = ["messages", "transcript", "write_transcripts"]


def write_transcripts(folder: Path, step: int, plays: Iterable[Play], *, per_arm: int = 2) -> Path:
    """Write the plays of ``step``: the first ``per_arm`` of each environment and arm, and every void one.

    A file that an interrupted attempt at the step left is replaced.
    """
    seen: Counter[tuple[str, str]] = Counter()
    lines = []
    for play in plays:
        key = (play.env_id, play.arm.value)
        seen[key] += 1
        if seen[key] <= per_arm or play.void:
            lines.append(json.dumps({"step": step, **transcript(play)}, ensure_ascii=False, default=str))
    path = folder / f"step-{step:06d}.jsonl"
    # A lone surrogate cannot be encoded; its escape is valid JSON for the same character.
    replace_file(path, "".join(line + "\n" for line in lines).encode(errors="backslashreplace"), durable=False)
    return path


def transcript(play: Play) -> dict[str, Any]:
    """One play as JSON-able data: which it was, how it ended, and its messages in order."""
    return {
        "play_id": play.play_id, "env_id": play.env_id, "arm": play.arm.value, "seed": play.seed, "repeat": play.repeat,
        "reward": play.reward, "won": play.won, "stop": play.stop.value, "fault": play.fault, "turns": len(play.turns),
        "sampled_tokens": play.trajectory.sampled_tokens, "duration_s": round(play.duration_s, 3), "messages": messages(play),
    }


def messages(play: Play) -> list[dict[str, Any]]:
    """The conversation after the system prompt, as chat messages; each of the agent's also has its outcome and its calls."""
    said: list[dict[str, Any]] = [{"role": "user", "content": play.first_observation}]
    for turn in play.turns:
        said.append(
            {"role": "assistant", "content": turn.completion_text, "outcome": turn.outcome.value, "calls": list(turn.calls)}
        )
        said.extend({"role": "tool", "content": observation} for observation in turn.observations)
    return said
