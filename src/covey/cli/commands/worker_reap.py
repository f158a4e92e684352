"""covey worker reap: what lost pools of this host left behind is gone, and their jobs wait again."""

from __future__ import annotations

import os
from shutil import which
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from ...errors import Refused
from ..open_queue import open_database
from ..options import Db, Json
from ..printing import answer, as_json, note, one_line

if TYPE_CHECKING:
    from ...core.turn import LostPool
    from ...core.view import PoolView
    from ...engine.engine import Engine
    from ...log import Log
    from ...pool.reaper import Reaper

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


class Leftover(Struct, frozen=True):
    """A process that a lost pool left behind."""

    pid: int
    command: str


class Reaped(Struct, kw_only=True):
    """A pool that is lost or seems so, and what it left. `reaped`: that has been dealt with."""

    id: int
    name: str
    host: str
    pid: int
    lost: bool  # False: it is silent, but not ours to give up
    reaped: bool
    jobs: int
    processes: list[Leftover]
    survivors: list[int] = []  # could not be ended
    reason: str


class ContainersReaped(Struct, kw_only=True):
    """What a lost supervisor of this host had started."""

    containers: list[str]
    reaped: bool


def reap(dry_run: DryRun = False, json: Json = False, db: Db = None) -> int:
    """Do by hand what the next pool does before it claims: end what lost pools left, hand their jobs back.

    A pool of this host is lost when its process is gone. Only what carries its mark is ended, with what that started;
    of a pool with containers, those that carry its label.

    Exits 1 if a process could not be ended.
    """
    from ...log import Log
    from ...pool.reaper import Reaper

    engine, log = open_database(db), Log("covey", quiet=True)
    reaper = Reaper(engine, engine.database_id, log)
    views = {pool.id: pool for pool in engine.pool_views()}
    silent = {pool.id for pool in views.values() if pool.beat_age_s > pool.lease_s}
    lost = [pool for pool in reaper.gone(silent) if pool.id in views]
    refuse_own_pool(engine, lost)
    boxes = _reap_containers(engine, log, dry_run=dry_run)
    found = [_reap(reaper, pool, views.pop(pool.id), dry_run=dry_run) for pool in lost]
    found += [_silent(pool) for pool in views.values() if pool.id in silent]
    if json:
        as_json([*found, *boxes])
    else:
        for each in boxes:
            verb = "removed" if each.reaped else "would remove"
            answer(one_line(f"{verb} what a lost supervisor left: container {', '.join(each.containers)}"))
        _show(found, quiet=bool(boxes))
    return 1 if any(pool.survivors for pool in found) else 0


def refuse_own_pool(engine: Engine, lost: list[LostPool]) -> None:
    """A shell that a lost pool's job has left running would be ended halfway through."""
    mark = os.environ.get("COVEY_RUN", "")
    for pool in lost:
        if mark.startswith(f"{engine.database_id}:{pool.id}:"):
            raise Refused(f"this command runs inside a job of pool {pool.id}, which is lost; run it from elsewhere")


def _reap(reaper: Reaper, pool: LostPool, view: PoolView, *, dry_run: bool) -> Reaped:
    found = Reaped(
        id=pool.id,
        name=view.name,
        host=pool.host,
        pid=pool.pid,
        lost=True,
        reaped=not dry_run,
        jobs=view.held,
        processes=[Leftover(pid, _command_line(pid)) for pid in reaper.leftovers(pool)],
        reason=f"its process {pool.pid} is gone",
    )
    if not dry_run:
        found.jobs, _ = reaper.reap(pool)
        found.survivors = reaper.leftovers(pool)
    return found


def _silent(pool: PoolView) -> Reaped:
    """Left alone: its process lives, or can be seen only on its own host."""
    from ...engine.health import is_frozen
    from ..times import span

    if is_frozen(pool):
        advice = f"its process lives; resume it with `kill -CONT {pool.pid}`, or end it"
    else:
        advice = f"it seems lost; a running pool gives it up after {pool.lease_s:g} s of silence"
    return Reaped(
        id=pool.id,
        name=pool.name,
        host=pool.host,
        pid=pool.pid,
        lost=False,
        reaped=False,
        jobs=pool.held,
        processes=[],
        reason=f"silent for {span(pool.beat_age_s)}: {advice}",
    )


def _reap_containers(engine: Engine, log: Log, *, dry_run: bool) -> list[ContainersReaped]:
    """Those of lost supervisors are gone, in every container engine that answers."""
    from ...containers.docker import ENGINES, Docker
    from ...containers.launch import orphans
    from ...containers.secret import sweep
    from ...containers.supervisor import remove_orphans
    from ...errors import ContainerError

    found = []
    if not dry_run:
        sweep()
    for name in ENGINES:
        if which(name) is None:
            continue
        try:
            names = [each.name for each in orphans(Docker(name), engine.database_id)]
            names = names if dry_run else remove_orphans(Docker(name), engine, log)
        except ContainerError:
            continue  # it does not run: nothing of ours does either
        if names:
            found.append(ContainersReaped(containers=names, reaped=not dry_run))
    return found


def _show(found: list[Reaped], *, quiet: bool) -> None:
    if not quiet and not any(pool.lost for pool in found):
        note("nothing to reap: no pool of this host is lost")
    for pool in found:
        name = f"pool {pool.id} ({pool.name} on {pool.host})"
        jobs, processes = _count(pool.jobs, "job"), _count(len(pool.processes), "process", "processes")
        if not pool.lost:
            answer(one_line(f"left alone: {name}, {jobs}, {pool.reason}"))
        elif pool.reaped:
            answer(one_line(f"reaped {name}: {jobs} handed back, {processes} ended"))
        else:
            answer(one_line(f"would reap {name}: {jobs}, {processes}"))
        for each in pool.processes:
            answer(one_line(f"  {each.pid} {each.command}"))
        if pool.survivors:
            note(f"could not be ended: {', '.join(map(str, pool.survivors))}; they may belong to another user")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "(gone)"
