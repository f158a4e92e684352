"""covey doctor: what is wrong here, and what to do about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from ..errors import CoveyError, Unauthorized
from .opening import database
from .options import Db, Json
from .output import as_json

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..remote.remote import Remote
    from ..store.sqlite import Sqlite

Verdict = Literal["ok", "warn", "bad"]


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    text: str
    advice: str | None = None


def doctor(json: Json = False, db: Db = None) -> int:
    """Check the installation, the machine and the queue. Exits 1 if something is bad."""
    findings = list(_look(database(db)))
    if json:
        as_json(findings)
    else:
        from . import render

        render.table(
            ["", "CHECK", "FOUND"],
            [(render.state(each.verdict), each.check, each.text) for each in findings],
            wide="FOUND",
            fold=True,
        )
        for each in findings:
            if each.advice:
                render.console().print(f"{each.check}: {each.advice}")
    return 1 if any(each.verdict == "bad" for each in findings) else 0


def _look(url: str) -> Iterator[Finding]:
    yield _python()
    yield _library()
    yield _clock()
    if os.environ.get("COVEY_RUN"):
        yield Finding("inside a job", "warn", "COVEY_RUN is set: this is the view of a job", "name the queue with --db")
    from ..compose import is_remote

    if is_remote(url):
        yield from _server(url)
        return
    yield Finding("database", "ok", url)
    if "://" not in url and not url.startswith("memory:"):
        yield _file_system(url)
        if not os.path.exists(url):
            yield Finding("file", "ok", "not there yet; `covey enqueue` creates it")
            return
    from ..compose import open_engine

    try:
        engine = open_engine(url, create=False)
    except (CoveyError, OSError) as error:
        advice = "run `covey db migrate`" if "db migrate" in str(error) else None
        yield Finding("opening", "bad", str(error), advice)
        return
    try:
        yield from _queue(engine)
    finally:
        engine.close()


def _server(url: str) -> Iterator[Finding]:
    """A queue behind a server: whether it answers, lets us in and fits; its database is that host's to look at."""
    from .. import __version__
    from .opening import open_queue

    queue = cast("Remote", open_queue(url))
    try:
        info = queue.server()
        verdict: Verdict = "ok" if info.version == __version__ else "warn"
        advice = None if verdict == "ok" else f"this is {__version__}; upgrade the older of the two"
        yield Finding("server", verdict, f"{url}, Covey {info.version}, queue {info.database_id}", advice)
        for found in queue.status().findings:
            yield Finding("queue", "ok" if found.level == "note" else "warn", found.text, found.advice)
    except Unauthorized as error:
        yield Finding("token", "bad", str(error), "set COVEY_TOKEN_FILE or pass --token-file")
    except CoveyError as error:
        yield Finding("server", "bad", str(error))


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    from .. import __version__

    return Finding("covey", "ok", f"{__version__} on Python {version}")


def _library() -> Finding:
    import apsw

    from ..store.sqlite import version_problem

    version = apsw.sqlite_lib_version()
    problem = version_problem(version)
    if problem is None:
        return Finding("sqlite", "ok", version)
    verdict: Verdict = "bad" if problem[0] == "bad" else "warn"
    return Finding("sqlite", verdict, problem[1], "pip install --upgrade apsw")


def _clock() -> Finding:
    import time

    year = time.gmtime().tm_year
    if not 2024 <= year < 2100:
        return Finding("clock", "bad", f"it is the year {year}", "set the clock: run_at and retention go by it")
    return Finding("clock", "ok", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def _file_system(url: str) -> Finding:
    from ..store.sqlite import NETWORK_FILE_SYSTEMS, file_system_of

    directory = os.path.dirname(os.path.abspath(url))
    if not os.path.isdir(directory):
        return Finding("file system", "bad", f"no directory {directory}", "create it, or name another with --db")
    kind = file_system_of(directory) or "unknown"
    if kind in NETWORK_FILE_SYSTEMS:
        return Finding("file system", "bad", f"{kind}: several hosts would corrupt the file", "use a local disk")
    if kind in ("tmpfs", "ramfs"):
        return Finding("file system", "warn", f"{kind}: gone after a reboot", "use a disk for jobs that matter")
    free = os.statvfs(directory)
    left = free.f_bavail * free.f_frsize
    if left < 100 << 20:
        return Finding(
            "file system", "warn", f"{kind}, {left >> 20} MiB left", "free some space; a full disk stops the queue"
        )
    return Finding("file system", "ok", f"{kind}, {left >> 30} GiB left")


# ── an open queue ───────────────────────────────────────────────────────────────────────────────────────────────────


def _queue(engine: Engine) -> Iterator[Finding]:
    from ..store.sqlite import Sqlite

    dialect = engine.store.dialect
    if isinstance(dialect, Sqlite):
        yield _journal(dialect)
        yield _durability(dialect)
        yield _wal(dialect)
    status = engine.status()
    yield Finding("schema", "ok", str(status.schema))
    yield from _leftovers(engine)
    for text in status.notes:
        yield Finding("queue", "warn", text)


def _journal(dialect: Sqlite) -> Finding:
    mode = str(dialect.pragma("journal_mode"))
    if mode in ("wal", "memory"):
        return Finding("journal", "ok", mode)
    return Finding("journal", "bad", f"{mode} instead of wal", "close every other program that uses the file")


def _durability(dialect: Sqlite) -> Finding:
    level = int(dialect.pragma("synchronous"))
    if level >= 2:
        return Finding("durability", "ok", "full: an acknowledged job survives a power cut")
    advice = "if that is not what you want: covey config set durability full"
    return Finding("durability", "warn", "normal: a power cut may undo the last moments", advice)


def _wal(dialect: Sqlite) -> Finding:
    try:
        size = os.path.getsize(dialect.path + "-wal")
    except OSError:
        size = 0
    if size > 256 << 20:
        advice = "some reader holds an old snapshot; find and end it"
        return Finding("wal file", "warn", f"{size >> 20} MiB", advice)
    return Finding("wal file", "ok", f"{size / (1 << 20):.1f} MiB")


def _leftovers(engine: Engine) -> Iterator[Finding]:
    """Pools that are gone but still in the books, and processes that carry their runs."""
    from ..engine.views import is_alive

    gone = [pool for pool in engine.pool_views() if not is_alive(pool)]
    strays = _strays(engine.database_id, lambda pool: not any(each.id == pool for each in _living(engine)))
    if strays:
        pids = ", ".join(map(str, strays[:10]))
        yield Finding(
            "leftovers", "warn", f"processes of lost pools: {pids}", "the next `covey worker start` ends them"
        )
    if gone:
        names = ", ".join(pool.name for pool in gone[:5])
        yield Finding(
            "pools", "warn", f"gone without a word: {names}", "the next `covey worker start` hands their jobs back"
        )
    if not strays and not gone:
        yield Finding("leftovers", "ok", "none")


def _living(engine: Engine) -> list[Any]:
    from ..engine.views import is_alive

    return [pool for pool in engine.pool_views() if is_alive(pool)]


def _strays(database_id: str, is_lost: Callable[[int], bool]) -> list[int]:
    """Our own processes whose COVEY_RUN names this database and a pool that is lost."""
    found: list[int] = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        mark = f"COVEY_RUN={database_id}:".encode()
        run = next((each for each in variables if each.startswith(mark)), None)
        if run is None:
            continue
        pool = run.decode("ascii", "replace").split(":")[1]
        if pool.isdigit() and is_lost(int(pool)):
            found.append(int(entry))
    return found
