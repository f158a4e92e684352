"""Options and arguments that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

Db = Annotated[str | None, typer.Option("--db", metavar="PATH", help="The queue to use.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ref = Annotated[str, typer.Argument(metavar="JOB", help="An id or a key.", show_default=False)]
Refs = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids or keys.", show_default=False)]

CacheIt = Annotated[bool, typer.Option("--cache", help="Do not run what ran before (docs/cache.md).")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="With --cache: neither look nor keep.")]
Refresh = Annotated[bool, typer.Option("--refresh", help="With --cache: run, and keep what comes of it anew.")]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool", metavar="FILE", help="With --cache: a file, or 'PROGRAM --version', that the result depends on."
    ),
]

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="A line for the shell, a JSON object, words, or - for stdin."),
]
