"""covey db copy: a queue moves to another database."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import CoveyError, InvalidInput, NoQueue, Refused
from ..open_queue import open_database
from ..options import Json
from ..printing import answer, as_json, note

if TYPE_CHECKING:
    from ...engine.engine import Engine

From = Annotated[str, typer.Argument(metavar="FROM", help="The queue that moves.", show_default=False)]
To = Annotated[str, typer.Argument(metavar="TO", help="Where it goes: a new file, or an empty queue.")]
Abort = Annotated[bool, typer.Option("--abort", help="Give a copy up: open FROM again, empty TO.")]


def copy(from_: From, to: To, abort: Abort = False, json: Json = False) -> None:
    """Move a queue to another database, from SQLite to PostgreSQL or back. It must have no workers.

    FROM is sealed first: nobody can write to it any more, and whoever tries is told where the queue went. An error or
    Ctrl-C opens it again. After a kill it stays sealed: run the same command again to go on, or with --abort.
    """
    for url in (from_, to):
        if "memory:" in url:
            raise InvalidInput(f"{url!r} is gone when this command ends; name a file or postgresql://…")
    source = open_database(from_)
    if abort:
        _abort(source, to)
    else:
        _move(source, to, json=json)


def _move(source: Engine, to: str, *, json: bool) -> None:
    from ... import env
    from ...engine import db_copy

    _hand_back(source)
    target = open_database(to, create=True)
    token = env.rng.getrandbits(62)
    resumed = db_copy.begin(source.store, target.store, token=token, now=source.clock())
    try:
        _copy(source, target)
        counts = db_copy.compare(source.store, target.store)
    except BaseException:
        _give_up(source, target, token)
        raise
    try:
        db_copy.finish(source.store, target.store, token=token)
    except BaseException:
        note(f"all is copied, but {target.store.dialect.url} is perhaps not open yet; run the same command again")
        raise
    _tell(source, target, counts, resumed=resumed, json=json)


def _hand_back(source: Engine) -> None:
    """Nobody holds a job: what lost pools left running is ended, and their jobs wait again. Living ones are refused."""
    from ...engine.health import is_alive
    from ...engine.sealing import is_sealed
    from ...log import Log
    from ...pool.reaper import Reaper
    from .worker_reap import refuse_own_pool

    if is_sealed(source.store):
        return  # there can be no pool
    pools = source.pool_views()
    if living := [f"{pool.name} ({pool.id}) on {pool.host}" for pool in pools if is_alive(pool)]:
        raise Refused(f"workers are running: {', '.join(living)}; `covey worker stop` first")
    refuse_own_pool(source, source.pools())
    reaper = Reaper(source, source.database_id, Log("covey"))
    for pool in source.pools():
        jobs, _ = reaper.reap(pool)
        note(f"pool {pool.id} is lost: {jobs} jobs handed back")
    for id in source.orphaned_pools():
        source.reap(id, -1)


def _copy(source: Engine, target: Engine) -> None:
    from ...engine import db_copy
    from ..render import bar

    with bar() as shown:
        tasks = {
            table: shown.add_task(table, total=count, visible=count > 0)
            for table, count in db_copy.totals(source.store).items()
        }
        for table, done in db_copy.copy(source.store, target.store):
            shown.update(tasks[table], completed=done)


def _give_up(source: Engine, target: Engine, token: int) -> None:
    """The source is open again, if that can be; what became of both is said."""
    from ...engine import db_copy

    old, new = source.store.dialect.url, target.store.dialect.url
    try:
        db_copy.unseal(source.store, token=token)
    except Refused as refused:
        note(str(refused))
    except (CoveyError, OSError) as failed:
        note(f"{old} stays sealed ({failed}); run the same command again to go on, or with --abort")
    else:
        note(f"stopped: {old} can be used again; {new} is incomplete: copy again, or empty it with --abort")


def _tell(source: Engine, target: Engine, counts: dict[str, int], *, resumed: bool, json: bool) -> None:
    old, new = source.store.dialect.url, target.store.dialect.url
    if json:
        told: dict[str, Any] = {"from": old, "to": new, "resumed": resumed, "rows": sum(counts.values())}
        as_json(told | {"tables": counts})
        return
    answer(f"{counts['jobs']:,} jobs moved to {new} ({sum(counts.values()):,} rows)")
    note(f"{old} is sealed; from now on: export COVEY_DB={shlex.quote(new)}, or db = {new!r} in covey.toml")


def _abort(source: Engine, to: str) -> None:
    from ...engine import db_copy

    try:
        target = open_database(to).store
    except NoQueue:
        target = None  # gone since
    db_copy.abort(source.store, target)
    answer(f"{source.store.dialect.url} can be used again")
