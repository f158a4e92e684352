"""Bugs planted on purpose. Each is one that a queue like this could have; the checker must find every one of them.

What a mutant changes is changed in the running process only: in the client that enqueues, in the pool, in the server,
or in the zygote and its workers. A bug that shows only in a rare moment brings that moment about, so that a short run
always has it.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from covey.core.model import Spec
from covey.core.turn import Reply, Turn
from covey.engine.engine import Engine
from covey.engine.turn import Answer
from covey.errors import Refused, StoreError
from covey.remote.remote import Remote
from covey.store.sqlite.database import Sqlite
from covey.system import process_tree

from .history import History

BUSY_MS = 50  # what a program allows that does not know of the gate


def plant(queue: Engine | Remote, mutants: Iterable[str]) -> None:
    """In a client, a pool or a server."""
    for mutant in mutants:
        if isinstance(queue, Engine):
            queue.store._calls.clear()  # statements that the database has planned already know nothing of the bug
        _plant(queue, mutant)


def _plant(queue: Engine | Remote, mutant: str) -> None:
    match mutant, queue:
        case "no_fence", Engine():
            _without_fence(queue.store._sql)
            _cancel_before_a_report(queue)
        case "uncounted", Engine():
            _without_count(queue.store._sql)
        case "counted_late", Engine():
            _count_late(queue.store._sql)
        case "deferred_begin", Engine():
            Sqlite.transaction = _deferred  # type: ignore[method-assign]
        case "forgetful", Remote():
            _forget_results(queue)
        case "forgetful", Engine():
            _die_of_a_report(queue)
        case "group_only", _:
            end_groups_only()


def _without_fence(statements: dict[str, str]) -> None:
    """Whatever a pool reports is written, even about a run that is no longer the job's."""
    statements["complete"] = re.sub(r"and \S*jobs\.fence = .*", "", statements["complete"])
    statements["change"] = statements["change"].replace("and state = :was and fence = :expected", "")


def _without_count(statements: dict[str, str]) -> None:
    """No attempt is ever counted."""
    statements["claim"] = statements["claim"].replace("attempts = attempts + 1,", "")


def _count_late(statements: dict[str, str]) -> None:
    """An attempt counts when its end is written, not when it begins."""
    _without_count(statements)
    statements["complete"] = statements["complete"].replace("pool = null,", "pool = null, attempts = attempts + 1,", 1)
    statements["change"] = statements["change"].replace(
        "else attempts + :attempts end", "else attempts + :attempts + (state = 'processing') end"
    )


def _cancel_before_a_report(engine: Engine) -> None:
    """In a pool: its first plain success is one of a job that was cancelled in the same moment."""
    from .jobs import append

    turn = engine.turn
    left = [1]

    def late(asked: Turn) -> Reply:
        ended = [report for report in asked.reports if report.outcome == "success" and not report.spawned]
        if ended and left:
            append(_directory() / "cancels", f"{ended[0].id}\n")
            with contextlib.suppress(Refused):  # somebody was faster
                engine.cancel([ended[0].id])
                left.clear()
        return turn(asked)

    engine.turn = late  # type: ignore[assignment,method-assign]


def _die_of_a_report(engine: Engine) -> None:
    """In a server: the first that is told how a job has ended dies before it has written that."""
    turns = engine.turns

    def deadly(asked: Sequence[Turn]) -> list[Answer]:
        if any(turn.reports for turn in asked):
            with contextlib.suppress(FileExistsError):
                (_directory() / "died of a report").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return turns(asked)

    engine.turns = deadly  # type: ignore[assignment,method-assign]


def _directory() -> Path:
    from .jobs import DIRECTORY  # which imports this, with a bug in it

    return Path(os.environ[DIRECTORY])


def answer_before_commit(engine: Engine, history: History, request: str, specs: list[Spec]) -> None:
    """The client is told before the commit, and dies in between once at least: its ids go to somebody else."""
    (last,) = engine.store.raw("select coalesce(max(seq), 0) from sqlite_sequence where name = 'jobs'")[0]
    history.told(request, [last + 1 + number for number in range(len(specs))])
    if request.endswith("-1") or random.random() < 0.1:
        os.kill(os.getpid(), signal.SIGKILL)
    engine.enqueue(specs)


def _forget_results(source: Remote) -> None:
    """What a turn reported that got no answer is not told again, though the pool believes that it was."""
    turn = source.turn

    def told(asked: Turn) -> Reply:
        try:
            return turn(asked)
        except StoreError:
            asked.reports.clear()
            raise

    source.turn = told  # type: ignore[assignment,method-assign]


@contextlib.contextmanager
def _deferred(self: Sqlite, **_: Any) -> Iterator[None]:
    """Without the gate, and a reader that turns writer: what it has read may be old by then."""
    self._db.set_busy_timeout(BUSY_MS)
    rings: list[str] = []
    with self._lock, self._explained():
        self._db.execute("begin deferred")
        self._rings = rings
        try:
            yield
            self._db.execute("commit")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("rollback")
            raise
        finally:
            self._rings = None
    for who in dict.fromkeys(rings):
        self._bell.ring(who)


def keep_old_snapshot(path: str) -> apsw.Connection:
    """Somebody reads for long: what is written from now on stays beside the file."""
    reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("begin deferred")
    reader.execute("select count(*) from jobs").fetchall()
    return reader


def copy_live_file(source: str, target: str) -> None:
    """A backup by somebody who does not know that the file is not all of the database."""
    shutil.copyfile(source, target)
    with contextlib.suppress(apsw.Error):
        copy = apsw.Connection(target)
        copy.pragma("journal_mode", "delete")
        copy.close()


def end_groups_only() -> None:
    """A command is ended by its process group, as a shell would; whoever has left the group is not thought of."""
    from covey.worker.command_worker import CommandWorker
    from covey.worker.zygote import Zygote

    groups: set[int] = set()
    spawn = CommandWorker._spawn

    def remember(self: CommandWorker, *given: Any) -> tuple[int, tuple[int, int]]:
        pid, readers = spawn(self, *given)
        groups.clear()
        groups.add(pid)
        return pid, readers

    def end_groups(**_: Any) -> tuple[int, dict[int, int]]:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        return 0, process_tree.reap()

    CommandWorker._spawn = remember  # type: ignore[method-assign,assignment]
    process_tree.end_all = end_groups
    process_tree.kill_marked = lambda *_, **__: 0
    Zygote._kill_strangers = lambda self: None  # type: ignore[method-assign]
