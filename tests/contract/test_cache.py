"""The result cache: what has been computed before is not computed again, and nobody gets what was not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from covey.core.cache_key import Parts
from covey.core.model import CacheAsk, Claim, Output, Report, Spec
from covey.core.view import Edit
from covey.engine.engine import Engine
from covey.errors import InvalidInput
from covey.testing import FakeClock
from tests.kit import HandPool, check_queue, child

HOUR = 3600.0


def parts(n: object = 1, version: str = "1") -> str:
    return Parts("t", {"version": version}, [[n], {}]).text()


def ask(n: object = 1, *, version: str = "1", refresh: bool = False, **fields: Any) -> Spec:
    """A job that is as good as any other with the same argument and version."""
    cache = CacheAsk(parts(n, version), refresh)
    return Spec(task="t", args=json.dumps([[n], {}]), cache=cache, **fields)


def put(engine: Engine, *specs: Spec) -> list[int]:
    return [each.id for spec in specs or (ask(),) for each in engine.enqueue([spec])]


def states(engine: Engine, ids: list[int]) -> list[str]:
    return [engine.job(id).state for id in ids]


def done(claim: Claim, result: str = "42", **fields: Any) -> Report:
    """What a worker says that ran what was asked for."""
    n = json.loads(claim.args or "[[1], {}]")[0][0]
    told = {"started_at": 1_000_000, "finished_at": 3_000_000, "worker": "w", "result": result, "ran": parts(n)}
    return Report(claim.id, claim.fence, "success", **(told | fields))


def run(pool: HandPool, **fields: Any) -> Claim:
    claim = pool.claim_one()
    pool.turn(done(claim, **fields))
    return claim


@pytest.fixture
def pool(engine: Engine) -> HandPool:
    return HandPool(engine)


# ── hits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_ran_before_is_completed_when_it_is_enqueued_and_needs_no_worker(engine: Engine, pool: HandPool) -> None:
    (first,) = put(engine)
    run(pool, result='{"a": [1]}')
    (hit,) = put(engine)
    job = engine.job(hit)
    assert (job.state, job.result, job.attempts, job.cached_from) == ("completed", {"a": [1]}, 0, first)
    assert pool.claim(10) == []
    check_queue(engine)


def test_a_hit_is_like_a_run_in_all_but_ids_times_and_who_ran_it(engine: Engine, pool: HandPool) -> None:
    (first,) = put(engine)
    run(pool, output=Output(b"out\n", b"err\n", 7, 8), info='{"seen": 3}', exit_code=0)
    (hit,) = put(engine)
    ours, theirs = engine.job(first), engine.job(hit)
    different = {
        *("id", "root_id", "attempts", "fence", "worker", "pool", "pool_name", "host", "cached_from"),
        *("created_at", "updated_at", "started_at", "finished_at"),
    }
    for name in set(ours.__struct_fields__) - different:
        assert getattr(ours, name) == getattr(theirs, name), name
    (one,), (other,) = engine.history(first), engine.history(hit)
    for name in ("stdout", "stderr", "stdout_dropped", "stderr_dropped", "exit_code"):
        assert getattr(one, name) == getattr(other, name), name


def test_a_record_outlives_the_job_that_made_it(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (first,) = put(engine)
    run(pool, output=Output(b"kept"))
    (hit,) = put(engine)
    clock.advance(31 * 24 * HOUR)
    for _ in range(3):
        clock.advance(31)
        pool.beat()
    assert engine.store.row(first) is None
    (late,) = put(engine)
    assert engine.job(late).cached_from == first
    assert engine.history(late)[0].stdout == "kept"
    assert hit != late


@pytest.mark.parametrize("other", [ask(2), ask(1.0), ask("1"), ask(True), ask(version="2"), ask(queue="other")])
def test_another_argument_code_or_queue_is_another_call(engine: Engine, pool: HandPool, other: Spec) -> None:
    put(engine)
    run(pool)
    (id,) = put(engine, other)
    assert engine.job(id).state == "pending"


def test_a_changed_salt_disowns_all_records(engine: Engine, pool: HandPool) -> None:
    put(engine)
    run(pool)
    engine.set_setting("cache_salt", "since the move")
    (id,) = put(engine)
    assert engine.job(id).state == "pending"
    engine.unset_setting("cache_salt")
    assert states(engine, put(engine)) == ["completed"]


def test_a_hit_needs_neither_a_free_place_nor_a_queue_that_is_not_paused(engine: Engine, pool: HandPool) -> None:
    put(engine)
    run(pool)
    engine.pause("default")
    engine.set_queue("default", concurrency=1)
    assert states(engine, put(engine)) == ["completed"]


def test_a_job_without_a_key_never_hits_and_keeps_nothing(engine: Engine, pool: HandPool) -> None:
    put(engine)
    run(pool)
    (id,) = put(engine, replace(ask(), cache=None))
    assert engine.job(id).state == "pending"
    assert pool.claim_one().cache_key is None


def test_what_may_not_start_yet_is_looked_up_when_it_is_claimed(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine)
    run(pool)
    (id,) = put(engine, ask(delay_s=60.0))
    assert engine.job(id).state == "scheduled"
    clock.advance(61)
    assert pool.claim(5) == []
    job = engine.job(id)
    assert (job.state, job.result, job.attempts) == ("completed", 42, 0)
    check_queue(engine)


def test_hits_make_room_for_the_jobs_behind_them(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine)
    run(pool)
    hits = put(engine, *[ask(delay_s=0.001)] * 8)
    (last,) = put(engine, replace(ask(9), cache=None))
    while engine.job(hits[-1]).state == "scheduled":
        engine.clock.advance(1)  # type: ignore[attr-defined]
        assert [claim.id for claim in pool.claim(2)] == [last]
    assert set(states(engine, hits)) == {"completed"}


def test_a_refresh_runs_and_its_result_is_the_new_one(engine: Engine, pool: HandPool) -> None:
    put(engine)
    run(pool, result="1")
    (again,) = put(engine, ask(refresh=True))
    assert engine.job(again).state == "pending"
    run(pool, result="2")
    (hit,) = put(engine)
    assert (engine.job(hit).result, engine.job(hit).cached_from) == (2, again)


def test_of_two_results_for_one_key_the_first_stays(engine: Engine, pool: HandPool) -> None:
    """Whoever has seen it must not see another one the next time."""
    one, other = put(engine, ask(), ask(refresh=True))
    claims = pool.claim(2)
    assert len(claims) == 2
    by_id = {claim.id: claim for claim in claims}
    pool.turn(done(by_id[one], "1"))
    (hit,) = put(engine)
    assert engine.job(hit).result == 1
    pool.turn(done(by_id[other], "2"))
    assert engine.job(put(engine)[0]).result == 2  # a refresh was asked for


def test_children_hit_and_their_parent_goes_on(engine: Engine, pool: HandPool) -> None:
    put(engine)
    run(pool)
    (parent,) = put(engine, replace(ask(7), cache=None))
    spawned = [replace(child(), spec=ask()), replace(child(), spec=ask())]
    pool.spawn(pool.claim_one(), *spawned)
    assert pool.claim(5) == []
    assert engine.job(parent).state == "completed"
    check_queue(engine)


def test_a_copy_of_a_cached_job_runs_anew_and_replaces_the_record(engine: Engine, pool: HandPool) -> None:
    """Who says `retry --again` wants it run, whatever is known."""
    put(engine)
    run(pool, result="1")
    (hit,) = put(engine)
    (change,) = engine.retry([hit], again=True)
    assert change.new_id is not None
    assert engine.job(change.new_id).state == "pending"
    run(pool, result="2")
    assert engine.job(put(engine)[0]).result == 2


def test_a_cache_that_is_too_large_loses_what_was_used_least(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    for n in (1, 2):
        put(engine, ask(n))
        run(pool, result=json.dumps("x" * 5000))
    engine.set_setting("cache_max_bytes", "8000")
    clock.advance(25 * HOUR)
    pool.beat()
    assert states(engine, put(engine, ask(1), ask(2))) == ["completed"] * 2  # nothing goes that was used of late
    clock.advance(30 * HOUR)
    put(engine, ask(2))  # used again, and known to be
    clock.advance(20 * HOUR)
    pool.beat()
    assert states(engine, put(engine, ask(1), ask(2))) == ["pending", "completed"]


def test_a_hit_writes_once_a_day_that_its_record_is_used(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine)
    run(pool)
    seen = []
    for hours in (1, 1, 23, 1):
        clock.advance(hours * HOUR)
        put(engine)
        seen.append(engine.store.raw("select used_at from {cache_records}")[0][0])
    assert len(set(seen)) == 2


def test_remove_takes_the_record_of_the_job_along(engine: Engine, pool: HandPool) -> None:
    (first,) = put(engine)
    run(pool)
    (hit,) = put(engine)
    engine.remove([hit])
    assert states(engine, put(engine)) == ["completed"]
    engine.remove([first])
    assert states(engine, put(engine)) == ["pending"]


# ── what is never kept ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", ["failure", "abort", "snooze", "taken_back", "stopped", "worker_lost"])
def test_no_other_end_of_a_run_is_kept(engine: Engine, pool: HandPool, outcome: Any) -> None:
    put(engine)
    pool.turn(replace(done(pool.claim_one()), outcome=outcome))
    (id,) = put(engine)
    assert engine.job(id).state == "pending"


def test_a_run_that_was_cancelled_or_lost_its_job_keeps_nothing(engine: Engine, pool: HandPool) -> None:
    (first,) = put(engine)
    claim = pool.claim_one()
    engine.cancel([first])
    pool.turn(done(claim))
    assert states(engine, put(engine)) == ["pending"]


def test_a_report_that_comes_too_late_keeps_nothing(engine: Engine, pool: HandPool) -> None:
    """Its job is somebody else's by now, who may be about to say something better."""
    put(engine)
    claim = pool.claim_one()
    pool.lose()
    other = HandPool(engine, name="other")
    ours = other.claim_one()
    pool = HandPool(engine, name="back")
    pool.turn(done(claim, "1"))
    assert states(engine, put(engine)) == ["pending"]
    other.turn(done(ours, "2"))
    assert engine.job(put(engine)[0]).result == 2


