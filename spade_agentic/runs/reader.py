"""Reading a run's store, from the process that writes it or from any other, while the run goes or long after."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spade_agentic.errors import RunDirError
from spade_agentic.hooks.records import Arm, Draft, Environment, Play, Regret, Role, Trajectory

from .codec import from_json, unpack
from .layout import RunDir

__all__ = [
    "Commit", "DraftRow", "EnvironmentPlays", "EnvironmentRow", "EvaluationRow", "MetricsRow", "PlayName", "PlayRow",
    "RegretRow", "StoreReader",
    "committed_metrics", "last_committed_step",
]

APPLICATION_ID = 0x5350_4144  # "SPAD"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Commit:
    """The last committed step: which checkpoint holds its weights, and the state of everything else."""

    step: int
    checkpoint: str
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """Metrics of one committed step, or of one evaluation (``source`` is then its name). Times in seconds.

    ``recorded_at`` is wall time (Unix); ``elapsed_s`` counts the time that the run's processes were at work, by a clock that
    never jumps.
    """

    step: int
    source: str
    metrics: dict[str, float]
    recorded_at: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """What an evaluator answered at one step, whole."""

    step: int
    name: str
    result: dict[str, Any]
    recorded_at: float


@dataclass(frozen=True, slots=True)
class PlayRow:
    """A consumed play. ``trajectory`` is empty where the reader did not ask for tokens."""

    step: int
    play: Play


@dataclass(frozen=True, slots=True)
class DraftRow:
    """A draft, as of its latest commit. ``step`` is the step that first committed it."""

    step: int
    draft: Draft


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    """An environment that was admitted. ``step`` is the step that first committed it."""

    step: int
    environment: Environment


@dataclass(frozen=True, slots=True)
class RegretRow:
    """The regret of one environment as of one step."""

    step: int
    env_id: str
    regret: Regret


@dataclass(frozen=True, slots=True)
class EnvironmentPlays:
    """The plays of one environment and arm in one step, counted. ``void`` ones are among ``plays`` and won nothing."""

    step: int
    env_id: str
    arm: Arm
    plays: int
    void: int
    wins: int
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class PlayName:
    """Which play it was and how it ended, without its record. Plays of equal step, seed and repeat are a pair."""

    play_id: str
    step: int
    seed: int
    repeat: int
    arm: Arm
    won: bool
    void: bool


class StoreReader:
    """A read-only view of one run's store. Use as a context manager, or :meth:`close` it.

    Raises :class:`~spade_agentic.errors.RunDirError` where there is no run, or one written by a newer version.
    """

    def __init__(self, run_dir: Path) -> None:
        self.dir = RunDir(Path(run_dir))
        if not self.dir.store.is_file():
            raise RunDirError(
                "there is no run here", where=str(self.dir.path),
                todo="give the folder of a run (spade-agentic runs list shows them)",
            )
        self._mutex = threading.RLock()
        self._connection = _connect_read_only(self.dir.store)
        try:
            self._check()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """While inside, everything that is read is of one moment, whatever the run commits meanwhile."""
        with self._mutex:
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    def _check(self) -> None:
        check_schema(self._connection, self.dir.path)

    def _rows(self, query: str, parameters: Mapping[str, Any] | tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._mutex:
            try:
                return self._connection.execute(query, parameters).fetchall()
            except sqlite3.DatabaseError as error:
                raise _unreadable(self.dir.path, error) from error

    # --- the run itself ----------------------------------------------------------------------------------------------

    def meta(self) -> dict[str, Any]:
        """``run_id``, ``config`` (resolved), ``created_at`` (Unix time), ``status``, ``version`` of the package that made it.

        ``wall_s``, seconds of work in all, and ``stage_s``, seconds by stage that no step's metrics hold, are there once the
        run has ended (:meth:`RunStore.finish`).
        """
        return {key: unpack(value) for key, value in self._rows("SELECT key, value FROM meta")}

    def last_commit(self) -> Commit | None:
        """The step to continue from, or ``None`` before the first commit."""
        rows = self._rows("SELECT step, checkpoint, state FROM step ORDER BY step DESC LIMIT 1")
        return Commit(rows[0][0], rows[0][1], unpack(rows[0][2])) if rows else None

    def last_checkpoint(self) -> str | None:
        """Name of the checkpoint that the last commit names."""
        rows = self._rows("SELECT checkpoint FROM step ORDER BY step DESC LIMIT 1")
        return str(rows[0][0]) if rows else None

    def last_step(self) -> int | None:
        """Number of the last committed step."""
        value = self._rows("SELECT max(step) FROM step")[0][0]
        return None if value is None else int(value)

    def elapsed_s(self) -> float:
        """Seconds of work up to the last commit, over all processes that worked on this run."""
        rows = self._rows("SELECT elapsed_s FROM step ORDER BY step DESC LIMIT 1")
        return float(rows[0][0]) if rows else 0.0

    # --- metrics and evaluations -------------------------------------------------------------------------------------

    def metrics(self) -> list[MetricsRow]:
        """Metrics of every committed step, in order (``source`` is ``step``)."""
        rows = self._rows("SELECT step, metrics, committed_at, elapsed_s FROM step ORDER BY step")
        return [MetricsRow(step, "step", unpack(blob), at, elapsed) for step, blob, at, elapsed in rows]

    def evaluations(self, name: str | None = None) -> list[EvaluationRow]:
        """What evaluators answered, by step; of one evaluator, or of all."""
        rows = self._rows(
            "SELECT step, name, result, recorded_at FROM evaluation WHERE ?1 IS NULL OR name = ?1 ORDER BY step, name",
            (name,),
        )
        return [EvaluationRow(step, who, unpack(blob), at) for step, who, blob, at in rows]

    # --- records -----------------------------------------------------------------------------------------------------

    def plays(
        self, *, step: int | None = None, env_id: str | None = None, arm: Arm | None = None, tokens: bool = False
    ) -> Iterator[PlayRow]:
        """Consumed plays in the order of their commits, one at a time; with their trajectories if ``tokens``."""
        rows = self._rows(
            "SELECT rowid FROM play WHERE (?1 IS NULL OR step = ?1) AND (?2 IS NULL OR env_id = ?2) "
            "AND (?3 IS NULL OR arm = ?3) ORDER BY step, rowid",
            (step, env_id, None if arm is None else arm.value),
        )
        columns = "step, record, trajectory" if tokens else "step, record, NULL"
        for (rowid,) in rows:
            at, record, trajectory = self._rows(f"SELECT {columns} FROM play WHERE rowid = ?", (rowid,))[0]
            data = unpack(record)
            data["trajectory"] = unpack(trajectory) if tokens else {"role": Role.AGENT.value, "segments": []}
            yield PlayRow(at, from_json(Play, data))

    def play(self, play_id: str) -> PlayRow:
        """One consumed play with its tokens. Raises :class:`~spade_agentic.errors.RunDirError` where there is no such play."""
        rows = self._rows("SELECT step, record, trajectory FROM play WHERE play_id = ?", (play_id,))
        if not rows:
            raise RunDirError(
                f"no play {play_id!r} was consumed", where=str(self.dir.path),
                todo="spade-agentic runs show RUN --step N lists the plays of a step",
            )
        step, record, trajectory = rows[0]
        return PlayRow(step, from_json(Play, {**unpack(record), "trajectory": unpack(trajectory)}))

    def play_counts(self) -> list[dict[str, Any]]:
        """Plays per step and arm: ``step, arm, plays, void, wins, mean_reward, sampled_tokens``."""
        names = ("step", "arm", "plays", "void", "wins", "mean_reward", "sampled_tokens")
        rows = self._rows(
            "SELECT step, arm, count(*), sum(void), sum(won AND NOT void), avg(CASE WHEN void THEN NULL ELSE reward END), "
            "sum(sampled_tokens) FROM play GROUP BY step, arm ORDER BY step, arm"
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def plays_by_environment(self) -> list[EnvironmentPlays]:
        """Plays counted by step, environment and arm, in that order."""
        rows = self._rows(
            "SELECT step, env_id, arm, count(*), sum(void), sum(won AND NOT void), sum(sampled_tokens) FROM play "
            "GROUP BY step, env_id, arm ORDER BY step, env_id, arm"
        )
        return [EnvironmentPlays(step, env, Arm(arm), *counts) for step, env, arm, *counts in rows]

    def play_names(self, env_id: str) -> list[PlayName]:
        """The plays of one environment in the order of their commits."""
        rows = self._rows(
            "SELECT play_id, step, seed, repeat, arm, won, void FROM play WHERE env_id = ? ORDER BY step, rowid", (env_id,)
        )
        return [PlayName(name, at, seed, nth, Arm(arm), bool(won), bool(void)) for name, at, seed, nth, arm, won, void in rows]

    def stop_reasons(self) -> dict[str, int]:
        """How many consumed plays ended for each reason."""
        return dict(self._rows("SELECT stop, count(*) FROM play GROUP BY stop ORDER BY stop"))

    def drafts(self, *, round_index: int | None = None, tokens: bool = False) -> Iterator[DraftRow]:
        """Drafts in the order they were first committed, admitted or refused; with their trajectories if ``tokens``."""
        rows = self._rows(
            "SELECT step, record, trajectory FROM draft WHERE ?1 IS NULL OR round_index = ?1 ORDER BY step, rowid",
            (round_index,),
        )
        for step, record, blob in rows:
            data = unpack(record)
            trajectory = from_json(Trajectory, unpack(blob)) if tokens and blob is not None else None
            draft = from_json(Draft, {**data, "trajectory": None})
            draft.trajectory = trajectory
            yield DraftRow(step, draft)

    def refusals(self) -> dict[str, int]:
        """How many drafts were refused for each reason, as ``gate:code``; most frequent first."""
        rows = self._rows(
            "SELECT refusal_gate || ':' || refusal_code AS reason, count(*) FROM draft WHERE refusal_code IS NOT NULL "
            "GROUP BY reason ORDER BY count(*) DESC, reason"
        )
        return dict(rows)

    def environments(self, *, round_index: int | None = None) -> list[EnvironmentRow]:
        """Every environment that was admitted, in order."""
        rows = self._rows(
            "SELECT step, record FROM environment WHERE ?1 IS NULL OR round_index = ?1 ORDER BY step, rowid", (round_index,)
        )
        return [EnvironmentRow(step, from_json(Environment, unpack(blob))) for step, blob in rows]

    def regrets(self, *, env_id: str | None = None) -> list[RegretRow]:
        """Regrets as committed, by step."""
        rows = self._rows(
            "SELECT step, env_id, record FROM regret WHERE ?1 IS NULL OR env_id = ?1 ORDER BY step, rowid", (env_id,)
        )
        return [RegretRow(step, env, from_json(Regret, unpack(blob))) for step, env, blob in rows]

    def totals(self) -> dict[str, int]:
        """``plays, plays_void, sampled_tokens, drafts, refused, environments, rounds`` over the whole run."""
        plays, void, tokens = self._rows("SELECT count(*), total(void), total(sampled_tokens) FROM play")[0]
        drafts, refused, rounds = self._rows("SELECT count(*), count(refusal_code), count(DISTINCT round_index) FROM draft")[0]
        (environments,) = self._rows("SELECT count(*) FROM environment")[0]
        return {
            "plays": plays, "plays_void": int(void), "sampled_tokens": int(tokens), "drafts": drafts, "refused": refused,
            "environments": environments, "rounds": rounds,
        }


def check_schema(connection: sqlite3.Connection, where: Path) -> None:
    """Raise :class:`RunDirError` unless ``connection`` is a store that this version can read."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise _unreadable(where, error) from error
    if application != APPLICATION_ID:
        raise RunDirError(
            "store.sqlite holds no committed run", where=str(where),
            todo="start the run again without --resume; it was stopped before it began",
        )
    if version > SCHEMA_VERSION:
        raise RunDirError(
            f"this run was written by a newer spade-agentic (store version {version}, this one reads up to {SCHEMA_VERSION})",
            where=str(where), todo="upgrade: pip install --upgrade spade-agentic",
        )
    assert version == SCHEMA_VERSION, f"no migration from store version {version}"


