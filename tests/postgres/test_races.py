"""Writers that meet in the same rows: A5, A8, A20, A21, A22. Each through a connection of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

import pytest

from covey.core.model import Claim, Output, RunOutcome
from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import Duplicate, InvalidInput, Refused
from covey.store.ready import Lane
from tests.kit import HandPool, check_queue, child, command
from tests.kit.checker import every_job
from tests.kit.faults import Child
from tests.kit.hand_pool import report

from ..store import programs
from .meeting import fine, together, waits_for_a_lock

T = TypeVar("T")
Open = Callable[..., Engine]
Proof = Callable[[int, int], int]


# ── claims ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_many_processes_claim_each_job_exactly_once(engine: Engine, url: str, proof: Proof) -> None:
    ids = [made.id for made in engine.enqueue([command() for _ in range(proof(1500, 10_000))])]
    workers = [Child(programs.WORKER, url, 7) for _ in range(proof(6, 16))]
    try:
        for worker in workers:
            assert worker.line() == "ready"
        for worker in workers:
            worker.say("go")
        shares = [[int(word) for word in worker.line().split()] for worker in workers]
        assert [worker.end()[0] for worker in workers] == [0] * len(workers)
    finally:
        for worker in workers:
            worker.__exit__()
    assert Counter(id for share in shares for id in share) == Counter(ids)
    assert engine.status().counts["completed"] == len(ids)
    assert min(map(len, shares)) > 0  # nobody stands idle while there is work
    assert {job.attempts for job in every_job(engine)} == {1}


def test_what_comes_to_the_front_between_two_looks_at_a_lane_makes_no_job_be_claimed_twice(
    engine: Engine, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows move on by one, so the second look begins with a job that the first has given."""
    ids = [made.id for made in engine.enqueue([command(queue="a") for _ in range(40)] + [command(queue="b")])]
    look, other, came = engine.store._pending, opened(), list[int]()

    def pending(lane: Lane, limit: int, suffix: str) -> Any:
        if not came:
            came.extend(made.id for made in other.enqueue([command(queue="a", priority=5)]))
        return look(lane, limit, suffix)

    monkeypatch.setattr(engine.store, "_pending", pending)
    claims = HandPool(engine).claim(30, places={"command": 30})
    assert came, "one look was enough: nothing is shown"
    assert Counter(claim.id for claim in claims) == Counter(ids[:29] + came)


def test_claims_pass_over_what_another_transaction_is_about_to_claim(engine: Engine, opened: Open) -> None:
    ids = [made.id for made in engine.enqueue([command() for _ in range(6)])]
    first, second = HandPool(opened(), name="first"), HandPool(opened(), name="second")
    store = first.source.store  # type: ignore[attr-defined]
    with store.transaction():
        locked = [row[0] for row in store.raw("select id from {jobs} order by id limit 3 for no key update")]
        assert [claim.id for claim in second.claim(6)] == ids[3:]  # at once: it does not wait for us
    assert locked == [claim.id for claim in first.claim(6)] == ids[:3]


# ── reaper and report ───────────────────────────────────────────────────────────────────────────────────────────────


def a_claim(engine: Engine) -> tuple[HandPool, Claim, int]:
    (made,) = engine.enqueue([command()])
    pool = HandPool(engine)
    return pool, pool.claim_one(), made.id


def beat_of(engine: Engine, pool: HandPool) -> int:
    return next(each.beat for each in engine.pools() if each.id == pool.id)


