"""Tables for people. Everything that comes from a job is shown as plain text, never as markup."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .printing import one_line
from .times import age

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..core.view import JobView

T = TypeVar("T")

COLOURS = {
    "completed": "green",
    "processing": "cyan",
    "pending": "blue",
    "scheduled": "blue",
    "waiting": "blue",
    "blocked": "blue",
    "failed": "yellow",
    "dead": "red",
    "cancelled": "dim",
    "running": "green",
    "draining": "yellow",
    "stopping": "yellow",
    "gone": "red",
    "valid": "green",
    "expired": "yellow",
    "revoked": "dim",
    "busy": "cyan",
    "idle": "dim",
    "fine": "green",
    "ok": "green",
    "warning": "yellow",
    "warn": "yellow",
    "broken": "red",
    "bad": "red",
}
GAP = 2
UNBOUNDED = 2000  # columns where no window limits them


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """How a command ends is decided in one place."""
        raise


def console(*, stderr: bool = False) -> Console:
    """A console that takes all text literally. In a pipe, nothing is cut."""
    import os

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else UNBOUNDED
    return _Console(file=stream, markup=False, emoji=False, highlight=False, width=width)


def cell(value: object, style: str = "") -> Text:
    """A value as literal text."""
    return Text("" if value is None else one_line(str(value)), style=style)


def state(word: str) -> Text:
    return Text(word, style=COLOURS.get(word, ""))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: str = "", fold: bool = False) -> None:
    """The rows are on stdout; the column ``wide`` gives way first when the window is narrow: cut, or folded."""
    cells = [[value if isinstance(value, Text) else cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(row[place].cell_len for row in cells)]) for place, name in enumerate(columns)]
    shown = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name, width in zip(columns, fit(widths, console().width, columns.index(wide) if wide else None), strict=True):
        folds = fold and name == wide
        shown.add_column(name, no_wrap=not folds, overflow="fold" if folds else "ellipsis", width=width)
    for row in cells:
        shown.add_row(*row)
    _print(shown)


def fit(widths: Sequence[int], room: int, wide: int | None) -> list[int]:
    """Widths that fit into ``room``: the wide column gives way first, then the widest; the first, which names, last."""
    room = max(room - GAP * (len(widths) - 1), len(widths))
    fitted = [min(width, room) for width in widths]
    if wide is not None:
        fitted[wide] = max(min(fitted[wide], 12), fitted[wide] - max(0, sum(fitted) - room))
    while sum(fitted) > room:
        rest = fitted[1:] if max(fitted[1:], default=0) > 4 else fitted
        fitted[fitted.index(max(rest), len(fitted) - len(rest))] -= 1
    return [max(width, 1) for width in fitted]


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values are on stdout, one pair a line; absent values are left out."""
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.add_column(style="dim", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            shown.add_row(name, value if isinstance(value, Text) else cell(value))
    _print(shown)


def _print(shown: Table) -> None:
    target = console()
    with target.capture() as captured:
        target.print(shown)
    # Rich pads each line to the width of the table; nobody needs that.
    for line in captured.get().splitlines():
        print(line.rstrip())


def title(text: str) -> None:
    console().print(Text(text, style="bold"))


def what(job: JobView) -> str:
    """What a job runs, as one line."""
    text = job.command or job.task
    return f"{job.key}: {text}" if job.key else text


def family(job: JobView) -> str:
    """How far its children are, as `3/10 children`; nothing without any."""
    counts = job.children
    if not counts.total:
        return ""
    failed = f", {counts.failed} failed" if counts.failed else ""
    return f"{counts.total - counts.unfinished}/{counts.total} children{failed}"


def jobs(views: Sequence[JobView]) -> None:
    """A table of jobs is on stdout."""
    now = time.time()
    children = ["CHILDREN"] if any(job.children.total for job in views) else []
    table(
        ["ID", "STATE", "QUEUE", "TRIES", "AGE", *children, "WHAT"],
        [
            (
                job.id,
                state(job.state),
                job.queue,
                f"{job.attempts}/{job.max_attempts}",
                _when(job, now),
                *([family(job).replace(" children", "")] if children else []),
                what(job),
            )
            for job in views
        ],
        wide="WHAT",
    )


def _when(job: JobView, now: float) -> str:
    """The age that says most about a job in its state."""
    match job.state:
        case "scheduled" | "failed":
            return age(job.run_at, now)
        case "processing":
            return age(job.started_at or job.updated_at, now)
        case "completed" | "dead" | "cancelled":
            return age(job.finished_at or job.updated_at, now)
        case _:
            return age(job.created_at, now)


def bar() -> Progress:
    """A progress bar on stderr that leaves no trace; silent where stderr is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    target = console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=target,
        transient=True,
        disable=not target.is_terminal,
    )


def progress(items: Sequence[T], label: str) -> Iterable[T]:
    """The items, with a bar that shows how far the caller has come."""
    with bar() as shown:
        task = shown.add_task(label, total=len(items))
        for number, item in enumerate(items):
            if number % 500 == 0:
                shown.update(task, completed=number)
            yield item
