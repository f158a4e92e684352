"""covey enqueue: commands and tasks are on disk, their ids on stdout."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..job_input import submit
from ..job_options import takes_job_options
from ..options import CacheIt, Db, NoCache, Refresh, Tools, Words
from ..parser import WordsCommand, argv_of


@takes_job_options("enqueue")
def enqueue(
    ctx: typer.Context,
    words: Words = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="A job per line; - is stdin.")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="LINE", help="The command, as a line for the shell.")
    ] = None,
    *,
    cache: CacheIt = False,
    no_cache: NoCache = False,
    refresh: Refresh = False,
    tool: Tools = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ids as JSON.")] = False,
    db: Db = None,
    **options: Any,
) -> None:
    """Queue a command, a JSON object, or many from a file. Prints the new ids, one per line.

    covey enqueue 'sleep 2 && echo done'      a line for the shell

    covey enqueue -- ls -l '*'                words as they stand, no shell

    covey enqueue '{"id": "job1", "command": "sleep 2", "max_retries": 3}'

    covey enqueue --file jobs.txt             a command or a JSON object per line, all or none
    """
    caching = {"cache": cache, "no_cache": no_cache, "refresh": refresh, "tool": tool}
    given: dict[str, Any] = {"file": file, "command": command, "json": json, "db": db, "caching": caching}
    submit(list(words or ()), argv_of(ctx), **given, **options)


enqueue.command_class = WordsCommand  # type: ignore[attr-defined]
