"""One scene for every transaction: what must be there before, and the verb itself, which any process may begin anew."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg

from covey.core.model import Claim
from covey.core.turn import Caller, Capacity, Turn
from covey.engine import db_copy
from covey.engine.engine import Engine
from covey.errors import NoQueue, Refused
from covey.open import open_engine
from covey.store.tables import Rows, Table
from tests.kit import HandPool, child, command, pool_info
from tests.kit.hand_pool import report

EVERYWHERE = ("file", "postgres")
TABLES = (
    *("meta", "config", "queues", "tokens", "jobs", "payloads", "results", "attempts", "edges", "events"),
    *("pools", "workers", "requests", "staged", "callers"),
)
# Given anew at every try: numbers (PostgreSQL leaves gaps), instants, chance.
VOLATILE = {
    "id",
    "job_id",
    "job",
    "root_id",
    "parent_id",
    "seq",
    "lane",
    "serial_root",
    "digest",
    "database_id",
    "text",
}
PROBE = "probe"
FOREVER = 1 << 60


class Place:
    """A queue, and where there may come to be another one. Each process opens a queue once."""

    def __init__(self, url: str, spare: str, *, watched: bool) -> None:
        self.url, self.spare, self._watched = url, spare, watched
        self._open: dict[tuple[int, str], Engine] = {}

    def open(self, url: str | None = None) -> Engine:
        key = os.getpid(), url or self.url
        if key not in self._open:
            self._open[key] = open_engine(key[1])
        return self._open[key]

    def close(self) -> None:
        for (pid, _), engine in self._open.items():
            if pid == os.getpid():
                engine.close()

    def picture(self) -> list[object]:
        """All that is in the tables of both, but for what is different at every try."""
        return [_picture(self.open()), self._spare_picture() if self._watched else None]

    def _spare_picture(self) -> object:
        try:
            engine = open_engine(self.spare, create=False)
        except NoQueue:
            return None
        try:
            return _picture(engine)
        finally:
            engine.close()

    def write(self) -> None:
        """A transaction that must be alone has been committed: nobody holds a lock."""
        engine = self.open()
        with engine.store.transaction(alone=True):
            engine.store.event(PROBE, now=engine.clock())


def _picture(engine: Engine) -> object:
    seen: dict[str, object] = {name: _rows(engine, name) for name in TABLES}
    if engine.store.dialect.name == "postgres":
        seen["functions"] = _functions(engine)
    return seen


def _functions(engine: Engine) -> list[str]:
    named = "select oid::regprocedure::text from pg_proc where pronamespace = :schema::regnamespace order by 1"
    return [row[0] for row in engine.store.raw(named, schema=engine.store.dialect.prefix.rstrip("."))]


_columns: dict[str, tuple[str, ...]] = {}  # the same in both stores, in whichever order


def _rows(engine: Engine, name: str) -> list[str]:
    store = engine.store
    columns = _columns.get(name) or Rows(store).columns(Table(name, ()))
    columns = _columns[name] = tuple(column for column in columns if column not in VOLATILE)
    listed = ", ".join(f'"{column}"' for column in columns)
    found = store.raw(f"select {listed} from {store.dialect.prefix}{name}")
    rows = (dict(zip(columns, row, strict=True)) for row in found)
    return sorted(
        repr({column: value is not None if _is_volatile(column) else value for column, value in row.items()})
        for row in rows
        if row.get("kind") != PROBE
    )


def _is_volatile(column: str) -> bool:
    """Whether only its presence is the same at every try."""
    return column.endswith("_at") or column in ("at", "busy_since", "pool", "sealed")


class Scene(NamedTuple):
    prepare: Callable[[Place], Any]  # what the verb needs to know
    act: Callable[[Place, Any], object]
    stores: Sequence[str] = EVERYWHERE
    whole: bool = True  # one transaction; else several, and the same again goes on where the first try ended
    changes: bool = True  # whether the tables are others afterwards
    spare: bool | None = None  # whether there is another, empty queue; None: it plays no part


# ── producers and people ────────────────────────────────────────────────────────────────────────────────────────────


def an_empty_queue(place: Place) -> None:
    place.open()


def jobs(place: Place) -> list[int]:
    return [made.id for made in place.open().enqueue([command(str(n), key=f"job-{n}") for n in range(5)])]


def enqueue_two(place: Place, _: object) -> None:
    place.open().enqueue([command("one", key="one"), command("two", key="two")])


def enqueue_at_once(place: Place, _: object) -> None:
    place.open()._known_queues.add("default")  # as after an earlier enqueue of this client
    place.open().enqueue([command("at once")])


def enqueue_as_a_guest(place: Place, _: object) -> None:
    with psycopg.connect(place.url.partition("&schema=")[0]) as connection, connection.transaction():
        place.open().enqueue_in(connection, [command("one", key="one"), command("two", key="two")])


def cancel_two(place: Place, ids: list[int]) -> None:
    place.open().cancel(ids[:2])


def cancelled(place: Place) -> None:
    cancel_two(place, jobs(place))


def prune(place: Place, _: object) -> None:
    place.open().prune_window(0, {"cancelled": FOREVER})


def set_rules(place: Place, _: object) -> None:
    place.open().set_queue("default", serial=True, concurrency=2)


def pause(place: Place, _: object) -> None:
    place.open().pause("default")


def set_up(place: Place, _: object = None) -> None:
    place.open().set_setting("keep_dead_seconds", "77")


def unset(place: Place, _: object) -> None:
    place.open().unset_setting("keep_dead_seconds")


def make_token(place: Place, _: object = None) -> None:
    place.open().create_token("reader", "read")


def revoke_token(place: Place, _: object) -> None:
    place.open().revoke_token("reader")


# ── pools and loans ─────────────────────────────────────────────────────────────────────────────────────────────────

Work = tuple[int, list[Claim]]  # a pool, what it holds
Loan = tuple[int, int, int]  # job, pool, fence


def register(place: Place, _: object) -> None:
    place.open().register(pool_info())


def working(place: Place) -> Work:
    """A pool holds three of five jobs."""
    jobs(place)
    pool = HandPool(place.open())
    return pool.id, pool.claim(3)


def take_turn(place: Place, known: Work) -> None:
    """The pool's next turn: three results, and room for two more."""
    engine, (pool, (done, failed, back)) = place.open(), known
    last = engine._last_turn(pool)
    assert last is not None
    engine.turn(
        Turn(
            pool=pool,
            database_id=engine.database_id,
            number=last + 1,
            reports=[report(done, "success"), report(failed, "failure", error="boom"), report(back, "taken_back")],
            wants=[Capacity(None, {"command": 2}, 2)],
            held=[],
        )
    )


