"""covey enqueue: commands and tasks are on disk, their ids on stdout."""

from __future__ import annotations

from typing import Annotated

import typer

from ..job_input import submit
from ..options import (
    Attempts,
    Batch,
    Cwd,
    Db,
    Env,
    KeepBackground,
    Key,
    Label,
    OnError,
    Priority,
    Queue,
    Timeout,
    TreeTimeout,
    Words,
)
from ..words import WordsCommand, argv_of


def enqueue(
    ctx: typer.Context,
    words: Words = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="A job per line; - is stdin.")
    ] = None,
    queue: Queue = "default",
    priority: Priority = 0,
    key: Key = None,
    if_exists: Annotated[
        str, typer.Option("--if-exists", metavar="error|return", help="When the key is taken.")
    ] = "error",
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Not before; RFC 3339 with a zone.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="TIME", help="Not before 90s, 2h, 1d from now.")
    ] = None,
    max_attempts: Attempts = None,
    timeout: Timeout = None,
    cwd: Cwd = None,
    env: Env = None,
    batch: Batch = None,
    label: Label = None,
    keep_background: KeepBackground = False,
    on_error: OnError = None,
    tree_timeout: TreeTimeout = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ids as JSON.")] = False,
    db: Db = None,
) -> None:
    """Queue a command, a JSON object, or many from a file. Prints the new ids, one per line.

    covey enqueue 'sleep 2 && echo done'      a line for the shell

    covey enqueue -- ls -l '*'                words as they stand, no shell

    covey enqueue '{"id": "job1", "command": "sleep 2", "max_retries": 3}'

    covey enqueue --file jobs.txt             a command or a JSON object per line, all or none
    """
    submit(
        list(words or ()), argv_of(ctx), file=file, queue=queue, priority=priority, key=key, if_exists=if_exists,
        run_at=run_at, delay=delay, max_attempts=max_attempts, timeout=timeout, cwd=cwd, env=env, batch=batch,
        label=label, keep_background=keep_background, on_error=on_error, tree_timeout=tree_timeout, json=json, db=db,
    )  # fmt: skip


enqueue.command_class = WordsCommand  # type: ignore[attr-defined]
