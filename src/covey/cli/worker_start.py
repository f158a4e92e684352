"""covey worker start: a pool of workers in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Db
from .pooling import start_pool

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

TokenFile = Annotated[
    str | None, typer.Option("--token-file", metavar="FILE", help="For --db http://…: the file with the token.")
]

NoReuse = Annotated[
    bool, typer.Option("--no-reuse", help="Start workers even if a server of this queue has some already.")
]


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
    token_file: TokenFile = None,
    no_reuse: NoReuse = False,
    db: Db = None,
) -> int:
    """Run a pool of workers until it is stopped: Ctrl-C or `covey worker stop` lets running jobs finish."""
    return start_pool(
        count=count,
        worker=worker,
        queue=queue,
        app=app,
        drain=drain,
        grace=grace,
        name=name,
        max_jobs=max_jobs,
        max_memory=max_memory,
        max_startup_concurrency=max_startup_concurrency,
        parent_pid=parent_pid,
        quiet=quiet,
        token_file=token_file,
        no_reuse=no_reuse,
        db=db,
    )
