"""What a command spawns: JSON objects, one a line, that it appends to the file that $COVEY_SPAWN names.

The file belongs to one run. It is read when the command has succeeded and removed however the run ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, BinaryIO

from ..core.model import Claim, Mode, Relation, Report, When
from ..core.objects import FIELDS, fields_of, spec_of
from ..errors import CoveyError, InvalidInput, SpawnRefused
from .output import live_path, open_plain
from .spawns import MAX_BYTES, Family, Spawns

MORE = ("relation", "when", "serial")  # what a line may say beside the fields of a job
KNOWN = (*FIELDS, *MORE)
RELATIONS: tuple[Relation, ...] = ("child", "sibling", "after")
REFUSED = '{"refused": '  # begins the line that `covey spawn` leaves for a job that this run may not have: the reason
MAX_FILE = 4 * MAX_BYTES
LAST = 64 << 10  # bytes at the end of the file that hold its last line, if that is a refusal


def create(live: str, claim: Claim) -> str | None:
    """An empty file that only we may read and write; None where none can be made: the command runs all the same."""
    path = live_path(live, claim.id, claim.fence, "spawn")
    try:
        try:
            os.close(_created(path))
        except FileExistsError:  # whatever somebody has put there, it is not ours: a pipe would make us wait
            remove(path)
            os.close(_created(path))
    except OSError:
        return None
    return path


def _created(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def remove(path: str | None) -> None:
    """Nothing has that name any more, whatever the command has put in the file's place."""
    if path is None:
        return
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass


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


def set_refused(told: Report, path: str) -> None:
    """A command that ended with the refusal of its last `covey spawn` is dead, as a function is that raises it.

    With its own exit code, and as the last thing that it asked for: who goes on after a refusal may fail for another
    reason, and is tried again for that.
    """
    if told.exit_code != SpawnRefused.exit_code:
        return
    with contextlib.suppress(CoveyError, OSError, UnicodeDecodeError):
        with _opened(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST))
            last = file.read(LAST).splitlines()[-1:]
        for line in (each.decode() for each in last if each.startswith(REFUSED.encode())):
            told.outcome, told.error = "abort", str(fields_of(line, ("refused",))["refused"])[:4000]


def _opened(path: str) -> BinaryIO:
    """The file, if it still is one of ours. Once it is open, what happens to its name does not matter."""
    try:
        return open(open_plain(path, os.O_RDONLY), "rb")
    except FileNotFoundError:
        raise InvalidInput("the command has removed the file; append to it, or leave it alone") from None
    except OSError:
        raise InvalidInput("the command has put something else in the place of the file; append to it") from None


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """(number, text) of each line that is not blank. What is written meanwhile counts against the limit too."""
    with _opened(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > MAX_FILE:
            raise InvalidInput(f"{size:,} bytes: the limit is {MAX_FILE:,}; let children spawn a part each")
        for number in count(1):
            if not (raw := file.readline(MAX_FILE + 1)):
                return
            if file.tell() > MAX_FILE:
                raise InvalidInput(f"line {number}: it grows while it is read; end what writes to it first")
            if not raw.endswith(b"\n"):
                raise InvalidInput(f"line {number}: it was cut short (there is no newline at its end)")
            try:
                line = raw.decode().strip()
            except UnicodeDecodeError as error:
                raise InvalidInput(f"line {number}: not UTF-8 at byte {error.start}") from None
            if line:
                yield number, line


def _take(spawns: Spawns, line: str, cwd: str | None) -> None:
    if line.startswith(REFUSED):
        return  # the command went on after it, and that was well
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
