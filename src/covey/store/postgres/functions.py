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
from typing import get_type_hints

from ..job_rows import COLUMN_TYPES
from ..statements import written_out
from ..turn_state import Instants, TurnState

# What a statement answers about a pool, and about a claim: types, under names that are no column's.
STATE = get_type_hints(TurnState)
del STATE["instants"]
STATE |= get_type_hints(Instants)
TYPES = {int: "bigint", int | None: "bigint", str | None: "text", bool: "boolean"}
POOL = ", ".join(f"a{n} {TYPES[kind]}" for n, kind in enumerate(STATE.values(), 1))
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
        "a bigint, b bigint, c integer, d bigint, e boolean, f text",
    ),
    "insert_express": (
        {
            **dict.fromkeys(("kind", "task", "state", "created_by", "args"), "text"),
            **dict.fromkeys(("joins", "now", "tree_deadline_at"), "bigint"),
            **COLUMN_TYPES,
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
    "turn": (
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
WHOLE = {"insert_express", "turn"}
TERMS = {"patience": "text", "durable": "boolean", "lock": "bigint"}
# Statistics lag behind a queue by nature: empty now, a million rows in a minute. The indexes are always right, and read
# in order they skip what is known to be dead; a bitmap of them would not.
HINT = "set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"
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
_SEEN = {
    name: ", ".join(f"the_pool.{field}" for field in fields)
    for name, fields in (("state", STATE), ("instants", Instants.__struct_fields__))
}
_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")


def opening(lock: int, alone: bool, wait_s: float, still_s: float, durable: bool) -> str:
    """What a transaction begins with. Every writer holds the queue's lock together with the others, unless alone."""
    settings = [
        HINT,
        f"set_config('lock_timeout', '{int(wait_s * 1000)}', true)",
        # A writer that is frozen (SIGSTOP, a lost host) must not hold its locks for ever.
        f"set_config('idle_in_transaction_session_timeout', '{int(still_s * 1000)}', true)",
        "set_config('synchronous_commit', " + (SYNCHRONOUS if durable else "'off'") + ", true)",
    ]
    shared = "" if alone else "_shared"
    return f"begin; select {', '.join(settings)}, pg_advisory_xact_lock{shared}({lock})"


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
    """What takes more than one statement has a file of its own; <name> stands for the statement of that name.

    <state> and <instants> are the fields of TurnState and of Instants, as they were seen.
    """
    lines = (files(__package__) / f"{name}.plpgsql").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--"))
    return _INCLUDED.sub(
        lambda match: _SEEN.get(match[1]) or statements[match[1]], written_out(text, "postgres", prefix)
    )
