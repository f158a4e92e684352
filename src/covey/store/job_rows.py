"""Jobs as rows: what an insert fills, what a view reads. The lists of columns in statements are made here."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from ..core.model import MAX_DEPTH, Spec
from ..core.options import COLUMNS, COPIED, KEPT, Defaults, row
from ..core.tree import deadline
from ..core.view import JobView


class Place(Struct, frozen=True):
    """Where a new job stands: its tree, its turn, its lane. Of a root only the first six need to be said."""

    id: int
    root_id: int
    seq: int
    state: str
    run_at: int | None
    max_depth: int
    lane: int | None = None
    parent_id: int | None = None
    child_no: int | None = None
    depth: int = 0
    blocked_by: int = 0


def root(
    id: int, state: str = "pending", run_at: int | None = None, max_depth: int = MAX_DEPTH, lane: int | None = None
) -> Place:
    return Place(id, id, id, state, run_at, max_depth, lane)


class JobRecord(Struct, frozen=True):
    """A job with what other tables know of it: all that a view shows, as it is stored."""

    id: int
    task: str
    kind: str
    state: str
    phase: str
    attempts: int
    interruptions: int
    fence: int
    run_at: int | None
    created_at: int
    updated_at: int
    started_at: int | None
    finished_at: int | None
    pool: int | None
    worker: str | None
    exit_code: int | None
    error: str | None
    info: str | None
    parent_id: int | None
    root_id: int
    depth: int
    child_no: int | None
    children_total: int
    children_unfinished: int
    children_failed: int
    children_info: str | None
    cached_from: int | None
    cache_key: str | None
    args: str | None
    result: str | None
    pool_name: str | None
    pool_host: str | None
    pool_beat_at: int | None
    pool_lease_s: float | None
    busy_worker: str | None
    busy_since: int | None
    options: tuple[Any, ...]  # those of SHOWN


SHOWN = tuple(option for option in KEPT if option.name in JobView.__struct_fields__)
_ELSEWHERE = {
    "args": "p.args",
    "result": "r.body",
    "pool_name": "o.name",
    "pool_host": "o.host",
    "pool_beat_at": "o.beat_at",
    "pool_lease_s": "o.lease_s",
    "busy_worker": "w.name",
    "busy_since": "w.busy_since",
}
_FACTS = JobRecord.__struct_fields__[:-1]


def record(row: tuple[Any, ...]) -> JobRecord:
    """Of a row of the statement `view`."""
    return JobRecord(*row[: len(_FACTS)], row[len(_FACTS) :])  # type: ignore[call-arg]


# Lists of columns, as statements name them. A row is bound by place, in the order of NAMES, in which `insert_job` first
# names its parameters: by name it costs a third more (measured: NUMBERS).
LISTS = {
    "place": Place.__struct_fields__,
    "options": COLUMNS,
    "copied": COPIED,
    "record": (*(_ELSEWHERE.get(fact, f"j.{fact}") for fact in _FACTS), *(f"j.{option.field}" for option in SHOWN)),
}
COLUMN_TYPES = {option.field: option.form.column for option in KEPT}
NAMES = (*Place.__struct_fields__, "tree_deadline_at", "now", "kind", "task", "joins", "created_by", *COLUMNS)


def job_row(spec: Spec, place: Place, now: int, defaults: Defaults) -> tuple[Any, ...]:
    """A value for each of NAMES."""
    deadline_at = None
    if spec.tree_timeout_s is not None:
        deadline_at = deadline(spec.tree_timeout_s, place.run_at, now)
    told = (deadline_at, now, spec.kind, spec.task, int(spec.joins), spec.created_by)
    return astuple(place) + told + row(spec, *defaults[spec.kind])
