"""The run store: one transaction a step, and nothing counts that is not in it.

SQLite in WAL mode with ``synchronous=FULL``: a commit that returned is on the disk. The order of a step is checkpoint (whole
and renamed), then the commit that names it together with everything the step consumed. A kill before the commit leaves the
step before; :meth:`RunStore.open` removes what has no row.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml

from spade_agentic import __version__
from spade_agentic.errors import RunDirError, StoreError
from spade_agentic.hooks.records import Draft, Environment, Play, Regret

from .checkpoints import Checkpoints, Recovery
from .codec import pack, to_json
from .files import replace_file, run_dir_error
from .layout import RunDir
from .lock import RunLock
from .reader import APPLICATION_ID, SCHEMA_VERSION, StoreReader, check_schema

__all__ = ["RunStore", "has_run"]

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE step (
    step INTEGER PRIMARY KEY, checkpoint TEXT NOT NULL, state BLOB, metrics BLOB NOT NULL,
    committed_at REAL NOT NULL, elapsed_s REAL NOT NULL
) STRICT;
CREATE TABLE draft (
    draft_id TEXT NOT NULL UNIQUE, step INTEGER NOT NULL REFERENCES step, round_index INTEGER NOT NULL, skill TEXT NOT NULL,
    refusal_gate TEXT, refusal_code TEXT, reward REAL, record BLOB NOT NULL, trajectory BLOB
) STRICT;
CREATE TABLE environment (
    env_id TEXT NOT NULL UNIQUE, step INTEGER NOT NULL REFERENCES step, draft_id TEXT NOT NULL REFERENCES draft (draft_id),
    round_index INTEGER NOT NULL, skill TEXT NOT NULL, record BLOB NOT NULL
) STRICT;
CREATE TABLE play (
    play_id TEXT NOT NULL UNIQUE, step INTEGER NOT NULL REFERENCES step,
    env_id TEXT NOT NULL REFERENCES environment (env_id), seed INTEGER NOT NULL, repeat INTEGER NOT NULL, arm TEXT NOT NULL,
    reward REAL, won INTEGER NOT NULL, void INTEGER NOT NULL, stop TEXT NOT NULL, sampled_tokens INTEGER NOT NULL,
    record BLOB NOT NULL, trajectory BLOB NOT NULL
) STRICT;
CREATE TABLE regret (
    step INTEGER NOT NULL REFERENCES step, env_id TEXT NOT NULL REFERENCES environment (env_id), mean REAL, stderr REAL,
    record BLOB NOT NULL, UNIQUE (step, env_id)
) STRICT;
CREATE TABLE evaluation (
    step INTEGER NOT NULL, name TEXT NOT NULL, result BLOB NOT NULL, recorded_at REAL NOT NULL, UNIQUE (step, name)
) STRICT;
CREATE INDEX play_by_step ON play (step);
CREATE INDEX play_by_environment ON play (env_id);
"""

Clock = Callable[[], float]


