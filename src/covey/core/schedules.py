"""Schedules: which instants one names, and what is decided of each when it has come. Pure.

A tick is an instant that a schedule names, before jitter. It is decided once: one job, or a row that says why none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from ..errors import InvalidInput
from . import cron as crons
from .machine import SECOND
from .model import ENDED

CatchUp = Literal["one", "skip", "all"]
Overlap = Literal["skip", "allow", "queue", "cancel"]
Decided = Literal["fired", "manual", "skipped", "missed", "refused"]
CATCH_UP: tuple[CatchUp, ...] = ("one", "skip", "all")
OVERLAP: tuple[Overlap, ...] = ("skip", "allow", "queue", "cancel")

LATE = 60 * SECOND  # a tick that is less late than this is an ordinary one
MOST = 100  # ticks that `all` catches up, where nothing else is said
WINDOW_S = 86_400.0
SLICE = 500  # as many ticks of one schedule are decided at a time
MAX_LINES = 100
LATEST = 253_370_764_800 * SECOND  # the year 9999

Zones = Callable[[str], tzinfo]


class When(Struct, frozen=True, omit_defaults=True):
    """When a schedule is due: one of lines of cron in a time zone, a period, or a list of instants."""

    cron: tuple[str, ...] = ()
    tz: str = "UTC"
    every: float | None = None  # seconds, counted from 1970 on or from where the schedule begins: restarts move nothing
    at: tuple[int, ...] = ()


class Definition(Struct, frozen=True, kw_only=True):
    """What somebody says of a schedule. ``job`` is an object as `enqueue` takes it."""

    name: str
    when: When
    job: dict[str, Any]
    catch_up: CatchUp = "one"
    most: int = MOST
    window_s: float = WINDOW_S
    overlap: Overlap = "skip"
    jitter_s: float = 0.0
    starts_at: int | None = None
    ends_at: int | None = None
    pause_after: int | None = None

    @property
    def digest(self) -> str:
        """The same for the same words, whoever says them."""
        import hashlib
        import json

        from msgspec import to_builtins

        plain = json.dumps(to_builtins(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(plain.encode()).hexdigest()[:32]


class ScheduleRow(Struct, kw_only=True):
    """The part of a schedule that the rules look at."""

    name: str
    when: When
    catch_up: CatchUp = "one"
    most: int = MOST
    window_s: float = WINDOW_S
    overlap: Overlap = "skip"
    jitter_s: float = 0.0
    starts_at: int | None = None
    ends_at: int | None = None
    pause_after: int | None = None
    next_at: int | None = None  # the next tick that is not decided yet …
    fire_at: int | None = None  # … and when it is, with its jitter; None: not by itself (paused, done, retired)


class Run(Struct, frozen=True):
    """The job of an earlier tick, as far as the next one must know of it."""

    tick: int
    state: str | None  # None: it is gone
    has_processes: bool = False  # also of one that was cancelled and still ends

    @property
    def is_active(self) -> bool:
        return self.state is not None and (self.state not in ENDED or self.has_processes)


class Decision(Struct, frozen=True):
    """What becomes of a tick."""

    tick: int
    decision: Decided
    note: str | None = None
    until: int | None = None  # missed: and of all others before this instant
    after: tuple[int, ...] = ()  # fired: its job waits until the jobs of these ticks, and their processes, have ended
    cancels: tuple[int, ...] = ()  # fired: the jobs of these ticks are cancelled


class Plan(Struct, frozen=True):
    decisions: list[Decision]
    next_at: int | None
    fire_at: int | None
    moved_from: int | None = None  # an instant that is no tick any more: the rules of its zone have changed
    pause: str | None = None  # why the schedule is paused from now on


# ── which instants ──────────────────────────────────────────────────────────────────────────────────────────────────


def next_tick(row: ScheduleRow | Definition, after: int, zones: Zones) -> int | None:
    """The first instant later than ``after`` that it names; None if there is none any more."""
    if row.starts_at is not None:
        after = max(after, row.starts_at - 1)
    found = _next(row.when, after, row.starts_at or 0, zones)
    return None if found is None or (row.ends_at is not None and found > row.ends_at) else found


def _next(when: When, after: int, anchor: int, zones: Zones) -> int | None:
    if when.every is not None:
        period = round(when.every * SECOND)
        return after + period - (after - anchor) % period
    if when.at:
        return min((at for at in when.at if at > after), default=None)
    zone = zones(when.tz)
    return min((at for line in when.cron if (at := _of_line(line, zone, after)) is not None), default=None)


@lru_cache(maxsize=16_384)
def _of_line(line: str, zone: tzinfo, after: int) -> int | None:
    # Thousands of schedules say the same words, and are asked at the same instants.
    return crons.parse(line).next(after, zone)


def fires_at(row: ScheduleRow | Definition, tick: int | None) -> int | None:
    """When a tick is to be decided: later by its jitter, which is its own for ever."""
    if tick is None or not row.jitter_s:
        return tick
    import hashlib  # takes longer than all else here, and few need it

    dice = int.from_bytes(hashlib.blake2b(f"{row.name} {tick}".encode(), digest_size=8).digest())
    return tick + dice % round(row.jitter_s * SECOND)


def first(row: ScheduleRow | Definition, after: int, zones: Zones) -> tuple[int | None, int | None]:
    """From an instant on: the next tick, and when it is decided."""
    tick = next_tick(row, after, zones)
    return tick, fires_at(row, tick)


# ── what is decided ─────────────────────────────────────────────────────────────────────────────────────────────────


def plan(
    row: ScheduleRow, now: int, runs: Iterable[Run], zones: Zones, *, failures: int = 0, slice: int = SLICE
) -> Plan:
    """What is decided now. The same whether it is asked once or, ``slice`` by slice, until nothing is due.

    ``runs``: the jobs of earlier ticks that are there; ``failures``: how many of them have been dead in a row.
    """
    tick, decisions = row.next_at, list[Decision]()
    if tick is None or row.fire_at is None or row.fire_at > now:
        return Plan([], row.next_at, row.fire_at)
    if (real := next_tick(row, tick - 1, zones)) != tick:
        return Plan([], real, fires_at(row, real), moved_from=tick)
    if row.pause_after is not None and failures >= row.pause_after:
        note = f"{failures} runs in a row were dead (pause after failures: {row.pause_after})"
        return Plan([Decision(tick, "skipped", note)], *first(row, tick, zones), pause=note)
    keep = {"skip": 0, "one": 1, "all": row.most}[row.catch_up]
    horizon = now - round(max(row.window_s, LATE / SECOND) * SECOND)
    if tick < horizon:
        decisions.append(Decision(tick, "missed", f"older than the window of {row.window_s:g} s", until=horizon))
        tick = next_tick(row, horizon - 1, zones)
    due: list[tuple[int, int]] = []
    while tick is not None and (fire_at := fires_at(row, tick) or tick) <= now and len(due) < slice + keep:
        due.append((tick, fire_at))
        tick = next_tick(row, tick, zones)
    has_more = tick is not None and (fires_at(row, tick) or tick) <= now
    decided, rest = (due[:slice], due[slice:]) if has_more else (due, [])
    upcoming = rest[0][0] if rest else tick
    family = _Family(row.overlap, row.catch_up == "all", runs)
    for place, (at, fire_at) in enumerate(decided):
        is_late = now - fire_at >= LATE
        if is_late and len(due) - 1 - place >= keep:
            why = "catch-up: skip" if keep == 0 else "a later one is caught up instead"
            _miss(decisions, at, why)
        else:
            decisions.append(family.decide(at, is_late))
    return Plan(decisions, upcoming, fires_at(row, upcoming))


def plan_run(row: ScheduleRow, tick: int, runs: Iterable[Run], overlap: Overlap | None = None) -> Decision:
    """What becomes of a run that somebody asks for: as of any tick, but that it moves nothing."""
    return _Family(overlap or row.overlap, False, runs).decide(tick, False)


def unpaused(row: ScheduleRow, paused_until: int, zones: Zones) -> tuple[Decision | None, int | None]:
    """What becomes of the ticks during a pause, and the first one after it."""
    if row.next_at is None or row.next_at > paused_until:
        return None, row.next_at
    return Decision(row.next_at, "skipped", "paused", until=paused_until + 1), next_tick(row, paused_until, zones)


def _miss(decisions: list[Decision], tick: int, why: str) -> None:
    """Missed ones in a row have one row: the first, and until when."""
    last = decisions[-1] if decisions else None
    if last is not None and last.decision == "missed" and last.note == why:
        decisions[-1] = Decision(last.tick, "missed", why, until=tick + 1)
    else:
        decisions.append(Decision(tick, "missed", why, until=tick + 1))


class _Family:
    """The jobs of a schedule's earlier ticks, as they are while the next ones are decided."""

    def __init__(self, overlap: Overlap, chains: bool, runs: Iterable[Run]) -> None:
        self.overlap, self.chains = overlap, chains
        self.active = sorted((run for run in runs if run.is_active), key=lambda run: run.tick)

    def decide(self, tick: int, is_late: bool) -> Decision:
        active = self.active
        if not active or self.overlap == "allow":
            found = Decision(tick, "fired")
        elif self.overlap == "skip":
            return Decision(tick, "skipped", "the run before is still active", after=(active[-1].tick,))
        elif self.overlap == "queue":
            waiting = [run for run in active if run.state == "blocked"]
            if waiting and not (self.chains and is_late):
                return Decision(tick, "skipped", "a run waits already", after=(waiting[-1].tick,))
            found = Decision(tick, "fired", after=(active[-1].tick,))
        else:
            stopping = tuple(run.tick for run in active if run.has_processes)
            cancels = tuple(run.tick for run in active if run.state not in ENDED)
            self.active = [run for run in active if run.has_processes]
            found = Decision(tick, "fired", after=stopping, cancels=cancels)
        self.active = [*self.active, Run(tick, "blocked" if found.after else "pending")]
        return found


