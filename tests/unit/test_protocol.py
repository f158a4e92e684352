"""What travels between an old pool and a new server changes on purpose only: protocol.txt shows all of it.

After a change that is meant, `python -m tests.unit.test_protocol` writes the file anew: the diff is what others meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import fields

from covey.core import bodies, endpoints, model, tokens, turn, view

FILE = Path(__file__).with_name("protocol.txt")


def protocol() -> Iterator[str]:
    yield f"protocol {endpoints.PROTOCOL}, {endpoints.JSON}, {endpoints.MSGPACK}"
    yield ""
    for endpoint in endpoints.ENDPOINTS.values():
        yield " ".join([endpoint.method, endpoint.path, *_properties(endpoint)])
    yield ""
    yield from (f"{status} {code}: {kind.__name__}" for code, (kind, status) in endpoints.CODES.items())
    for module in (model, turn, bodies, view, tokens):
        for name, kind in sorted(vars(module).items()):
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__:
                yield ""
                yield " ".join([name, *_habits(kind)])
                yield from (f"    {_field(field)}" for field in fields(kind))
    yield ""
    yield from _constants()


def _properties(endpoint: endpoints.Endpoint) -> Iterator[str]:
    yield f"{endpoint.name}:"
    yield f"role={endpoint.role}"
    yield f"takes={_type(endpoint.takes)}"
    yield f"query={_type(endpoint.query)}"
    yield f"gives={_type(endpoint.gives)}"
    yield f"scoped={endpoint.scoped}"
    yield f"limit={endpoint.limit}"
    yield f"stream={endpoint.stream}"
    yield f"unsafe={endpoint.unsafe}"
    yield f"repeats={endpoint.repeats}"


def _habits(kind: Any) -> list[str]:
    config = kind.__struct_config__
    habits = ("array_like", "forbid_unknown_fields", "omit_defaults")
    return [habit for habit in habits if getattr(config, habit)]


def _field(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"{field.encode_name} = {field.default!r}"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"{field.encode_name} = {field.default_factory()!r}"
    return str(field.encode_name)


def _type(kind: Any) -> str:
    return (
        getattr(kind, "__name__", str(kind)) if not hasattr(kind, "__args__") else str(kind).replace("covey.core.", "")
    )


def _constants() -> Iterator[str]:
    for module in (model, turn, bodies, endpoints):
        for name, value in sorted(vars(module).items()):
            if name.isupper() and isinstance(value, int | float | str | tuple) and name != "ENDPOINTS":
                yield f"{module.__name__.removeprefix('covey.core.')}.{name} = {value!r}"


def test_the_protocol_is_what_was_written_down() -> None:
    told = "\n".join(protocol()) + "\n"
    assert told.splitlines() == FILE.read_text().splitlines(), "if that is meant: python -m tests.unit.test_protocol"


if __name__ == "__main__":
    FILE.write_text("\n".join(protocol()) + "\n")
