"""Statements that PostgreSQL plans once a session instead of every time: the same text, inside a function.

Planning is half of what a short statement costs, and prepared statements do not survive a proxy that pools sessions;
functions do. Their names carry a digest of the text, so that two versions of Covey share a database. Who may not create
functions uses the plain statements.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

# name → its parameters, in the order of the call, and what it answers
PLANNED: dict[str, tuple[dict[str, str], str]] = {
    "pool_for_turn": ({"pool": "bigint"}, "a bigint, b bigint, c text, d boolean, e bigint, f bigint, g boolean"),
    "ready_lanes": ({"kinds": "text"}, "a text, b text"),
    "ready_lanes_of": ({"queues": "text", "kinds": "text"}, "a text, b text"),
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
        "a bigint, b bigint, c text, d text, e integer, f bigint, g double precision, h text, i text, j text, "
        "k smallint, l integer, m text, n bigint, o text, p integer, q bigint, r bigint, s bigint, t smallint, "
        "u text, v bigint, w bigint",
    ),
}
# A plan is kept for as long as the session lasts: it must not be that of an empty table.
SETTINGS = "set enable_seqscan = off set enable_bitmapscan = off"
_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")


def calls(statements: Mapping[str, str], prefix: str) -> dict[str, tuple[str, str, str]]:
    """For each planned statement: the function's name, the statement that creates it, the statement that calls it."""
    found = {}
    for name, (parameters, answer) in PLANNED.items():
        taken = ", ".join(f"_{parameter} {kind}" for parameter, kind in parameters.items())
        body = _PARAMETER.sub(r"_\1", statements[name])
        rest = (
            f"({taken}) returns table ({answer}) language plpgsql {SETTINGS} as "
            f"$covey$ #variable_conflict use_column\nbegin return query {body}; end $covey$"
        )
        function = f"{name}_{hashlib.sha256(rest.encode()).hexdigest()[:10]}"
        made = f"create or replace function {prefix}{function}{rest}"
        given = ", ".join(f":{parameter}::{kind}" for parameter, kind in parameters.items())
        found[name] = (function, made, f"select * from {prefix}{function}({given})")
    return found
