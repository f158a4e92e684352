"""A COMMIT whose answer is lost: whoever asked hears the truth, and nothing is lost, doubled or stranded."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from covey.core.model import Claim, Report
from covey.core.view import Edit
from covey.engine.engine import Engine
from covey.errors import Unknown
from covey.store.postgres import database
from covey.testing import until
from tests.kit import HandPool, check_queue, child, command
from tests.kit.checker import every_job
from tests.kit.hand_pool import report
from tests.kit.proxy import How, Proxy

HOWS: list[How] = ["before", "after"]


def lines(engine: Engine) -> Counter[str]:
    """How often each command is in the queue."""
    return Counter(json.loads(args)["command"] for (args,) in engine.store.raw("select args from {payloads}"))


@pytest.mark.parametrize("how", HOWS)
def test_an_enqueue_without_a_key_is_in_the_queue_exactly_once(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], how: How, proof: Callable[[int, int], int]
) -> None:
    client, acknowledged = opened(proxy.url), []
    for number in range(proof(20, 100)):
        proxy.break_next(how)
        acknowledged += [each.id for each in client.enqueue([command(f"echo {number}") for _ in range(3)])]
    assert proxy.struck[how] == proof(20, 100)
    assert lines(engine) == Counter({f"echo {number}": 3 for number in range(proof(20, 100))})
    assert [job.id for job in every_job(engine)] == sorted(acknowledged, reverse=True)
    assert check_queue(engine, acknowledged=acknowledged) == []


@pytest.mark.parametrize("how", HOWS)
def test_a_bulk_by_copy_is_in_the_queue_exactly_once(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], how: How
) -> None:
    client = opened(proxy.url)
    for number in range(5):
        proxy.break_next(how)
        client.enqueue([command(f"echo {number}") for _ in range(100)])
    assert lines(engine) == Counter({f"echo {number}": 100 for number in range(5)})


class Persistent:
    """A pool as the store thread of a real one is: after an unknown turn the next one says everything again."""

    def __init__(self, engine: Engine) -> None:
        self.pool = HandPool(engine)
        self.held: dict[int, Claim] = {}
        self.ran: Counter[int] = Counter()
        self.unknown = 0

    def turn(self, want: int) -> list[Claim]:
        """What it held is reported, new jobs are claimed, whatever happens to the connection."""
        reports: list[Report] = [report(claim, "success") for claim in self.held.values()]
        sure = False
        while not sure:
            try:
                reply = self.pool.turn(*reports, want=want, held=[] if self.unknown else None)
                sure = True
            except Unknown:
                self.unknown += 1
        assert not reply.refused
        self.held = {claim.id: claim for claim in reply.claims}
        self.ran.update(list(self.held))
        return reply.claims


@pytest.mark.parametrize("how", HOWS)
def test_claims_and_reports_end_every_job_once_and_strand_none(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], how: How, proof: Callable[[int, int], int]
) -> None:
    cuts = proof(20, 100)
    ids = [each.id for each in engine.enqueue([command() for _ in range(cuts * 3)])]
    pool = Persistent(opened(proxy.url))
    for _ in range(cuts):
        proxy.break_next(how)
        pool.turn(want=3)
    while pool.turn(want=3):
        pass
    assert (proxy.struck[how], pool.unknown) == (cuts, cuts)
    assert pool.ran == Counter(ids)  # nobody was told of a run twice, nor was one left out
    states = Counter(job.state for job in every_job(engine))
    assert states == {"completed": len(ids)}
    assert {job.attempts for job in every_job(engine)} == {1}
    assert check_queue(engine, acknowledged=ids) == []


@pytest.mark.parametrize("how", HOWS)
def test_spawns_of_a_report_are_there_once(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], how: How, proof: Callable[[int, int], int]
) -> None:
    trees = proof(10, 50)
    roots = [each.id for each in engine.enqueue([command(f"root {n}") for n in range(trees)])]
    pool = HandPool(opened(proxy.url))
    for _ in range(trees):
        said = report(pool.claim_one(), "success", spawned=[child("leaf", priority=-1), child("leaf", priority=-1)])
        proxy.break_next(how)
        with pytest.raises(Unknown):
            pool.turn(said, held=[])
        pool.turn(said)  # the same again: the pool knows no better
    assert lines(engine)["leaf"] == 2 * trees
    assert {engine.job(id).state for id in roots} == {"waiting"}
    assert check_queue(engine, acknowledged=roots) == []


@pytest.mark.parametrize("how", HOWS)
def test_cancel_retry_edit_are_done_once_and_say_what_they_did(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], how: How, proof: Callable[[int, int], int]
) -> None:
    client = opened(proxy.url)
    for _ in range(proof(7, 34)):
        (made,) = engine.enqueue([command()])
        proxy.break_next(how)
        client.edit(made.id, Edit(priority=7))
        proxy.break_next(how)
        (cancelled,) = client.cancel([made.id])
        assert (cancelled.state, cancelled.was) == ("cancelled", "pending")
        proxy.break_next(how)
        (retried,) = client.retry([made.id])
        assert (retried.state, retried.was) == ("pending", "cancelled")
        job = engine.job(made.id)
        assert (job.state, job.priority, job.fence) == ("pending", 7, 1)
        assert Counter(event.kind for event in engine.events(made.id)) == {"edited": 1, "cancelled": 1, "retried": 1}
    assert proxy.struck[how] == 3 * proof(7, 34)
    assert check_queue(engine) == []


@pytest.mark.parametrize("how", HOWS)
def test_copies_and_queue_rules_are_made_once(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], how: How
) -> None:
    client = opened(proxy.url)
    (made,) = engine.enqueue([command("echo again")])
    engine.cancel([made.id])
    for number in range(5):
        proxy.break_next(how)
        (copied,) = client.retry([made.id], again=True)
        assert engine.job(copied.new_id or 0).state == "pending"
        assert lines(engine)["echo again"] == 2 + number
        proxy.break_next(how)
        client.set_queue(f"q{number}", serial=True)
    assert len([e for e in engine.events(limit=100) if e.kind == "queue_set"]) == 5


@pytest.mark.parametrize("how", HOWS)
def test_a_pool_registers_once_and_leaves_once(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], how: How, proof: Callable[[int, int], int]
) -> None:
    client = opened(proxy.url)
    for number in range(proof(10, 50)):
        proxy.break_next(how)
        pool = HandPool(client, name=f"pool-{number}")
        assert [each.id for each in engine.pools()] == [pool.id]
        assert [each.name for each in engine.pool_views()] == [f"pool-{number}"]
        proxy.break_next(how)
        client.leave(pool.id)
        assert engine.pools() == []


def test_a_commit_that_arrives_after_the_question_fails_and_the_verb_is_done_once(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], proof: Callable[[int, int], int]
) -> None:
    """The proxy holds COMMIT back until the client has asked, has heard no, and has done it again."""
    client = opened(proxy.url)
    engine.enqueue([command("first")])  # the queue's own row is there: nobody has to wait for the one that hangs
    for number in range(proof(10, 50)):
        proxy.break_next("hold")
        (made,) = client.enqueue([command(f"echo {number}")])
        assert engine.job(made.id).state == "pending"
        until(lambda: proxy.holding, 5)
        answer = proxy.release()
        assert b"23505" in answer  # the void receipt is in its way
        assert lines(engine)[f"echo {number}"] == 1
    assert sum(lines(engine).values()) == 1 + proof(10, 50)
    assert engine.store.raw("select count(*) from {receipts} where void")[0][0] == proof(10, 50)
    assert check_queue(engine) == []


def test_a_question_waits_for_a_commit_that_is_under_way(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine]
) -> None:
    """The server has the COMMIT and cannot finish it yet: the question must not be answered before."""
    client = opened(proxy.url)
    blocker = opened()
    (made,) = engine.enqueue([command()])
    answers: list[object] = []
    # A deferred trigger makes COMMIT itself wait for a lock that we hold.
    prefix = engine.store.dialect.prefix
    engine.store.dialect.query(
        f"create function {prefix}slowly() returns trigger language plpgsql as "
        "'begin perform pg_advisory_xact_lock(4711); return null; end'; "
        f"create constraint trigger slow after insert on {prefix}events deferrable initially deferred "
        f"for each row execute function {prefix}slowly()",
        {},
    )
    try:
        with blocker.store.transaction():
            blocker.store.dialect.query("select pg_advisory_xact_lock(4711)", {})
            proxy.break_next("after")
            thread = threading.Thread(target=lambda: answers.append(client.cancel([made.id])))
            thread.start()
            until(lambda: proxy.struck["after"], 5)
            until(lambda: b"true) on conflict" in b"".join(proxy.seen), 5, "the client asks for its receipt")
            assert not answers
            assert engine.job(made.id).state == "pending"
        thread.join(20)
    finally:
        engine.store.dialect.query(f"drop function {prefix}slowly cascade", {})
    assert len(answers) == 1
    assert [event.kind for event in engine.events(made.id)] == ["cancelled"]
    assert engine.job(made.id).fence == 1


def test_a_server_that_stays_away_after_commit_is_unknown_and_said_so(
    proxy: Proxy, opened: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "RESOLVE_S", 0.5)
    monkeypatch.setattr(database, "PATIENCE_S", 0.2)
    client = opened(proxy.url)
    proxy.break_next("before")
    proxy.refusing = True
    with pytest.raises(Unknown, match=r"lost during COMMIT.*look before you repeat it"):
        client.enqueue([command()])


def test_cuts_anywhere_in_a_transaction_change_nothing(
    engine: Engine, proxy: Proxy, opened: Callable[..., Engine], proof: Callable[[int, int], int]
) -> None:
    """Not only at COMMIT: any message, before or after it reached the server."""
    client, dice = opened(proxy.url), Random(31)
    for number in range(proof(40, 300)):
        skipped = dice.randrange(7)

        def after_some(message: bytes, left: list[int] = [skipped]) -> bool:  # noqa: B006
            left[0] -= message[:1] == b"Q"
            return left[0] < 0

        proxy.break_next(dice.choice(HOWS), after_some)
        client.enqueue([command(f"echo {number}")])
    assert lines(engine) == Counter({f"echo {number}": 1 for number in range(proof(40, 300))})
    assert check_queue(engine) == []
