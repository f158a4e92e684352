"""What the types do not say of themselves: bounds and forms, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from ..core.check import LONGEST_BACKOFF_S, NAME, YEAR_10000
from ..core.model import STATES
from .bounds import LEASE_S, LONGEST, MOST_COUNT

Schema = dict[str, Any]

PLAIN = r"^[^\u0000-\u001f\u007f-\u009f]+$"
QUEUE: Schema = {"pattern": f"^{NAME.pattern}$"}
INSTANT: Schema = {"minimum": -YEAR_10000 + 1, "maximum": YEAR_10000 - 1}
SECONDS: Schema = {"exclusiveMinimum": 0, "exclusiveMaximum": 10**9}
BACKOFF: Schema = {"minimum": 0, "maximum": int(LONGEST_BACKOFF_S)}
LEASE: Schema = {"minimum": LEASE_S[0], "maximum": LEASE_S[1]}
DELAY: Schema = {"minimum": 0, "exclusiveMaximum": 10**10}
PRIORITY: Schema = {"minimum": -(2**31), "maximum": 2**31 - 1}
ATTEMPTS: Schema = {"minimum": 1, "maximum": 1_000_000}
INT64: Schema = {"minimum": -(1 << 63), "maximum": (1 << 63) - 1}
TEXT: Schema = {"maxLength": LONGEST, "pattern": r"^[^\u0000]*$"}


def _text(most: int) -> Schema:
    return {"minLength": 1, "maxLength": most, "pattern": PLAIN}


KEY: Schema = _text(300) | {"not": {"pattern": "^[0-9]+$"}}

BOUNDS: dict[str, dict[str, Schema]] = {
    "Spec": {
        "task": _text(300),
        "queue": QUEUE,
        "priority": PRIORITY,
        "delay_s": DELAY,
        "run_at": INSTANT,
        "key": KEY,
        "unique_key": KEY,
        "cwd": _text(4096),
        "batch": _text(200),
        "created_by": _text(200),
        "tree_timeout_s": SECONDS,
        "args": {"contentMediaType": "application/json"},
    },
    "Policy": {
        "max_attempts": ATTEMPTS,
        "timeout_s": SECONDS,
        "backoff_base": {"minimum": 1},
        "backoff_cap_s": BACKOFF,
    },
    "PoolInfo": {
        "lease_s": LEASE,
        "count": {"minimum": 0, "maximum": MOST_COUNT},
        **dict.fromkeys(("name", "host", "boot", "version", "app", "log", "cgroup", "ticket"), TEXT),
    },
    "WorkerState": {"started_at": INSTANT, "busy_since": INSTANT},
    "PoolEvent": {"at": INSTANT},
    "Filter": {"limit": {"minimum": 1, "maximum": 10_000}},
    "Enqueue": {"request": _text(200)},
    "EnqueueJobs": {"request": _text(200)},
    "Edit": {"priority": PRIORITY, "queue": QUEUE, "run_at": INSTANT, "max_attempts": ATTEMPTS},
}

JOB: Schema = {
    "title": "Job",
    "description": "A job as people write it: the object that `covey enqueue` takes. One of command, argv and task.",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"anyOf": [{"type": "string", **KEY}, {"type": "null"}], "description": "Another name of key."},
        "key": {"anyOf": [{"type": "string", **KEY}, {"type": "null"}]},
        "command": {"type": ["string", "null"]},
        "argv": {"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1},
        "task": {"anyOf": [{"type": "string", **_text(300), "not": {"const": "shell"}}, {"type": "null"}]},
        "args": {"type": ["array", "object", "null"], "description": "Of a task: a list, or an object with names."},
        "kind": {"enum": ["sync", "async", None]},
        "queue": {"anyOf": [{"type": "string", **QUEUE}, {"type": "null"}]},
        "priority": {"type": ["integer", "null"], **PRIORITY},
        "run_at": {"type": ["string", "null"], "format": "date-time"},
        "delay": {"type": ["number", "string", "null"], **DELAY, "description": "Seconds, or 90s, 15m, 2h, 1d."},
        "max_attempts": {"type": ["integer", "null"], **ATTEMPTS},
        "max_retries": {"type": ["integer", "null"], **ATTEMPTS},
        "timeout": {"type": ["number", "string", "null"], **SECONDS},
        "cwd": {"anyOf": [{"type": "string", **_text(4096)}, {"type": "null"}]},
        "env": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        "batch": {"anyOf": [{"type": "string", **_text(200)}, {"type": "null"}]},
        "labels": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        "if_exists": {"enum": ["error", "return", None]},
        "keep_background": {"type": ["boolean", "null"]},
        "unique_key": {"anyOf": [{"type": "string", **KEY}, {"type": "null"}]},
        "on_error": {"enum": ["wait", "cancel", "collect", None]},
        "mode": {"enum": ["concurrent", "serial", None]},
        "tree_timeout": {"type": ["number", "string", "null"], **SECONDS},
    },
}


def refined(components: dict[str, Schema]) -> dict[str, Schema]:
    """The same schemas with what else holds."""
    for schema in components.values():
        bounds = BOUNDS.get(schema.get("title", ""), {})
        for name, property in schema.get("properties", {}).items():
            for place in property.get("anyOf", [property]):
                if place.get("type") != "null":
                    place.update(bounds.get(name, {}))
        bounded(schema)
    for name in ("EnqueueJobs", "SpawnAsk"):
        components[name]["properties"]["jobs"]["items"] = {"$ref": "#/components/schemas/Job"}
    components["Filter"]["properties"]["states"]["items"] = {"enum": list(STATES)}
    components["PoolInfo"]["properties"]["queues"]["anyOf"][0]["items"] |= QUEUE
    components["PoolInfo"]["properties"]["types"]["anyOf"][0]["propertyNames"] = QUEUE
    return {**components, "Job": JOB}


def bounded(schema: Any) -> Any:
    """The same schema, in which every number has 64 bits."""
    if isinstance(schema, list):
        for each in schema:
            bounded(each)
    elif isinstance(schema, dict):
        if schema.get("type") == "integer":
            schema |= {name: bound for name, bound in INT64.items() if not schema.keys() & {name, f"exclusive{name}"}}
        for name, each in schema.items():
            if name not in ("default", "enum"):
                bounded(each)
    return schema
