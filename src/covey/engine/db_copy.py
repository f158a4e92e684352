"""A queue moves to another database: sealed, copied page by page, compared, opened there.

What a kill leaves is always one of these, and the next run knows which:

source open,   target unfinished    the target is stale: the source may have changed since. Begun anew
source sealed, target unfinished    every row of the target was copied since the seal. Resumed
source sealed, target open          it has moved; the source's seal may not say so yet

So the target is cleared before the source is sealed, and opened while the source cannot be unsealed. Of two runs the
later one has the copy (`token`); the earlier one may neither unseal the source nor open the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..env import failpoint, new_database_id
from ..errors import Refused, SchemaError, StoreError
from ..store.ready import Tuples
from ..store.store import Store
from ..store.tables import ROWS, TABLES, Rows, Table
from .again import repeated
from .sealing import LEAVING, UNFINISHED, destination, finding, is_unfinished


class Meta(NamedTuple):
    database_id: str
    schema: int
    sealed: str | None


def begin(source: Store, target: Store, *, token: int, now: int) -> bool:
    """The source is sealed, the target is an unfinished copy of it. Whether there was one to go on with."""
    resumes = _look(source, target)
    if not resumes:
        _prepare(source, target)
        failpoint("copy.before_seal")
    try:
        _seal(source, target, token=token, now=now)
    except Refused:
        if not resumes:
            _let_go(target)
        raise
    return resumes


def totals(source: Store) -> dict[str, int]:
    """How many rows of each table there are to copy."""
    return {table.name: Rows(source).count(table) for table in TABLES}


def copy(source: Store, target: Store, *, page: int = ROWS) -> Iterator[tuple[str, int]]:
    """Every row of the source is in the target; yields (table, rows of it that are there) after each page."""
    here, there = Rows(source, most=page), Rows(target)
    for table in TABLES:
        columns = here.columns(table)
        if set(columns) != set(there.columns(table)):
            raise SchemaError(f"{table.name} has other columns in {target.dialect.url}; run `covey db migrate` on both")
        done = there.count(table)
        yield table.name, done
        for rows in here.pages(table, columns, there.last_key(table)):
            failpoint("copy.page")
            _write(target, there, table, columns, rows)
            done += len(rows)
            yield table.name, done


def compare(source: Store, target: Store) -> dict[str, int]:
    """How many rows of each table were copied. StoreError if that is not all of them."""
    wanted, found = totals(source), totals(target)
    wrong = [f"{found[name]:,} of {count:,} {name}" for name, count in wanted.items() if found[name] != count]
    if wrong:
        raise StoreError(f"{target.dialect.url} has {', '.join(wrong)}; nothing was opened there")
    return found


@repeated
def finish(source: Store, target: Store, *, token: int) -> None:
    """The target is the queue. The source stays sealed for good."""
    last = Rows(source).last_ids()
    with source.transaction(alone=True):
        _refuse_ousted(source, token)
        with target.transaction(alone=True):
            if _meta(target).sealed is not None:  # else by the try before this one: others may use it already
                Rows(target).set_last_ids(last)
                failpoint("copy.before_open")
                target.ask("seal", sealed=None)
        source.ask("seal", sealed=target.dialect.url)


@repeated
def unseal(source: Store, *, token: int) -> None:
    """The source can be used again; what was copied is worth nothing."""
    with source.transaction(alone=True):
        _refuse_ousted(source, token)
        source.ask("seal", sealed=None)
        source.ask("drop_copy")
        failpoint("copy.unsealing")


def abort(source: Store, target: Store | None) -> None:
    """The source can be used again, and nothing is left of the copy. Refused once it was finished."""
    with source.transaction(alone=True):
        meta = _meta(source)
        unfinished = target is not None and _is_copy(meta, target) and is_unfinished(_meta(target).sealed)
        if meta.sealed is None and not unfinished:
            raise Refused(f"{source.dialect.url} is not being copied there; there is nothing to abort")
        away = destination(meta.sealed)
        if is_unfinished(meta.sealed) or (target is not None and away not in (None, target.dialect.url)):
            raise Refused(f"{source.dialect.url}: {finding(meta.sealed or '').text}; abort that one")
        if target is not None and _is_copy(meta, target) and not unfinished:
            raise Refused(f"{source.dialect.url} has moved to {target.dialect.url}, which may be in use; use that one")
        source.ask("seal", sealed=None)
        source.ask("drop_copy")
        failpoint("copy.aborting")
    if target is not None and unfinished:
        _let_go(target)


# ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _look(source: Store, target: Store) -> bool:
    """Whether the target is this copy, half done. Refused if it must not become one."""
    meta, there = _meta(source), _meta(target)
    old, new = source.dialect.url, target.dialect.url
    if is_unfinished(meta.sealed):
        raise Refused(f"{old} is itself an {meta.sealed}; finish that first, or give it up with --abort")
    if there.database_id == meta.database_id and not is_unfinished(there.sealed):
        if meta.sealed is not None and there.sealed is None:
            _note_moved(source, new)
            raise Refused(f"{old} has moved to {new} already; use that one")
        raise Refused(f"{new} is the same queue as {old}, or a copy of its file; name another")
    if meta.sealed is not None and destination(meta.sealed) != new:
        raise Refused(f"{old}: {finding(meta.sealed).text}; go on with that, or give it up with --abort")
    if there.database_id == meta.database_id:
        return meta.sealed is not None
    if there.sealed is not None:
        raise Refused(f"{new}: {finding(there.sealed).text}; name another")
    _refuse_full(target)
    return False


def _prepare(source: Store, target: Store) -> None:
    """The target is empty and marked: nobody takes it for a queue, and we shall know it again."""
    with target.transaction(alone=True):
        if not is_unfinished(_meta(target).sealed):
            _refuse_full(target)
        Rows(target).clear()
        mark = UNFINISHED + source.dialect.url
        target.ask("become", database_id=_meta(source).database_id, sealed=mark)
        failpoint("copy.preparing")


@repeated
def _seal(source: Store, target: Store, *, token: int, now: int) -> None:
    """Nobody holds a job, nobody is about to write, and from now on nobody can."""
    with source.transaction(alone=True):
        sealed = _meta(source).sealed
        if is_unfinished(sealed) or destination(sealed) not in (None, target.dialect.url):
            assert sealed is not None
            raise Refused(f"{source.dialect.url}: {finding(sealed).text}; nothing was copied")
        if pools := [str(pool.id) for pool in source.pools()]:
            raise Refused(
                f"pool {', '.join(pools)} has just begun to work on {source.dialect.url}; `covey worker stop`"
            )
        if source.ask("held_without_pool"):
            raise Refused(f"jobs of {source.dialect.url} are still held by a pool; `covey worker reap`, then try again")
        source.ask("seal", sealed=LEAVING + target.dialect.url)
        source.ask("take_copy", token=token, now=now)
        failpoint("copy.sealing")


@repeated
def _note_moved(source: Store, new: str) -> None:
    """Who ended the copy was killed before the source could say so."""
    with source.transaction(alone=True):
        if destination(_meta(source).sealed) == new:
            source.ask("seal", sealed=new)
        failpoint("copy.noting")


@repeated
def _write(target: Store, there: Rows, table: Table, columns: tuple[str, ...], rows: Tuples) -> None:
    with target.transaction():
        if not is_unfinished(_meta(target).sealed):
            raise Refused(f"{target.dialect.url} is no longer the unfinished copy that it was; nothing more was copied")
        there.add(table, columns, rows)
        failpoint("copy.writing")


def _let_go(target: Store) -> None:
    """An empty queue of its own again."""
    with target.transaction(alone=True):
        Rows(target).clear()
        target.ask("become", database_id=new_database_id(), sealed=None)
        failpoint("copy.letting_go")


def _refuse_full(target: Store) -> None:
    found = {name: count for name, count in totals(target).items() if count}
    if pools := len(target.pools()):
        found["pools"] = pools
    if found:
        listed = ", ".join(f"{count:,} {name}" for name, count in found.items())
        raise Refused(f"{target.dialect.url} has a queue that is not empty ({listed}); name another")


def _refuse_ousted(source: Store, token: int) -> None:
    if source.value("duty_cursor", name="copy") != token:
        raise Refused(f"another `covey db copy` of {source.dialect.url} has taken over, or was aborted")


def _is_copy(meta: Meta, target: Store) -> bool:
    return _meta(target).database_id == meta.database_id


def _meta(store: Store) -> Meta:
    return Meta(*store.ask("meta")[0])
