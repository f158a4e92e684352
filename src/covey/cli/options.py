"""Options and arguments that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

Db = Annotated[str | None, typer.Option("--db", metavar="PATH", help="The queue to use.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ref = Annotated[str, typer.Argument(metavar="JOB", help="An id or a key.", show_default=False)]
Refs = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids or keys.", show_default=False)]

# What a job can be given.
Queue = Annotated[str, typer.Option("--queue", "-q", metavar="NAME", help="The lane it waits in.")]
Priority = Annotated[int, typer.Option("--priority", "-p", help="Higher runs first.")]
Key = Annotated[str | None, typer.Option("--key", help="Your own unique name for the job.")]
Attempts = Annotated[
    int | None, typer.Option("--max-attempts", "--max-retries", help="Runs in all, the first included.")
]
Timeout = Annotated[str | None, typer.Option("--timeout", metavar="TIME", help="Limit of one run: 90s, 2h, never.")]
Cwd = Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Where it runs; else here.")]
Env = Annotated[list[str] | None, typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="Give it a variable.")]
Batch = Annotated[str | None, typer.Option("--batch", metavar="NAME", help="Name of a set of jobs.")]
Label = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Note something on it.")]
KeepBackground = Annotated[bool, typer.Option("--keep-background", help="Leave what it starts running.")]
OnError = Annotated[
    str | None,
    typer.Option("--on-error", metavar="wait|cancel|collect", help="When a child fails: what becomes of the others."),
]
TreeTimeout = Annotated[
    str | None, typer.Option("--tree-timeout", metavar="TIME", help="Limit of the job and all its children together.")
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="A line for the shell, a JSON object, words, or - for stdin."),
]
