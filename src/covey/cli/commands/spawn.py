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
from ...system.files import PLAIN
from ..job_options import takes_job_options
from ..options import Words
from ..parser import WordsCommand, argv_of

Sibling = Annotated[bool, typer.Option("--sibling", help="One more child of this job's parent.")]
Serial = Annotated[bool, typer.Option("--serial", help="This job's children run one after the other.")]
When = Annotated[str, typer.Option("--when", metavar="success|always", help="Once the tree has completed, or ended.")]
QUEUE, PRIORITY = "Its lane; else this job's.", "Higher runs first; else this job's."


@takes_job_options("spawn", key="A name, unique among the children of one parent.", queue=QUEUE, priority=PRIORITY)
def spawn(
    ctx: typer.Context, words: Words = None, sibling: Sibling = False, serial: Serial = False, **options: Any
) -> None:
    """Inside a job: a child of it, written when the job succeeds and not at all if it fails.

    covey spawn --key north -- ./refresh.sh north

    covey spawn 'make report && mail report'
    """
    if sibling and serial:
        raise InvalidInput("--serial is about this job's own children; a sibling runs as its parent says")
    relation = "sibling" if sibling else "child"
    _ask({"relation": relation, **({"serial": True} if serial else {})}, list(words or ()), argv_of(ctx), options)


@takes_job_options("after", queue=QUEUE, priority=PRIORITY)
def after(ctx: typer.Context, words: Words = None, when: When = "success", **options: Any) -> None:
    """Inside a job: a job of its own that starts once the whole tree has ended.

    covey after --unique-key flush -- ./flush.sh
    """
    _ask({"relation": "after", "when": when}, list(words or ()), argv_of(ctx), options)


spawn.command_class = WordsCommand  # type: ignore[attr-defined]
after.command_class = WordsCommand  # type: ignore[attr-defined]


def _ask(asked: dict[str, Any], words: list[str], argv: list[str] | None, options: dict[str, Any]) -> None:
    """The line is in the file of this run, or there is an error and nothing is."""
    path = os.environ.get("COVEY_SPAWN")
    if not path:
        raise Refused("this works inside a command that Covey runs, and nowhere else; to queue a job: covey enqueue")
    from ..job_input import meant_here

    fields: dict[str, Any] = {**asked, **_what(words, argv), **meant_here(options)}
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
    from ...core.specs import check_spec
    from ...worker.spawn_file import check_place, spoken

    relation, _, _ = spoken(fields)
    check_spec(spec_of(fields, defaults={}))
    check_place(relation, os.environ)


def _append(path: str, line: str) -> None:
    # One write at the end of the file: lines of several processes do not mix.
    data = line.encode("utf-8", "surrogateescape")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the command is not UTF-8 at byte {error.start}, and JSON has no other text") from None
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | PLAIN)  # a pipe must not keep us
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
