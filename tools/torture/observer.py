"""The harness's own look into the queue: it waits while the database is away, and takes backups of the living file."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import apsw

from covey.core.model import ENDED
from covey.engine.engine import Engine
from covey.errors import StoreError
from covey.store.sqlite.database import Sqlite

from . import planted
from .history import read_all

AWAY_S = 60.0  # what a database may be away


class Books:
    def __init__(self, engine: Engine, directory: Path, *, copies_live: bool) -> None:
        self.engine, self.database_id = engine, engine.database_id
        self._directory, self._copies_live = directory, copies_live
        dialect = engine.store.dialect
        self._reader: apsw.Connection | None = None
        if copies_live and isinstance(dialect, Sqlite):
            self._reader = planted.keep_old_snapshot(dialect.path)
        self.backups = 0
        self.bad_backups: list[str] = []

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        deadline = time.monotonic() + AWAY_S
        while True:
            try:
                return self.engine.store.raw(sql)
            except StoreError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def counts(self) -> Counter[str]:
        """State → jobs."""
        return Counter(dict(self.ask("select state, count(*) from {jobs} group by state")))

    def unfinished(self) -> int:
        return sum(count for state, count in self.counts().items() if state not in ENDED)

    def enqueued(self) -> int:
        return int(self.ask("select count(*) from {jobs} where parent_id is null")[0][0])

    def pools_at_work(self) -> set[int]:
        """The pids of pools that have workers."""
        return {row[0] for row in self.ask("select pid from {pools} where id in (select pool from {workers})")}

    def has_worked(self, pid: int) -> bool:
        """A pool that finds no server when it starts may say so and end; later it must go on."""
        return bool(self.ask(f"select 1 from {{events}} where text like '%(pid {int(pid)} on%' limit 1"))

    def back_up(self) -> None:
        """A copy was taken while everybody writes: whole, sound, and with all that was acknowledged before it began."""
        dialect = self.engine.store.dialect
        if not isinstance(dialect, Sqlite):
            return
        acknowledged = [pair for request in read_all(self._directory) for pair in request.acknowledged()]
        target = str(self._directory / "backup.db")
        if self._copies_live:  # a planted bug
            planted.copy_live_file(dialect.path, target)
        else:
            for _ in dialect.backup(target):
                pass
        self.backups += 1
        self.bad_backups += [f"backup {self.backups}: {problem}" for problem in _problems(target, acknowledged)]
        os.unlink(target)


def _problems(path: str, acknowledged: list[tuple[int, str]]) -> list[str]:
    try:
        with contextlib.closing(apsw.Connection(path)) as copy:
            broken = [str(row[0]) for row in copy.execute("pragma integrity_check") if row[0] != "ok"]
            there = {row[0]: row[1] for row in copy.execute("select id, batch from jobs where parent_id is null")}
    except apsw.Error as error:
        return [f"it cannot be read: {error}"]
    missing = [id for id, token in acknowledged if there.get(id) != token]
    lacks = (
        [f"{len(missing)} of {len(acknowledged)} acknowledged jobs are not in it, job {missing[0]}"] if missing else []
    )
    return broken + lacks