def _unreadable(where: Path, error: sqlite3.DatabaseError) -> RunDirError:
    return RunDirError(
        f"store.sqlite cannot be read: {error}", where=str(where), todo="restore it from a copy, or start a new run"
    )


def _connect_read_only(path: Path) -> sqlite3.Connection:
    uri = f"file:{path.resolve()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A finished run on a read-only disk: reading a WAL database needs a shared-memory file, which nobody can make
        # there. Without a write-ahead log there is nothing that such a file would coordinate.
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise RunDirError(
                "the run was stopped in the middle and its folder is read-only, so its log cannot be replayed",
                where=str(path.parent), todo="copy the folder to a place that can be written, and read it there",
            ) from None
        connection = sqlite3.connect(
            uri + "&immutable=1", uri=True, timeout=30, isolation_level=None, check_same_thread=False
        )
    except sqlite3.DatabaseError:
        pass  # not a database at all: check_schema says so
    return connection


def last_committed_step(run_dir: Path) -> int | None:
    """Number of the last committed step of the run in ``run_dir``; ``None`` where there is no run, or no commit yet."""
    if not RunDir(Path(run_dir)).store.is_file():
        return None
    with StoreReader(run_dir) as reader:
        return reader.last_step()


def committed_metrics(run_dir: Path) -> list[MetricsRow]:
    """Everything that a tracker was or should have been told: metrics of steps and evaluations, by step.

    Empty where there is no run. An evaluation of a step comes after the step. Only numbers are kept.
    """
    if not RunDir(Path(run_dir)).store.is_file():
        return []
    with StoreReader(run_dir) as reader, reader.snapshot():
        rows = reader.metrics()
        elapsed = {row.step: row.elapsed_s for row in rows}
        rows += [
            MetricsRow(e.step, e.name, numbers(e.result), e.recorded_at, elapsed.get(e.step, 0.0))
            for e in reader.evaluations()
        ]
    return sorted(rows, key=lambda row: (row.step, row.source != "step"))


def numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """The entries of ``result`` that are numbers: what a tracker can plot."""
    return {k: v for k, v in result.items() if isinstance(v, int | float) and not isinstance(v, bool)}
