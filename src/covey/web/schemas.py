"""What the types do not say of themselves: bounds and forms, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.check import YEAR_10000
from ..core.forms import short_text
from ..core.model import STATES
from ..core.options import FIELDS, IN_JSON, NAMES
from .bounds import LEASE_S, LONGEST, MOST_COUNT

Schema = dict[str, Any]

QUEUE: Schema = dict(NAMES["queue"].form.bounds)
INSTANT: Schema = {"minimum": -YEAR_10000 + 1, "maximum": YEAR_10000 - 1}
LEASE: Schema = {"minimum": LEASE_S[0], "maximum": LEASE_S[1]}
INT64: Schema = {"minimum": -(1 << 63), "maximum": (1 << 63) - 1}
TEXT: Schema = {"maxLength": LONGEST, "pattern": r"^[^\u0000]*$"}


BOUNDS: dict[str, dict[str, Any]] = {
    "Spec": {
        **{field: option.form.bounds for field, option in FIELDS.items()},
        "run_at": INSTANT,
        "task": short_text(300),
        "created_by": short_text(200),
        "args": {"contentMediaType": "application/json"},
    },
    "PoolInfo": {
        "lease_s": LEASE,
        "count": {"minimum": 0, "maximum": MOST_COUNT},
        **dict.fromkeys(("name", "host", "boot", "version", "app", "log", "cgroup", "ticket"), TEXT),
    },
    "WorkerState": {"started_at": INSTANT, "busy_since": INSTANT},
    "PoolEvent": {"at": INSTANT},
    "Filter": {"limit": {"minimum": 1, "maximum": 10_000}},
    "Enqueue": {"request": short_text(200)},
    "EnqueueJobs": {"request": short_text(200)},
    "Edit": {**{name: NAMES[name].form.bounds for name in ("priority", "queue", "max_attempts")}, "run_at": INSTANT},
}


def _field(types: tuple[str, ...], bounds: Mapping[str, Any], about: str) -> Schema:
    kind = {"type": types[0] if len(types) == 1 else list(types), **bounds}
    return {"anyOf": [kind, {"type": "null"}], "description": about}


JOB: Schema = {
    "title": "Job",
    "description": "A job as people write it: the object that `covey enqueue` takes. One of command, argv and task.",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "command": _field(("string",), {}, "A line for the shell."),
        "argv": _field(("array",), {"items": {"type": "string"}, "minItems": 1}, "A program and its arguments."),
        "task": _field(("string",), {**short_text(300), "not": {"const": "shell"}}, "The name of a Python task."),
        "args": _field(("array", "object"), {}, "Of a task: a list, or an object with names."),
        "kind": _field(("string",), {"enum": ["sync", "async"]}, "Of a task: async if it is an async function."),
        **{name: _field(each.form.types, each.form.bounds, each.about) for each in IN_JSON for name in each.names},
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
