"""What a command spawns: JSON objects, one a line, that it appends to the file that $COVEY_SPAWN names.

The file belongs to one run. It is read when the command has succeeded and removed however the run ended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.model import Claim, Mode, Relation, Report, When
from ..core.objects import FIELDS, fields_of, spec_of
from ..errors import CoveyError, InvalidInput
from .output import live_path
from .spawning import MAX_BYTES, Family, Spawns

MORE = ("relation", "when", "serial")  # what a line may say beside the fields of a job
KNOWN = (*FIELDS, *MORE)
RELATIONS: tuple[Relation, ...] = ("child", "sibling", "after")
MAX_FILE = 4 * MAX_BYTES


def create(live: str, claim: Claim) -> str | None:
    """An empty file that only we may read and write; None where none can be made: the command runs all the same."""
    path = live_path(live, claim.id, claim.fence, "spawn")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError:
        return None
    return path


def remove(path: str | None) -> None:
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def set_spawned(told: Report, path: str, claim: Claim, settings: dict[str, Any]) -> None:
    """A success brings along what the file asks for; a line that makes no sense buries the job and is named."""
    family = Family(claim.id, claim.parent_id, claim.depth, claim.max_depth, claim.child_mode)
    spawns = Spawns(family, settings)
    try:
        for number, line in _lines(path):
            try:
                _take(spawns, line, claim.cwd)
            except CoveyError as error:
                raise InvalidInput(f"line {number}: {error}") from None
    except (CoveyError, OSError) as error:
        told.outcome, told.error = "abort", f"what it spawned was refused: $COVEY_SPAWN, {error}"[:4000]
        return
    if asked := spawns.take():
        told.spawned, told.child_mode = asked, spawns.mode


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """(number, text) of each line that is not blank."""
    if (size := os.stat(path).st_size) > MAX_FILE:
        raise InvalidInput(f"{size:,} bytes: the limit is {MAX_FILE:,}; let children spawn a part each")
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                raise InvalidInput(f"line {number}: it was cut short (there is no newline at its end)")
            try:
                line = raw.decode().strip()
            except UnicodeDecodeError as error:
                raise InvalidInput(f"line {number}: not UTF-8 at byte {error.start}") from None
            if line:
                yield number, line


def _take(spawns: Spawns, line: str, cwd: str | None) -> None:
    fields = fields_of(line, KNOWN)
    relation, when, mode = spoken(fields)
    spec = spec_of(fields, settings=spawns.settings, defaults={"cwd": cwd})
    spawns.add(relation, spec, queue=fields.get("queue"), priority=fields.get("priority"), when=when, mode=mode)


def spoken(fields: dict[str, Any]) -> tuple[Relation, When, Mode | None]:
    """What a line says beside the job itself; InvalidInput if that makes no sense."""
    relation = fields.get("relation") or "child"
    when: Any = fields.get("when") or "success"
    serial = fields.get("serial")
    if relation not in RELATIONS:
        raise InvalidInput(f"relation {relation!r}: one of {', '.join(RELATIONS)}")
    if when not in ("success", "always"):
        raise InvalidInput(f"when {when!r}: success or always")
    if when != "success" and relation != "after":
        raise InvalidInput(f"when belongs to relation 'after'; this is a {relation}")
    if serial is not None and (not isinstance(serial, bool) or relation != "child"):
        raise InvalidInput(f"serial {serial!r}: true or false, for children only")
    return relation, when, None if serial is None else "serial" if serial else "concurrent"


def check_place(relation: Relation, environ: Mapping[str, str]) -> None:
    """A command with these variables may ask for such a job; SpawnRefused says why it may not."""
    parent = environ.get("COVEY_PARENT_ID")
    family = Family(
        int(environ.get("COVEY_JOB_ID", 0)),
        None if parent is None else int(parent),
        int(environ.get("COVEY_DEPTH", 0)),
        int(environ.get("COVEY_MAX_DEPTH", 1)),
    )
    Spawns(family, {}).allow(relation)
