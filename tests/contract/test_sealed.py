"""A sealed queue: every verb that writes is refused and changes nothing; what reads goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from covey.core.turn import PoolEvent
from covey.core.view import Edit, Filter
from covey.engine import sealing
from covey.engine.engine import Engine
from covey.engine.loans import Loan
from covey.errors import CoveyError, Refused
from tests.kit import HandPool, command
from tests.kit.factories import child, pool_info
from tests.kit.hand_pool import report

NEW = "postgresql://covey:***@db/jobs"
HELD, DEAD, PENDING = 1, 2, 3

Verb = Callable[[Engine, HandPool], object]

WRITING: dict[str, Verb] = {
    "enqueue": lambda engine, pool: engine.enqueue([command()]),
    "enqueue_with_request": lambda engine, pool: engine.enqueue([command()], request="r"),
    "create_token": lambda engine, pool: engine.create_token("another", "client"),
    "revoke_token": lambda engine, pool: engine.revoke_token("ours"),
    "cancel": lambda engine, pool: engine.cancel([HELD]),
    "retry": lambda engine, pool: engine.retry([DEAD]),
    "retry_again": lambda engine, pool: engine.retry([DEAD], again=True),
    "edit": lambda engine, pool: engine.edit(PENDING, Edit(priority=5)),
    "remove": lambda engine, pool: engine.remove([DEAD]),
    "remove_by_force": lambda engine, pool: engine.remove([PENDING], force=True),
    "prune_window": lambda engine, pool: engine.prune_window(0, {"dead": 1 << 60}),
    "pause": lambda engine, pool: engine.pause("default"),
    "resume": lambda engine, pool: engine.resume("default"),
    "set_queue": lambda engine, pool: engine.set_queue("default", serial=True),
    "stop_pools": lambda engine, pool: engine.stop_pools([pool.id]),
    "set_setting": lambda engine, pool: engine.set_setting("max_attempts", "7"),
    "unset_setting": lambda engine, pool: engine.unset_setting("max_attempts"),
    "register": lambda engine, pool: engine.register(pool_info("another")),
    "leave": lambda engine, pool: engine.leave(pool.id),
    "reap": lambda engine, pool: engine.reap(pool.id, engine.pools()[0].beat),
    "reap_orphans": lambda engine, pool: engine.reap(99, -1),
    "turn_idle": lambda engine, pool: pool.turn(),
    "turn_that_claims": lambda engine, pool: pool.claim(),
    "turn_that_beats": lambda engine, pool: pool.beat(),
    "turn_that_reports": lambda engine, pool: pool.turn(report(held(engine), "success", result="1")),
    "turn_that_spawns": lambda engine, pool: pool.turn(report(held(engine), "success", spawned=[child()])),
    "turn_that_drains": lambda engine, pool: pool.turn(draining=True),
    "turn_with_news": lambda engine, pool: pool.turn(events=[PoolEvent(1, "worker_lost", "c1", "gone")]),
    "beat": lambda engine, pool: engine.beat([pool.id, 77]),
    "still_here": lambda engine, pool: engine.still_here(PENDING),
    "let_go": lambda engine, pool: engine.let_go(PENDING),
    "abandon": lambda engine, pool: engine.abandon(PENDING, 0),
    "turns": lambda engine, pool: refused_in(engine.turns([pool.said(held=[])])),
    "renew": lambda engine, pool: engine.renew(HELD, pool.id, held(engine).fence),
    "release": lambda engine, pool: engine.release(HELD, pool.id, held(engine).fence),
    "time_out": lambda engine, pool: engine.time_out(Loan(HELD, pool.id, held(engine).fence, False, 1.0, 9.0)),
    "settle": lambda engine, pool: engine.settle(HELD, pool.id, held(engine).fence, "success"),
    "lend": lambda engine, pool: engine.lend(pool.info),
    "stage": lambda engine, pool: engine.stage(1, pool.id, 1, []),
    "turns_idle": lambda engine, pool: refused_in(engine.turns([pool.said(want=1)])),
}
READING = {"close", "events", "history", "job", "jobs", "newest_id", "orphaned_pools", "pool_events", "pool_views"}
READING |= {
    "pools",
    "queues",
    "settings",
    "status",
    "pending_work",
    "stored_settings",
    "tree",
    "wait",
    "wait_for",
    "wake",
}
READING |= {"callers"}
READING |= {"disk", "output", "show_output", "shown_output", "hide_output"}  # files, not the database
READING |= {"check_lendable", "ended", "queues_of", "token_rows", "tokens", "while_waiting", "why", "overdue_loans"}
READING |= {"failed_siblings", "counts", "counted_queues", "jobs_of", "moment"}
ELSEWHERE = {"enqueue_in"}  # needs a caller's connection: tests/app/callers


def held(engine: Engine) -> Any:
    return engine.job(HELD)


def refused_in(answers: list[Any]) -> None:
    """Each of them is a refusal."""
    for answer in answers:
        assert isinstance(answer, Refused)
        raise answer


@pytest.fixture
def pool(engine: Engine) -> HandPool:
    """It may be taken for a loan, too."""
    return HandPool(engine, host="http", pid=0)


@pytest.fixture
def sealed(engine: Engine, pool: HandPool) -> Engine:
    """Sealed while one job is held, one is dead and one waits."""
    engine.enqueue([command(priority=2), command(priority=1, max_attempts=1), command()])
    engine.set_setting("max_attempts", "5")
    engine.create_token("ours", "client")
    _, second = pool.claim(2)
    pool.fail(second)
    with engine.store.transaction(alone=True):
        engine.store.ask("seal", sealed=NEW)
    return engine


def everything(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    tables = engine.store.dialect.tables() - {"receipts"}
    return {table: sorted(engine.store.raw(f"select * from {{{table}}}"), key=repr) for table in tables}


@pytest.mark.parametrize("verb", WRITING)
def test_a_writing_verb_is_refused_and_nothing_changes(sealed: Engine, pool: HandPool, verb: str) -> None:
    before = everything(sealed)
    with pytest.raises(Refused) as refused:
        WRITING[verb](sealed, pool)
    assert str(refused.value) == f"this queue has moved to {NEW}; use that one"
    assert everything(sealed) == before


def test_every_public_verb_was_thought_of() -> None:
    verbs = {name for name in dir(Engine) if not name.startswith("_") and callable(getattr(Engine, name))}
    assert verbs == READING | ELSEWHERE | {"turn"} | {name for name in WRITING if name in verbs}


def test_a_turn_of_a_pool_that_is_no_longer_known_is_answered_lost(sealed: Engine, pool: HandPool) -> None:
    pool.id = 77
    assert pool.claim() == []
    assert pool.turn().lost


def test_reads_go_on_and_the_status_says_where_the_queue_went(sealed: Engine) -> None:
    assert len(sealed.jobs(Filter()).jobs) == 3
    assert sealed.history(DEAD)[0].outcome == "failure"
    found = sealed.status()
    assert (found.health, found.notes) == ("warning", [f"this queue has moved to {NEW}; use that one"])
    assert sealed.why(PENDING).state == "pending"


def test_a_broken_seal_lets_everybody_go_on(sealed: Engine, pool: HandPool) -> None:
    claim = held(sealed)
    with pytest.raises(CoveyError):
        pool.turn(report(claim, "success"))
    with sealed.store.transaction(alone=True):
        sealed.store.ask("seal", sealed=None)
    assert [claimed.id for claimed in pool.turn(report(claim, "success"), want=1).claims] == [PENDING]
    assert sealed.job(HELD).state == "completed"


def test_an_unfinished_copy_is_no_queue_yet(engine: Engine) -> None:
    with engine.store.transaction(alone=True):
        engine.store.ask("seal", sealed="unfinished copy of /old.db")
    with pytest.raises(Refused, match=r"^this queue is an unfinished copy of /old.db; run the same `covey db copy`"):
        engine.enqueue([command()])


def test_whether_a_queue_is_sealed(engine: Engine) -> None:
    assert sealing.is_sealed(engine.store) is False
    with engine.store.transaction():
        engine.store.ask("seal", sealed=NEW)
    assert sealing.is_sealed(engine.store) is True
