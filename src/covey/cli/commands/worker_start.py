"""covey worker start: a pool of workers in the foreground."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...errors import InvalidInput
from ..options import Db
from ..printing import note
from ..reusing import reused_workers
from ..worker_options import start_pool

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
Executor = Annotated[
    str, typer.Option("--executor", metavar="process|docker|podman|container", help="What workers run in.")
]
Image = Annotated[str | None, typer.Option("--image", metavar="IMAGE", help="Containers: one with covey in it.")]
Memory = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Containers: the limit of each: 512M, 2G.")
]
Cpus = Annotated[float | None, typer.Option("--cpus", metavar="N", help="Containers: processors for each, as in 1.5.")]
Mounts = Annotated[
    list[str] | None,
    typer.Option("--mount", metavar="HOST:CONTAINER", help="Containers: a directory, read-only; repeatable."),
]
Server = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Containers: the server, as they reach it; else found.")
]
Port = Annotated[
    int | None, typer.Option("--port", metavar="N", help="Containers: of the server that is found or started.")
]
Tree = Annotated[int | None, typer.Option("--tree", metavar="JOB", help="Only that job and what is below it.")]
ParentPid = Annotated[int | None, typer.Option("--parent-pid", metavar="PID", help="Stop when that process is gone.")]

TokenFile = Annotated[
    str | None, typer.Option("--token-file", metavar="FILE", help="For --db http://…: the file with the token.")
]

NoReuse = Annotated[
    bool, typer.Option("--no-reuse", help="Start workers even if a server of this queue has some already.")
]


Detach = Annotated[
    bool,
    typer.Option("--detach", "--daemon", "-d", help="Return once the workers are ready; they go on."),
]


def start(
    count: Count = None,
    worker: Workers = None,
    queue: Queues = None,
    tree: Tree = None,
    app: App = None,
    drain: Drain = False,
    grace: Grace = 10.0,
    name: Name = None,
    max_jobs: MaxJobs = None,
    max_memory: MaxMemory = None,
    max_startup_concurrency: Startup = None,
    parent_pid: ParentPid = None,
    executor: Executor = "process",
    image: Image = None,
    memory: Memory = None,
    cpus: Cpus = None,
    mount: Mounts = None,
    server: Server = None,
    port: Port = None,
    quiet: Quiet = False,
    token_file: TokenFile = None,
    no_reuse: NoReuse = False,
    detach: Detach = False,
    db: Db = None,
) -> int:
    """Run a pool of workers until it is stopped: Ctrl-C or `covey worker stop` lets running jobs finish.

    With --detach it returns once the workers are ready, and the pool goes on by itself.
    """
    if detach:
        from ..apps_queue import asked
        from ..detached import start_detached
        from ..open_queue import choose_token, database

        choose_token(token_file)
        return start_detached(asked(app, db) if app else database(db))
    options: dict[str, Any] = {
        "count": count,
        "worker": worker,
        "queue": queue,
        "app": app,
        "drain": drain,
        "grace": grace,
        "name": name,
        "max_jobs": max_jobs,
        "max_memory": max_memory,
        "max_startup_concurrency": max_startup_concurrency,
        "parent_pid": parent_pid,
        "quiet": quiet,
        "token_file": token_file,
        "db": db,
    }
    contained: dict[str, Any] = {
        "image": image,
        "memory": memory,
        "cpus": cpus,
        "mount": mount,
        "server": server,
        "port": port,
    }
    if executor == "process":
        options["tree"] = tree
        if given := [flag for flag, value in contained.items() if value is not None]:
            raise InvalidInput(f"--{given[0].replace('_', '-')} is for containers; add --executor docker")
        return start_pool(**options, no_reuse=no_reuse)
    from ..container_options import EXECUTORS, start_containers

    if tree is not None:
        raise InvalidInput("--tree is for workers without containers; leave out --executor")
    if executor not in EXECUTORS:
        raise InvalidInput(f"--executor {executor!r}: one of {', '.join(EXECUTORS)}")
    if not (no_reuse or drain) and server is None and (words := reused_workers(db, worker, queue, app)):
        note(words)
        return 0
    return start_containers(executor, **contained, **options)
