"""covey worker events: what happened to pools and workers, oldest first."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import InvalidInput, NotFound
from ..open_queue import open_queue
from ..options import Db, Json
from ..pasting import pasteable
from ..printing import as_json, note, one_line

if TYPE_CHECKING:
    from ...core.ports import Client
    from ...core.view import Event

KINDS = (
    *("pool_started", "starting", "registered", "ready", "recycled", "failed", "killed", "given_up"),
    *("parent_died", "stopping", "stopped", "pool_stopped", "pool_lost"),
)
MOST = 100_000
LOOK_S = 0.5
WIDE = 100  # columns
NARROWEST_TEXT = 36  # with less, the text gets lines of its own

Pool = Annotated[
    str | None, typer.Argument(metavar="POOL", help="Id or name of one pool; else all.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", help="The latest N.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", "-k", metavar="KIND", help="Only this kind; several by comma or repetition."),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")]


def events(
    pool: Pool = None, limit: Limit = 50, kind: Kinds = None, follow: Follow = False, json: Json = False, db: Db = None
) -> None:
    """Say what happened to pools and workers, oldest first: who started, failed, was replaced, was lost.

    Also of pools that are gone. With --follow, --json prints one object a line.
    """
    if not 0 <= limit <= MOST:
        raise InvalidInput(f"--limit {limit}: from 0 to {MOST:,}")
    kinds = {word.strip() for text in kind or () for word in text.split(",") if word.strip()}
    engine = open_queue(db)
    feed = Feed(engine, None if pool is None else _pools_of(engine, pool), kinds)
    shown = feed.latest(limit)
    if unknown := sorted(kinds - set(KINDS) - feed.met):
        raise InvalidInput(f"no kind {unknown[0]!r}; kinds are {', '.join(KINDS)}")
    printer = _Lines(shown, json=json and follow)
    if json and not follow:
        as_json(shown)
    elif shown:
        printer.print(shown)
    elif limit and not follow:
        nothing = pasteable("nothing has happened yet; `covey worker start` runs workers", db)
        note("no such events" if kinds or pool else nothing)
    while follow and not _reader_leaves_within(LOOK_S):
        printer.print(feed.fresh())


def _reader_leaves_within(seconds: float) -> bool:
    """Waits; True once nobody reads stdout any more, as in `… -f | head`: with nothing to say we would not notice."""
    import select

    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # errors are told unasked
    return bool(watch.poll(seconds * 1000))


def _pools_of(engine: Client, name: str) -> set[int]:
    """The ids of the pools that are meant. One that is gone is known by its events."""
    ids = {pool.id for pool in engine.pool_views() if name in (str(pool.id), pool.name)}
    if not ids and name.isdecimal() and len(name) < 19 and engine.pool_events(int(name), limit=1):
        ids = {int(name)}
    if not ids:
        started = Feed(engine, None, {"pool_started"}).latest(MOST)
        ids = {e.pool for e in started if e.pool is not None and (e.text or "").startswith(f"{name} (pid ")}
    if not ids:
        raise NotFound(f"no pool {name!r}, and no events of one; `covey worker list` shows what there is")
    return ids


class Feed:
    """The events of some pools and kinds."""

    def __init__(self, engine: Client, pools: set[int] | None, kinds: set[str]) -> None:
        self._engine, self._pools, self._kinds = engine, pools, kinds
        self._only = next(iter(pools)) if pools and len(pools) == 1 else None
        self._last = 0
        self.met: set[str] = set()  # kinds that were seen, wanted or not

    def latest(self, count: int) -> list[Event]:
        """The last so many, oldest first."""
        reach = max(count, 1)
        while True:
            newest = self._engine.pool_events(self._only, limit=reach)
            found = self._wanted(newest)
            if len(found) >= count or len(newest) < reach:
                break
            reach *= 4  # what is not wanted stands between
        self._seen(newest)
        return found[:count][::-1]

    def fresh(self) -> list[Event]:
        """What has happened since the last look, oldest first; nothing is left out, however much it is."""
        reach = 1000
        while len(newest := self._engine.pool_events(self._only, after=self._last, limit=reach)) == reach:
            reach *= 4
        self._seen(newest)
        return self._wanted(newest)[::-1]

    def _seen(self, newest: list[Event]) -> None:
        self._last = max([self._last, *(event.id for event in newest)])
        self.met.update(event.kind for event in newest)

    def _wanted(self, events: Iterable[Event]) -> list[Event]:
        return [
            event
            for event in events
            if (self._pools is None or event.pool in self._pools) and (not self._kinds or event.kind in self._kinds)
        ]


class _Lines:
    """Events as lines, columns as wide as the first ones need: later ones must not wait for a table to be whole."""

    def __init__(self, first: list[Event], *, json: bool) -> None:
        from .. import render

        self._json = json
        self._room = render.console().width
        self._day = ""
        self._worker = max([10, *(len(event.worker or "") for event in first)])
        self._pool = max([2, *(len(str(event.pool)) for event in first)])

    def print(self, events: list[Event]) -> None:
        """They are out, also where a pipe reads them."""
        for event in events:
            sys.stdout.write(_as_line(event) if self._json else self._line(event))
            sys.stdout.write("\n")
        if events:
            sys.stdout.flush()

    def _line(self, event: Event) -> str:
        import textwrap

        when = self._when(event)
        head = f"{when}  {event.pool!s:>{self._pool}}  {event.worker or '-':{self._worker}}  {event.kind:12}"
        text = one_line(event.text or "")
        width = len(head.rpartition("\n")[2]) + 2
        if len(text) <= self._room - width:
            return f"{head}  {text}".rstrip()
        if self._room - width >= NARROWEST_TEXT:
            first, *rest = textwrap.wrap(text, self._room - width, break_on_hyphens=False)
            return "\n".join([f"{head}  {first}", *(" " * width + line for line in rest)])
        lines = textwrap.wrap(text, max(self._room - 4, 10), break_on_hyphens=False)
        return "\n".join([head.rstrip(), *(f"    {line}" for line in lines)])

    def _when(self, event: Event) -> str:
        """The whole time where there is room; else the day stands once, above its events."""
        second = (event.at or "").partition(".")[0]
        if self._room >= WIDE:
            return f"{second}Z"
        before, (self._day, _, time_of_day) = self._day, second.partition("T")
        return time_of_day if self._day == before else f"{self._day} UTC\n{time_of_day}"


def _as_line(event: Event) -> str:
    import msgspec

    return msgspec.json.encode(event).decode()
