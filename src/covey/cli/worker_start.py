"""covey worker start: a pool of workers in the foreground."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..errors import InvalidInput
from .opening import database, open_queue
from .options import Db

MOST_WORKERS = 1000

Count = Annotated[
    str | None,
    typer.Option("--count", "-n", metavar="N|auto", help="Jobs at a time; auto, the default, goes by CPU and memory."),
]
Workers = Annotated[
    list[str] | None,
    typer.Option("--worker", "-w", metavar="QUEUE=N", help="A queue with workers of its own; repeatable. 0: none."),
]
Queues = Annotated[
    list[str] | None, typer.Option("--queue", "-q", metavar="NAME", help="Serve this queue; repeatable. Else all.")
]
App = Annotated[str | None, typer.Option("--app", metavar="MODULE:APP", help="Where the Python tasks are.")]
Drain = Annotated[bool, typer.Option("--drain", help="End when nothing is left to do.")]
Grace = Annotated[float, typer.Option("--grace", metavar="SECONDS", help="How long a running job may take to stop.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="What this pool is called.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say only what went wrong.")]
Startup = Annotated[
    int | None, typer.Option("--max-startup-concurrency", metavar="N", help="Workers that start at the same time.")
]
MaxJobs = Annotated[int | None, typer.Option("--max-jobs", metavar="N", help="Replace a worker after so many jobs.")]
MaxMemory = Annotated[
    str | None,
    typer.Option("--max-memory", metavar="SIZE", help="Replace a worker above this, between jobs: 500M, 2G."),
]
ParentPid = Annotated[int | None, typer.Option("--parent-pid", metavar="PID", help="Stop when that process is gone.")]


def start(
    count: Count = None,
    worker: Workers = None,
    queue: Queues = None,
    app: App = None,
    drain: Drain = False,
    grace: Grace = 10.0,
    name: Name = None,
    max_jobs: MaxJobs = None,
    max_memory: MaxMemory = None,
    max_startup_concurrency: Startup = None,
    parent_pid: ParentPid = None,
    quiet: Quiet = False,
    db: Db = None,
) -> int:
    """Run a pool of workers until it is stopped: Ctrl-C or `covey worker stop` lets running jobs finish."""
    from ..core.check import check_queue

    if worker and (count is not None or queue):
        raise InvalidInput("--worker QUEUE=N says both queue and count; leave out --count and --queue")
    if not 0 <= grace <= 86400:
        raise InvalidInput(f"--grace {grace:g}: seconds, from 0 to 86,400")
    if app is not None and not all(part for part in app.partition(":")):
        raise InvalidInput(f"--app {app!r}: write MODULE:APP, as in tasks:app")
    _check("--max-jobs", max_jobs, 1, 1_000_000_000)
    _check("--max-startup-concurrency", max_startup_concurrency, 1, MOST_WORKERS)
    _check("--parent-pid", parent_pid, 1, 1 << 22)
    if count == "0":
        raise InvalidInput("--count 0: nobody would work; name the queues to leave out with --worker QUEUE=0")
    workers = _types(worker or [])
    limit = None if max_memory is None else _size("--max-memory", max_memory)
    queues = tuple(dict.fromkeys(check_queue(each) for each in queue)) if queue else None
    jobs = 0 if count is None else _count("--count", count)
    url = database(db)
    engine = open_queue(url, create=True)
    from ..pool.start import PoolOptions, run

    side = engine.store.dialect.side
    return run(
        engine,
        PoolOptions(
            url=engine.store.dialect.url,  # absolute: a worker may change its directory
            count=jobs,
            workers=workers,
            queues=queues,
            app=app,
            drain=drain,
            grace_s=grace,
            name=name,
            quiet=quiet,
            logs=os.path.join(side, "logs") if side else None,
            parent_pid=parent_pid,
            max_startup=max_startup_concurrency,
            max_jobs=max_jobs,
            max_memory=limit,
        ),
    )


def _check(flag: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidInput(f"{flag} {value}: from {least:,} to {most:,}")


def _count(flag: str, text: str) -> int:
    """0 for `auto`."""
    if text == "auto":
        return 0
    if not text.isdecimal():
        raise InvalidInput(f"{flag} {text!r}: a number of workers, or auto")
    _check(flag, int(text), 0, MOST_WORKERS)
    return int(text)


def _types(given: list[str]) -> dict[str, int]:
    """Queue → workers, `auto` shared out; InvalidInput if one is named twice or nobody would work."""
    from ..core.check import check_queue
    from ..pool.sizing import automatic

    texts: dict[str, str] = {}
    for each in given:
        queue, equals, text = each.rpartition("=")
        if not equals:
            raise InvalidInput(f"--worker {each!r}: write QUEUE=N, as in --worker shell=4")
        if check_queue(queue) in texts:
            raise InvalidInput(f"--worker {queue}: named twice")
        texts[queue] = text
    share = automatic(max(1, list(texts.values()).count("auto")))
    types = {queue: share if text == "auto" else _count(f"--worker {queue}", text) for queue, text in texts.items()}
    if types and not any(types.values()):
        raise InvalidInput("--worker: every count is 0, so nobody would work")
    _check("--worker: workers in all", sum(types.values()), 0, MOST_WORKERS)
    return types


def _size(flag: str, text: str) -> int:
    """Bytes."""
    units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    plain = text.strip().upper().removesuffix("B").removesuffix("I")
    number, unit = (plain[:-1], plain[-1]) if plain[-1:] in ("K", "M", "G") else (plain, "")
    if not number.isdecimal() or int(number) * units[unit] < 1 << 20:
        raise InvalidInput(f"{flag} {text!r}: a size of at least 1M, as in 500M or 2G")
    return int(number) * units[unit]
