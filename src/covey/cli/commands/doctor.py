"""covey doctor: what is wrong here, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from ...errors import CoveyError
from ..checks.check_result import Finding, bad, ok
from ..open_queue import database
from ..options import Db, Json
from ..printing import as_json, decide

if TYPE_CHECKING:
    from ...engine.engine import Engine


def doctor(json: Json = False, db: Db = None) -> int:
    """Check the installation, the machine and the queue. Exits 1 if something is bad."""
    from ..pasting import pasteable

    findings = [
        structs.replace(each, advice=each.advice and pasteable(each.advice, db)) for each in _look(database(db))
    ]
    code = decide(1 if any(each.verdict == "bad" for each in findings) else 0)
    if json:
        as_json(findings)
    else:
        from .. import render

        render.table(
            ["", "CHECK", "FOUND"],
            [(render.state(each.verdict), each.check, each.text) for each in findings],
            wide="FOUND",
            fold=True,
        )
        for each in findings:
            if each.advice:
                render.console().print(f"{each.check}: {each.advice}")
    return code


def _look(url: str) -> Iterator[Finding]:
    from ...open import is_remote
    from ..checks import host
    from ..checks import server as served

    for check in (host.installation, host.library, host.clock):
        yield from _guarded(check.__name__, check)
    if is_remote(url):
        yield from _guarded("server", lambda: served.look(url))
        return
    if (path := _path_of(url)) is not None:
        yield ok("database", path)
        yield from _guarded("file system", lambda: host.file_system(path))
        if not os.path.exists(path):
            yield _missing(path)
            return
    from ...open import open_engine

    try:
        engine = open_engine(url, create=False)
    except (CoveyError, OSError) as error:
        advice = "`covey db migrate`" if "db migrate" in str(error) else "see docs/operations.md, Troubleshooting"
        yield bad("opening", str(error), advice)
        return
    try:
        yield from _queue(engine)
    finally:
        engine.close()


def _queue(engine: Engine) -> Iterator[Finding]:
    from ...store.sqlite.database import Sqlite
    from ..checks import leftovers, postgres, settings
    from ..checks import server as served
    from ..checks import sqlite as file

    dialect = engine.store.dialect
    if isinstance(dialect, Sqlite):
        yield from _guarded("file", lambda: file.look(dialect))
    else:
        yield ok("database", dialect.url)
        yield from _guarded("server", lambda: postgres.look(engine))
    yield from _guarded("schema", lambda: [ok("schema", str(engine.status().schema))])
    yield from _guarded("settings", lambda: settings.look(engine))
    yield from _guarded("leftovers", lambda: leftovers.look(engine))
    yield from _guarded("queue", lambda: served.of_status(engine.status()))


def _guarded(check: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Whoever is called because something is wrong must not stumble over it: one check that fails is a finding too."""
    try:
        yield from look()
    except Exception as error:
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        yield bad(check, f"could not be looked at: {text}", "see docs/operations.md, Troubleshooting")


def _missing(path: str) -> Finding:
    if os.path.exists(f"{path}-wal"):
        text = "not there, but its -wal is: it was removed or moved while somebody had it open"
        return bad("file", text, f"if {path} was moved, move {path}-wal with it, before anybody opens either of them")
    return ok("file", "not there yet; `covey enqueue` creates it")


def _path_of(url: str) -> str | None:
    """Of a queue in a file."""
    scheme, marker, rest = url.partition("://")
    if url.startswith("memory:") or ":memory:" in url or (marker and scheme not in ("sqlite", "file")):
        return None
    return os.path.expanduser(rest if marker else url)
