"""covey worker start: a pool of workers in the foreground."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..errors import InvalidInput
from .opening import database, open_queue
from .options import Db

Count = Annotated[int | None, typer.Option("--count", "-n", metavar="N", help="Jobs at a time; else one per CPU.")]
Queues = Annotated[
    list[str] | None, typer.Option("--queue", "-q", metavar="NAME", help="Serve this queue; repeatable. Else all.")
]
App = Annotated[str | None, typer.Option("--app", metavar="MODULE:APP", help="Where the Python tasks are.")]
Drain = Annotated[bool, typer.Option("--drain", help="End when nothing is left to do.")]
Grace = Annotated[float, typer.Option("--grace", metavar="SECONDS", help="How long a running job may take to stop.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="What this pool is called.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say only what went wrong.")]


def start(
    count: Count = None,
    queue: Queues = None,
    app: App = None,
    drain: Drain = False,
    grace: Grace = 10.0,
    name: Name = None,
    quiet: Quiet = False,
    db: Db = None,
) -> int:
    """Run a pool of workers until it is stopped: Ctrl-C or `covey worker stop` lets running jobs finish."""
    from ..engine.check import check_queue

    if count is not None and not 1 <= count <= 1000:
        raise InvalidInput(f"--count {count}: from 1 to 1,000")
    if not 0 <= grace <= 86400:
        raise InvalidInput(f"--grace {grace:g}: seconds, from 0 to 86,400")
    if app is not None and not all(part for part in app.partition(":")):
        raise InvalidInput(f"--app {app!r}: write MODULE:APP, as in tasks:app")
    queues = tuple(dict.fromkeys(check_queue(each) for each in queue)) if queue else None
    url = database(db)
    engine = open_queue(url, create=True)
    from ..pool.start import PoolOptions, run

    return run(
        engine,
        PoolOptions(
            url=engine.store.dialect.url,  # absolute: a worker may change its directory
            count=count or os.cpu_count() or 1,
            queues=queues,
            app=app,
            drain=drain,
            grace_s=grace,
            name=name,
            quiet=quiet,
        ),
    )
