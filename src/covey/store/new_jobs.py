"""New jobs as rows: where each stands, and a value for every column that an insert fills."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.machine import SECOND
from ..core.model import MAX_DEPTH, Spec
from ..core.options import COLUMNS, COPIED, KEPT, Defaults, row


class Place(NamedTuple):
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


def root(
    id: int, state: str = "pending", run_at: int | None = None, max_depth: int = MAX_DEPTH, lane: int | None = None
) -> Place:
    return Place(id, id, id, state, run_at, max_depth, lane)


# Lists of columns, as statements name them. A row is bound by place, in the order of NAMES, in which `insert_job` first
# names its parameters: by name it costs a third more (measured: NUMBERS).
LISTS = {"place": Place._fields, "options": COLUMNS, "copied": COPIED}
COLUMN_TYPES = {option.field: option.form.column for option in KEPT}
NAMES = (*Place._fields, "tree_deadline_at", "now", "kind", "task", "joins", "created_by", *COLUMNS)


def job_row(spec: Spec, place: Place, now: int, defaults: Defaults) -> tuple[Any, ...]:
    """A value for each of NAMES."""
    deadline_at = None
    if spec.tree_timeout_s is not None:
        deadline_at = max(now, place.run_at or now) + int(spec.tree_timeout_s * SECOND)
    told = (deadline_at, now, spec.kind, spec.task, int(spec.joins), spec.created_by)
    return place + told + row(spec, *defaults[spec.kind])
