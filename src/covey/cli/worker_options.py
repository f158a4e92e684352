"""What `covey worker start` does, without typer: a pool is there sooner."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..errors import InvalidInput
from .open_queue import choose_token, database, named, open_queue
from .printing import note

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..pool.scout import Scout
    from ..store.store import Store

MOST_WORKERS = 1000


def start_pool(
    *,
    count: str | None = None,
    worker: list[str] | None = None,
    queue: list[str] | None = None,
    tree: int | None = None,
    app: str | None = None,
    drain: bool = False,
    grace: float = 10.0,
    name: str | None = None,
    max_jobs: int | None = None,
    max_memory: str | None = None,
    max_startup_concurrency: int | None = None,
    parent_pid: int | None = None,
    quiet: bool = False,
    token_file: str | None = None,
    no_reuse: bool = False,
    db: str | None = None,
) -> int:
    """A pool has run until it was stopped; its exit code."""
    checked = check_start(count, worker, queue, app, grace, max_jobs, max_memory)
    check_name(name)
    check_range("--tree", tree, 1, (1 << 63) - 1)
    if tree is not None and worker:
        raise InvalidInput("--worker QUEUE=N is for whole queues; beside --tree say --queue and --count")
    check_range("--max-startup-concurrency", max_startup_concurrency, 1, MOST_WORKERS)
    check_range("--parent-pid", parent_pid, 1, 1 << 22)
    choose_token(token_file)
    options: dict[str, Any] = {
        "app": app,
        "tree": tree,
        "drain": drain,
        "grace_s": grace,
        "name": name,
        "quiet": quiet,
        "parent_pid": parent_pid,
        "max_startup": max_startup_concurrency,
        "max_jobs": max_jobs,
    }
    if app is None:
        return _run(database(db), checked, no_reuse=no_reuse, **options)
    from ..connection import absolute
    from ..pool.main import signal_pipe
    from ..pool.scout import Scout
    from .apps_queue import queue_of

    given = named(db)
    with signal_pipe() as signals, Scout(app, given and absolute(given), signals) as scout:
        if not scout.learn():
            return 0
        return _run(queue_of(app, scout.told, db), checked, no_reuse=no_reuse, scout=scout, **options)


def _run(url: str, checked: Checked, *, no_reuse: bool, scout: Scout | None = None, **options: Any) -> int:
    source = open_queue(url, create=True)
    from ..pool.main import PoolOptions, run

    store: Store | None = getattr(source, "store", None)
    if store and not (no_reuse or options["drain"] or options["tree"]):
        from .reusing import reused

        kinds = ("command", "sync", "async") if options["app"] else ("command",)
        wanted = tuple(checked.workers) or checked.queues
        if words := reused(cast("Engine", source), wanted, kinds):
            note(words)
            return 0
    side = store.dialect.side if store else ""
    asked = PoolOptions(
        url=store.dialect.url if store else url,  # absolute: a worker may change its directory
        count=checked.jobs,
        workers=checked.workers,
        queues=checked.queues,
        logs=os.path.join(side, "logs") if side else None,
        max_memory=checked.max_memory,
        **options,
    )
    return run(source, asked, scout)


class Checked(NamedTuple):
    """What was asked for, read."""

    jobs: int  # at a time; 0 = by CPU and memory
    workers: dict[str, int]
    queues: tuple[str, ...] | None
    max_memory: int | None


def check_start(
    count: str | None,
    worker: list[str] | None,
    queue: list[str] | None,
    app: str | None,
    grace: float,
    max_jobs: int | None,
    max_memory: str | None,
) -> Checked:
    """InvalidInput for what no pool could be started with."""
    from ..core.check import check_queue

    if worker and (count is not None or queue):
        raise InvalidInput("--worker QUEUE=N says both queue and count; leave out --count and --queue")
    if not 0 <= grace <= 86400:
        raise InvalidInput(f"--grace {grace:g}: seconds, from 0 to 86,400")
    if app is not None and not all(part for part in app.partition(":")):
        raise InvalidInput(f"--app {app!r}: write MODULE:APP, as in tasks:app")
    check_range("--max-jobs", max_jobs, 1, 1_000_000_000)
    if count == "0":
        raise InvalidInput("--count 0: nobody would work; name the queues to leave out with --worker QUEUE=0")
    return Checked(
        0 if count is None else count_of("--count", count),
        types_of(worker or []),
        tuple(dict.fromkeys(check_queue(each) for each in queue)) if queue else None,
        None if max_memory is None else size_of("--max-memory", max_memory),
    )


def check_name(name: str | None) -> None:
    """A pool's name goes into log lines and a file's name."""
    from ..core.check import check_text

    if name:
        check_text(name, "--name", most=200)


def check_range(flag: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidInput(f"{flag} {value}: from {least:,} to {most:,}")


def count_of(flag: str, text: str) -> int:
    """0 for `auto`."""
    if text == "auto":
        return 0
    if not text.isdecimal():
        raise InvalidInput(f"{flag} {text!r}: a number of workers, or auto")
    check_range(flag, int(text), 0, MOST_WORKERS)
    return int(text)


def types_of(given: list[str]) -> dict[str, int]:
    """Queue → workers, `auto` shared out; InvalidInput if one is named twice or nobody would work."""
    from ..core.check import check_queue
    from ..system.resources import automatic

    texts: dict[str, str] = {}
    for each in given:
        queue, equals, text = each.rpartition("=")
        if not equals:
            raise InvalidInput(f"--worker {each!r}: write QUEUE=N, as in --worker shell=4")
        if check_queue(queue) in texts:
            raise InvalidInput(f"--worker {queue}: named twice")
        texts[queue] = text
    share = automatic(max(1, list(texts.values()).count("auto")))
    types = {queue: share if text == "auto" else count_of(f"--worker {queue}", text) for queue, text in texts.items()}
    if types and not any(types.values()):
        raise InvalidInput("--worker: every count is 0, so nobody would work")
    check_range("--worker: workers in all", sum(types.values()), 0, MOST_WORKERS)
    return types


def size_of(flag: str, text: str) -> int:
    """Bytes."""
    units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    plain = text.strip().upper().removesuffix("B").removesuffix("I")
    number, unit = (plain[:-1], plain[-1]) if plain[-1:] in ("K", "M", "G") else (plain, "")
    if not number.isdecimal() or int(number) * units[unit] < 1 << 20:
        raise InvalidInput(f"{flag} {text!r}: a size of at least 1M, as in 500M or 2G")
    return int(number) * units[unit]