@pytest.mark.parametrize(
    ("ran", "why"),
    [
        (None, "did not say what ran"),
        ("nonsense", "something else than parts"),
        (parts(version="2"), 'code: version was "1", is "2"'),
        (parts(2), "ran another call"),
        (Parts("u", {"version": "1"}, [[1], {}]).text(), "ran another call"),
    ],
)
def test_a_success_is_kept_only_under_the_key_of_what_ran(
    engine: Engine, pool: HandPool, ran: str | None, why: str
) -> None:
    (first,) = put(engine)
    run(pool, ran=ran)
    job = engine.job(first)
    assert (job.state, job.result) == ("completed", 42)  # as good as any; but nobody else gets it
    assert why in engine.why(first).reason
    assert states(engine, put(engine, ask(), ask(version="2"), ask(2))) == ["pending"] * 3


def test_the_arguments_of_a_record_are_those_of_the_row(engine: Engine, pool: HandPool) -> None:
    """With parts of another call a producer could have one thing run and kept for who asks for another."""
    for lie in (
        Spec(task="t", args="[[2], {}]", cache=CacheAsk(parts(1))),
        Spec(task="u", args="[[1], {}]", cache=CacheAsk(parts(1))),
        Spec(task="t", cache=CacheAsk(parts(1))),
        Spec(task="t", args="[[1], {}]", cache=CacheAsk("nonsense")),
    ):
        with pytest.raises(InvalidInput, match="cache: these are"):
            put(engine, lie)
    assert pool.claim(5) == []