def beat(place: Place, known: Work) -> None:
    place.open().beat([known[0]])


def stop(place: Place, known: Work) -> None:
    place.open().stop_pools([known[0]])


def leave(place: Place, known: Work) -> None:
    place.open().leave(known[0])


def reap(place: Place, _: object) -> None:
    for pool in place.open().pools():
        place.open().reap(pool.id, pool.beat)


def tied(place: Place) -> int:
    caller = Caller(host="far", boot="another:1", pid=1, ticks=1, lease_s=30.0)
    return place.open().enqueue([command()], caller=caller)[0].id


def still_here(place: Place, job: int) -> None:
    place.open().still_here(job)


def let_go(place: Place, job: int) -> None:
    place.open().let_go(job)


def abandon(place: Place, job: int) -> None:
    place.open().abandon(job, 0)


def lent(place: Place) -> Loan:
    jobs(place)
    found = place.open().lend(pool_info(host="http", pid=0))
    assert found is not None
    pool, claim = found
    return claim.id, pool, claim.fence


def stage(place: Place, loan: Loan) -> None:
    place.open().stage(*loan, [child("below", key="a"), child("below", key="b")], after=0)


def staged(place: Place) -> Loan:
    loan = lent(place)
    stage(place, loan)
    return loan


def settle(place: Place, loan: Loan) -> None:
    place.open().settle(*loan, "success")


# ── the place itself ────────────────────────────────────────────────────────────────────────────────────────────────


def make_another(place: Place, _: object = None) -> None:
    open_engine(place.spare).close()


def forget_plans(place: Place) -> None:
    engine = place.open()
    for function in _functions(engine):
        engine.store.raw(f"drop function {function}; select 1")


def open_it(place: Place, _: object) -> None:
    open_engine(place.url).close()


def to_copy(place: Place) -> None:
    jobs(place)
    make_another(place)


