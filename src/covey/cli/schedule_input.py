"""From the words and options of a command line to what is said of a schedule."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from ..errors import InvalidInput

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a schedule.", show_default=False)]
Cron = Annotated[
    list[str] | None,
    typer.Option("--cron", metavar="EXPR", help="Five fields, as in '30 2 * * 1-5', or @daily; repeatable."),
]
Tz = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="Of --cron: Europe/Berlin …; else UTC.")]
Every = Annotated[str | None, typer.Option("--every", metavar="TIME", help="In a period: 90s, 5m, 2h, 1d.")]
At = Annotated[list[str] | None, typer.Option("--at", metavar="TIME", help="At an instant, RFC 3339; repeatable.")]
CatchUp = Annotated[
    str | None,
    typer.Option("--catch-up", metavar="one|skip|all[:N]", help="What missed ticks get: one job (usual), none, all."),
]
Window = Annotated[
    str | None, typer.Option("--window", metavar="TIME", help="Ticks older than that are never caught up (24h).")
]
Overlap = Annotated[
    str | None,
    typer.Option("--overlap", metavar="skip|allow|queue|cancel", help="When the run before is still active (skip)."),
]
Jitter = Annotated[str | None, typer.Option("--jitter", metavar="TIME", help="Later by a part of that, at each tick.")]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="No tick before; RFC 3339 with a zone.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="No tick after.")]
PauseAfter = Annotated[
    int | None, typer.Option("--pause-after-failures", metavar="N", help="Pause it after N dead runs in a row.")
]
TaskName = Annotated[str | None, typer.Option("--task", metavar="TASK", help="A Python task instead of a command.")]
Args = Annotated[str | None, typer.Option("--args", metavar="JSON", help="Of --task: a list, or an object with names.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="sync|async", help="Of --task: async for an async one.")]


def job_of(
    words: list[str],
    argv: list[str] | None,
    options: dict[str, Any],
    *,
    task: str | None = None,
    args: str | None = None,
    kind: str | None = None,
) -> dict[str, Any] | None:
    """The job as an object, as `enqueue` takes it; None if nothing was said of what to run."""
    given = bool(words) + (argv is not None) + (task is not None)
    if given > 1:
        raise InvalidInput("a command together with --task or --: say in one way only what to run")
    if task is None and (args is not None or kind is not None):
        raise InvalidInput("--args and --kind belong to a task; name it with --task")
    if not given:
        return None
    if words and argv is None and words[0].lstrip().startswith("{"):
        from ..core.objects import FIELDS, fields_of

        if len(words) > 1:
            raise InvalidInput("a schedule has one job; pass one JSON object")
        return {**spoken_options(options), **fields_of(words[0], FIELDS)}
    job = spoken_options(options)
    if task is not None:
        job["task"] = task
        if args is not None:
            job["args"] = _json(args)
        if kind is not None:
            job["kind"] = kind
        return job
    job["cwd"] = os.path.abspath(job["cwd"]) if job.get("cwd") else os.getcwd()
    if argv is not None or len(words) > 1:
        job["argv"] = argv or words
    else:
        job["command"] = words[0]
    return job


def spoken_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options as the fields of an object."""
    from ..core.options import NAMES
    from .job_input import variable

    job: dict[str, Any] = {}
    for name, value in options.items():
        option = NAMES[name]
        if name == "env":
            value = dict(variable(text) for text in value)
        elif option.form.words is not None and isinstance(value, list | tuple):
            value = option.form.words(list(value), option.flags[0])
        job[name] = value
    return job


def _json(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--args {text!r}: not JSON ({error})") from None


def body_fields(
    *,
    cron: list[str] | None,
    tz: str | None,
    every: str | None,
    at: list[str] | None,
    catch_up: str | None,
    window: str | None,
    overlap: str | None,
    jitter: str | None,
    starts: str | None,
    until: str | None,
    pause_after_failures: int | None,
) -> dict[str, Any]:
    """What was said, in the words of a ScheduleBody."""
    from ..core.times import seconds

    for text, flag in ((every, "--every"), (window, "--window"), (jitter, "--jitter")):
        if text is not None:
            seconds(text, flag)  # in the words of the command line, if it is wrong
    said: dict[str, Any] = {
        "cron": list(cron or ()) or None,
        "tz": tz,
        "every": every,
        "at": list(at or ()) or None,
        "catch_up": catch_up,
        "window": window,
        "overlap": overlap,
        "jitter": jitter,
        "starts": starts,
        "until": until,
        "pause_after_failures": pause_after_failures,
    }
    return {name: value for name, value in said.items() if value is not None}


def who() -> str | None:
    """The person at this terminal."""
    import getpass
    import socket

    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"[:200]
    except (KeyError, OSError):
        return None
