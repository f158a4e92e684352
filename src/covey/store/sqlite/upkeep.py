"""A file of SQLite looked after: its own check, a copy while it is in use, its unused space given back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import apsw

from ...env import failpoint, new_database_id
from ...errors import InvalidInput

if TYPE_CHECKING:
    from .database import Sqlite


class SqliteUpkeep:
    stops_writers = True
    repair = "restore a backup, or copy what is left with .recover"

    def __init__(self, file: Sqlite) -> None:
        self._file = file

    def set_durability(self, durability: str) -> None:
        level = "full" if durability == "full" else "normal"
        with self._file._lock:
            self._file._db.pragma("synchronous", level)

    def tidy(self) -> None:
        """There is nothing that SQLite keeps."""

    def problems(self) -> list[str]:
        """What SQLite's own check and the foreign keys say; empty when all is well."""
        ask = self._file._db.execute
        try:
            found = [str(row[0]) for row in ask("pragma integrity_check")]
            broken = dict.fromkeys((str(row[0]), int(row[3])) for row in ask("pragma foreign_key_check"))
            dangling = [text for table, number in broken for text in self._dangling(table, number)]
        except apsw.Error as error:  # damage so bad that the check itself stumbles over it
            return [str(error)]
        return [text for text in found if text != "ok"] + dangling

    def _dangling(self, table: str, number: int) -> list[str]:
        """The rows whose reference leads nowhere, by their keys: tables without a rowid have nothing else to name."""
        ask = self._file._db.execute
        links = [row[2:5] for row in ask(f"pragma foreign_key_list({table})") if row[0] == number]
        key = [row[1] for row in sorted(ask(f"pragma table_info({table})"), key=lambda row: row[5]) if row[5]]
        other = links[0][0]
        match = " and ".join(f"o.{theirs} = t.{ours}" for _, ours, theirs in links)
        named = ", ".join(f"t.{column}" for column in (*key, *(ours for _, ours, _ in links)))
        present = " and ".join(f"t.{ours} is not null" for _, ours, _ in links)
        rows = ask(
            f"select {named} from {table} t where {present} and not exists (select 1 from {other} o where {match})"
        )
        return [
            f"{table} ({', '.join(f'{name} {value!r}' for name, value in zip(key, row, strict=False))}) belongs to "
            f"{other} {', '.join(repr(value) for value in row[len(key) :])}, which is not there"
            for row in rows
        ]

    def backup(self, target: str) -> Iterator[tuple[int, int]]:
        """Copies one moment of the live database through SQLite; yields (pages left, pages in all)."""
        path = self._file.path
        if path and os.path.exists(target) and os.path.samefile(target, path):
            raise InvalidInput(f"{target} is the queue itself; name another file for the backup")
        return self._copied(target)

    def _copied(self, target: str) -> Iterator[tuple[int, int]]:
        part = target + ".part"
        # A connection of its own that stays in one read transaction: otherwise every commit meanwhile starts it over.
        source = apsw.Connection(self._file._db.filename, apsw.SQLITE_OPEN_READONLY)
        other = apsw.Connection(part)
        other.pragma("foreign_keys", True)  # what belongs to a pool goes with it
        try:
            with self._file._explained():
                source.execute("begin deferred; select count(*) from sqlite_master").fetchall()
            with other.backup("main", source, "main") as copying:
                while not copying.done:
                    with self._file._explained(target):
                        copying.step(2000)
                    yield copying.remaining, copying.page_count
            other.execute("pragma journal_mode = delete").fetchall()
            # Another queue from now on: its pools must not take those of the original for their own lost ones.
            other.execute("update meta set database_id = ?; delete from pools", (new_database_id(),)).fetchall()
            failpoint("backup.before_replace")
        except BaseException:
            other.close()
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        finally:
            other.close()
            source.close()
        os.replace(part, target)

    def size(self) -> int:
        """Bytes on the disk."""
        return os.path.getsize(self._file.path)

    def vacuum(self) -> None:
        with self._file._alone():
            self._file._db.execute("vacuum")
            failpoint("vacuum.before_checkpoint")
            self._file._db.execute("pragma wal_checkpoint(truncate)").fetchall()