def test_what_succeeded_after_the_reaper_looked_stays_succeeded(engine: Engine, opened: Open, proof: Proof) -> None:
    """The reaper has looked; then, in every order, the pool completes or is reaped."""
    reaper, dice = opened(), Random(8)
    for _ in range(proof(50, 1000)):
        pool, claim, id = a_claim(engine)
        beat = beat_of(reaper, pool)
        done = False
        for step in dice.sample(["complete", "reap", "reap"], 3):
            if step == "complete":
                done = not pool.succeed(claim).lost
            else:
                reaper.reap(pool.id, beat)
        job = engine.job(id)
        assert (job.state, job.interruptions) == (("completed", 0) if done else ("pending", 1))
        if done:
            engine.leave(pool.id)
            continue
        other = HandPool(engine)  # claimed anew in between: the old beat reaps nothing of the new claim
        again = other.claim_one()
        assert reaper.reap(pool.id, beat) == 0
        other.succeed(again)
        assert engine.job(id).state == "completed"
        engine.leave(other.id)


def test_reaper_and_report_at_the_same_moment_end_one_way(engine: Engine, opened: Open, proof: Proof) -> None:
    reaper, ways = opened(), Counter[str]()
    for _ in range(proof(50, 1000)):
        pool, claim, id = a_claim(engine)
        beat = beat_of(reaper, pool)
        reply, reaped = fine(together(lambda: pool.succeed(claim), lambda: reaper.reap(pool.id, beat)))  # noqa: B023
        job = engine.job(id)
        ways[job.state] += 1
        if reply.lost:
            assert (reaped, job.state, job.interruptions) == (1, "pending", 1)
            engine.remove([id], force=True)
        else:
            assert (reaped, job.state, job.interruptions) == (0, "completed", 0)
            engine.leave(pool.id)
    assert not engine.jobs(Filter(states=("processing", "pending"))).jobs


def test_a_report_that_comes_between_the_reapers_look_and_its_write_wins_or_waits(
    engine: Engine, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constructed: the reaper has read the pool's beat inside its transaction, then the report arrives."""
    pool, claim, id = a_claim(opened())
    reaper = opened()
    beat = beat_of(reaper, pool)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(pool.succeed(claim)))
    read = reaper.store.rows

    def rows(ids: Sequence[int]) -> Any:
        thread.start()
        waits_for_a_lock(engine)
        return read(ids)

    monkeypatch.setattr(reaper.store, "rows", rows)
    assert reaper.reap(pool.id, beat) == 1
    thread.join()
    assert answers[0].lost  # the report came second, and says so
    job = engine.job(id)
    assert (job.state, job.interruptions, job.fence) == ("pending", 1, 2)


@pytest.mark.parametrize("outcome", ["success", "failure"])
def test_a_cancel_and_a_report_at_the_same_moment_both_tell_the_truth(
    engine: Engine, opened: Open, proof: Proof, outcome: RunOutcome
) -> None:
    pool, person = HandPool(opened()), opened()
    ways = Counter[str]()
    for _ in range(proof(40, 500)):
        (made,) = engine.enqueue([command(max_attempts=5)])
        claim = pool.claim_one()
        output = Output(b"said", b"", 0, 0)  # not the short way of plain successes
        reply, cancelled = together(
            lambda: pool.report(claim, outcome, error="boom", output=output),  # noqa: B023
            lambda: person.cancel([made.id]),  # noqa: B023
        )
        fine([reply])
        if isinstance(cancelled, Refused):
            assert engine.job(made.id).state == "completed"
        else:
            (change,) = fine([cancelled])[0]
            assert engine.job(made.id).state == "cancelled"
            ways[change.was] += 1
            continue
        ways["refused"] += 1
    for held in pool.turn().cancels:
        pool.report(held, "gone")
    assert len(ways) > 1, ways
    assert check_queue(engine) == []


# ── keys and bulks ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_many_enqueues_with_the_same_key_one_is_made_and_the_others_name_it(
    engine: Engine, opened: Open, proof: Proof
) -> None:
    clients = [opened() for _ in range(proof(30, 100))]
    for key in ("a", "b", "c"):
        answers = together(*(lambda c=c, k=key: c.enqueue([command(key=k)])[0].id for c in clients))
        (id,) = [answer for answer in answers if isinstance(answer, int)]
        refusals = [answer for answer in answers if not isinstance(answer, int)]
        assert {type(each) for each in refusals} == {Duplicate}, refusals[0]
        assert {each.job_id for each in refusals} == {id}
        assert all(f"job {id}" in str(each) for each in refusals)
    assert len(engine.jobs(Filter(limit=100)).jobs) == 3


