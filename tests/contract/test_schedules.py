"""Schedules: put, fired by whoever takes a turn, paused, run, backfilled, removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from covey.core.schedule_views import ScheduleBody, TickView
from covey.core.view import Filter, rfc3339
from covey.engine.engine import Engine
from covey.errors import InvalidInput, NotFound, Refused
from covey.testing import FakeClock
from tests.kit import HandPool

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND


@pytest.fixture(autouse=True)
def at_noon(clock: FakeClock) -> None:
    """The clock shows a whole hour, so that ticks are easy to name."""
    clock.advance((HOUR - clock() % HOUR) / SECOND)


def put(engine: Engine, name: str = "s", **fields: Any) -> Any:
    given: dict[str, Any] = {"job": {"command": "true"}}
    if not {"cron", "at", "every"} & fields.keys():
        given["every"] = "1h"
    return engine.put_schedule(name, ScheduleBody(**given | fields))


def decisions(engine: Engine, name: str = "s") -> list[str]:
    """Oldest first."""
    return [tick.decision for tick in reversed(engine.ticks(name))]


def jobs(engine: Engine) -> list[Any]:
    return list(reversed(engine.jobs(Filter(limit=100)).jobs))


def turn_until_decided(pool: HandPool, **fields: Any) -> list[Any]:
    """As a pool does it: while something is due, the next turn comes at once."""
    reply = pool.turn(**fields)
    claims = list(reply.claims)
    while reply.next_due_at is not None and reply.next_due_at <= reply.now:
        reply = pool.turn(**fields)
        claims += reply.claims
    return claims


# ── defined and fired ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tick_has_its_job_in_the_first_turn_after_it_and_no_other_turn(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    view = put(engine, cron="*/10 * * * *", tz="Europe/Berlin")
    assert (view.state, view.when, view.version) == ("active", "every 10 minutes (Europe/Berlin)", 1)
    reply = pool.turn(want=1)
    assert (reply.claims, reply.next_due_at) == ([], clock() + 10 * MINUTE)
    clock.advance(600)
    (claim,) = pool.claim(1)
    assert pool.turn(want=5).claims == []
    (tick,) = engine.ticks("s")
    assert (tick.decision, tick.job, tick.tick) == ("fired", claim.id, rfc3339(clock()))
    shown = engine.schedule("s")
    assert shown.last is not None
    assert (shown.last.job, shown.last.state) == (claim.id, "processing")


def test_a_command_and_a_function_are_told_which_tick_it_is(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine, "c", cron="0 * * * *", tz="Asia/Kolkata", job={"command": "true", "env": {"A": "b"}})
    put(engine, "f", job={"task": "m.f", "args": {"x": 1}})
    clock.advance(3600)
    claims = {claim.task: json.loads(claim.args or "") for claim in turn_until_decided(pool, want=5)}
    tick = datetime.fromtimestamp(clock() / SECOND, UTC)
    assert claims["m.f"][:2] == [[], {"x": 1}]
    assert claims["m.f"][2] == {"schedule": "f", "tick": clock(), "previous_tick": None, "previous_success": None}
    told = claims["shell"]["env"]
    assert told["A"] == "b"
    assert told["COVEY_SCHEDULE"] == "c"
    half_past = tick - timedelta(minutes=30)  # a whole hour there
    assert told["COVEY_TICK"] == half_past.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    local = datetime.fromisoformat(told["COVEY_TICK_LOCAL"])
    assert local == half_past
    assert local.minute == 0


def test_a_pool_of_other_queues_fires_too(engine: Engine, clock: FakeClock) -> None:
    put(engine, job={"command": "true", "queue": "far"})
    clock.advance(3600)
    HandPool(engine, queues=("near",)).turn(want=1)
    (job,) = jobs(engine)
    assert (job.queue, job.state) == ("far", "pending")


def test_the_same_again_changes_nothing_and_another_definition_counts_from_now(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    first = put(engine)
    clock.advance(1800)
    assert put(engine).next == first.next
    assert put(engine).version == 1
    edited = put(engine, starts=rfc3339(clock() + 50 * MINUTE))
    assert edited.version == 2
    clock.advance(1800)
    turn_until_decided(pool)
    assert jobs(engine) == [], "the old definition would have fired now"
    clock.advance(1200)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 1


def test_who_edits_what_somebody_else_has_changed_is_told(engine: Engine) -> None:
    put(engine, version=0)
    with pytest.raises(Refused, match="there is a schedule 's' already, version 1"):
        put(engine, every="5m", version=0)
    put(engine, every="5m", version=1)
    with pytest.raises(Refused, match="version 2"):
        put(engine, every="9m", version=1)
    with pytest.raises(Refused, match="not there any more"):
        put(engine, "other", version=3)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"cron": "* * *"}, "needs five fields"),
        ({"every": "5 parsecs"}, "every '5 parsecs'"),
        ({"every": "1h", "at": ["2031-05-01T09:00:00Z"]}, "one of cron, every and at"),
        ({"at": ["2031-05-01T09:00:00"]}, "has no zone"),
        ({"cron": "* * * * *", "tz": "Mars/Olympus"}, "'Mars/Olympus' is not known"),
        ({"catch_up": "all"}, "would fire many and run one"),
        ({"catch_up": "all:x"}, "all or all:50"),
        ({"job": {"command": ""}}, "the command is empty"),
        ({"job": {"comand": "x"}}, "unknown field 'comand'"),
        ({"job": {"command": "x", "key": "k"}}, "cannot have 'key'"),
        ({"job": {"command": "x", "run_at": "2031-05-01T09:00:00Z"}}, "cannot have 'run_at'"),
        ({"job": {}}, "one of command, argv and task"),
    ],
)
def test_nonsense_is_refused_in_one_line_and_leaves_nothing(engine: Engine, fields: Any, wrong: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        put(engine, **fields)
    assert wrong in str(refused.value)
    assert "\n" not in str(refused.value)
    assert engine.schedules() == []


# ── missed, and overlap ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("catch_up", "overlap", "expected"),
    [
        ("one", "skip", ["missed", "fired"]),
        ("skip", "skip", ["missed"]),
        ("all:3", "allow", ["missed", "fired", "fired", "fired"]),
        ("all:3", "queue", ["missed", "fired", "fired", "fired"]),
    ],
)
def test_after_five_and_a_half_hours_without_anybody(
    engine: Engine, pool: HandPool, clock: FakeClock, catch_up: str, overlap: str, expected: list[str]
) -> None:
    put(engine, catch_up=catch_up, overlap=overlap)
    clock.advance(5.5 * 3600)
    claims = turn_until_decided(pool, want=9)
    assert decisions(engine) == expected
    waits = overlap == "queue"
    assert len(claims) == (1 if waits else expected.count("fired"))
    assert [job.state for job in jobs(engine)].count("blocked") == (2 if waits else 0)
    done = list(claims)
    while waits and claims:
        pool.succeed(claims[0])
        claims = pool.claim(9)
        done += claims
    assert len(done) == expected.count("fired")
    assert [claim.id for claim in done] == sorted(claim.id for claim in done)


def predecessor(engine: Engine, pool: HandPool, clock: FakeClock, how: str) -> Any:
    """The job of the first tick, in that state when the second one comes."""
    clock.advance(3600)
    (claim,) = turn_until_decided(pool, want=1)
    if how == "failed":
        pool.fail(claim)
    elif how == "lost":
        pool.lose()
    elif how == "cancelled but alive":
        engine.cancel([claim.id])
    elif how == "done":
        pool.succeed(claim)
    return claim


@pytest.mark.parametrize("overlap", ["skip", "allow", "queue", "cancel"])
@pytest.mark.parametrize("catch_up", ["one", "skip"])
@pytest.mark.parametrize("how", ["runs", "failed", "lost", "cancelled but alive", "done"])
def test_a_tick_meets_its_predecessor(engine: Engine, clock: FakeClock, overlap: str, catch_up: str, how: str) -> None:
    pool = HandPool(engine)
    put(engine, overlap=overlap, catch_up=catch_up, job={"command": "true", "max_attempts": 5})
    before = predecessor(engine, pool, clock, how)
    clock.advance(3600)
    other = HandPool(engine)
    claims = turn_until_decided(other, want=9)
    ids = [job.id for job in jobs(engine)]
    fresh = [id for id in ids if id != before.id]
    if overlap == "skip" and how != "done":
        assert decisions(engine) == ["fired", "skipped"]
        assert f"job {before.id}" in (engine.ticks("s")[0].note or "")
        assert fresh == []
        return
    (new,) = fresh
    assert decisions(engine) == ["fired", "fired"]
    state = engine.job(new).state
    if overlap == "allow" or how == "done":
        assert new in [claim.id for claim in claims]
        return
    if overlap == "queue":
        assert state == "blocked"
    else:
        assert engine.job(before.id).state == "cancelled"
        # What runs, or is being stopped, has processes: they never meet those of the next one.
        assert state == ("blocked" if how in ("runs", "cancelled but alive") else "processing")
    if how in ("runs", "cancelled but alive"):
        assert new not in [claim.id for claim in claims]
        if overlap == "cancel" or how == "cancelled but alive":
            pool.report(before, "gone")
        else:
            pool.succeed(before)
        assert engine.job(new).state == "pending"


def test_at_most_one_waits_and_the_next_tick_says_who_is_in_the_way(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine, overlap="queue")
    for _ in range(4):
        clock.advance(3600)
        turn_until_decided(pool, want=1)
    assert decisions(engine) == ["fired", "fired", "skipped", "skipped"]
    assert engine.schedule("s").skipped == 2
    waiting = next(job for job in jobs(engine) if job.state == "blocked")
    assert f"job {waiting.id}" in (engine.ticks("s")[0].note or "")


def test_a_clock_that_jumps_costs_at_most_one_job_and_no_tick_comes_twice(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine, every="1m", overlap="allow")
    clock.advance(86_400)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 1
    clock.advance(-3600)
    turn_until_decided(pool)
    put(engine, every="30s", overlap="allow")  # counted from now, and from the last tick that was decided
    clock.advance(3000)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 1
    clock.advance(600 + 60)
    turn_until_decided(pool)
    ticks = [tick.tick for tick in engine.ticks("s", 100)]
    assert len(ticks) == len(set(ticks))
    assert len(jobs(engine)) > 1


def test_three_days_frozen_are_one_job(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine, cron="30 2 * * *", tz="America/New_York")
    clock.advance(3 * 86_400)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 1


# ── what ends a schedule, or holds it ───────────────────────────────────────────────────────────────────────────────


def test_instants_are_used_up_and_the_schedule_stays(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    at = [rfc3339(clock() + HOUR) or "", rfc3339(clock() + 2 * HOUR) or ""]
    put(engine, at=at)
    for _ in range(4):
        clock.advance(3600)
        for claim in turn_until_decided(pool, want=1):
            pool.succeed(claim)
    view = engine.schedule("s")
    assert (view.state, view.next, len(jobs(engine))) == ("done", None, 2)
    assert view.at == at


def test_from_and_until_bound_it(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine, starts=rfc3339(clock() + 90 * MINUTE), until=rfc3339(clock() + 3 * HOUR), overlap="allow")
    for _ in range(6):
        clock.advance(3600)
        turn_until_decided(pool)
    assert len(jobs(engine)) == 2
    assert engine.schedule("s").state == "done"


def test_a_pause_says_who_why_and_until_when_and_its_ticks_are_not_missed(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine)
    paused = engine.pause_schedule("s", reason="migration", by="ada")
    assert paused.state == "paused"
    assert (paused.paused.by, paused.paused.reason, paused.paused.until) == ("ada", "migration", None)  # type: ignore[union-attr]
    clock.advance(5 * 3600)
    turn_until_decided(pool)
    assert jobs(engine) == []
    engine.resume_schedule("s")
    turn_until_decided(pool)
    assert jobs(engine) == []
    (row,) = engine.ticks("s")
    assert (row.decision, row.note) == ("skipped", "paused")
    clock.advance(3600)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 1


def test_a_pause_with_an_end_is_over_by_itself(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine)
    engine.pause_schedule("s", for_s=9000)
    for _ in range(2):
        clock.advance(3600)
        turn_until_decided(pool)
    assert jobs(engine) == []
    clock.advance(3600)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 1
    assert engine.schedule("s").state == "active"
    assert decisions(engine) == ["skipped", "fired"]


def test_who_resumes_may_have_the_ticks_of_the_pause_caught_up(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine, catch_up="all:10", overlap="allow")
    engine.pause_schedule("s")
    clock.advance(3.5 * 3600)
    engine.resume_schedule("s", catch_up=True)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 3


def test_runs_that_are_dead_in_a_row_pause_it_and_it_says_so(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine, pause_after_failures=2, job={"command": "false", "max_attempts": 1})
    for _ in range(4):
        clock.advance(3600)
        for claim in turn_until_decided(pool, want=1):
            pool.fail(claim)
    view = engine.schedule("s")
    assert view.state == "paused"
    assert "2 runs in a row were dead" in view.paused.reason  # type: ignore[union-attr, operator]
    assert len(jobs(engine)) == 2


def test_a_job_that_may_not_be_is_a_row_that_says_why_and_the_next_tick_goes_on(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine, overlap="allow", job={"command": "true", "unique_key": "only"})
    for _ in range(2):
        clock.advance(3600)
        turn_until_decided(pool)
    assert decisions(engine) == ["fired", "refused"]
    assert "taken by job" in (engine.ticks("s")[0].note or "")
    (claim,) = pool.claim(1)
    pool.succeed(claim)
    clock.advance(3600)
    turn_until_decided(pool)
    assert decisions(engine)[-1] == "fired"


# ── by hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_by_hand_is_no_tick_and_moves_nothing(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    before = put(engine).next
    ran = engine.run_schedule("s")
    assert ran.decision == "manual"
    assert engine.job(ran.job or 0).state == "pending"
    assert engine.schedule("s").next == before
    with pytest.raises(Refused, match=f"job {ran.job}"):
        engine.run_schedule("s")
    again = engine.run_schedule("s", overlap="allow")
    assert again.job != ran.job
    behind = engine.run_schedule("s", overlap="queue")
    assert engine.job(behind.job or 0).state == "blocked"


def test_a_backfill_gives_every_tick_of_a_span_one_job_however_often_it_is_asked(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    start = clock()
    put(engine)
    clock.advance(6.5 * 3600)
    turn_until_decided(pool)
    assert decisions(engine) == ["missed", "fired"]
    span = (rfc3339(start + 3 * HOUR) or "", rfc3339(start + 6 * HOUR) or "")
    planned = engine.backfill_schedule("s", *span, dry_run=True)
    assert [tick.decision for tick in planned] == ["due", "due", "due", "fired"]
    assert len(jobs(engine)) == 1
    for _ in range(2):
        done = engine.backfill_schedule("s", *span)
        assert [tick.decision for tick in done] == ["fired"] * 4
        assert len(jobs(engine)) == 4
    engine.backfill_schedule("s", rfc3339(start + HOUR) or "", span[1])  # the row of all missed ones begins there
    assert len(jobs(engine)) == 6
    ticks = [tick.tick for tick in engine.ticks("s", 100)]
    assert len(ticks) == len(set(ticks)) == 6
    with pytest.raises(Refused, match="more than 2 ticks"):
        engine.backfill_schedule("s", *span, limit=2)


def test_a_backfill_never_takes_what_is_still_to_come(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    start = clock()
    put(engine, overlap="allow")
    clock.advance(3600)
    assert engine.backfill_schedule("s", rfc3339(start) or "", rfc3339(clock() + DAY) or "") != []
    turn_until_decided(pool)
    ticks = [tick.tick for tick in engine.ticks("s", 100)]
    assert len(ticks) == len(set(ticks))
    assert len(jobs(engine)) == len(ticks)


def test_what_is_removed_is_gone_with_its_ticks_and_its_jobs_stay(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine)
    clock.advance(3600)
    turn_until_decided(pool)
    assert engine.remove_schedule("s") == 0
    assert [job.state for job in jobs(engine)] == ["pending"]
    for verb in (engine.schedule, engine.ticks, engine.next_ticks, engine.run_schedule, engine.remove_schedule):
        with pytest.raises(NotFound, match="no schedule 's'"):
            verb("s")
    clock.advance(3600)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 1


def test_what_is_removed_may_take_its_jobs_along(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine, overlap="allow")
    for _ in range(3):
        clock.advance(3600)
        turn_until_decided(pool)
    assert engine.remove_schedule("s", cancel_jobs=True) == 3
    assert {job.state for job in jobs(engine)} == {"cancelled"}


def test_the_next_ticks_can_be_looked_at(engine: Engine, clock: FakeClock) -> None:
    put(engine, cron="30 2 * * *", tz="Europe/Berlin")
    found = engine.next_ticks("s", 3)
    assert len(found) == 3
    assert all("T02:30:00" in each.local for each in found)
    assert [each.tick for each in found] == sorted(each.tick for each in found)
    assert found[0].tick == engine.schedule("s").next


def test_all_are_listed_by_name(engine: Engine) -> None:
    for name in ("b", "a", "c d"):
        put(engine, name)
    assert [view.name for view in engine.schedules()] == ["a", "b", "c d"]


# ── one that cannot be decided ──────────────────────────────────────────────────────────────────────────────────────


def test_a_broken_schedule_hinders_nobody_and_is_paused_in_the_end(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine, "broken")
    put(engine, "sound", overlap="allow")
    with engine.store.transaction():
        engine.store.raw("update {schedules} set spec = '{\"cron\": 7}' where name = 'broken'")
    clock.advance(3600)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 1
    for _ in range(4):
        clock.advance(600)
        turn_until_decided(pool)
    paused = engine.store.raw("select pause_note from {schedules} where name = 'broken'")[0][0]
    assert "3 times in a row" in paused
    clock.advance(3600)
    turn_until_decided(pool)
    assert len(jobs(engine)) == 2


def test_events_tell_what_was_left_out(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine)
    clock.advance(5.5 * 3600)
    turn_until_decided(pool)
    clock.advance(3600)
    turn_until_decided(pool)
    told = {event.kind: event.text or "" for event in engine.events()}
    assert "s: tick" in told["schedule_missed"]
    assert "the run before is still active: job" in told["schedule_skipped"]
    assert told["schedule_added"] == "s"


def test_views_are_the_same_for_everybody_who_looks(connect: Callable[[], Engine], clock: FakeClock) -> None:
    one, other = connect(), connect()
    put(one, jitter="5m", until="2099-01-01T00:00:00Z")
    assert one.schedule("s") == other.schedule("s")
    view = other.schedule("s")
    assert (view.jitter, view.until) == (300.0, "2099-01-01T00:00:00.000Z")
    assert view.fires is not None
    assert view.next is not None
    assert view.fires >= view.next
    assert isinstance(other.run_schedule("s"), TickView)


def test_status_names_what_is_ill(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine, "long")
    put(engine, "poor", pause_after_failures=1, job={"command": "false", "max_attempts": 1})
    for _ in range(4):
        clock.advance(3600)
        for claim in turn_until_decided(pool, want=2):
            if "poor" in (claim.args or ""):
                pool.fail(claim)
    notes = " ".join(finding.text for finding in engine.status().findings)
    assert "schedule poor is paused: 1 runs in a row were dead" in notes
    assert "schedule long has skipped 3 ticks in a row" in notes
