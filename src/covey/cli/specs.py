"""From words, JSON and lines to Specs. A mistake names the field, and in a file the line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..core import specs
from ..core.model import Spec
from ..core.objects import FIELDS, fields_of, spec_of
from ..errors import CoveyError, InvalidInput


def from_object(text: str, *, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> Spec:
    """The job that a JSON object describes; what it leaves open comes from ``defaults``."""
    try:
        fields = fields_of(text, FIELDS)
    except InvalidInput as error:
        if not str(error).startswith("not a JSON object"):
            raise
        raise InvalidInput(
            f"{error}; a command that begins with {{ is passed as: covey enqueue -- sh -c '{{ … }}'"
        ) from None
    return spec_of(fields, settings=settings, defaults=defaults)


def from_lines(
    lines: Iterable[bytes], *, settings: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[tuple[int, Spec]]:
    """(line, job) for each line: a command for the shell, or a JSON object. Blank lines and # lines are none."""
    from ..core.check import check_spec

    seen: dict[str, int] = {}
    for number, raw in enumerate(lines, 1):
        try:
            line = raw.decode().strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("{"):
                spec = from_object(line, settings=settings, defaults=defaults)
            else:
                spec = specs.shell_spec(line, settings=settings, **defaults)
            check_spec(spec)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"line {number}: not UTF-8 at byte {error.start}; nothing was queued") from None
        except CoveyError as error:
            raise type(error)(f"line {number}: {error}; nothing was queued") from None
        if spec.key is not None and spec.if_exists == "error" and seen.setdefault(spec.key, number) != number:
            raise InvalidInput(
                f"line {number}: the key {spec.key!r} is on line {seen[spec.key]} too; nothing was queued"
            )
        yield number, spec
