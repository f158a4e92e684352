"""SQLite through apsw: one file, one connection, every write through the gate.

Never open, copy or lock the database file itself beside SQLite, and never use the standard library's `sqlite3` on it
in the same process: closing any descriptor of the file drops the locks that SQLite holds on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw

from ...env import failpoint, new_database_id, now
from ...errors import Busy, Gone, InvalidInput, NoQueue, SchemaError, StoreError, Unknown
from ..dialect import STILL_S, Listener, Params
from ..time_limit import Limit, limited
from .bell import Bell
from .disk_space import is_full
from .gate import Gate
from .in_memory import QuietBell
from .sharing import barred, follow

NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs", "ncpfs"}
MOUNTS = "/proc/self/mounts"
STEPS = 500_000  # of SQLite's machine between two looks at the clock: about ten milliseconds


def version_problem(version: str) -> tuple[str, str] | None:
    """('bad' | 'warn', reason) for a SQLite version with the WAL-reset corruption bug, else None."""
    number = tuple(int(part) for part in version.split("."))[:3]
    fixed = ((3, 44, 6), (3, 50, 7), (3, 51, 3))
    if number >= (3, 53, 0):
        return None
    if number >= (3, 52, 0):
        return "warn", f"SQLite {version} is untested with Covey; 3.53 or newer is known good"
    for first in fixed:
        if number[:2] == first[:2] and number >= first:
            return None
    return "bad", f"SQLite {version} can corrupt a database in WAL mode; upgrade apsw to 3.53 or newer"


# SQLite keeps its locks on a file per process, and believes after a fork that the child holds what the parent holds. A
# child that opens the file beside the inherited connection takes no lock of its own, and loses acknowledged commits
# when the parent closes. So nobody is inside SQLite while this process forks, and the child closes what it inherited
# before it can open anything; its parent's locks stay, because they are the parent's.
_open: weakref.WeakSet[Sqlite] = weakref.WeakSet()
_held_for_fork: list[Sqlite] = []


def _before_fork() -> None:
    for each in list(_open):
        each._lock.acquire()
        _held_for_fork.append(each)


def _after_fork_in_parent() -> None:
    while _held_for_fork:
        _held_for_fork.pop()._lock.release()


def _after_fork_in_child() -> None:
    while _held_for_fork:
        each = _held_for_fork.pop()
        each._lock.release()
        with contextlib.suppress(apsw.Error):
            each._db.close()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


class Sqlite:
    _rings: list[str] | None = None  # of the transaction that is open
    limit: Limit | None = None
    name = "sqlite"
    prefix = ""
    channel = ""
    row_locks = False

    def __init__(self, path: str, *, durability: str = "full", timeout_s: float = 10.0, create: bool = True) -> None:
        """An open database in WAL mode, or StoreError in one line. ``create=False``: only if it is there."""
        self.path = os.path.abspath(path)
        self.url = self.path
        self.side = self.path + "-covey"  # gate, bells, live output, logs
        self._timeout_s = timeout_s
        self._refuse_bad_library()
        self._refuse_bad_place(create)
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        with self._explained():
            self._db = apsw.Connection(self.path, flags)
            try:
                self._db.set_busy_timeout(int(timeout_s * 1000))
                self._refuse_other_tables()
                gate = self._prepare_side()
                self._switch_to_wal(gate)
                self._configure(durability)
                self._prepare(gate, Bell(os.path.join(self.side, "bells")))
            except BaseException:
                self._db.close()
                raise
        self._identity = self._stat()

    @classmethod
    def memory(cls, name: str) -> Sqlite:
        """A database in this process's memory, shared by every store that names it."""
        self = cls.__new__(cls)
        self.path, self.url, self.side = "", f"memory:{name}", ""
        self._timeout_s = 10.0
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self._db = apsw.Connection(f"file:/covey-{name}?vfs=memdb", flags)
        self._db.set_busy_timeout(10_000)
        self._configure("full")
        self._prepare(None, QuietBell.of(name))
        self._identity = None
        return self

    def set_durability(self, durability: str) -> None:
        with self._lock:
            self._db.execute(f"pragma synchronous = {'full' if durability == 'full' else 'normal'}")

    def pragma(self, name: str) -> Any:
        return self._db.pragma(name)

    # ── the Dialect ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def transaction(
        self, *, marked: bool = True, alone: bool = False, wait_s: float | None = None, still_s: float = STILL_S
    ) -> Iterator[None]:
        """Every writer is alone here, and a commit that fails has not happened: the options change nothing."""
        self._refuse_other_process()
        with self._lock:
            if self._gate:
                self._gate.enter(self._timeout_s)
            try:
                with self._explained():
                    self._refuse_other_file()
                    rings: list[str] = []
                    self._rings = rings
                    try:
                        self._db.execute("begin immediate")
                        failpoint("store.after_begin")
                        yield
                        failpoint("store.before_commit")
                        self._refuse_other_file()
                        self._commit()
                    except BaseException:
                        if self._db.in_transaction:
                            self._db.execute("rollback")
                        raise
                    finally:
                        self._rings = None
            finally:
                if self._gate:
                    self._gate.leave()
        failpoint("store.after_commit")
        for who in dict.fromkeys(rings):
            self._bell.ring(who)

    def express(self, sql: str, params: Params, hint: tuple[str, Params]) -> int | None:
        raise NotImplementedError("SQLite has no messages")

    def at_once(self, sql: str, params: Params, *, rings: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        raise NotImplementedError("SQLite has no messages")

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        self._refuse_other_process()
        with self._lock, self._explained():
            self._refuse_other_file()
            self._db.execute("begin deferred")
            try:
                yield
            finally:
                self._db.execute("rollback")

    @contextlib.contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        with limited(self, limit_s):
            self._db.set_progress_handler(lambda: self.limit is not None and self.limit.is_over, STEPS)
            try:
                yield
            finally:
                self._db.set_progress_handler(None)

    def query(self, sql: str, params: Params) -> list[tuple[Any, ...]]:
        self._refuse_other_process()
        with self._lock, self._explained():
            if self._rings is None:  # a transaction has looked for itself
                self._refuse_other_file()
            return self._db.execute(sql, params).fetchall()

    def queries(self, *asked: tuple[str, Params]) -> list[list[tuple[Any, ...]]]:
        return [self.query(*each) for each in asked]

    def also(self, sql: str, params: Params) -> None:
        self.query(sql, params)

    def execute_many(self, sql: str, rows: Iterable[Params | tuple[Any, ...]]) -> None:
        self._db.executemany(sql, rows)

    def script(self, sql: str) -> None:
        self._db.execute(sql)

    def tables(self) -> set[str]:
        with self._explained():
            found = {row[0] for row in self._db.execute("select name from sqlite_master where type = 'table'")}
        return found - {"sqlite_sequence"}

    def planned(self, statements: Mapping[str, str]) -> dict[str, str]:
        return {}  # apsw keeps what it has prepared

    def now(self) -> int:
        return now()

    def tidy(self) -> None:
        pass

    def take_ids(self, table: str, count: int) -> range:
        found = self._db.execute("select seq from sqlite_sequence where name = ?", (table,)).fetchall()
        last: Any = found[0][0] if found else 0
        first = last + 1
        return range(first, first + count)

    def ring(self, who: str) -> None:
        if self._rings is None:
            self._bell.ring(who)
        else:
            self._rings.append(who)

    def after_commit(self, sql: str, params: Params) -> None:
        raise NotImplementedError("SQLite has bells")

    def listen(self, who: str) -> Listener:
        return self._bell.listen(who)

    def while_waiting(self, work: Callable[[], float | None]) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open. In a forked child the parent's connection is left alone."""
        if self._pid == os.getpid():
            with self._lock:
                self._db.close()
                self._bell.close()

    # ── maintenance ─────────────────────────────────────────────────────────────────────────────────────────────────

    def problems(self) -> list[str]:
        """What SQLite's own check and the foreign keys say; empty when all is well."""
        found = [str(row[0]) for row in self._db.execute("pragma integrity_check")]
        broken = dict.fromkeys((str(row[0]), int(row[3])) for row in self._db.execute("pragma foreign_key_check"))
        dangling = [text for table, number in broken for text in self._dangling(table, number)]
        return [text for text in found if text != "ok"] + dangling

    def _dangling(self, table: str, number: int) -> list[str]:
        """The rows whose reference leads nowhere, by their keys: tables without a rowid have nothing else to name."""
        ask = self._db.execute
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
        if self.path and os.path.realpath(target) == os.path.realpath(self.path):
            raise InvalidInput(f"{target} is the queue itself; name another file for the backup")
        part = target + ".part"
        # A connection of its own that stays in one read transaction: otherwise every commit meanwhile starts it over.
        source = apsw.Connection(self._db.filename, apsw.SQLITE_OPEN_READONLY)
        other = apsw.Connection(part)
        other.pragma("foreign_keys", True)  # what belongs to a pool goes with it
        try:
            with self._explained():
                source.execute("begin deferred; select count(*) from sqlite_master").fetchall()
            with other.backup("main", source, "main") as copying:
                while not copying.done:
                    with self._explained(target):
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
        return os.path.getsize(self.path)

    def vacuum(self) -> None:
        with self._lock, self._explained():
            if self._gate:
                self._gate.enter(self._timeout_s)
            try:
                self._db.execute("vacuum")
                failpoint("vacuum.before_checkpoint")
                self._db.execute("pragma wal_checkpoint(truncate)").fetchall()
            finally:
                if self._gate:
                    self._gate.leave()

    # ── how it is kept safe ─────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self) -> None:
        """Committed; or it raises, and not even a crash brings back what was not.

        When fsync fails, the WAL has all pages of the transaction and its end mark, and whoever recovers the file after
        a crash takes it for committed. The next write begins in the same place: so we write at once, nothing new.
        """
        try:
            self._db.execute("commit")
        except apsw.IOError as error:
            if not _is_fsync(error):
                raise
            if self._db.in_transaction:
                self._db.execute("rollback")
            try:
                self._db.execute(f"pragma user_version = {self._db.pragma('user_version')}")
            except apsw.Error as another:
                if not _is_fsync(another):  # else this one is in its place, as far as anybody can see
                    why = f"the disk failed under {self.path} ({error}), and again ({another})"
                    raise Unknown(f"{why}; look whether it was stored once it works, before you repeat it") from None
            raise

    def _switch_to_wal(self, gate: Gate) -> None:
        """Once in the life of a file. Two processes that switch it at the same time would not wait for each other."""
        if self._db.pragma("journal_mode") != "wal":
            gate.enter(self._timeout_s)
            try:
                self._db.pragma("journal_mode", "wal")
            finally:
                gate.leave()

    def _configure(self, durability: str) -> None:
        db = self._db
        db.pragma("synchronous", "full" if durability == "full" else "normal")
        db.pragma("wal_autocheckpoint", 5000)
        db.pragma("cache_size", -65536)
        db.pragma("foreign_keys", True)
        db.pragma("journal_size_limit", 64 << 20)

    def _prepare_side(self) -> Gate:
        """The directory beside the file, with its gate and bells, is there for whoever may write the file."""
        gate, bells = os.path.join(self.side, "gate"), os.path.join(self.side, "bells")
        os.makedirs(bells, exist_ok=True)
        opened = Gate.of(gate)
        like = os.stat(self.path)
        for each in (self.side, bells, gate):
            follow(each, like)
        return opened

    def _prepare(self, gate: Gate | None, bell: Bell | QuietBell) -> None:
        self._gate, self._bell = gate, bell
        self._lock = threading.RLock()
        self._pid = os.getpid()
        _open.add(self)

    @staticmethod
    def _refuse_bad_library() -> None:
        problem = version_problem(apsw.sqlite_lib_version())
        if problem and problem[0] == "bad":
            raise StoreError(problem[1])

    def _refuse_bad_place(self, create: bool) -> None:
        directory = os.path.dirname(self.path)
        if not os.path.isdir(directory):
            raise StoreError(f"no directory {directory}; create it first")
        if os.path.isdir(self.path):
            raise StoreError(f"{self.path} is a directory; name a file")
        if not create and not os.path.exists(self.path):
            raise NoQueue(f"no queue at {self.path}; `covey enqueue` creates it, or name another with --db")
        if (kind := file_system_of(directory)) in NETWORK_FILE_SYSTEMS:
            raise StoreError(f"{self.path} is on {kind}: several hosts would corrupt the file; use a local disk")

    def _refuse_other_tables(self) -> None:
        """Before anything is written: WAL mode would already change somebody else's file."""
        tables = self.tables()
        if tables and not {"meta", "jobs"} <= tables:
            raise SchemaError(f"{self.path} is a database, but not a Covey queue; name another with --db")

    def _refuse_other_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(f"this queue was opened by pid {self._pid}; open it anew after a fork")

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _refuse_other_file(self) -> None:
        if self._identity and self._stat() != self._identity:
            raise Gone(f"{self.path} was removed or replaced while in use; nothing is stored until a restart")

    @contextlib.contextmanager
    def _explained(self, written: str | None = None) -> Iterator[None]:
        """SQLite's errors as one line that says what, which, what now. ``written``: which file, if it is another."""
        try:
            yield
        except apsw.NotADBError:
            raise StoreError(f"{self.path} is not a SQLite database; name another file with --db") from None
        except (apsw.ReadOnlyError, PermissionError) as error:
            raise self._forbidden(getattr(error, "filename", None) or barred(self.path)) from None
        except OSError as error:
            if error.errno == errno.EROFS:
                raise StoreError(f"{self.path} is on a read-only file system; mount it for writing") from None
            if error.errno == errno.ENOSPC:
                raise StoreError(f"no space left beside {self.path}; free some and try again") from None
            raise
        except apsw.CantOpenError:
            if (which := barred(self.path)) != self.path or os.path.exists(self.path):
                raise self._forbidden(which) from None
            raise StoreError(f"{self.path} cannot be opened; check that the directory exists and is writable") from None
        except apsw.BusyError:
            raise Busy(f"{self.path} is locked by a program that is not Covey; close it and try again") from None
        except apsw.FullError:
            where = written or self.path
            raise StoreError(f"no space left for {where}; nothing was stored, free some and try again") from None
        except apsw.IOError as error:
            if (which := barred(self.path)) != self.path:
                raise self._forbidden(which) from None
            if is_full(os.path.dirname(self.path)):  # also what is shared between processes needs a page
                raise StoreError(
                    f"no space left for {self.path}; nothing was stored, free some and try again"
                ) from None
            raise StoreError(f"the disk failed under {self.path} ({error}); nothing was stored") from None
        except (
            apsw.ProtocolError,
            apsw.LockedError,
            apsw.NoMemError,
            apsw.InternalError,
            apsw.InterruptError,
        ) as error:
            if isinstance(error, apsw.InterruptError) and self.limit is not None:
                raise self.limit.refusal() from None
            raise StoreError(f"SQLite could not work on {self.path} ({error}); nothing was stored, try again") from None
        except apsw.CorruptError as error:
            raise StoreError(f"{self.path} is damaged ({error}); restore a backup") from None

    def _forbidden(self, which: str) -> StoreError:
        queue = "" if which == self.path else f"{self.path} cannot be used: "
        return StoreError(f"{queue}{which} cannot be written by this user; check who owns it, and its mode")


def _is_fsync(error: apsw.Error) -> bool:
    return getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_FSYNC


def file_system_of(path: str) -> str | None:
    """The type of the file system that holds ``path``, or None where that cannot be told."""
    best, kind = "", None
    real = os.path.realpath(path)
    try:
        with open(MOUNTS) as table:
            for line in table:
                _, mount, found, *_ = (*line.split(), "", "", "")
                mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount)
                if mount and (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
                    best, kind = mount, found
    except OSError:
        return None
    return kind
