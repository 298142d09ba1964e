"""What the designer remembers: a ring of its environments, admitted and rejected, in an SQLite table in memory.

The table is part of the run's state and travels in it; there is no second file that could disagree with the last commit.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from spade_agentic import Factory, MemoryEntry, MemoryStore, Options, Skill, hookimpl

__all__ = ["MemoryOptions", "SqliteMemory", "memory_store"]

_COLUMNS = "draft_id, skill, source, win_rate, regret, admitted, round_index"
_EXTREME = "(win_rate > :above OR win_rate < :below)"


class MemoryOptions(Options):
    capacity: int = Field(default=200, ge=1, description="Entries kept; the oldest are evicted.")
    seeds: int = Field(default=2, ge=0, description="Environments of the same skill shown to the designer.")
    seed_win_rates: tuple[float, float] = Field(default=(0.15, 0.85), description="Win rates that a seed must lie within.")
    seed_best: int = Field(default=10, ge=1, description="Seeds are drawn from this many of the best by regret.")
    counter_win_rates: tuple[float, float] = Field(
        default=(0.1, 0.9), description="A counter-example has a win rate below the first or above the second."
    )


class SqliteMemory:
    """The ring of the paper (section 3.2)."""

    def __init__(self, options: MemoryOptions) -> None:
        self._options = options
        # One connection, one thread at a time: the self-play loop calls in turn, whichever thread it runs in.
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(
            "CREATE TABLE entry (number INTEGER PRIMARY KEY AUTOINCREMENT, draft_id TEXT UNIQUE NOT NULL, skill TEXT NOT NULL,"
            " source TEXT NOT NULL, win_rate REAL, regret REAL, admitted INTEGER NOT NULL, round_index INTEGER NOT NULL)"
        )

    def add(self, entry: MemoryEntry) -> None:
        """Remember ``entry`` as the newest; a draft id that is there already is replaced."""
        self._db.execute("DELETE FROM entry WHERE draft_id = ?", (entry.draft_id,))
        self._db.execute(f"INSERT INTO entry ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", _row(entry))
        self._db.execute(
            "DELETE FROM entry WHERE number <= (SELECT number FROM entry ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (self._options.capacity,),
        )

    def update(self, draft_id: str, *, win_rate: float | None, regret: float | None) -> None:
        """Note what an environment turned out to be; nothing happens where it has been evicted."""
        self._db.execute("UPDATE entry SET win_rate = ?, regret = ? WHERE draft_id = ?", (win_rate, regret, draft_id))

    def sample(self, skill: Skill, *, seed: int) -> tuple[tuple[MemoryEntry, ...], MemoryEntry | None]:
        """Seeds within the band, drawn from the best by regret, and one counter-example; both of ``skill``."""
        options, draw = self._options, random.Random(seed)
        low, high = options.seed_win_rates
        best = self._select(
            "admitted AND win_rate BETWEEN :low AND :high AND regret IS NOT NULL ORDER BY regret DESC, number LIMIT :best",
            {"skill": skill.value, "low": low, "high": high, "best": options.seed_best},
        )
        below, above = options.counter_win_rates
        extreme = self._select(
            f"admitted AND {_EXTREME} ORDER BY number", {"skill": skill.value, "below": below, "above": above}
        )
        seeds = tuple(draw.sample(best, min(options.seeds, len(best))))
        return seeds, (draw.choice(extreme) if extreme else None)

    def __len__(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM entry").fetchone()[0])

    def state_dict(self) -> dict[str, Any]:
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM entry ORDER BY number").fetchall()
        return {"entries": [list(row) for row in rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._db.execute("DELETE FROM entry")
        self._db.executemany(
            f"INSERT INTO entry ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", [tuple(row) for row in state["entries"]]
        )

    def _select(self, condition: str, values: Mapping[str, Any]) -> list[MemoryEntry]:
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM entry WHERE skill = :skill AND {condition}", dict(values))
        return [
            MemoryEntry(draft_id, Skill(name), source, win_rate, regret, bool(admitted), round_index)
            for draft_id, name, source, win_rate, regret, admitted, round_index in rows
        ]


def _row(entry: MemoryEntry) -> tuple[Any, ...]:
    return (
        entry.draft_id, entry.skill.value, entry.source, entry.win_rate, entry.regret, int(entry.admitted),
        entry.round_index,
    )


@hookimpl
def memory_store() -> list[Factory[MemoryStore]]:
    return [
        Factory("sqlite", lambda options, _: SqliteMemory(options), MemoryOptions, "a ring of 200: seeds, counter-examples")
    ]