def half_copied(place: Place) -> None:
    to_copy(place)
    source, target = place.open().store, place.open(place.spare).store
    db_copy.begin(source, target, token=5, now=0)
    next(db_copy.copy(source, target, page=2))


def copy(place: Place, _: object) -> None:
    source, target = place.open().store, place.open(place.spare).store
    db_copy.begin(source, target, token=5, now=0)
    for _page in db_copy.copy(source, target, page=2):
        pass
    db_copy.compare(source, target)
    db_copy.finish(source, target, token=5)


def moved_but_not_told(place: Place) -> None:
    """The copy was opened, and who did it was killed before the source said so."""
    to_copy(place)
    copy(place, None)
    source = place.open().store
    with source.transaction(alone=True):
        source.ask("seal", sealed=f"being copied to {place.open(place.spare).store.dialect.url}")


def copy_again(place: Place, _: object) -> None:
    source, target = place.open().store, place.open(place.spare).store
    with suppress(Refused):
        db_copy.begin(source, target, token=6, now=0)


def abort(place: Place, _: object) -> None:
    db_copy.abort(place.open().store, place.open(place.spare).store)


def unseal(place: Place, _: object) -> None:
    db_copy.unseal(place.open().store, token=5)


def backup(place: Place, _: object) -> None:
    for _page in place.open().store.dialect.backup(place.spare):  # type: ignore[attr-defined]
        pass


def vacuum(place: Place, _: object) -> None:
    place.open().store.dialect.vacuum()  # type: ignore[attr-defined]


CHANGE = Scene(jobs, cancel_two)
TURN = Scene(working, take_turn)
ENQUEUE = Scene(an_empty_queue, enqueue_two)
COPY = Scene(to_copy, copy, whole=False, spare=True)
ABORT = Scene(half_copied, abort, whole=False, spare=True)
MIGRATE = Scene(an_empty_queue, make_another, spare=False)

SCENES = {
    "store.after_begin": CHANGE,
    "store.before_commit": CHANGE,
    "store.after_commit": CHANGE,
    "enqueue.before_commit": ENQUEUE,
    "enqueue.after_commit": ENQUEUE,
    "express.before_commit": Scene(an_empty_queue, enqueue_at_once, stores=["postgres"]),
    "guest.before_release": Scene(jobs, enqueue_as_a_guest, stores=["postgres"]),
    "change.before_commit": CHANGE,
    "prune.before_commit": Scene(cancelled, prune),
    "rules.before_commit": Scene(jobs, set_rules),
    "pause.before_commit": Scene(jobs, pause),
    "setting.before_commit": Scene(an_empty_queue, set_up),
    "unsetting.before_commit": Scene(set_up, unset),
    "token.before_commit": Scene(an_empty_queue, make_token),
    "revoke.before_commit": Scene(make_token, revoke_token),
    "register.before_commit": Scene(an_empty_queue, register),
    "beat.before_commit": Scene(working, beat),
    "stop.before_commit": Scene(working, stop),
    "leave.before_commit": Scene(working, leave),
    "reap.before_commit": Scene(working, reap),
    "turn.before_begin": TURN,
    "turn.after_reports": TURN,
    "turn.after_claim": TURN,
    "turn.before_commit": TURN,
    "turn.after_commit": TURN,
    "present.before_commit": Scene(tied, still_here),
    "untie.before_commit": Scene(tied, let_go),
    "abandon.before_commit": Scene(tied, abandon),
    "stage.before_commit": Scene(lent, stage),
    "unstage.before_commit": Scene(staged, settle, whole=False),
    "migrate.before_script": MIGRATE,
    "migrate.after_script": MIGRATE,
    "plan.before_commit": Scene(forget_plans, open_it, stores=["postgres"]),
    "copy.preparing": COPY,
    "copy.before_seal": COPY,
    "copy.sealing": COPY,
    "copy.page": COPY,
    "copy.writing": COPY,
    "copy.before_open": COPY,
    "copy.noting": Scene(moved_but_not_told, copy_again, changes=False, spare=True),
    "copy.unsealing": Scene(half_copied, unseal, spare=True),
    "copy.aborting": ABORT,
    "copy.letting_go": ABORT,
    "vacuum.before_checkpoint": Scene(cancelled, vacuum, stores=["file"], changes=False),
    "backup.before_replace": Scene(jobs, backup, stores=["file"], spare=False),
}