def test_a_salt_that_changes_during_the_run_keeps_its_result_back(engine: Engine, pool: HandPool) -> None:
    (first,) = put(engine)
    claim = pool.claim_one()
    engine.set_setting("cache_salt", "new")
    pool.turn(done(claim))
    assert "cache_salt" in engine.why(first).reason
    assert states(engine, put(engine)) == ["pending"]


def test_a_run_that_spawned_is_not_kept(engine: Engine, pool: HandPool) -> None:
    """A tree is a history, not a value."""
    put(engine)
    claim = pool.claim_one()
    pool.turn(done(claim, spawned=[child()], joins=False))
    pool.succeed(pool.claim_one())
    assert states(engine, put(engine)) == ["pending"]


def test_success_at_the_third_attempt_is_kept_once_and_replayed_without_attempts(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    put(engine)
    for _ in range(2):
        pool.fail(pool.claim_one())
        clock.advance(HOUR)
    run(pool)
    (hit,) = put(engine)
    assert (engine.job(hit).attempts, engine.history(hit)) == (0, [])


# ── what people ask ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_status_counts_hits_misses_and_the_time_saved(engine: Engine, pool: HandPool) -> None:
    put(engine)
    run(pool)
    put(engine, ask(), ask(), ask(2))
    run(pool)
    status = engine.cache_status()
    assert (status.records, status.hits, status.misses, status.saved_s) == (2, 2, 2, 4.0)
    assert 0 < status.bytes < status.max_bytes


def test_explain_says_what_differs_from_the_nearest_record(engine: Engine, pool: HandPool) -> None:
    (first,) = put(engine)
    run(pool)
    (other,) = put(engine, ask(2, version="1"))
    run(pool)
    (hit,) = put(engine)
    (far,) = put(engine, ask(3, version="7"))
    told = engine.explain_cache(other)
    assert (told.outcome, told.nearest, told.differences) == ("kept", first, ["arguments: argument 1 was 1, is 2"])
    told = engine.explain_cache(far)
    assert told.outcome == "open"
    assert 'code: version was "1", is "7"' in told.differences
    assert (engine.explain_cache(hit).outcome, engine.explain_cache(first).outcome) == ("hit", "kept")
    (plain,) = put(engine, replace(ask(), cache=None))
    assert engine.explain_cache(plain).outcome == "uncached"


def test_asking_changes_nothing(engine: Engine, pool: HandPool) -> None:
    (first,) = put(engine)
    run(pool)
    before = engine.store.raw("select * from {cache_records}")
    engine.cache_status()
    engine.explain_cache(first)
    assert engine.store.raw("select * from {cache_records}") == before


def test_prune_keeps_as_much_as_it_is_told(engine: Engine, pool: HandPool) -> None:
    put(engine, ask(1), ask(2))
    run(pool)
    run(pool)
    assert engine.prune_cache().records == 0
    pruned = engine.prune_cache(engine.cache_status().bytes - 1)
    assert (pruned.records, engine.cache_status().records) == (1, 1)
    assert engine.prune_cache(0).records == 1
    assert engine.cache_status().bytes == 0


# ── flights ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_many_jobs_with_one_key_one_runs_and_all_have_its_result(engine: Engine, pool: HandPool) -> None:
    ids = put(engine, *[ask()] * 20)
    pools = [pool, HandPool(engine, name="other")]
    claims = [claim for each in pools for claim in each.claim(50)]
    (claim,) = claims
    assert sorted(states(engine, ids)) == ["blocked"] * 19 + ["processing"]
    assert [engine.job(id).attempts for id in ids] == [int(id == claim.id) for id in ids]
    assert f"job {claim.id}" in engine.why(next(id for id in ids if id != claim.id)).reason
    pool.turn(done(claim))
    assert [(engine.job(id).state, engine.job(id).result) for id in ids] == [("completed", 42)] * 20
    check_queue(engine)


def followed(engine: Engine, pool: HandPool, count: int = 3) -> tuple[Claim, list[int]]:
    """A flight, and who follows it."""
    ids = put(engine, *[ask()] * (count + 1))
    claim = pool.claim_one()
    assert pool.claim(10) == []
    return claim, [id for id in ids if id != claim.id]


@pytest.mark.parametrize("outcome", ["failure", "abort", "snooze", "taken_back", "stopped", "worker_lost"])
def test_when_a_flight_ends_otherwise_one_follower_is_the_next(engine: Engine, pool: HandPool, outcome: Any) -> None:
    claim, ids = followed(engine, pool)
    pool.turn(Report(claim.id, claim.fence, outcome, error="no", after_s=HOUR))
    freed = [id for id in ids if engine.job(id).state == "pending"]
    assert len(freed) == 1
    assert engine.job(freed[0]).attempts == 0
    if outcome in ("taken_back", "stopped"):
        engine.cancel([claim.id])
    run(pool)
    assert set(states(engine, ids)) == {"completed"}
    check_queue(engine)


def test_when_the_pool_of_a_flight_is_lost_somebody_else_runs_it(engine: Engine, pool: HandPool) -> None:
    claim, ids = followed(engine, pool)
    pool.lose()
    other = HandPool(engine, name="other")
    assert len(other.claim(10)) == 1
    assert sorted(states(engine, [claim.id, *ids])).count("processing") == 1
    (held,) = [id for id in [claim.id, *ids] if engine.job(id).state == "processing"]
    row = engine.store.row(held)
    assert row is not None
    other.turn(replace(done(claim), id=row.id, fence=row.fence))
    assert set(states(engine, [claim.id, *ids])) == {"completed"}
    check_queue(engine)


def test_when_a_flight_is_cancelled_a_follower_runs(engine: Engine, pool: HandPool) -> None:
    claim, ids = followed(engine, pool)
    engine.cancel([claim.id])
    assert sorted(states(engine, ids)) == ["blocked", "blocked", "pending"]


def test_when_a_flight_goes_with_its_tree_a_follower_runs(engine: Engine, pool: HandPool) -> None:
    (root,) = put(engine, replace(ask(7), cache=None))
    pool.spawn(pool.claim_one(), replace(child(), spec=ask()))
    pool.claim_one()
    ids = put(engine, ask(), ask())
    assert pool.claim(5) == []
    engine.cancel([root])
    assert sorted(states(engine, ids)) == ["blocked", "pending"]
    check_queue(engine)


@pytest.mark.parametrize("change", ["cancel", "later", "queue"])
def test_a_follower_that_was_to_be_next_and_is_not_makes_way_for_another(
    engine: Engine, pool: HandPool, change: str
) -> None:
    claim, ids = followed(engine, pool)
    pool.turn(Report(claim.id, claim.fence, "abort", error="no"))
    (heir,) = [id for id in ids if engine.job(id).state == "pending"]
    if change == "cancel":
        engine.cancel([heir])
    else:
        engine.edit(heir, Edit(run_at=engine.clock() + 10**9) if change == "later" else Edit(queue="other"))
    assert [engine.job(id).state for id in ids if id != heir].count("pending") == 1
    check_queue(engine)


def test_followers_can_be_cancelled_and_the_flight_goes_on(engine: Engine, pool: HandPool) -> None:
    claim, ids = followed(engine, pool)
    engine.cancel(ids[:2])
    assert engine.job(claim.id).state == "processing"
    pool.turn(done(claim))
    assert states(engine, ids) == ["cancelled", "cancelled", "completed"]


def test_a_follower_whose_tree_runs_out_of_time_ends(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    put(engine)
    flight = pool.claim_one()
    (id,) = put(engine, ask(tree_timeout_s=60.0))
    assert pool.claim(1) == []
    clock.advance(61)
    pool.beat(flight)
    assert engine.job(id).state == "dead"


def test_a_success_that_is_not_kept_lets_a_follower_run(engine: Engine, pool: HandPool) -> None:
    claim, ids = followed(engine, pool)
    pool.turn(done(claim, ran=parts(version="old")))
    assert states(engine, ids).count("pending") == 1


def test_the_most_important_follower_is_the_next(engine: Engine, pool: HandPool) -> None:
    put(engine)
    claim = pool.claim_one()
    low, high = put(engine, ask(priority=1), ask(priority=5))
    assert pool.claim(5) == []
    pool.fail(claim)
    assert states(engine, [low, high]) == ["blocked", "pending"]


def test_a_refresh_neither_follows_nor_is_followed(engine: Engine, pool: HandPool) -> None:
    one, other = put(engine, ask(refresh=True), ask(refresh=True))
    assert {claim.id for claim in pool.claim(5)} == {one, other}


def test_a_follower_that_nobody_has_freed_is_freed_by_a_duty(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    """Whatever becomes of the flight: this is what somebody's bug in SQL, or a copy of the queue, would leave."""
    claim, ids = followed(engine, pool)
    engine.store.raw("update {flights} set fence = fence + 1000")
    clock.advance(61)
    pool.turn(held=[claim])
    clock.advance(61)
    pool.turn(held=[claim])
    assert states(engine, ids).count("pending") == 1


def test_an_uncle_that_follows_still_waits_for_its_root(engine: Engine, pool: HandPool) -> None:
    (root,) = put(engine, replace(ask(7), cache=None))
    put(engine)
    by_id = {claim.id: claim for claim in pool.claim(2)}
    flight = next(claim for id, claim in by_id.items() if id != root)
    (follower,) = put(engine, ask(key="uncle"))
    assert pool.claim(1) == []
    spec = ask(key="uncle")
    pool.turn(
        Report(root, by_id[root].fence, "success", spawned=[replace(child(), relation="after", spec=spec), child()]),
    )
    pool.turn(done(flight))
    assert engine.job(follower).state == "blocked"
    last = pool.claim_one()
    pool.succeed(last)
    assert pool.claim(1) == []
    assert engine.job(follower).state == "completed"
    check_queue(engine)
