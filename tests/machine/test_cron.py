"""Which instants a cron expression names: held against a model that looks at every minute."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest

from covey.core.cron import ALIASES, Cron, hint, parse, words
from covey.errors import InvalidInput

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour
    "Africa/Cairo",  # at midnight
    "Africa/Casablanca",  # for Ramadan, backwards
    "Antarctica/Troll",  # two hours
    "Pacific/Apia",  # 2011-12-30 does not exist
    "America/Sao_Paulo",  # until 2018, and the second 23:00 belongs to the day before
)
EXPRESSIONS = (
    "30 2 * * *",
    "0 0 * * *",
    "0,30 2 * * *",
    "15,45 1,2,3 * * *",
    "0 2,3 * * *",
    "5 1 * * *",
    "59 23 * * *",
    "30 0 * * 0",
    "0 0-23/2 * * *",
    "10 * * * *",
    "45 1-3 * * 6,7",
    "0 12 30 * *",
    "0 0 1 * *",
    "20 2 * 3,10 *",
    "30 2 * * 0L",
    "30 1 L * *",
    "15 3 * * SUN#1",
    "0 1 13 * FRI",
    "* * * * *",
    "*/5 * * * *",
    "*/30 2 * * *",
    "0 */2 * * *",
    "*/7 0-3 * * *",
    "*/15 1,2 * * *",
    "*/20 23 * * 6",
    "7 */3 */2 * *",
    "* 0 * * *",
    "*/45 */5 * 1-6 *",
    "50-59 1,23 * * *",
    "*/10 3 1-7 * SUN",
)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def instant(at: int | None) -> datetime:
    assert at is not None
    return EPOCH + timedelta(microseconds=at)


def changes(zone: tzinfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """The first minutes after each change of a zone's clock."""
    at = start
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + HOUR).astimezone(zone).utcoffset():
            yield next(
                at + n * MINUTE
                for n in range(1, 61)
                if (at + n * MINUTE).astimezone(zone).utcoffset()
                != (at + (n - 1) * MINUTE).astimezone(zone).utcoffset()
            )
        at += HOUR


