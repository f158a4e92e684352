"""Jobs that a verb is about: named one by one, or all that match a query; counted first, changed in pages."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidInput, Refused
from .printing import note

if TYPE_CHECKING:
    from ..core.ports import Client
    from ..core.view import Change, JobView

PAGE = 200  # jobs changed in one transaction: short ones, because pools claim between them

Refs = Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Ids or keys.", show_default=False)]
Query = Annotated[
    str | None,
    typer.Option("--query", metavar="QUERY", help="All that match, as in `covey list state:dead`."),
]
Batch = Annotated[str | None, typer.Option("--batch", metavar="NAME", help="All of this batch.")]
Queue = Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help="All of this queue.")]
State = Annotated[
    str | None, typer.Option("--state", "-s", metavar="STATE", help="All in this state; several by comma.")
]
Label = Annotated[str | None, typer.Option("--label", metavar="NAME=VALUE", help="All with this label.")]
All = Annotated[bool, typer.Option("--all", help="All for which it makes sense.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def query_of(query: str | None, batch: str | None, queue: str | None, state: str | None, label: str | None) -> str:
    """The options as one query."""
    if label is not None and not label.partition("=")[1]:
        raise InvalidInput(f"--label {label!r}: write NAME=VALUE")
    name, _, value = (label or "").partition("=")
    words = {"batch": batch, "queue": queue, "state": state, f"label.{_quoted(name)}": value if label else None}
    said = [f"{word}:{_quoted(text)}" for word, text in words.items() if text is not None]
    return " ".join(([query] if query else []) + said)


def _quoted(text: str) -> str:
    if text and not set(text) & set(' \t"\\:'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def is_selected(refs: Sequence[str] | None, query: str, all: bool) -> bool:
    """Whether a query is meant; InvalidInput unless it is either that or single jobs."""
    if bool(refs) == bool(query or all):
        raise InvalidInput("name the jobs, or say which: --query, --queue, --state, --batch, --label, or --all")
    return not refs


def matching(engine: Client, query: str, states: tuple[str, ...]) -> Iterator[list[JobView]]:
    """Pages of the jobs that match and are in one of these states, newest first."""
    from ..core.view import Filter

    before: int | None = None
    while True:
        page = engine.jobs(Filter(query=query, states=states, before=before, limit=PAGE))
        if page.jobs:
            yield page.jobs
        if page.next is None:
            return
        before = page.next


def change_all(
    engine: Client,
    query: str,
    states: tuple[str, ...],
    change: Callable[[list[int]], list[Change]],
    *,
    doing: str,
    yes: bool,
) -> list[Change]:
    """What matches was counted, the user has agreed, and it was changed page by page; what could not be is said.

    Interrupted, it has done what it has done, and the same again goes on: what was changed matches no longer.
    """
    from .render import bar

    counts = Counter(job.state for page in matching(engine, query, states) for job in page)
    total = sum(counts.values())
    if not total:
        note("no jobs match")
        return []
    agree(f"{doing} {counted(total, 'job')} ({', '.join(f'{n:,} {state}' for state, n in counts.items())})", yes=yes)
    changes: list[Change] = []
    skipped: list[str] = []
    try:
        with bar() as shown:
            task = shown.add_task(doing, total=total)
            for page in matching(engine, query, states):
                changes += possible(engine, change, [job.id for job in page], skipped, states)
                shown.update(task, advance=len(page))
    except KeyboardInterrupt:
        note(f"stopped after {len(changes):,} of {total:,}; the same again goes on with the rest")
        raise
    say_skipped(skipped, done=bool(changes))
    return changes


def possible(
    engine: Client,
    change: Callable[[list[int]], list[Change]],
    ids: list[int],
    skipped: list[str],
    states: tuple[str, ...],
) -> list[Change]:
    """What can be done of it is done; the others' reasons are in ``skipped``.

    One transaction, unless it is refused: then halves, so that a few bad ones among many cost few transactions.
    """
    from ..core.view import Change, Filter

    try:
        return change(ids)
    except Refused as error:
        if len(ids) == 1:
            skipped.append(str(error))
            return []
    ids = sorted(ids)  # parents first: what is done to them includes their children
    changes = possible(engine, change, ids[: len(ids) // 2], skipped, states)
    rest = ids[len(ids) // 2 :]
    found = {job.id: job.state for job in engine.jobs(Filter(ids=tuple(rest), limit=len(rest))).jobs}
    was = states[0] if len(states) == 1 else "unfinished"
    changes += [Change(id, found[id], was) for id in rest if id in found and found[id] not in states]
    still = [id for id in rest if found.get(id) in states]
    return changes + (possible(engine, change, still, skipped, states) if still else [])


def say_skipped(skipped: list[str], *, done: bool) -> None:
    """One line; Refused if nothing was done at all."""
    if not skipped:
        return
    others = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    line = f"{len(skipped)} skipped: {skipped[0]}{others}"
    if not done:
        raise Refused(line)
    note(line)


def agree(what: str, *, yes: bool) -> None:
    """The user wants that: he has said --yes, or says so now."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"this would {what}; say --yes to do it")
    typer.confirm(f"{what}?", abort=True, err=True)


def counted(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