class RunStore(StoreReader):
    """The store of the run that this process runs; it holds the run's lock until :meth:`close`.

    ``clock`` measures durations and must never jump (``time.monotonic``). ``fault`` is called inside a commit at ``begun``,
    ``written`` and ``committed``, for tests that break there. ``recovered`` says what :meth:`open` removed.
    """

    checkpoints: Checkpoints
    recovered: Recovery

    def __init__(self, run_dir: Path, *, lock: RunLock, clock: Clock, fault: Callable[[str], None]) -> None:
        self.dir = RunDir(Path(run_dir))
        self._lock, self._clock, self._fault = lock, clock, fault
        self._started = clock()
        super().__init__(run_dir)
        self._connection.close()
        self._connection = _connect(self.dir)
        self.checkpoints = Checkpoints(self.dir.path, str(self.meta()["run_id"]))
        self.recovered = self.checkpoints.recover()
        self._elapsed_before = max(self.elapsed_s(), float(self.meta().get("wall_s", 0.0)))

    # --- beginning and end -------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, run_dir: Path, run_id: str, config: Mapping[str, Any], *, clock: Clock = time.monotonic,
        fault: Callable[[str], None] = lambda point: None,
    ) -> Self:
        """Begin a new run in ``run_dir`` (made if missing) and lock it. ``config`` is the resolved one, JSON-able.

        Raises :class:`~spade_agentic.errors.RunDirError` where a run is already there, another process runs there, or the
        folder cannot be written.
        """
        run = RunDir(Path(run_dir))
        lock = None
        try:
            run.checkpoints.mkdir(parents=True, exist_ok=True)
            run.transcripts.mkdir(exist_ok=True)
            lock = RunLock(run.lock)
            if has_run(run.store):
                raise RunDirError(
                    "there is a run in this folder already", where=str(run.path),
                    todo="continue it with --resume, or choose another folder with --run-dir",
                )
            _write_config(run, config)
            _create_database(run, run_id, config)
            return cls(run_dir, lock=lock, clock=clock, fault=fault)
        except BaseException as error:
            if lock is not None:
                lock.release()
            if isinstance(error, OSError | sqlite3.OperationalError):
                mended = run_dir_error("creating the run", run.path, error)
                if mended is not None:
                    raise mended from error
            raise

    @classmethod
    def open(
        cls, run_dir: Path, *, config: Mapping[str, Any] | None = None, clock: Clock = time.monotonic,
        fault: Callable[[str], None] = lambda point: None,
    ) -> Self:
        """Continue the run in ``run_dir``: lock it, and remove checkpoints that no commit names (:attr:`recovered`).

        ``config`` replaces the resolved configuration on record, where the continued run has another (more steps, say).

        Raises :class:`~spade_agentic.errors.RunDirError` where there is no run, another process runs there, a newer version
        wrote it, or the checkpoint of the last commit is damaged.
        """
        run = RunDir(Path(run_dir))
        StoreReader(run.path).close()  # no run, or a newer one: say so before locking anything
        lock = RunLock(run.lock)
        try:
            store = cls(run_dir, lock=lock, clock=clock, fault=fault)
            last = store.last_checkpoint()
            if last is not None:
                store.checkpoints.verify(last)
            store._set_meta({"status": "running"} if config is None else {"status": "running", "config": dict(config)})
            if config is not None:
                _write_config(run, config)
            return store
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                mended = run_dir_error("opening the run", run.path, error)
                if mended is not None:
                    raise mended from error
            raise

    def finish(self, status: str, *, stage_s: Mapping[str, float] | None = None) -> None:
        """Record how the run ended: ``finished``, ``interrupted`` or ``failed``. A killed one stays ``running``, unlocked.

        ``stage_s`` is time by stage that is in no step's metrics, such as the last evaluation; a resumed run adds its own.
        """
        assert status in ("finished", "interrupted", "failed"), status
        times: dict[str, float] = dict(self.meta().get("stage_s", {}))
        for stage, seconds in (stage_s or {}).items():
            times[stage] = times.get(stage, 0.0) + seconds
        self._set_meta({"status": status, "wall_s": self._elapsed(), "stage_s": times})

    def close(self) -> None:
        """Close the database (its log is folded in) and release the lock."""
        super().close()
        self._lock.release()

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit_step(
        self,
        *,
        step: int,
        checkpoint: str | Path,
        state: Mapping[str, Any],
        plays: Iterable[Play] = (),
        drafts: Iterable[Draft] = (),
        environments: Iterable[Environment] = (),
        regrets: Mapping[str, Regret] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Commit one step, all or nothing; when this returns, it is on the disk.

        ``step`` must be greater than the last one. ``checkpoint`` names a checkpoint that was written whole. ``state`` is
        JSON-able. A play is consumed once in a run. Drafts and environments are stored or, where the run has them already,
        replaced (a reward or a hint that came later). A play, a regret or an environment must belong to an environment or a
        draft of this or an earlier commit.

        Raises :class:`~spade_agentic.errors.StoreError` for a commit that breaks these rules,
        :class:`~spade_agentic.errors.PluginError` for a plugin's state that JSON cannot hold, and
        :class:`~spade_agentic.errors.RunDirError` for a full or read-only disk; the store is unchanged in both cases.
        """
        name = Path(checkpoint).name
        if not self.checkpoints.path(name).is_dir():
            raise StoreError(f"step {step} names the checkpoint {name}, which does not exist")
        last = self.last_step()
        if last is not None and step <= last:
            raise StoreError(f"step {step} cannot be committed after step {last}")
        row = (step, name, pack(dict(state)), _pack_metrics(metrics or {}), time.time(), self._elapsed())
        with self._transaction(f"committing step {step}"):
            self._fault("begun")
            self._connection.execute("INSERT INTO step VALUES (?, ?, ?, ?, ?, ?)", row)
            self._connection.executemany(_PUT_DRAFT, (_draft_row(step, d) for d in drafts))
            self._connection.executemany(_PUT_ENVIRONMENT, (_environment_row(step, e) for e in environments))
            self._connection.executemany(_PUT_PLAY, (_play_row(step, p) for p in plays))
            self._connection.executemany(_PUT_REGRET, (_regret_row(step, e, r) for e, r in (regrets or {}).items()))
            self._drop_stale_states(step)
            self._fault("written")
        self._fault("committed")

    def record_evaluation(self, *, step: int, name: str, result: Mapping[str, Any]) -> None:
        """Record what the evaluator ``name`` answered for the weights of ``step`` (0: before training), durably.

        An evaluation that is repeated for the same step replaces the earlier one.
        """
        with self._transaction(f"recording the evaluation {name} of step {step}"):
            self._connection.execute(
                "INSERT OR REPLACE INTO evaluation VALUES (?, ?, ?, ?)",
                (step, name, pack(to_json(dict(result)), what=f"evaluation {name}"), time.time()),
            )

    def prune(self, keep: int) -> list[str]:
        """Remove all but the newest ``keep`` checkpoints (see :meth:`Checkpoints.prune`)."""
        return self.checkpoints.prune(keep)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _elapsed(self) -> float:
        return self._elapsed_before + (self._clock() - self._started)

    def _set_meta(self, values: Mapping[str, Any]) -> None:
        with self._transaction("recording the run's status"):
            self._connection.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", [(k, pack(v)) for k, v in values.items()]
            )

    def _drop_stale_states(self, step: int) -> None:
        """A state whose checkpoint was pruned can never be continued from."""
        rows = self._connection.execute("SELECT step, checkpoint FROM step WHERE state IS NOT NULL AND step < ?", (step,))
        stale = [(s,) for s, checkpoint in rows.fetchall() if not self.checkpoints.path(checkpoint).is_dir()]
        self._connection.executemany("UPDATE step SET state = NULL WHERE step = ?", stale)

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[None]:
        with self._mutex:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise self._explained(doing, error) from error

    def _explained(self, doing: str, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error | OSError):
            return error
        if isinstance(error, sqlite3.IntegrityError):
            return StoreError(f"{doing} was refused: {error} (a record names one that was never committed, or is there twice)")
        code = getattr(error, "sqlite_errorcode", None)
        as_os = {sqlite3.SQLITE_FULL: OSError(28, "disk full"), sqlite3.SQLITE_READONLY: OSError(30, "read-only")}
        mended = run_dir_error(doing, self.dir.path, as_os.get(code & 0xFF, error) if code is not None else error)
        return mended or StoreError(f"{doing} failed: {error}")


_PUT_DRAFT = """
INSERT INTO draft (draft_id, step, round_index, skill, refusal_gate, refusal_code, reward, record, trajectory)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (draft_id) DO UPDATE SET
    refusal_gate = excluded.refusal_gate, refusal_code = excluded.refusal_code, reward = excluded.reward,
    record = excluded.record, trajectory = coalesce(excluded.trajectory, trajectory)
"""
_PUT_ENVIRONMENT = """
INSERT INTO environment (env_id, step, draft_id, round_index, skill, record) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (env_id) DO UPDATE SET record = excluded.record
"""
_PUT_PLAY = "INSERT INTO play VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_REGRET = "INSERT INTO regret VALUES (?, ?, ?, ?, ?)"


def _draft_row(step: int, draft: Draft) -> tuple[Any, ...]:
    record = to_json(draft)
    trajectory = record.pop("trajectory")
    refusal = draft.refusal
    return (
        draft.draft_id, step, draft.round_index, draft.skill.value, refusal.gate if refusal else None,
        refusal.code if refusal else None, draft.reward, pack(record, what=f"draft {draft.draft_id}"),
        None if trajectory is None else pack(trajectory),
    )


def _environment_row(step: int, env: Environment) -> tuple[Any, ...]:
    record = pack(to_json(env), what=f"environment {env.env_id}")
    return (env.env_id, step, env.draft_id, env.round_index, env.program.skill.value, record)


def _play_row(step: int, play: Play) -> tuple[Any, ...]:
    record = to_json(play)
    trajectory = record.pop("trajectory")
    # The columns are for queries; the record is what is exact. SQLite's integers end at 2^63.
    return (
        play.play_id, step, play.env_id, play.seed & (2**63 - 1), play.repeat, play.arm.value, play.reward, int(play.won),
        int(play.void), play.stop.value, play.trajectory.sampled_tokens, pack(record), pack(trajectory),
    )


def _regret_row(step: int, env_id: str, regret: Regret) -> tuple[Any, ...]:
    return (step, env_id, regret.mean, regret.stderr, pack(to_json(regret)))


def _pack_metrics(metrics: Mapping[str, float]) -> bytes:
    bad = [k for k, v in metrics.items() if isinstance(v, bool) or not isinstance(v, int | float)]
    if bad:
        raise StoreError(f"the metric {bad[0]} is of type {type(metrics[bad[0]]).__name__}: a metric is a number")
    return pack({k: v if isinstance(v, int) else float(v) for k, v in metrics.items()})


def _write_config(run: RunDir, config: Mapping[str, Any]) -> None:
    replace_file(run.config, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True).encode())


def has_run(path: Path) -> bool:
    """Whether the database is one that :meth:`RunStore.create` finished; it sets the application id in its one transaction."""
    if not path.exists():
        return False
    connection = sqlite3.connect(path)
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError:
        return True  # a foreign file of that name: not ours to overwrite
    finally:
        connection.close()
    return bool(application or tables)


def _create_database(run: RunDir, run_id: str, config: Mapping[str, Any]) -> None:
    connection = _connect(run)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        meta = {
            "run_id": run_id, "config": dict(config), "created_at": time.time(), "status": "running", "version": __version__,
        }
        connection.executemany("INSERT INTO meta VALUES (?, ?)", [(k, pack(v)) for k, v in meta.items()])
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
        check_schema(connection, run.path)
    finally:
        connection.close()


def _connect(run: RunDir) -> sqlite3.Connection:
    if run.store.exists() and not os.access(run.store, os.W_OK):
        raise RunDirError(
            "store.sqlite is read-only", where=str(run.path), todo="make the run's folder writable, or start a new run"
        )
    connection = sqlite3.connect(run.store, timeout=30, isolation_level=None, check_same_thread=False)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        connection.close()
        raise RunDirError(
            f"the file system of this folder cannot hold the run store (journal mode {mode})", where=str(run.path),
            todo="put the run on a local disk with --run-dir",
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection
