"""All that is known when a run is over: the rows, the history, the traces, the audit, and who is still there."""

from __future__ import annotations

import contextlib
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from covey.engine.engine import Engine
from covey.env import start_ticks
from covey.system import process_tree

from . import audit, history, jobs

ROWS = """select j.id, j.batch, j.parent_id, j.child_no, j.task, j.state, j.phase, j.attempts, j.max_attempts,
    j.interruptions, j.pool, j.child_mode, j.children_total, j.children_unfinished, j.children_failed,
    j.info, j.children_info, p.args, r.body
from {jobs} j left join {payloads} p on p.job_id = j.id left join {results} r on r.job_id = j.id order by j.id"""
Run = tuple[int, str, int]  # job, phase, attempt


class Row(Struct):
    id: int
    token: str | None
    parent_id: int | None
    child_no: int | None
    task: str
    state: str
    phase: str
    attempts: int
    max_attempts: int
    interruptions: int
    pool: int | None
    child_mode: str | None
    children_total: int
    children_unfinished: int
    children_failed: int
    info: str | None
    children_info: str | None
    args: str | None
    result: str | None

    def sketches(self) -> list[Any]:
        """Of a tree: what its run asks for."""
        call: Any = msgspec.json.decode(self.args or "[[0, []]]")
        children: list[Any] = call[0][1]
        return children


class Evidence:
    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine, self.directory = engine, directory
        self.rows = {row[0]: Row(*row) for row in engine.store.raw(ROWS)}
        self.requests = history.read_all(directory)
        self.steps = audit.steps(engine)
        self.starts: Counter[Run] = Counter(map(_run, lines(directory / "starts")))
        self.cancels = set(map(int, lines(directory / "cancels")))
        self.overlaps = lines(directory / "overlaps")
        self.errors = lines(directory / "errors")
        self.families: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows.values():
            if row.parent_id is not None:
                self.families[row.parent_id].append(row)
        found = engine.store.raw("select job_id, phase, number, outcome, error from {attempts} order by job_id, fence")
        self.attempts: list[tuple[Run, str, str]] = [
            ((job, phase, number), outcome, error or "") for job, phase, number, outcome, error in found
        ]

    def figures(self) -> dict[str, int]:
        """What happened, in numbers."""
        interrupted = 0
        last: dict[int, int] = {}
        for step in self.steps:
            interrupted += step.interruptions > last.get(step.job, 0)
            last[step.job] = step.interruptions
        answered = sum(request.is_answered for request in self.requests)
        states = Counter(row.state for row in self.rows.values())
        return {
            "requests to enqueue": len(self.requests),
            "of these refused": sum(request.refused is not None for request in self.requests),
            "of these never answered": len(self.requests) - answered,
            "jobs enqueued": len(self.roots),
            "jobs spawned": len(self.rows) - len(self.roots),
            **{f"jobs {state}": count for state, count in sorted(states.items())},
            "trees": len(self.families),
            "claims": sum(step.is_claim for step in self.steps),
            "starts": self.starts.total(),
            "interruptions (pool lost)": interrupted,
            "attempts charged to a kill": sum(
                bool(error) and outcome != "cancelled" for _, outcome, error in self.attempts
            ),
            "changes seen by the audit": len(self.steps),
        }

    @property
    def roots(self) -> list[Row]:
        return [row for row in self.rows.values() if row.parent_id is None]


def _run(line: str) -> Run:
    job, phase, attempt = line.split()
    return int(job), phase, int(attempt)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def processes(directory: Path) -> list[int]:
    """Everybody that a run has started and who lives, whatever became of their parents; not this process."""
    mark = f"{jobs.DIRECTORY}={directory}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as environ:
            if mark in environ.read().split(b"\0"):
                found.append(int(name))
    return [pid for pid in found if start_ticks(pid) is not None]


def described(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
        return f"process {pid} ({words.read().replace(bytes(1), b' ').decode(errors='replace').strip()[:80]})"
    return f"process {pid}"


def children() -> set[int]:
    """Of this process, zombies included."""
    return set(process_tree.children(os.getpid()))


def files(engine: Engine, directory: Path) -> list[str]:
    """Live output and temporary files, which belong to runs and pools that are all over."""
    side = getattr(engine.store.dialect, "side", "")
    places = [directory / "temp", *([Path(side) / "live"] if side else [])]
    return [f"{place.name}/{path.name}" for place in places if place.is_dir() for path in place.iterdir()]