def test_with_return_all_get_the_same_id_also_after_it_ended(engine: Engine, opened: Open, proof: Proof) -> None:
    clients = [opened() for _ in range(proof(30, 100))]

    def ask() -> set[int]:
        spec = command(key="once", if_exists="return")
        return set(fine(together(*(lambda c=c: c.enqueue([spec])[0].id for c in clients))))

    (id,) = ask()
    pool = HandPool(engine)
    pool.succeed(pool.claim_one())
    assert engine.job(id).state == "completed"
    assert ask() == {id}
    answers = together(*(lambda c=c: c.enqueue([command(key="once")]) for c in clients[:5]))
    assert {(type(each), each.job_id) for each in answers} == {(Duplicate, id)}
    assert len(engine.jobs(Filter(limit=100)).jobs) == 1


def test_a_unique_key_is_free_again_once_its_job_runs(engine: Engine, opened: Open) -> None:
    clients = [opened() for _ in range(8)]
    spec = command(unique_key="one", if_exists="return")
    pool = HandPool(engine)
    for number in range(1, 6):
        (id,) = set(fine(together(*(lambda c=c: c.enqueue([spec])[0].id for c in clients))))
        assert pool.claim_one().id == id
        assert len(engine.jobs(Filter(limit=100)).jobs) == number


@pytest.mark.parametrize("bad", [0, 5_000, 9_999])
def test_a_bulk_of_ten_thousand_with_one_bad_one_inserts_nothing(engine: Engine, bad: int) -> None:
    (taken,) = engine.enqueue([command(key="taken")])
    specs = [command() for _ in range(10_000)]
    for spoiled, error in ((command(key="taken"), Duplicate), (command(priority=1 << 70), InvalidInput)):
        with pytest.raises(error):
            engine.enqueue([*specs[:bad], spoiled, *specs[bad + 1 :]])
        assert [job.id for job in engine.jobs(Filter(limit=10)).jobs] == [taken.id]


def test_a_bulk_that_meets_a_key_at_the_last_moment_inserts_nothing(engine: Engine, opened: Open) -> None:
    """The key is taken by a transaction that commits after our look: the server finds it."""
    other, bulk = opened(), [*(command() for _ in range(100)), command(key="late")]
    with other.store.transaction():
        other.store.insert([(command(key="late"), None)], other.clock())
        other.store.raw("select 1")  # what only writes travels with the next question
        answers: list[Any] = []

        def enqueue() -> None:
            try:
                answers.append(engine.enqueue(bulk))
            except Duplicate as error:
                answers.append(error)

        thread = threading.Thread(target=enqueue)
        thread.start()
        waits_for_a_lock(other)
    thread.join()
    assert isinstance(answers[0], Duplicate)
    assert len(list(every_job(engine))) == 1


