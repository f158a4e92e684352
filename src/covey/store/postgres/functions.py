"""Statements that PostgreSQL plans once a session instead of every time: the same text, inside a function.

Planning is half of what a short statement costs, and prepared statements do not survive a proxy that pools sessions;
functions do. Their names carry a digest of the text, so that two versions of Covey share a database. Who may not create
functions uses the plain statements.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files

from ..statements import written_out

# What a statement answers about a pool, and about a claim: types, under names that are no column's.
POOL = "a1 bigint, a2 bigint, a3 text, a4 boolean, a5 bigint, a6 bigint, a7 boolean"
CLAIM = (
    "b1 bigint, b2 bigint, b3 text, b4 integer, b5 bigint, b6 double precision, b7 text, b8 text, b9 bigint, c1 text"
)
# name → its parameters, in the order of the call, and what it answers
PLANNED: dict[str, tuple[dict[str, str], str]] = {
    "pool_for_turn": ({"pool": "bigint"}, POOL),
    "ready_lanes": ({"queues": "text", "kinds": "text"}, "a text, b text"),
    "lock_families": ({"ids": "text"}, "a bigint"),
    "complete": (
        {"pool": "bigint", "done": "text", "now": "bigint", "flat": "boolean"},
        "a bigint, b bigint, c integer, d bigint, e boolean",
    ),
    "insert_express": (
        {
            **dict.fromkeys(("queue", "kind", "task", "state"), "text"),
            **dict.fromkeys(("priority", "max_attempts", "run_at", "now"), "bigint"),
            **dict.fromkeys(("timeout_s", "backoff_base", "backoff_cap_s"), "double precision"),
            **dict.fromkeys(("jitter", "keep_background"), "integer"),
            **dict.fromkeys(("key", "unique_key", "batch", "labels", "created_by", "cwd", "args"), "text"),
            "token": "uuid",
        },
        "a bigint",
    ),
    "ring_unless_backlog": (
        {"channel": "text", "queue": "text", "kind": "text", "priority": "bigint", "fresh": "bigint"},
        "a text",
    ),
    "claim_lane": (
        {
            "pool": "bigint",
            "now": "bigint",
            "lonely": "bigint",
            "queue": "text",
            "kind": "text",
            "limit": "bigint",
        },
        CLAIM,
    ),
    "take": (
        {
            **dict.fromkeys(("pool", "turn_no", "now", "lonely", "told"), "bigint"),
            **dict.fromkeys(("queues", "kinds", "most", "done", "results"), "text"),
            "draining": "boolean",
            **dict.fromkeys(("zygote_pid", "zygote_ticks"), "bigint"),
        },
        CLAIM,
    ),
}
# These are whole transactions, and set by themselves what a transaction of ours needs: a message with a statement less.
WHOLE = {"insert_express", "take"}
TERMS = {"patience": "text", "durable": "boolean", "lock": "bigint"}
# As the server has it (a replica may have to confirm), but never off: what is acknowledged is on disk.
SYNCHRONOUS = "coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on')"
OPENING = f"""
perform set_config('lock_timeout', :patience, true),
        set_config('synchronous_commit', case when :durable then {SYNCHRONOUS} else 'off' end, true),
        pg_advisory_xact_lock_shared(:lock);"""
# A plan is kept for as long as the session lasts: it must not be that of an empty table.
SETTINGS = "set enable_seqscan = off set enable_bitmapscan = off"
_BODY = re.compile(r"^begin$", re.MULTILINE)
_INCLUDED = re.compile(r"<(\w+)>")
_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")


def calls(statements: Mapping[str, str], prefix: str) -> dict[str, tuple[str, str, str]]:
    """For each planned statement: the function's name, the statement that creates it, the statement that calls it."""
    found = {}
    for name, (parameters, answer) in PLANNED.items():
        if name in WHOLE:
            parameters = parameters | TERMS
        taken = ", ".join(f"_{parameter} {kind}" for parameter, kind in parameters.items())
        if name in statements:
            text = f"begin\nreturn query {statements[name]};\nend"
        else:
            text = _procedure(name, statements, prefix)
        if name in WHOLE:
            text = _BODY.sub(lambda match: match[0] + OPENING, text, count=1)
        body = _PARAMETER.sub(r"_\1", text)
        rest = (
            f"({taken}) returns table ({answer}) language plpgsql {SETTINGS} as "
            f"$covey$ #variable_conflict use_column\n{body} $covey$"
        )
        function = f"{name}_{hashlib.sha256(rest.encode()).hexdigest()[:10]}"
        made = f"create or replace function {prefix}{function}{rest}"
        given = ", ".join(f":{parameter}::{kind}" for parameter, kind in parameters.items())
        found[name] = (function, made, f"select * from {prefix}{function}({given})")
    return found


def _procedure(name: str, statements: Mapping[str, str], prefix: str) -> str:
    """What takes more than one statement has a file of its own; <name> stands for the statement of that name."""
    lines = (files(__package__) / f"{name}.plpgsql").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--"))
    return _INCLUDED.sub(lambda match: statements[match[1]], written_out(text, {}, prefix))
