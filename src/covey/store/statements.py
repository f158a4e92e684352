"""Named SQL: the shared files of sql/, by noun, then the dialect's overrides; and what several statements say alike.

Every statement has a name. {jobs} and the like are tables; :name are parameters. What two databases must say
differently is overridden in <dialect>/statements.sql, with the reason; there {shared} is what sql/ says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from msgspec import NODEFAULT
from msgspec.structs import fields

from ..core.model import Claim, JobRow
from ..core.schedule_rows import StoredSchedule
from .job_rows import COLUMN_TYPES, LISTS

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_WORD = re.compile(r"\{(\w+)\}")
_MACRO = re.compile(r"\{(\w+):(\w+)\}")

# A list travels as one JSON text: `{in_ids:ids}` is true of every number in :ids, `{in_texts:keys}` of every string.
MACROS: dict[str, dict[str, str]] = {
    "sqlite": {
        "in_ids": "in (select value from json_each(:{}))",
        "in_texts": "in (select value from json_each(:{}))",
    },
    "postgres": {
        "in_ids": "= any (translate(:{}, '[]', '{{}}')::bigint[])",
        "in_texts": "= any (array(select json_array_elements_text(:{}::json)))",
    },
}

_OF_TREES = ("children", "failed_siblings")  # are told later, and only to those that are concerned
# Columns of a claim in which few jobs have anything else than this: all that a Claim has a default for, and three more.
USUAL = {"cwd": None, "keep_background": 0, "interruptions": 0} | {
    field.name: field.default
    for field in fields(Claim)
    if field.default is not NODEFAULT and field.name not in _OF_TREES
}
_IS_USUAL = {
    column: "is null" if value is None else f"= '{value}'" if isinstance(value, str) else f"= {value}"
    for column, value in USUAL.items()
} | {"root_id": "= id"}
_COLUMN_OF = {"attempt": "attempts", "args": "(select args from {payloads} where job_id = {jobs}.id)"}
_CLAIM = [_COLUMN_OF.get(field, field) for field in Claim.__struct_fields__ if field not in _OF_TREES]

# `{row}` in a statement is the text of that name here.
PARTS = {
    # records
    "row": ", ".join(JobRow.__struct_fields__),
    "claim": ", ".join(_CLAIM),
    "claim_columns": ", ".join(column for column in _CLAIM if "select" not in column),
    "usual": " and ".join(f"{column} {usual}" for column, usual in _IS_USUAL.items()),
    "unusual": ", ".join(USUAL),
    "turn_state": (
        "turn_no, stop_requested_at, (select sealed from {meta}) as sealed,"
        " exists (select 1 from {jobs} where pool = {pools}.id and {is_to_stop}) as cancels,"
        " exists (select 1 from {queues} where {has_rules}) as has_rules, {instants}"
    ),
    "instants": (
        "(select min(run_at) from {jobs} where {waits_for_its_hour}) as due_at,"
        " (select min(tree_deadline_at) from {jobs} where {has_deadline}) as deadline_at,"
        " (select min(fire_at) from {schedules} where fire_at is not null) as fire_at"
    ),
    "schedule": ", ".join(StoredSchedule.__struct_fields__),
    "tick": "t.tick, t.at, t.decision, t.until, t.job_id, t.note, j.state",
    # of jobs
    "is_to_stop": "pool is not null and state = 'cancelled'",
    "waits_for_its_hour": "state in ('scheduled', 'failed')",
    "due": "{waits_for_its_hour} and run_at <= :now",
    "has_deadline": (
        "tree_deadline_at is not null and state in ('scheduled', 'blocked', 'pending', 'waiting', 'failed')"
    ),
    "has_kin": (
        "(parent_id is not null or children_total > 0 or lane is not null"
        " or exists (select 1 from {edges} where waits_for = {jobs}.id))"
    ),
    "claimed": (
        "state = 'processing', fence = fence + 1, attempts = attempts + 1, unique_key = null,"
        " claimed_at = :now, updated_at = :now"
    ),
    # of queues
    "has_rules": "(paused_at is not null or serial = 1 or concurrency is not null)",
    "is_paused": "(paused_at is not null and (resume_at is null or resume_at > :now))",
}


@cache
def load(dialect: str, prefix: str = "") -> Mapping[str, str]:
    """Statement texts by name, comments stripped, {table} and the rest written out."""
    room = files(__package__)
    statements: dict[str, str] = {}
    shared = sorted((room / "sql").iterdir(), key=lambda file: file.name)
    for file in (*shared, room / dialect / "statements.sql"):
        parts = _NAME.split(file.read_text())
        for key, body in zip(parts[1::2], parts[2::2], strict=True):
            lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
            text = "\n".join(lines).strip().replace("{shared}", statements.get(key, ""))
            statements[key] = written_out(text, dialect, prefix)
    return statements


def _listed(how: str, name: str) -> str | None:
    """`{names:options}`: the columns of options; `{values:…}`: a parameter for each; `{typed:…}`: with its type."""
    if how not in ("names", "values", "typed"):
        return None
    form = {"names": "{0}", "values": ":{0}", "typed": ":{0}::{1}"}[how]
    return ", ".join(form.format(column, COLUMN_TYPES.get(column)) for column in LISTS[name])


def written_out(sql: str, dialect: str, prefix: str) -> str:
    sql = _MACRO.sub(lambda match: _listed(*match.groups()) or MACROS[dialect][match[1]].format(match[2]), sql)
    while (whole := _WORD.sub(lambda match: PARTS.get(match[1], match[0]), sql)) != sql:
        sql = whole
    return _WORD.sub(lambda match: prefix + match[1], sql)