# ── opposite orders ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_bulk_changes_in_opposite_orders_never_surface_a_deadlock(engine: Engine, opened: Open, proof: Proof) -> None:
    ids = [made.id for made in engine.enqueue([command(f"echo {n}", max_attempts=1000) for n in range(60)])]
    roots = [made.id for made in engine.enqueue([command("root", max_attempts=1000) for _ in range(10)])]
    deadline = time.monotonic() + proof(3, 30)
    done = Counter[str]()

    def change(verb: str, seed: int) -> Callable[[], None]:
        client, dice = opened(), Random(seed)

        def work() -> None:
            while time.monotonic() < deadline:
                some = dice.sample(ids + roots, dice.choice((2, 10, 40)))  # in an order of its own
                if dice.random() < 0.5:
                    some.sort(reverse=dice.random() < 0.5)
                with contextlib.suppress(Refused):
                    getattr(client, verb)(some)
                    done[verb] += 1
                    continue
                for id in some:  # one that may not: then each by itself
                    with contextlib.suppress(Refused):
                        getattr(client, verb)([id])
                        done[verb] += 1

        return work

    def run(seed: int) -> Callable[[], None]:
        pool, dice = HandPool(opened(), name=f"pool-{seed}"), Random(seed)
        mine: dict[int, Claim] = {}

        def work() -> None:
            while time.monotonic() < deadline or mine:
                some = dice.sample(list(mine.values()), dice.randrange(len(mine) + 1))
                spawned = [child("leaf", max_attempts=1000)] * 2
                reports = [
                    report(claim, "success", spawned=spawned)
                    if claim.id in roots and dice.random() < 0.3
                    else report(claim, dice.choice(("success", "failure")), error="x")
                    for claim in some
                ]
                reply = pool.turn(*reports, want=0 if time.monotonic() >= deadline else 20, held=None)
                done["claims"] += len(reply.claims)
                for claim in some:
                    mine.pop(claim.id, None)
                mine.update((claim.id, claim) for claim in reply.claims)
                gone = [report(held, "gone") for held in reply.cancels]
                if gone:
                    pool.turn(*gone)
                    for each in gone:
                        if each.id in mine and mine[each.id].fence <= each.fence:
                            del mine[each.id]

        return work

    works = [change("cancel", 1), change("cancel", 2), change("retry", 3), change("retry", 4), *map(run, range(5, 9))]
    fine(together(*works))
    assert min(done[verb] for verb in ("cancel", "retry", "claims")) > 0, done
    counts = engine.status().counts
    assert sum(counts.values()) == len(list(every_job(engine)))
    assert counts["processing"] == 0
    assert check_queue(engine, acknowledged=ids + roots) == []


# ── what one turn sees of another ───────────────────────────────────────────────────────────────────────────────────


def test_a_tree_whose_job_is_claimed_as_its_time_runs_out_does_not_fail_the_turn(
    engine: Engine, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim began a moment earlier, and its run has the time that was left."""
    other = opened()
    late, early = HandPool(engine, name="late"), HandPool(other, name="early")
    began = other.clock()
    monkeypatch.setattr(other, "clock", lambda: began)
    (made,) = engine.enqueue([command(tree_timeout_s=0.05)])
    time.sleep(0.1)
    lock, taken = engine.store.lock_trees, list[Claim]()

    def claimed_first(ids: Sequence[int]) -> None:
        taken.extend(early.claim(1))
        lock(ids)

    monkeypatch.setattr(engine.store, "lock_trees", claimed_first)
    assert late.turn(held=[]).claims == []
    assert [claim.id for claim in taken] == [made.id]
    assert engine.job(made.id).state == "processing"


def test_a_join_that_becomes_ours_while_a_turn_looks_keeps_it_from_being_drained(
    engine: Engine, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made,) = engine.enqueue([command(queue="ours")])
    ours, theirs = HandPool(engine, queues=("ours",)), HandPool(opened(), queues=("theirs",))
    ours.spawn(ours.claim_one(), child(queue="theirs"), joins=True)
    running = theirs.claim_one()
    value, asked = engine.store.value, list[str]()

    def ended_in_between(statement: str, /, **params: Any) -> Any:
        if statement.startswith("undrained"):
            asked.append(statement)
            if len(asked) == 2:
                theirs.succeed(running)
        return value(statement, **params)

    monkeypatch.setattr(engine.store, "value", ended_in_between)
    first = ours.turn(draining=True, held=[])
    assert not first.drained
    monkeypatch.undo()
    if running.id not in {job.id for job in every_job(engine) if job.state == "completed"}:
        theirs.succeed(running)
    assert ours.claim_one().id == made.id