# ── what may be said ────────────────────────────────────────────────────────────────────────────────────────────────


def check(definition: Definition, zones: Zones) -> None:
    """InvalidInput in one line for what cannot be a schedule."""
    name, when = definition.name, definition.when
    _check_name(name)
    _check_when(name, when, zones)
    if definition.catch_up not in CATCH_UP:
        raise wrong_word(name, "catch_up", definition.catch_up, CATCH_UP)
    if definition.overlap not in OVERLAP:
        raise wrong_word(name, "overlap", definition.overlap, OVERLAP)
    if definition.catch_up == "all" and definition.overlap in ("skip", "cancel"):
        raise InvalidInput(
            f"schedule {name!r}: catch-up 'all' with overlap {definition.overlap!r} would fire many and run one; "
            "choose overlap 'allow' or 'queue'"
        )
    _check_number(name, "most", definition.most, 1, 10_000)
    _check_number(name, "window", definition.window_s, LATE / SECOND, 366 * 86_400)
    _check_number(name, "jitter", definition.jitter_s, 0, 366 * 86_400)
    if definition.pause_after is not None:
        _check_number(name, "pause_after_failures", definition.pause_after, 1, 100)
    for at, what in ((definition.starts_at, "from"), (definition.ends_at, "until")):
        if at is not None:
            _check_number(name, what, at, 0, LATEST)


