"""Records of the result cache: kept with a fenced success, and given to jobs that ask for the same."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import cache_key
from ..core.codec import decode
from ..core.machine import SECOND, Signal, decide
from ..core.model import FLIGHT, JobRow, Report, Spec, State
from ..store.asking import json_text
from ..store.store import Store

if TYPE_CHECKING:
    from .trees import Trees

DAY = 24 * 3600 * SECOND


class Call(NamedTuple):
    """What was asked for, as it stands with a job."""

    id: int
    key: str
    queue: str
    task: str
    args: str | None
    parts: str | None
    refresh: int


def salt(store: Store) -> str:
    return next((value for name, value in store.ask("config") if name == "cache_salt"), "")


class Record(NamedTuple):
    """What must be known of a record so that it can be given to somebody."""

    key: str
    has_result: int
    has_output: int
    is_unused: int  # for a day
    outputs: str | None
    job_id: int
    info: str | None
    exit_code: int | None


def there(store: Store, keys: Iterable[str], now: int) -> dict[str, Record]:
    """The records of these keys, as far as there are any."""
    rows = store.ask("records_there", keys=json_text(sorted(keys)), before=now - DAY)
    return {row[0]: Record(*row) for row in rows}


# ── hits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def note(
    store: Store, ids: Sequence[int], specs: Sequence[Spec], now: int, salted: str, *, idle: Container[int] = ()
) -> None:
    """New jobs that ask for it have their keys, or the result that is known already.

    ``idle``: jobs that could start now and that nothing else waits for or stands behind.
    """
    asked = [(id, spec, spec.cache) for id, spec in zip(ids, specs, strict=True) if spec.cache is not None]
    if not asked:
        return
    keys = {id: cache_key.key_of(cache.parts, spec.queue_name, salted) for id, spec, cache in asked}
    looking = {keys[id] for id, _, cache in asked if id in idle and not cache.refresh}
    known = there(store, looking, now) if looking else {}
    for id, _, cache in asked:
        record = known.get(keys[id]) if id in idle and not cache.refresh else None
        if record is None:
            store.ask("set_cache_key", id=id, key=keys[id])
            store.ask("set_cache_parts", id=id, parts=cache.parts, refresh=int(cache.refresh))
        else:
            store.ask(
                "complete_new",
                id=id,
                key=record.key,
                now=now,
                from_job=record.job_id,
                info=record.info,
                exit_code=record.exit_code,
            )
            _replay(store, id, record, now)


def hit(store: Store, row: JobRow, record: Record, trees: Trees) -> None:
    """The job has completed with what the record of its key says, as if it had run."""
    change = decide(row, Signal("hit"), trees.now, trees.rng)
    store.change(row, change, trees.now)
    store.ask("set_cached_from", id=row.id)
    _replay(store, row.id, record, trees.now)
    trees.ended(row, change.state)


def _replay(store: Store, id: int, record: Record, now: int) -> None:
    if record.has_result:
        store.ask("replay_result", id=id, key=record.key)
    if record.has_output:
        store.ask("replay_output", id=id, key=record.key, now=now)
    if record.is_unused:
        store.ask("note_use", key=record.key, now=now, before=now - DAY)


def copy(store: Store, row: JobRow, new_id: int) -> None:
    """The copy of a job runs, whatever is known, and what it makes is kept anew: somebody wants it run again."""
    if row.cache_key is not None:
        store.ask("set_cache_key", id=new_id, key=row.cache_key)
        store.ask("copy_cache_parts", id=new_id, of=row.id, key=row.cache_key)


def move(store: Store, row: JobRow, queue: str, state: State, trees: Trees) -> State:
    """In another queue the job has another key, and follows nobody. Its state."""
    if row.cache_key is None:
        return state
    ((*_, parts, _),) = store.ask("cached_calls", ids=json_text([row.id]))
    store.ask("set_cache_key", id=row.id, key=cache_key.key_of(parts, queue, salt(store)))
    if row.state != "blocked" or store.value("flight_followed", id=row.id) is None:
        return state
    change = decide(row, Signal("unblocked", marks=FLIGHT), trees.now, trees.rng)
    store.change(row, change, trees.now)
    return change.state


# ── what is kept ────────────────────────────────────────────────────────────────────────────────────────────────────


def keep(store: Store, reports: Sequence[Report], now: int) -> None:
    """These successes are there for whoever asks for the same, if what ran is what was asked for; else it is said."""
    calls = {row[0]: Call(*row) for row in store.ask("cached_calls", ids=json_text([report.id for report in reports]))}
    salted = salt(store)
    kept = []
    for report in reports:
        call = calls.get(report.id)
        if call is None:
            continue
        reason = why_not(report, call, salted)
        if reason is None:
            if call.refresh:
                store.ask("drop_record", key=call.key)
            kept.append(_record(report, call, now))
        else:
            store.event("uncached", now=now, job_id=call.id, text=f"its result was not kept: {reason}")
    if kept:
        store.many("keep_record", kept)


def why_not(report: Report, call: Call, salted: str) -> str | None:
    """Why the report makes no record under the key of its job, or None if it does."""
    if report.spawned:
        return "it has spawned jobs"
    if report.ran is None:
        return "its worker did not say what ran"
    if cache_key.key_of(report.ran, call.queue, salted) == call.key:
        return None  # and the key was checked to be that of its task and arguments when it was enqueued
    if report.ran.startswith('{"error":'):
        return str(decode(report.ran)["error"])
    try:
        ran = cache_key.read(report.ran)
        same = cache_key.is_call(ran, call.task, call.args)
    except (ValueError, TypeError, KeyError):
        return "its worker said something else than parts"
    if not same:
        return "its worker ran another call"
    if call.parts is None:
        return "what was asked for is not known any more"
    try:
        lines = cache_key.differences(cache_key.read(call.parts), ran)
    except (ValueError, TypeError):
        lines = []
    return "; ".join(lines[:5]) or "the salt of the queue has changed meanwhile (cache_salt)"


def _record(report: Report, call: Call, now: int) -> dict[str, Any]:
    output = report.output
    took_us = (report.finished_at or 0) - (report.started_at or 0)
    record: dict[str, Any] = {
        "key": call.key,
        "queue": call.queue,
        "task": call.task,
        "parts": report.ran,
        "result": report.result,
        "info": report.info,
        "exit_code": report.exit_code,
        "stdout": output.stdout if output else None,
        "stderr": output.stderr if output else None,
        "stdout_dropped": output.stdout_dropped if output else 0,
        "stderr_dropped": output.stderr_dropped if output else 0,
        "outputs": None,
        "job_id": call.id,
        "took_us": max(0, took_us),
    }
    size = sum(len(value) for value in record.values() if isinstance(value, str | bytes))
    return record | {"size": size, "now": now}