class Wall:
    """Every minute of a span, as a clock on the wall shows it, and what that clock jumps over."""

    def __init__(self, zone: tzinfo, start: datetime, end: datetime) -> None:
        self.minutes: list[tuple[datetime, datetime, bool]] = []  # instant, what is shown, shown before
        self.jumped: dict[datetime, list[datetime]] = {}
        seen, last = None, None
        at = start
        while at < end:
            shown = at.astimezone(zone)
            plain = shown.replace(tzinfo=None, fold=0)
            if last is not None and plain > last + MINUTE:
                self.jumped[at] = [last + n * MINUTE for n in range(1, (plain - last) // MINUTE)]
            again = seen is not None and plain <= seen
            self.minutes.append((at, plain, again))
            last, seen = plain, plain if seen is None else max(seen, plain)
            at += MINUTE

    def ticks(self, expression: str) -> list[datetime]:
        """By the words of the page alone: five fields, each a set of numbers, looked up minute by minute."""
        fields = ALIASES.get(expression, expression).upper().split()
        fixed = fields[0][0] != "*" and fields[1][0] != "*"
        times = {
            (hour, minute)
            for hour in range(24)
            for minute in range(60)
            if spells(fields[0], minute, 0, 59) and spells(fields[1], hour, 0, 23)
        }
        days: dict[object, bool] = {}

        def matches(wall: datetime) -> bool:
            if (wall.hour, wall.minute) not in times:
                return False
            day = wall.date()
            if day not in days:
                days[day] = day_matches(fields, wall)
            return days[day]

        return [
            at
            for at, wall, again in self.minutes
            if (matches(wall) and not (fixed and again))
            or (fixed and any(matches(missing) for missing in self.jumped.get(at, ())))
        ]


def spells(field: str, number: int, least: int, most: int, names: str = "") -> bool:
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first, last = (least, most) if low == "*" else (value(low, names), value(high or low, names))
        if first <= number <= last and (number - first) % int(step or 1) == 0:
            return True
    return False


def value(word: str, names: str) -> int:
    return names.split().index(word) if word in names.split() else int(word)


def day_matches(fields: list[str], wall: datetime) -> bool:
    if not spells(fields[3], wall.month, 1, 12):
        return False
    is_last = (wall + DAY).month != wall.month
    of_month = is_last if fields[2] == "L" else spells(fields[2], wall.day, 1, 31)
    week, number = fields[4], wall.isoweekday() % 7
    if week.endswith("L"):
        of_week = number == int(week[0]) and (wall + 7 * DAY).month != wall.month
    elif "#" in week:
        of_week = number == value(week[:3], "SUN MON TUE WED THU FRI SAT") and (wall.day - 1) // 7 == int(week[4]) - 1
    else:
        names = "SUN MON TUE WED THU FRI SAT"
        of_week = spells(week, number, 0, 6, names) or (number == 0 and spells(week, 7, 1, 7, names))
    if "*" in (fields[2][0], week[0]):
        return of_month and of_week
    return of_month or of_week


def years(name: str, proof: Callable[[int, int], int]) -> list[tuple[int, int]]:
    span = [(2026, 2027)] if proof(1, 12) == 1 else [(2024, 2036)]
    return {"Pacific/Apia": [(2011, 2012), *span[:-1]], "America/Sao_Paulo": [(2018, 2019), *span[:-1]]}.get(name, span)


@pytest.mark.parametrize("name", ZONES)
def test_every_minute_round_a_clock_change_gets_the_answer_of_the_model(
    name: str, proof: Callable[[int, int], int]
) -> None:
    """… and one after the other they are all of the week."""
    zone, looked = ZoneInfo(name), 0
    for first, last in years(name, proof):
        for change in changes(zone, datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)):
            start, end = change - 3 * DAY, change + 4 * DAY
            wall = Wall(zone, start - DAY, end)
            for expression in EXPRESSIONS:
                ticks, cron = wall.ticks(expression), parse(expression)
                assert chain(cron, zone, start, end) == ticks[bisect_right(ticks, start) :], (expression, name)
                for offset in range(-180, 240):
                    asked = change + offset * MINUTE
                    due = bisect_right(ticks, asked)
                    if due < len(ticks):
                        found = instant(cron.next(micros(asked), zone))
                        assert found == ticks[due], f"{expression} {name} asked at {asked}: {found}, not {ticks[due]}"
                        looked += 1
    assert looked > 10_000


@pytest.mark.full
@pytest.mark.parametrize("name", ZONES)
def test_one_after_the_other_they_are_all_of_twelve_years(name: str) -> None:
    zone = ZoneInfo(name)
    sparse = [each for each in EXPRESSIONS if len(parse(each).minutes) * len(parse(each).hours) <= 12]
    expected: dict[str, list[datetime]] = {each: [] for each in sparse}
    start, end = datetime(2024, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
    for year in range(2024, 2036):
        for half in (1, 7):
            begin = datetime(year, half, 1, tzinfo=UTC)
            until = datetime(year, 7, 1, tzinfo=UTC) if half == 1 else datetime(year + 1, 1, 1, tzinfo=UTC)
            wall = Wall(zone, begin - 2 * DAY, until)
            for each in sparse:
                expected[each] += [at for at in wall.ticks(each) if max(start + MINUTE, begin) <= at]
    for each in sparse:
        assert chain(parse(each), zone, start, end) == expected[each], each


def chain(cron: Cron, zone: tzinfo, start: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    at = start
    while (at := instant(cron.next(micros(at), zone))) < end:
        found.append(at)
    return found


# ── single answers, as the page shows them ──────────────────────────────────────────────────────────────────────────

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("expression", "asked", "due"),
    [
        ("30 2 * * *", "2027-03-27T23:00Z", "2027-03-28T01:00Z"),  # the hour does not exist: 03:00 CEST
        ("30 2 * * *", "2026-10-24T22:00Z", "2026-10-25T00:30Z"),  # it comes twice: the first
        ("30 2 * * *", "2026-10-25T00:30Z", "2026-10-26T01:30Z"),  # and not the second
        ("30 2 * * *", "2026-10-25T01:10Z", "2026-10-26T01:30Z"),  # asked inside the second one: never the past
        ("*/30 2 * * *", "2027-03-27T23:00Z", "2027-03-29T00:00Z"),  # a wildcard: left out
        ("*/30 2 * * *", "2026-10-25T00:30Z", "2026-10-25T01:00Z"),  # … and twice
        ("0 12 * * *", "2099-06-01T00:00Z", "2099-06-01T10:00Z"),  # beyond what the zone's file lists
    ],
)
def test_berlin(expression: str, asked: str, due: str) -> None:
    found = parse(expression).next(micros(datetime.fromisoformat(asked)), BERLIN)
    assert instant(found) == datetime.fromisoformat(due)


def test_2100_has_no_29th_of_february() -> None:
    found = parse("0 0 29 2 *").next(micros(datetime(2097, 1, 1, tzinfo=UTC)), UTC)
    assert instant(found) == datetime(2104, 2, 29, tzinfo=UTC)


def test_a_date_line_that_is_crossed_leaves_out_a_day_and_its_fixed_times_come_at_the_next() -> None:
    apia, asked = ZoneInfo("Pacific/Apia"), micros(datetime(2011, 12, 29, 23, tzinfo=UTC))
    cron = parse("0 12 30 * *")
    assert instant(cron.next(asked, apia)).astimezone(apia).isoformat() == "2011-12-31T00:00:00+14:00"
    assert cron.next(1 << 62, apia) is None


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("30 2 * * *", "at 02:30 every day"),
        ("@daily", "at 00:00 every day"),
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("5 * * * *", "at minute 5 of every hour"),
        ("*/7 * * * *", "at minutes 0, 7, … 56 of every hour"),
        ("* 1 * * *", "every minute of hour 1 every day"),
        ("0 9 * * 1-5", "at 09:00 on Monday to Friday"),
        ("*/15 9-17 * * MON,WED", "every 15 minutes of hours 9 to 17 on Monday and Wednesday"),
        ("0 */2 * * *", "at minute 0 of hours 0, 2, … 22 every day"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 LW 3 *", "at 00:00 on the last Monday to Friday of the month in March"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month"),
        ("0 0 * * MON#2", "at 00:00 on the second Monday of the month"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 */10 * 5", "at 00:00 on days 1, 11, 21 and 31 of the month if it is Friday"),
        ("0 0 1,15 1,6 *", "at 00:00 on days 1 and 15 of the month in January and June"),
    ],
)
def test_in_words(expression: str, said: str) -> None:
    assert words(parse(expression)) == said


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_has_words(expression: str) -> None:
    assert words(parse(expression)).split()[0] in ("at", "every")


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("", "needs five fields"),
        ("* * * *", "it has 4"),
        ("0 30 2 * * *", "it has 6"),
        ("60 * * * *", "minute '60'; write 0 to 59"),
        ("* 24 * * *", "hour '24'"),
        ("0 0 0 * *", "day of the month '0'"),
        ("0 0 * 13 *", "month '13'; write 1 to 12, JAN to DEC"),
        ("0 0 * * 8", "day of the week '8'"),
        ("0 0 * * MON#6", "day of the week 'MON#6'"),
        ("*/0 * * * *", "minute '*/0'"),
        ("-1 * * * *", "minute ''"),
        ("1, * * * *", "minute ''"),
        ("0 22-2 * * *", "ends before it begins"),
        ("0 0 ? * *", "day of the month '?'"),
        ("０ 0 * * *", "plain ASCII"),
        ("0 0 30 2 *", "no such day exists"),
        ("0 0 31 2,4,6 *", "no such day exists"),
        ("@every 5m", "not a known name"),
        ("@reboot", "not a known name"),
        ("H 3 * * *", "minute 'H'"),
    ],
)
def test_what_is_no_expression_is_refused_in_one_line(expression: str, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=r"^cron ") as refused:
        parse(expression)
    assert wrong in str(refused.value)
    assert "\n" not in str(refused.value)


NOW = micros(datetime(2026, 11, 18, tzinfo=UTC))


@pytest.mark.parametrize(
    ("expression", "instead"),
    [("0 */2 * * *", "0 0-23/2 * * *"), ("*/30 2 * * *", "0,30 2 * * *"), ("* 1-3 * * 1", "0-59 1-3 * * 1")],
)
def test_who_takes_a_wildcard_for_fixed_times_is_told_what_to_write(expression: str, instead: str) -> None:
    assert instead in (hint(parse(expression), BERLIN, NOW) or "")
    assert parse(instead).fixed
    assert parse(instead).minutes == parse(expression).minutes
    assert parse(instead).hours == parse(expression).hours


@pytest.mark.parametrize(
    ("expression", "zone"),
    [("30 2 * * *", "Europe/Berlin"), ("*/5 * * * *", "Europe/Berlin"), ("0 */2 * * *", "Asia/Tokyo")],
)
def test_where_clock_changes_surprise_nobody_nothing_is_said(expression: str, zone: str) -> None:
    assert hint(parse(expression), ZoneInfo(zone), NOW) is None
