"""The OpenAPI document, made from the table of endpoints, and a page that shows it."""

from __future__ import annotations

import html
from functools import cache
from typing import Any

import msgspec

from .. import __version__
from ..core.bodies import Failed
from ..core.endpoints import ENDPOINTS, JSON, MSGPACK, Endpoint
from ..settings import SETTINGS
from .schemas import PLAIN, QUEUE, bounded, refined

ALWAYS = {
    "400": "What was asked makes no sense.",
    "403": "The token does not allow it, or another site's page asked.",
    "408": "The request did not arrive in time.",
    "413": "It is too large.",
    "421": "The server is not called that.",
    "431": "Request line and headers are too large.",
}
CLOSED = {
    "401": "A token is needed, or this one is not known.",
    "404": "There is no such thing.",
    "503": "The queue cannot be used right now.",
}
CHANGING = {"409": "It makes sense, but not now."}
TAKING = {"415": "The body is written in a way that is not known here."}


@cache
def document() -> dict[str, Any]:
    kinds = [kind for endpoint in ENDPOINTS.values() for kind in (endpoint.takes, endpoint.gives) if _is_named(kind)]
    schemas, components = msgspec.json.schema_components([*kinds, Failed], ref_template="#/components/schemas/{name}")
    named = dict(zip([*map(str, kinds), "failed"], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS.values():
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Covey",
            "version": __version__,
            "description": "A durable job queue over HTTP. Bodies are JSON, or msgpack with the same fields.",
        },
        "paths": paths,
        "components": {
            "schemas": refined(components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _is_named(kind: Any) -> bool:
    return kind is not None and kind is not str and kind is not dict


def _operation(endpoint: Endpoint, named: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": _name_schema(part[1:-1])}
        for part in endpoint.path.split("/")
        if part.startswith("{")
    ]
    if endpoint.query is not None:
        fields = bounded(msgspec.json.schema_components([endpoint.query])[1][endpoint.query.__name__])
        parameters += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in fields["properties"].items()
        ]
    if endpoint.stream:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif endpoint.gives is str:
        content = {"text/html": {"schema": {"type": "string"}}}
    elif endpoint.gives is dict:
        content = {JSON: {"schema": {"type": "object"}}}
    else:
        content = {JSON: {"schema": named[str(endpoint.gives)]}}
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "parameters": parameters,
        "responses": {"200": {"description": "Done.", "content": content}} | _failures(endpoint, named),
    }
    if endpoint.role is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = f"For tokens of the role {endpoint.role}, or one that includes it."
    if endpoint.takes is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": named[str(endpoint.takes)]}}}
    return operation


def _name_schema(name: str) -> dict[str, Any]:
    if name == "pool":
        return {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
    if name == "name":
        return {"enum": list(SETTINGS)}
    return {"type": "string", "minLength": 1, **(QUEUE if name == "queue" else {"pattern": PLAIN})}


def _failures(endpoint: Endpoint, named: dict[str, Any]) -> dict[str, Any]:
    said = {JSON: {"schema": named["failed"]}}
    listed = ALWAYS | (CLOSED if endpoint.role else {})
    listed |= (CHANGING if endpoint.unsafe else {}) | (TAKING if endpoint.takes else {})
    found = {status: {"description": about, "content": said} for status, about in sorted(listed.items())}
    if endpoint.looks:
        found["504"] = {"description": "It took too long; narrow it.", "content": said}
    if endpoint.name in ("health", "readyz"):
        unavailable = {JSON: {"schema": named[str(endpoint.gives)]}}
        found["503"] = {"description": "The queue cannot be used right now.", "content": unavailable}
    return found


@cache
def page() -> str:
    """All endpoints on one page, without a script: it works in any browser and asks nobody for anything."""
    rows = "\n".join(
        f"<tr><td><b>{endpoint.method}</b><td><code>{html.escape(endpoint.path)}</code><td>{html.escape(endpoint.about)}"
        f"<td>{endpoint.role or 'everybody'}"
        f"<td>{html.escape(_type_name(endpoint.takes))}<td>{html.escape(_type_name(endpoint.gives))}"
        for endpoint in ENDPOINTS.values()
    )
    return _PAGE.format(version=html.escape(__version__), rows=rows, json=JSON, msgpack=MSGPACK)


def _type_name(kind: Any) -> str:
    if kind is None:
        return ""
    return str(getattr(kind, "__name__", kind)) if not getattr(kind, "__args__", None) else f"list of {_inner(kind)}"


def _inner(kind: Any) -> str:
    return ", ".join(arg.__name__ for arg in kind.__args__)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Covey {version}: the HTTP interface</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
td, th {{ text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ccc; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111; color: #ddd; }} a {{ color: #9cf; }} }}
</style>
<h1>Covey {version}</h1>
<p>Bodies are <code>{json}</code>, or <code>{msgpack}</code> with the same fields. A token goes into
<code>Authorization: Bearer …</code>. Errors are <code>{{"error": {{"code", "message"}}}}</code>.
The whole description: <a href="/openapi.json">/openapi.json</a>.</p>
<div><table>
<tr><th>method<th>path<th>what it does<th>role<th>takes<th>gives
{rows}
</table></div>
</html>
"""
