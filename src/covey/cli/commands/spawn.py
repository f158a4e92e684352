"""covey spawn, covey after: inside a job, ask for more jobs. A line in a file; the database is not touched."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import Annotated, Any

import typer

from ...core.objects import spec_of
from ...errors import InvalidInput, Refused, SpawnRefused
from ..options import Attempts, Cwd, Env, Timeout, Words
from ..words import WordsCommand, argv_of

Sibling = Annotated[bool, typer.Option("--sibling", help="One more child of this job's parent.")]
Serial = Annotated[bool, typer.Option("--serial", help="This job's children run one after the other.")]
Key = Annotated[str | None, typer.Option("--key", help="A name, unique among the children of one parent.")]
UniqueKey = Annotated[
    str | None, typer.Option("--unique-key", metavar="KEY", help="One waiting job for all that ask for this name.")
]
When = Annotated[str, typer.Option("--when", metavar="success|always", help="Once the tree has completed, or ended.")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help="Its lane; else this job's.")]
Priority = Annotated[int | None, typer.Option("--priority", "-p", help="Higher runs first; else this job's.")]


def spawn(
    ctx: typer.Context,
    words: Words = None,
    sibling: Sibling = False,
    key: Key = None,
    queue: Queue = None,
    priority: Priority = None,
    serial: Serial = False,
    max_attempts: Attempts = None,
    timeout: Timeout = None,
    cwd: Cwd = None,
    env: Env = None,
) -> None:
    """Inside a job: a child of it, written when the job succeeds and not at all if it fails.

    covey spawn --key north -- ./refresh.sh north

    covey spawn 'make report && mail report'
    """
    if sibling and serial:
        raise InvalidInput("--serial is about this job's own children; a sibling runs as its parent says")
    relation = "sibling" if sibling else "child"
    _ask(
        relation, list(words or ()), argv_of(ctx), env,
        key=key, queue=queue, priority=priority, serial=serial or None, max_attempts=max_attempts, timeout=timeout,
        cwd=cwd,
    )  # fmt: skip


def after(
    ctx: typer.Context,
    words: Words = None,
    unique_key: UniqueKey = None,
    when: When = "success",
    queue: Queue = None,
    priority: Priority = None,
    max_attempts: Attempts = None,
    timeout: Timeout = None,
    cwd: Cwd = None,
    env: Env = None,
) -> None:
    """Inside a job: a job of its own that starts once the whole tree has ended.

    covey after --unique-key flush -- ./flush.sh
    """
    _ask(
        "after", list(words or ()), argv_of(ctx), env,
        unique_key=unique_key, when=when, queue=queue, priority=priority, max_attempts=max_attempts, timeout=timeout,
        cwd=cwd,
    )  # fmt: skip


spawn.command_class = WordsCommand  # type: ignore[attr-defined]
after.command_class = WordsCommand  # type: ignore[attr-defined]


def _ask(relation: str, words: list[str], argv: list[str] | None, env: list[str] | None, **options: Any) -> None:
    """The line is in the file of this run, or there is an error and nothing is."""
    path = os.environ.get("COVEY_SPAWN")
    if not path:
        raise Refused("this works inside a command that Covey runs, and nowhere else; to queue a job: covey enqueue")
    fields: dict[str, Any] = {"relation": relation, **_what(words, argv)}
    fields |= {name: value for name, value in options.items() if value is not None}
    fields["cwd"] = os.path.abspath(fields["cwd"]) if fields.get("cwd") else os.getcwd()
    if env:
        from ..job_input import variable

        fields["env"] = dict(variable(text) for text in env)
    try:
        _check(fields)
    except SpawnRefused as refusal:
        # The worker must know why the command ends, if it ends with this: the same again would be refused again.
        with contextlib.suppress(Refused):
            _append(path, json.dumps({"refused": str(refusal)}) + "\n")
        raise
    _append(path, json.dumps(fields, ensure_ascii=False) + "\n")


def _what(words: list[str], argv: list[str] | None) -> dict[str, Any]:
    from ..job_input import refuse_mixture

    refuse_mixture(words, argv, None, None)
    if argv is not None:
        return {"argv": argv}
    return {"argv": words} if len(words) > 1 else {"command": words[0]}


def _check(fields: dict[str, Any]) -> None:
    """What the worker would refuse later is refused now, while somebody is looking."""
    from ... import settings as config
    from ...core.check import check_spec
    from ...worker.spawn_file import check_place, spoken

    relation, _, _ = spoken(fields)
    check_spec(spec_of(fields, settings=config.effective({}, {}), defaults={}))
    check_place(relation, os.environ)


def _append(path: str, line: str) -> None:
    # One write at the end of the file: lines of several processes do not mix.
    data = line.encode("utf-8", "surrogateescape")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the command is not UTF-8 at byte {error.start}, and JSON has no other text") from None
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not keep us
    except OSError as error:
        raise Refused(f"COVEY_SPAWN names {path}: {error.strerror}; the job it belonged to may have ended") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Refused(f"{path}: this is not the file that Covey made; leave it where it is")
        if os.write(file, data) < len(data):
            raise Refused(f"{path}: no room for the line; the job will be dead, because the line was cut short")
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    finally:
        os.close(file)
