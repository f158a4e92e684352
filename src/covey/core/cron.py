"""Cron expressions of five fields: which instants they name in a time zone, in words, and where clock changes surprise.

The rules at clock changes are those of Debian's cron. An expression whose minute and hour both begin with no ``*`` says
*fixed times*: one that the clock jumps over is due at the first instant after the gap, one that comes twice is due the
first time only. Any other follows the time that passes: what does not exist is left out, what comes twice is due twice.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from msgspec import Struct

from ..errors import InvalidInput

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 7, DAYS),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_YEARS = 60  # what names no day in so many years never will: weekdays come again after 28, round 2100 after 40
_LAST_YEAR = 9900


class Cron(Struct, frozen=True):
    """An expression that was understood."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    last_day: bool  # L
    last_weekday: bool  # LW: the last Monday to Friday of the month
    nth: frozenset[tuple[int, int]]  # (weekday, n): MON#2; n = -1: the last one, 5L
    both: bool  # day of month and day of week must both match: as in Debian's cron, if one of them begins with *
    fixed: bool

    def next(self, after: int, zone: tzinfo) -> int | None:
        """The first instant that it names later than ``after`` (microseconds, UTC); None if there is none any more."""
        if after >= _LATEST:
            return None
        asked = _EPOCH + timedelta(microseconds=after)
        found = self._next_fixed(asked, zone) if self.fixed else self._next_passing(asked, zone)
        return None if found is None else (found - _EPOCH) // _MICROSECOND

    def _next_fixed(self, asked: datetime, zone: tzinfo) -> datetime | None:
        wall = _whole(asked.astimezone(zone).replace(tzinfo=None, fold=0))
        while (wall_or_none := self._match(wall + _MINUTE)) is not None:
            wall = wall_or_none
            # The instants of rising wall times never fall, but where the clock was set back they may lie behind us.
            if (found := _first_instant(wall, zone)) > asked:
                return found
        return None

    def _next_passing(self, asked: datetime, zone: tzinfo) -> datetime | None:
        start = _whole(asked) + _MINUTE
        while start.year < _LAST_YEAR:
            offset, end = _same_offset(start, zone)
            wall = self._match((start + offset).replace(tzinfo=None))
            if wall is None:
                return None
            found = wall.replace(tzinfo=UTC) - offset
            if found < end:
                return found
            # A change may show again what was shown before. Where there is none within a day, none that follows goes
            # back as far as to `start` (no change is by more than a day), so nothing matches before the day found.
            start = end if end < start + _DAY else max(end, found - 2 * _DAY)
        return None

    def _match(self, wall: datetime) -> datetime | None:
        """The first time on a wall clock that matches, this minute or later."""
        day = wall.date()
        if self._has(day):
            if wall.hour in self.hours and (at := bisect_left(self.minutes, wall.minute)) < len(self.minutes):
                return wall.replace(minute=self.minutes[at])
            if (at := bisect_left(self.hours, wall.hour + 1)) < len(self.hours):
                return wall.replace(hour=self.hours[at], minute=self.minutes[0])
        until = min(day.year + _YEARS, _LAST_YEAR)
        day += _DAY
        while not self._has(day):
            if day.year >= until:
                return None
            if day.month in self.months:
                day += _DAY
            else:
                day = (day.replace(day=1) + 32 * _DAY).replace(day=1)
        return datetime.combine(day, time(self.hours[0], self.minutes[0]))

    def _has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = self._has_in_month(day), self._has_in_week(day)
        return (in_month and in_week) if self.both else (in_month or in_week)

    def _has_in_month(self, day: date) -> bool:
        if day.day in self.days:
            return True
        if not (self.last_day or self.last_weekday):
            return False
        last = _last_of(day)
        if self.last_day and day.day == last:
            return True
        of_week = day.replace(day=last).weekday()
        return self.last_weekday and day.day == last - max(0, of_week - 4)

    def _has_in_week(self, day: date) -> bool:
        of_week = day.isoweekday() % 7
        if of_week in self.weekdays:
            return True
        if not self.nth:
            return False
        last = _last_of(day)
        return (of_week, (day.day + 6) // 7) in self.nth or ((of_week, -1) in self.nth and day.day + 7 > last)


_LATEST = (datetime(_LAST_YEAR, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND


def _last_of(day: date) -> int:
    """The number of the last day of its month."""
    return (day.replace(day=28) + 4 * _DAY).replace(day=1).toordinal() - day.replace(day=1).toordinal()


def _whole(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _same_offset(start: datetime, zone: tzinfo) -> tuple[timedelta, datetime]:
    """The offset from UTC at an instant, and until when it certainly holds: a change, or a day later."""
    offset, end = _offset(start, zone), start + _DAY
    if _offset(end, zone) == offset:
        return offset, end
    minutes = 1440  # the change lies in (0, minutes]
    low = 0
    while minutes - low > 1:
        middle = (low + minutes) // 2
        if _offset(start + middle * _MINUTE, zone) == offset:
            low = middle
        else:
            minutes = middle
    return offset, start + minutes * _MINUTE


def _offset(at: datetime, zone: tzinfo) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _first_instant(wall: datetime, zone: tzinfo) -> datetime:
    """When a clock on the wall shows that for the first time; if it never does, the end of the gap."""
    found = wall.replace(tzinfo=zone).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == wall:
        return found
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)  # reckoned with the offset after the gap: before it
    return _same_offset(before, zone)[1]


# ── understood ──────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4096)
def parse(text: str) -> Cron:
    """The expression; InvalidInput that says which field, what is wrong with it and what can be written."""
    plain = ALIASES.get(text.strip().lower(), text).upper()
    words = plain.split()
    if plain.lstrip().startswith("@"):
        raise InvalidInput(f"cron {text!r}: not a known name; there are {', '.join(ALIASES)}, or use --every")
    if not plain.isascii():
        raise InvalidInput(f"cron {text!r}: has characters that no cron expression has; write it in plain ASCII")
    if len(words) != 5:
        raise InvalidInput(
            f"cron {text!r}: needs five fields (minute, hour, day of the month, month, day of the week), as in "
            f"'30 2 * * 1-5'; it has {len(words)}"
        )
    days, last_day, last_weekday = _days(words[2], text)
    weekdays, nth = _weekdays(words[4], text)
    found = Cron(
        text=" ".join(text.split()),
        minutes=tuple(sorted(_numbers(words[0], 0, text))),
        hours=tuple(sorted(_numbers(words[1], 1, text))),
        days=days,
        months=frozenset(_numbers(words[3], 3, text)),
        weekdays=weekdays,
        last_day=last_day,
        last_weekday=last_weekday,
        nth=nth,
        both=words[2].startswith("*") or words[4].startswith("*"),
        fixed=not words[0].startswith("*") and not words[1].startswith("*"),
    )
    if found._match(datetime.combine(date(2000, 1, 1), time())) is None:
        raise InvalidInput(f"cron {text!r}: no such day exists in any year")
    return found


def _days(word: str, text: str) -> tuple[frozenset[int], bool, bool]:
    items = word.split(",")
    plain = [item for item in items if item not in ("L", "LW")]
    numbers = _numbers(",".join(plain), 2, text) if plain else set()
    return frozenset(numbers), "L" in items, "LW" in items


def _weekdays(word: str, text: str) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    plain, nth = [], set()
    for item in word.split(","):
        if found := re.fullmatch(r"(\w+)#([1-5])", item):
            nth.add((_number(found[1], 4, text) % 7, int(found[2])))
        elif found := re.fullmatch(r"(\w+)L", item):
            nth.add((_number(found[1], 4, text) % 7, -1))
        else:
            plain.append(item)
    numbers = _numbers(",".join(plain), 4, text) if plain else set()
    return frozenset(number % 7 for number in numbers), frozenset(nth)


def _numbers(word: str, field: int, text: str) -> set[int]:
    found: set[int] = set()
    for item in word.split(","):
        span, slash, step = item.partition("/")
        low, dash, high = span.partition("-")
        _, least, most, _ = _FIELDS[field]
        if span == "*":
            first, last = least, 6 if field == 4 else most
        else:
            first = _number(low, field, text)
            last = _number(high, field, text) if dash else most if slash else first
        if slash and (not re.fullmatch("[0-9]{1,4}", step) or int(step) == 0):
            raise _wrong(field, item, text)
        if last < first:
            raise InvalidInput(f"cron {text!r}: {_FIELDS[field][0]} {item!r} ends before it begins; write two ranges")
        found.update(range(first, last + 1, int(step) if slash else 1))
    return found


def _number(word: str, field: int, text: str) -> int:
    _, least, most, names = _FIELDS[field]
    if word in names:
        return names.index(word) + least
    if not re.fullmatch("[0-9]{1,4}", word) or not least <= int(word) <= most:
        raise _wrong(field, word, text)
    return int(word)


def _wrong(field: int, word: str, text: str) -> InvalidInput:
    name, least, most, names = _FIELDS[field]
    also = f", {names[0]} to {names[-1]}" if names else ""
    return InvalidInput(f"cron {text!r}: {name} {word!r}; write {least} to {most}{also}, lists, ranges, steps or *")


# ── in words ────────────────────────────────────────────────────────────────────────────────────────────────────────

_WEEK = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_YEAR = (
    *("", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
_NTH = {-1: "last", 1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def words(cron: Cron) -> str:
    """`at 02:30 on Monday to Friday`."""
    day, month = _day_words(cron), ""
    if len(cron.months) < 12:
        month = f" in {_listed(sorted(cron.months), _YEAR)}"
    return f"{_time_words(cron)}{day}{month}"


def _time_words(cron: Cron) -> str:
    every_hour, minutes, hours = len(cron.hours) == 24, cron.minutes, cron.hours
    if not every_hour and len(minutes) * len(hours) <= 6:
        return "at " + _joined([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    if len(minutes) == 60:
        said = "every minute"
    elif len(minutes) > 1 and list(minutes) == list(range(0, 60, minutes[1])) and 60 % minutes[1] == 0:
        said = f"every {minutes[1]} minutes"
    else:
        said = f"at minute{'s' * (len(minutes) > 1)} {_listed(minutes)}"
    if not every_hour:
        return f"{said} of hour{'s' * (len(hours) > 1)} {_listed(hours)}"
    return said if said.startswith("every") else f"{said} of every hour"


def _day_words(cron: Cron) -> str:
    any_day, any_weekday = len(cron.days) == 31, len(cron.weekdays) == 7
    in_month = []
    if cron.days and not any_day:
        in_month.append(f"day{'s' * (len(cron.days) > 1)} {_listed(sorted(cron.days))} of the month")
    if cron.last_day:
        in_month.append("the last day of the month")
    if cron.last_weekday:
        in_month.append("the last Monday to Friday of the month")
    in_week = []
    if cron.weekdays and not any_weekday:
        in_week.append(_listed(sorted(cron.weekdays), _WEEK))
    in_week += [f"the {_NTH[nth]} {_WEEK[day]} of the month" for day, nth in sorted(cron.nth)]
    of_month, of_week = _joined(in_month), _joined(in_week)
    if of_month and of_week:
        return f" on {of_month} if it is {of_week}" if cron.both else f" on {of_month} or on {of_week}"
    # Where either suffices and one of them is every day, it is every day.
    if (of_month or of_week) and (cron.both or (not any_day and not any_weekday)):
        return f" on {of_month or of_week}"
    return " every day" if len(cron.hours) < 24 else ""


def _listed(numbers: tuple[int, ...] | list[int], names: tuple[str, ...] | list[str] | None = None) -> str:
    """`1, 3 and 5 to 9`; `0, 2, … 22`."""
    if (
        len(numbers) > 4
        and (step := numbers[1] - numbers[0]) > 1
        and numbers[-1] - numbers[0] == step * (len(numbers) - 1)
    ):
        first, second, last = ((names[n] if names else str(n)) for n in (numbers[0], numbers[1], numbers[-1]))
        return f"{first}, {second}, … {last}"
    parts = []
    for low, high in _runs(numbers):
        first, last = (names[low], names[high]) if names else (str(low), str(high))
        parts += [f"{first} to {last}"] if high - low > 1 else [first] if low == high else [first, last]
    return _joined(parts)


def _runs(numbers: tuple[int, ...] | list[int]) -> Iterator[tuple[int, int]]:
    low = high = numbers[0]
    for number in numbers[1:]:
        if number > high + 1:
            yield low, high
            low = number
        high = number
    yield low, high


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def hint(cron: Cron, zone: tzinfo, now: int) -> str | None:
    """What to say to somebody who may take it for fixed times although clock changes treat it as a wildcard."""
    if cron.fixed or len(cron.hours) == 24:
        return None
    at = _whole(_EPOCH + timedelta(microseconds=now))
    offsets = {_offset(at + days * _DAY, zone) for days in range(0, 730, 7)}
    if len(offsets) == 1:
        return None
    _, _, *rest = ALIASES.get(cron.text.lower(), cron.text).split()
    fixed = " ".join((_spelled(cron.minutes, 59), _spelled(cron.hours, 23), *rest))
    return (
        f"cron {cron.text!r} has a * in its minute or hour: when the clock goes forward, times that do not exist are "
        f"left out; when it goes back, those that come twice run twice. Write {fixed!r} for times once a day"
    )


def _spelled(numbers: tuple[int, ...], most: int) -> str:
    """Numbers as a field without a *."""
    if len(numbers) > 2:
        step = numbers[1] - numbers[0]
        if list(numbers) == list(range(numbers[0], most + 1, step)):
            return f"{numbers[0]}-{most}" + (f"/{step}" if step > 1 else "")
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in _runs(numbers))
