"""What `covey server` does: it owns the queue, watches its pools, and leaves a note where it can be found."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .. import __version__, env
from ..connection import absolute
from ..discovery import Note, forget, found, leave_note, who_answers
from ..errors import CoveyError, InvalidInput, Refused
from .open_queue import database, open_database
from .printing import answer, note

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..log import Log

PORT = 8765
STOP_S = 30.0


def port_of(given: int | None) -> int:
    """--port, else COVEY_SERVER_PORT, else 8765."""
    text = os.environ.get("COVEY_SERVER_PORT")
    if given is None and text is not None:
        if not text.isdecimal():
            raise InvalidInput(f"COVEY_SERVER_PORT {text!r}: a number from 1 to 65535")
        given = int(text)
    port = PORT if given is None else given
    if not 0 <= port <= 65535:
        raise InvalidInput(f"--port {port}: a number from 1 to 65535")
    return port


def start(
    db: str | None, *, hosts: Sequence[str], port: int | None, names: Sequence[str], needs_token: bool, quiet: bool
) -> int:
    """A server has run until it was stopped; its exit code."""
    try:
        from ..web import auth
        from ..web import serve as serving
    except ImportError as error:
        raise InvalidInput(f"the server needs more packages ({error}); pip install 'covey[server]'") from None
    from ..log import Log
    from ..open import open_engine

    url = absolute(database(db))
    if url.startswith(("memory:", ":memory:", "sqlite://:memory:")):
        raise InvalidInput("a queue in memory cannot be served: it would be gone with the server; name a file")
    engine = open_database(url, create=True)
    wide = not auth.is_loopback(hosts)
    if (wide or needs_token) and not any(token.state == "valid" for token in engine.tokens()):
        where = f"--host {hosts[0]} lets other machines in" if wide else "--require-token"
        raise Refused(f"{where}, and this queue has no token; make one first: covey token create NAME --role admin")
    if (running := found(engine.store.dialect.side)) is not None:
        raise Refused(f"a server of this queue runs already: {running.url} (pid {running.pid}); `covey server stop`")
    number = port_of(port)
    try:
        sockets = serving.bind(hosts, number)
    except serving.Taken as taken:
        who = who_answers(hosts[0], number)
        raise Refused(f"{taken}: {who}; choose another with --port, or stop that one") from None
    log = Log("server", quiet=quiet)
    host, bound, *_ = sockets[0].getsockname()
    address = serving.Address(host, bound)
    mine = Note(
        url=address.url,
        database_id=engine.database_id,
        version=__version__,
        pid=os.getpid(),
        ticks=env.start_ticks(os.getpid()) or 0,
        boot=env.boot(),
    )
    side = engine.store.dialect.side

    def ready() -> None:
        leave_note(side, mine)
        log.serving(address.url, engine.store.dialect.url, wide or needs_token)

    def another() -> Engine:
        """One more connection to the very queue that is served: its place may be empty by now, or another's."""
        engine.stored_settings()  # raises if so
        return open_engine(url, create=False)

    try:
        with _watching(engine, log):
            serving.serve(
                another,
                sockets,
                log,
                names=names,
                needs_token=wide or needs_token,
                on_ready=ready,
            )
    finally:
        forget(side, mine)
    log.server_stopped()
    return 0


@contextlib.contextmanager
def _watching(engine: Engine, log: Log) -> Iterator[None]:
    """Pools that are lost are given up by somebody, even while no other pool runs; loans that are out of time too."""
    from ..pool.reaper import Reaper
    from ..web.api.loans import end_overdue

    stop = threading.Event()
    reaper = Reaper(engine, engine.database_id, log)

    def watch() -> None:
        while not stop.wait(engine.look_s):
            try:
                reaper.look(me=None)
                for loan in end_overdue(engine):
                    log.timed_out(loan.job, loan.timeout_s or 0.0)
            except (CoveyError, OSError) as error:
                log.store_failed(error)

    thread = threading.Thread(target=watch, name="covey-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def stop(db: str | None) -> int:
    """The server of this queue on this host is gone."""
    engine = open_database(db)
    running = found(engine.store.dialect.side)
    if running is None:
        note("no server of this queue runs on this host")
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while env.alive(running.pid, running.ticks):
        if time.monotonic() > deadline:
            raise Refused(f"the server (pid {running.pid}) has not stopped after {STOP_S:g} s; kill -9 {running.pid}")
        time.sleep(0.02)
    answer(f"stopped {running.url}")
    return 0
