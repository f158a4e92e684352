"""covey queue: list, limit, pause and resume queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import InvalidInput
from ..open_queue import open_queue
from ..options import Db, Json
from ..printing import answer, as_json, note

if TYPE_CHECKING:
    from ...core.view import QueueView

Names = Annotated[list[str], typer.Argument(metavar="QUEUE...", help="Names of queues.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of a queue.", show_default=False)]
Serial = Annotated[
    bool | None,
    typer.Option("--serial/--no-serial", help="One top-level job after the other, each with its whole tree."),
]
Concurrency = Annotated[
    str | None, typer.Option("--concurrency", metavar="N|none", help="How many of its jobs run at a time.")
]
MaxDepth = Annotated[
    int | None, typer.Option("--max-depth", metavar="N", help="How deep new trees may be: 0 no children, 1 no more.")
]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Resume by itself after 90s, 2h, 1d.")]


def list_queues(json: Json = False, db: Db = None) -> None:
    """List queues and what is in them."""
    engine = open_queue(db)
    found = engine.queues()
    if json:
        as_json(found)
    elif found:
        show_queues(found)
    else:
        note("no queues yet; the first job makes one")


def show_queues(found: Sequence[QueueView]) -> None:
    """A table of queues is on stdout, with the states that occur."""
    from ...core.model import STATES
    from .. import render

    states = [state for state in STATES if state == "pending" or any(view.counts.get(state) for view in found)]
    paused = ["PAUSED"] if any(view.paused for view in found) else []
    rules = ["RULES"] if any(map(rules_of, found)) else []
    render.table(
        ["QUEUE", *(state.upper() for state in states), *paused, *rules],
        [
            (
                view.name,
                *(view.counts.get(state) or "." for state in states),
                *([_pause_of(view)] if paused else []),
                *([rules_of(view)] if rules else []),
            )
            for view in found
        ],
        wide="QUEUE",
    )


def rules_of(view: QueueView) -> str:
    """What is special about how the queue is worked."""
    from ...core.model import MAX_DEPTH

    words = ["serial"] if view.serial else []
    if view.concurrency is not None:
        words.append(f"at most {view.concurrency} at a time")
    if view.max_depth != MAX_DEPTH:
        words.append(f"max depth {view.max_depth}")
    return ", ".join(words)


def _pause_of(view: QueueView) -> str:
    if not view.paused:
        return ""
    return f"until {view.resume_at}" if view.resume_at else "yes"


def set_queue(
    queue: Name, serial: Serial = None, concurrency: Concurrency = None, max_depth: MaxDepth = None, db: Db = None
) -> None:
    """Change how a queue is worked: one tree after the other, so many jobs at a time, so deep."""
    from msgspec import UNSET

    if serial is None and concurrency is None and max_depth is None:
        raise InvalidInput("nothing to set; pass --serial or --no-serial, --concurrency N, --max-depth N")
    engine = open_queue(db, create=True)
    engine.set_queue(
        queue,
        serial=UNSET if serial is None else serial,
        concurrency=UNSET if concurrency is None else _limit(concurrency),
        max_depth=UNSET if max_depth is None else max_depth,
    )
    view = next(view for view in engine.queues() if view.name == queue)
    answer(f"{queue}: {rules_of(view) or 'as any other queue'}")


def _limit(text: str) -> int | None:
    if text.strip().lower() in ("none", "no", "off", "unlimited"):
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"--concurrency {text!r}: how many jobs at a time, from 1 on; none for no limit")
    return int(text)


def pause(queue: Names, for_: For = None, db: Db = None) -> None:
    """Start nothing more of these queues until they are resumed. What runs goes on."""
    from ...core.times import seconds

    for_s = None if for_ is None else seconds(for_, "--for")
    engine = open_queue(db)
    for name in queue:
        engine.pause(name, for_s)
        answer(f"paused {name}" + (f" for {for_}" if for_ else ""))


def resume(queue: Names, db: Db = None) -> None:
    """Let paused queues go on."""
    engine = open_queue(db)
    for name in queue:
        engine.resume(name)
        answer(f"resumed {name}")
