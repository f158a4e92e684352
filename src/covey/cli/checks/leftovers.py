"""What pools and servers that were killed have left on this host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...errors import ContainerError
from .check_result import Finding, ok, some, warn

if TYPE_CHECKING:
    from ...engine.engine import Engine

PATIENCE_S = 5.0  # with a container engine that does not answer
REAPED = "`covey worker reap`, or the next `covey worker start`, ends them"
SWEPT = "the next `covey worker start` removes them"


def look(engine: Engine) -> Iterator[Finding]:
    found = [*_processes(engine), *_files(engine), *_server(engine), *_groups(engine), *_containers(engine)]
    yield from found
    if all(each.verdict == "ok" for each in found):
        yield ok("leftovers", "none")


def _processes(engine: Engine) -> Iterator[Finding]:
    from ...engine.health import is_alive

    living = {pool.id for pool in engine.pool_views() if is_alive(pool)}
    if strays := [str(pid) for pid, pool in marked(engine.database_id) if pool not in living]:
        yield warn("leftovers", f"processes of lost pools: {some(strays, 10)}", REAPED)


def marked(database_id: str) -> Iterator[tuple[int, int]]:
    """(pid, pool) of every process that was started for a run of this queue, as far as we may look."""
    mark = f"COVEY_RUN={database_id}:".encode()
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        run = next((each for each in variables if each.startswith(mark)), None)
        pool = run.decode("ascii", "replace").split(":")[1] if run else ""
        if pool.isdigit():
            yield int(entry), int(pool)


def _files(engine: Engine) -> Iterator[Finding]:
    from ...engine import leftovers
    from ...pool import live

    side = engine.store.dialect.side
    stale = leftovers.stale(engine.store, os.path.join(side, "live") if side else "")
    if names := [name for names in stale.values() for name in names]:
        yield warn("leftovers", f"live output of runs that are over: {some(sorted(names))}", SWEPT)
    if directories := live.stale():
        yield warn("leftovers", f"directories of lost pools: {some(directories)}", SWEPT)


def _server(engine: Engine) -> Iterator[Finding]:
    from ...discovery import NAME, found, read_note
    from ...env import boot

    side = engine.store.dialect.side
    note = read_note(side) if side else None
    if note is None:
        if side and os.path.exists(path := os.path.join(side, NAME)):
            yield warn("leftovers", f"{path} cannot be read", "remove it; `covey server` writes it anew")
    elif found(side) is None and note.boot == boot():
        text = f"the note of a server that is gone ({note.url}, pid {note.pid})"
        yield warn("leftovers", text, f"nobody trusts it; the next `covey server` replaces {os.path.join(side, NAME)}")


def _groups(engine: Engine) -> Iterator[Finding]:
    from ...system import cgroup

    if groups := cgroup.left(engine.database_id):
        yield warn("leftovers", f"empty control groups of lost pools: {some(groups)}", "remove them: rmdir PATH")


def _containers(engine: Engine) -> Iterator[Finding]:
    from ...containers.docker import ENGINES, Docker
    from ...containers.launch import orphans

    for program in filter(shutil.which, ENGINES):
        try:
            left = [each.name for each in orphans(Docker(program, patience_s=PATIENCE_S), engine.database_id)]
        except ContainerError as error:
            yield ok("containers", f"not looked at: {error}")
            continue
        if left:
            text = f"containers of lost supervisors: {some(left)}"
            yield warn(
                "leftovers", text, f"{program} rm -f NAME, or the next `covey worker start --executor` removes them"
            )