def wrong_word(name: str, what: str, word: str, known: Sequence[str]) -> InvalidInput:
    return InvalidInput(f"schedule {name!r}: {what} {word!r}; write {', '.join(known[:-1])} or {known[-1]}")


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable() or name != name.strip():
        raise InvalidInput(f"schedule {name!r}: a name is 1 to 200 printable characters, without spaces at its ends")
    if "/" in name or name in (".", ".."):
        raise InvalidInput(f"schedule {name!r}: a name is part of an address: no '/', not '.' or '..'")


def _check_when(name: str, when: When, zones: Zones) -> None:
    said = [word for word, value in (("cron", when.cron), ("every", when.every), ("at", when.at)) if value]
    if len(said) != 1:
        raise InvalidInput(
            f"schedule {name!r}: say when by one of cron, every and at, not {' and '.join(said) or 'none'}"
        )
    if len(when.cron) > MAX_LINES or len(when.at) > MAX_LINES:
        raise InvalidInput(f"schedule {name!r}: at most {MAX_LINES} lines of cron or instants; make several schedules")
    for line in when.cron:
        crons.parse(line)
    if not when.cron and when.tz != "UTC":
        raise InvalidInput(f"schedule {name!r}: a time zone belongs to cron; 'every' and 'at' name instants")
    zones(when.tz)
    if when.every is not None:
        _check_number(name, "every", when.every, 1, 366 * 86_400)
        if round(when.every * 1000) != when.every * 1000:
            raise InvalidInput(f"schedule {name!r}: every {when.every!r}; whole milliseconds are as fine as it gets")
    for at in when.at:
        _check_number(name, "at", at, 0, LATEST)


def _check_number(name: str, what: str, value: float, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidInput(f"schedule {name!r}: {what} {value!r}; write a number from {least:g} to {most:g}")


# ── in words ────────────────────────────────────────────────────────────────────────────────────────────────────────


def words(when: When) -> str:
    """`at 02:30 every day (Europe/Berlin)`, `every 5m`, `at 2031-05-01T07:00:00Z`."""
    if when.every is not None:
        return f"every {_period(when.every)}"
    if when.at:
        return _instants(when.at)
    return f"{'; '.join(crons.words(crons.parse(line)) for line in when.cron)} ({when.tz})"


def hints(when: When, zones: Zones, now: int) -> list[str]:
    """What to tell somebody who may expect something else."""
    if when.every is not None and when.every < 10:
        return [f"every {when.every:g} s is often: pools look once a second where nobody wakes them"]
    zone = zones(when.tz)
    return [said for line in when.cron if (said := crons.hint(crons.parse(line), zone, now)) is not None]


def _period(seconds: float) -> str:
    left, parts = seconds, []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if left >= size:
            parts.append(f"{int(left // size)}{unit}")
            left %= size
    if left or not parts:
        parts.append(f"{left:g}s")
    return "".join(parts)


def _instants(instants: Sequence[int]) -> str:
    from datetime import UTC, datetime, timedelta

    first_ones = [
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)).isoformat().replace("+00:00", "Z")
        for at in sorted(instants)[:3]
    ]
    rest = len(instants) - len(first_ones)
    return f"at {', '.join(first_ones)}" + (f" and {rest} more" if rest else "")
