"""From words, JSON and lines to Specs. A mistake names the field, and in a file the line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..core import specs
from ..core.model import Spec
from ..core.objects import check_known, fields_of, spec_of, without_what_is_read_only
from ..errors import CoveyError, InvalidInput


def from_object(text: str, *, defaults: Mapping[str, Any]) -> Spec:
    """The job that a JSON object describes; what it leaves open comes from ``defaults``."""
    try:
        fields, left_out = without_what_is_read_only(fields_of(text, ()))
        check_known(fields)
    except InvalidInput as error:
        if not str(error).startswith("not a JSON object"):
            raise
        raise InvalidInput(
            f"{error}; a command that begins with {{ is passed as: covey enqueue -- sh -c '{{ … }}'"
        ) from None
    if left_out:
        from .printing import note

        note(f"covey: {', '.join(left_out)}: what Covey says of a job is not asked for; left out")
    return spec_of(fields, defaults=defaults)


def from_lines(lines: Iterable[bytes], *, defaults: Mapping[str, Any]) -> Iterator[tuple[int, Spec]]:
    """(line, job) for each line: a command for the shell, or a JSON object. Blank lines and # lines are none."""
    seen: dict[str, int] = {}
    for number, raw in enumerate(lines, 1):
        try:
            line = raw.decode().strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("{"):
                spec = from_object(line, defaults=defaults)
            else:
                spec = specs.shell_spec(line, **defaults)
            specs.check_spec(spec)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"line {number}: not UTF-8 at byte {error.start}; nothing was queued") from None
        except CoveyError as error:
            raise type(error)(f"line {number}: {error}; nothing was queued") from None
        if spec.key is not None and spec.if_exists != "return" and seen.setdefault(spec.key, number) != number:
            raise InvalidInput(
                f"line {number}: the key {spec.key!r} is on line {seen[spec.key]} too; nothing was queued"
            )
        yield number, spec
