"""What is decided of a schedule's ticks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from msgspec.structs import replace

from covey.core.machine import SECOND
from covey.core.schedules import (
    CATCH_UP,
    OVERLAP,
    Decision,
    Definition,
    Run,
    ScheduleRow,
    When,
    check,
    fires_at,
    first,
    hints,
    next_tick,
    plan,
    plan_run,
    words,
)
from covey.errors import InvalidInput
from covey.system.time_zones import zone

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
START = 20_000 * DAY  # a midnight in 2024


def schedule(**given: Any) -> ScheduleRow:
    row = ScheduleRow(**{"name": "s", "when": When(every=3600.0)} | given)
    row.next_at, row.fire_at = first(row, START, zone)
    return row


def after(row: ScheduleRow, now: int, runs: dict[int, Run], slice: int) -> list[Decision]:
    """Everything that is decided at an instant, slice by slice, as an engine does it; rows and runs move along."""
    decided: list[Decision] = []
    while row.fire_at is not None and row.fire_at <= now:
        found = plan(row, now, runs.values(), zone, slice=slice)
        assert found.decisions or found.moved_from
        assert found.next_at is None or found.next_at > (row.next_at or 0), "it only moves forward"
        row.next_at, row.fire_at = found.next_at, found.fire_at
        for each in found.decisions:
            for tick in each.cancels:
                runs[tick] = replace(runs[tick], state="cancelled")
            if each.decision == "fired":
                runs[each.tick] = Run(each.tick, "blocked" if each.after else "pending")
        decided += found.decisions
    return decided


def fired(decisions: list[Decision]) -> list[Decision]:
    return [each for each in decisions if each.decision == "fired"]


def policies() -> some.SearchStrategy[dict[str, Any]]:
    whens = some.sampled_from(
        [
            When(every=60.0),
            When(every=3600.0),
            When(every=37.0),
            When(cron=("*/20 * * * *", "30 2 * * *"), tz="Europe/Berlin"),
        ]
    )
    options = {
        "when": whens,
        "catch_up": some.sampled_from(CATCH_UP),
        "most": some.integers(1, 5),
        "overlap": some.sampled_from(OVERLAP),
        "window_s": some.sampled_from([60.0, 600.0, 7200.0, 86_400.0]),
        "jitter_s": some.sampled_from([0.0, 5.0, 400.0]),
    }
    return some.fixed_dictionaries(options)


@given(policies(), some.integers(0, 3 * HOUR), some.integers(1, 40))
def test_a_downtime_that_is_decided_in_two_looks_gives_the_same_jobs_as_in_one(
    policy: dict[str, Any], down: int, slice: int
) -> None:
    now = START + down
    row, sliced = schedule(**policy), schedule(**policy)
    whole, parts = after(row, now, {}, 100_000), after(sliced, now, {}, slice)
    assert fired(parts) == fired(whole)
    assert (sliced.next_at, sliced.fire_at) == (row.next_at, row.fire_at)


@given(policies(), some.lists(some.integers(1, HOUR), min_size=1, max_size=12))
def test_every_tick_is_decided_exactly_once_whenever_somebody_looks(policy: dict[str, Any], steps: list[int]) -> None:
    row, runs, now, decided = schedule(**policy), dict[int, Run](), START, list[Decision]()
    for step in steps:
        now += step
        decided += after(row, now, runs, 7)
        runs = {tick: replace(run, state="completed") for tick, run in runs.items()}
    seen, tick = 0, next_tick(row, START, zone)
    for each in decided:
        while tick is not None and (tick == each.tick or (each.until is not None and each.tick <= tick < each.until)):
            seen += 1
            tick = next_tick(row, tick, zone)
    assert tick == row.next_at, "what is decided follows in order, without a gap"
    assert seen >= len(decided)


# ── catch-up ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("one", [5]), ("skip", []), ("all", [3, 4, 5])],
)
def test_after_five_and_a_half_hours_down(catch_up: str, expected: list[int]) -> None:
    row = schedule(catch_up=catch_up, most=3, overlap="allow")
    decided = after(row, START + 5 * HOUR + 30 * MINUTE, {}, 500)
    assert [(each.tick - START) // HOUR for each in fired(decided)] == expected
    assert row.next_at == START + 6 * HOUR


@pytest.mark.parametrize("catch_up", CATCH_UP)
def test_what_is_less_than_a_minute_late_is_an_ordinary_tick(catch_up: str) -> None:
    decided = after(schedule(catch_up=catch_up), START + HOUR + 59 * SECOND, {}, 500)
    assert [each.tick for each in fired(decided)] == [START + HOUR]


def test_what_is_older_than_the_window_is_one_row_and_is_never_caught_up() -> None:
    row = schedule(when=When(every=1.0), catch_up="all", most=5, overlap="allow", window_s=60.0)
    decided = after(row, START + 30 * DAY, {}, 500)
    assert decided[0].decision == "missed"
    assert decided[0].until == START + 30 * DAY - MINUTE
    assert len(decided) == 62, "one row for 30 days, and the last minute is on time"


def test_a_day_that_was_skipped_by_the_clock_costs_one_job() -> None:
    row = schedule(when=When(every=60.0))
    assert len(fired(after(row, START + DAY, {}, 500))) == 1
    assert after(row, START + DAY - HOUR, {}, 500) == [], "and when it is set back, none comes twice"
    assert row.next_at == START + DAY + MINUTE


def test_missed_ones_in_a_row_have_one_row() -> None:
    decided = after(schedule(when=When(every=60.0)), START + 2 * HOUR + 90 * SECOND, {}, 500)
    assert [each.decision for each in decided] == ["missed", "fired"]
    assert decided[0].until == decided[1].tick - MINUTE + 1


# ── overlap ─────────────────────────────────────────────────────────────────────────────────────────────────────────

BEFORE = START
PREDECESSORS = {
    "runs": Run(BEFORE, "processing", True),
    "waits": Run(BEFORE, "pending"),
    "will be retried": Run(BEFORE, "failed"),
    "has children": Run(BEFORE, "waiting"),
    "was cancelled but lives": Run(BEFORE, "cancelled", True),
    "was cancelled": Run(BEFORE, "cancelled"),
    "is dead": Run(BEFORE, "dead"),
    "is done": Run(BEFORE, "completed"),
    "is gone": Run(BEFORE, None),
}
ACTIVE = list(PREDECESSORS)[:5]


@pytest.mark.parametrize("overlap", OVERLAP)
@pytest.mark.parametrize("before", PREDECESSORS)
@pytest.mark.parametrize("catch_up", CATCH_UP)
def test_the_run_before_counts_while_it_or_its_processes_live(before: str, overlap: Any, catch_up: Any) -> None:
    if catch_up == "all" and overlap in ("skip", "cancel"):
        return  # refused
    run = PREDECESSORS[before]
    row = schedule(overlap=overlap, catch_up=catch_up)
    (decided,) = plan(row, START + HOUR + SECOND, [run], zone).decisions
    if before not in ACTIVE or overlap == "allow":
        assert decided == Decision(START + HOUR, "fired")
    elif overlap == "skip":
        assert (decided.decision, decided.after) == ("skipped", (BEFORE,))
    elif overlap == "queue":
        assert (decided.decision, decided.after, decided.cancels) == ("fired", (BEFORE,), ())
    else:
        assert decided.decision == "fired"
        assert decided.after == ((BEFORE,) if run.has_processes else ()), "it waits for processes, not for a row"
        assert decided.cancels == (() if run.state == "cancelled" else (BEFORE,))


def test_at_most_one_waits() -> None:
    row, runs = schedule(overlap="queue"), {BEFORE: Run(BEFORE, "processing", True)}
    assert fired(after(row, START + HOUR, runs, 500))
    (decided,) = after(row, START + 2 * HOUR, runs, 500)
    assert (decided.decision, decided.after) == ("skipped", (START + HOUR,))


def test_what_is_caught_up_stands_in_line() -> None:
    row = schedule(overlap="queue", catch_up="all", most=3)
    decided = fired(after(row, START + 5 * HOUR + 30 * MINUTE, {}, 500))
    assert [(each.tick, each.after) for each in decided] == [
        (START + 3 * HOUR, ()),
        (START + 4 * HOUR, (START + 3 * HOUR,)),
        (START + 5 * HOUR, (START + 4 * HOUR,)),
    ]


def test_a_run_by_hand_obeys_the_overlap_unless_it_is_told_otherwise() -> None:
    row, runs = schedule(), [Run(BEFORE, "processing", True)]
    assert plan_run(row, START + 5, runs).decision == "skipped"
    assert plan_run(row, START + 5, runs, "allow") == Decision(START + 5, "fired")


# ── the rest of the rules ───────────────────────────────────────────────────────────────────────────────────────────


def test_runs_that_are_dead_in_a_row_pause_it() -> None:
    row = schedule(pause_after=3)
    assert plan(row, START + HOUR, [], zone, failures=2).pause is None
    found = plan(row, START + HOUR, [], zone, failures=3)
    assert found.pause is not None
    assert [each.decision for each in found.decisions] == ["skipped"]


def test_jitter_is_a_ticks_own_and_below_its_bound() -> None:
    row = schedule(jitter_s=300.0)
    spread = [(fires_at(row, tick) or 0) - tick for tick in range(START, START + 200 * HOUR, HOUR)]
    assert 0 <= min(spread) < 30 * SECOND
    assert 270 * SECOND < max(spread) < 300 * SECOND
    assert fires_at(row, START) == fires_at(replace(row, catch_up="skip"), START)
    assert plan(row, (row.fire_at or 0) - 1, [], zone).decisions == []
    assert [each.tick for each in plan(row, row.fire_at or 0, [], zone).decisions] == [START + HOUR]


def test_an_instant_that_the_zone_does_not_name_any_more_is_left_without_a_job() -> None:
    row = schedule(when=When(cron=("30 2 * * *",), tz="Europe/Berlin"))
    assert row.next_at is not None
    real, row.next_at = row.next_at, row.next_at - HOUR
    row.fire_at = row.next_at
    found = plan(row, row.next_at, [], zone)
    assert (found.decisions, found.next_at, found.moved_from) == ([], real, real - HOUR)


def test_until_ends_it_and_from_is_where_every_is_counted_from() -> None:
    row = schedule(starts_at=START + 10 * MINUTE, ends_at=START + 2 * HOUR + 10 * MINUTE)
    ticks = [START + 10 * MINUTE + n * HOUR for n in range(3)]
    assert [
        each.tick for each in after(row, START + 2 * HOUR + 11 * MINUTE, {}, 500) if each.decision == "fired"
    ] == ticks[-1:]
    assert row.next_at is None
    assert row.fire_at is None


def test_instants_are_used_up() -> None:
    row = schedule(when=When(at=(START + 5, START + 3)), overlap="allow")
    assert [each.tick for each in after(row, START + HOUR, {}, 500)] == [START + 3, START + 5]
    assert row.next_at is None


@given(some.integers(0, 10**16), some.sampled_from([1.0, 7.0, 90.0, 0.001 * 1234, 86_400.0]))
@example(START, 3600.0)
def test_a_period_is_anchored_and_restarts_move_nothing(at: int, every: float) -> None:
    row = schedule(when=When(every=every))
    found = next_tick(row, at, zone)
    assert found is not None
    assert at < found <= at + every * SECOND
    assert found % round(every * SECOND) == 0


GOOD = Definition(name="n", when=When(every=60.0), job={"command": "true"})


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"name": ""}, "1 to 200 printable"),
        ({"name": "a/b"}, "part of an address"),
        ({"name": "a\nb"}, "printable"),
        ({"when": When()}, "one of cron, every and at, not none"),
        ({"when": When(every=5.0, at=(1,))}, "not every and at"),
        ({"when": When(every=0.5)}, "every 0.5; write a number from 1"),
        ({"when": When(every=1.00001)}, "whole milliseconds"),
        ({"when": When(cron=("* * *",))}, "needs five fields"),
        ({"when": When(cron=("* * * * *",), tz="Mars/Olympus")}, "'Mars/Olympus' is not known"),
        ({"when": When(every=60.0, tz="Europe/Berlin")}, "belongs to cron"),
        ({"catch_up": "some"}, "one, skip or all"),
        ({"overlap": "maybe"}, "skip, allow, queue or cancel"),
        ({"catch_up": "all"}, "would fire many and run one"),
        ({"catch_up": "all", "overlap": "cancel"}, "would fire many and run one"),
        ({"window_s": 5}, "window 5"),
        ({"jitter_s": -1.0}, "jitter -1.0"),
        ({"most": 0}, "most 0"),
        ({"pause_after": 0}, "pause_after_failures 0"),
        ({"ends_at": -5}, "until -5"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_in_one_line(change: dict[str, Any], wrong: str) -> None:
    check(GOOD, zone)
    with pytest.raises(InvalidInput) as refused:
        check(replace(GOOD, **change), zone)
    assert wrong in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (When(every=300.0), "every 5m"),
        (When(every=90_061.5), "every 1d1h1m1.5s"),
        (When(cron=("30 2 * * *",), tz="Europe/Berlin"), "at 02:30 every day (Europe/Berlin)"),
        (When(at=(START,)), "at 2024-10-04T00:00:00Z"),
        (When(at=tuple(range(5))), "and 2 more"),
    ],
)
def test_when_in_words(when: When, said: str) -> None:
    assert said in words(when)


def test_hints_are_given_where_they_help() -> None:
    assert hints(When(every=5.0), zone, START)
    assert not hints(When(every=60.0), zone, START)
    assert hints(When(cron=("0 */2 * * *",), tz="Europe/Berlin"), zone, START)


def test_the_digest_is_of_the_words() -> None:
    assert GOOD.digest == replace(GOOD).digest
    assert GOOD.digest != replace(GOOD, overlap="allow").digest
    assert replace(GOOD, job={"a": 1, "b": 2}).digest == replace(GOOD, job={"b": 2, "a": 1}).digest
