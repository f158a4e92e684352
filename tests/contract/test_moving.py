"""A queue moves to another database, step by step: what each step leaves, and what it refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from covey import env
from covey.engine import db_copy
from covey.engine.db_copy import Meta
from covey.engine.engine import Engine
from covey.errors import Refused, StoreError
from covey.open import open_dialect
from covey.store import migrate
from covey.store.store import Store
from covey.testing import FakeClock
from tests.kit import HandPool, command

BEHIND = True  # who moves a queue has both databases open
JOBS = 5


def emptied(clock: FakeClock) -> Engine:
    dialect = open_dialect(f"memory:{os.urandom(6).hex()}")
    migrate.migrate(dialect, database_id=env.new_database_id(), now=clock())
    return Engine(Store(dialect), clock=clock, rng=Random(0))


@pytest.fixture
def source(engine: Engine) -> Store:
    """A queue with a few jobs and no pool."""
    engine.enqueue([command(key=f"k{n}") for n in range(JOBS)])
    return engine.store


@pytest.fixture
def there(clock: FakeClock) -> Iterator[Engine]:
    engine = emptied(clock)
    yield engine
    engine.close()


@pytest.fixture
def target(there: Engine) -> Store:
    return there.store


@pytest.fixture
def elsewhere(clock: FakeClock) -> Iterator[Store]:
    engine = emptied(clock)
    yield engine.store
    engine.close()


def meta(store: Store) -> Meta:
    return Meta(*store.ask("meta")[0])


def jobs(store: Store) -> int:
    return db_copy.totals(store)["jobs"]


def move(source: Store, target: Store, token: int = 1) -> None:
    db_copy.begin(source, target, token=token, now=0)
    list(db_copy.copy(source, target))
    db_copy.compare(source, target)
    db_copy.finish(source, target, token=token)


def test_a_queue_that_has_moved_is_the_same_queue_in_the_new_place(
    engine: Engine, source: Store, there: Engine, target: Store
) -> None:
    assert db_copy.begin(source, target, token=1, now=0) is False
    assert meta(source).sealed == f"being copied to {target.dialect.url}"
    assert meta(target) == meta(source)._replace(sealed=f"unfinished copy of {source.dialect.url}")
    done = [(table, count) for table, count in db_copy.copy(source, target, page=2) if table == "jobs"]
    assert done == [("jobs", 0), ("jobs", 2), ("jobs", 4), ("jobs", JOBS)]
    assert db_copy.compare(source, target) == db_copy.totals(source)
    db_copy.finish(source, target, token=1)
    assert meta(target) == meta(source)._replace(sealed=None)
    (made,) = there.enqueue([command()])
    assert made.id == JOBS + 1  # no number is given twice
    with pytest.raises(Refused, match="moved"):
        engine.enqueue([command()])


def test_a_queue_that_is_being_copied_says_so_until_the_copy_is_finished(
    engine: Engine, source: Store, there: Engine, target: Store
) -> None:
    db_copy.begin(source, target, token=1, now=0)
    for verb in (lambda: engine.enqueue([command()]), lambda: HandPool(engine)):
        with pytest.raises(
            Refused, match=rf"being copied to {target.dialect.url}, and that is not finished; run the same"
        ):
            verb()
    assert "not finished" in engine.status().notes[0]
    list(db_copy.copy(source, target))
    db_copy.finish(source, target, token=1)
    with pytest.raises(Refused, match=f"this queue has moved to {target.dialect.url}; use that one"):
        engine.enqueue([command()])


def test_a_copy_whose_end_was_cut_short_is_known_as_finished_by_the_next_try(
    engine: Engine, source: Store, target: Store
) -> None:
    """The target was opened, and then the source could not say so any more."""
    move(source, target)
    with source.transaction(alone=True):
        source.ask("seal", sealed=f"being copied to {target.dialect.url}")
    with pytest.raises(Refused, match=r"has moved to .* already"):
        db_copy.begin(source, target, token=2, now=0)
    assert meta(source).sealed == target.dialect.url


def test_a_copy_that_was_cut_goes_on_where_it_was(source: Store, target: Store) -> None:
    db_copy.begin(source, target, token=1, now=0)
    for table, count in db_copy.copy(source, target, page=2):
        if (table, count) == ("jobs", 2):
            break
    assert db_copy.begin(source, target, token=2, now=0) is True
    assert [step for step in db_copy.copy(source, target) if step[0] == "jobs"] == [("jobs", 2), ("jobs", JOBS)]
    db_copy.finish(source, target, token=2)
    assert jobs(target) == JOBS


def test_a_copy_whose_source_was_opened_again_begins_anew(engine: Engine, source: Store, target: Store) -> None:
    db_copy.begin(source, target, token=1, now=0)
    list(db_copy.copy(source, target))
    db_copy.unseal(source, token=1)
    assert meta(source).sealed is None
    engine.enqueue([command()])
    assert db_copy.begin(source, target, token=2, now=0) is False
    assert jobs(target) == 0
    list(db_copy.copy(source, target))
    assert db_copy.compare(source, target)["jobs"] == JOBS + 1


def test_what_is_not_whole_is_not_opened(source: Store, target: Store) -> None:
    db_copy.begin(source, target, token=1, now=0)
    with pytest.raises(StoreError, match=f"0 of {JOBS} jobs"):
        db_copy.compare(source, target)


def test_of_two_copies_the_later_one_has_it(source: Store, target: Store) -> None:
    db_copy.begin(source, target, token=1, now=0)
    db_copy.begin(source, target, token=2, now=0)
    list(db_copy.copy(source, target))
    for step in (lambda: db_copy.finish(source, target, token=1), lambda: db_copy.unseal(source, token=1)):
        with pytest.raises(Refused, match="another `covey db copy`"):
            step()
    assert meta(source).sealed == f"being copied to {target.dialect.url}"
    db_copy.finish(source, target, token=2)
    db_copy.finish(source, target, token=2)  # told twice, it is done once
    assert meta(target).sealed is None


def test_a_finished_copy_takes_no_more_rows(source: Store, target: Store) -> None:
    db_copy.begin(source, target, token=1, now=0)
    steps = db_copy.copy(source, target, page=2)
    while next(steps) != ("jobs", 2):
        pass
    db_copy.finish(source, target, token=1)
    with pytest.raises(Refused, match="no longer the unfinished copy"):
        list(steps)


# ── what must not become a copy ─────────────────────────────────────────────────────────────────────────────────────


def test_a_place_with_something_in_it_is_refused_and_left_as_it_is(source: Store, there: Engine, target: Store) -> None:
    there.enqueue([command(), command()])
    before = meta(target)
    with pytest.raises(Refused, match=r"not empty \(.*2 jobs"):
        db_copy.begin(source, target, token=1, now=0)
    assert (meta(source).sealed, meta(target)) == (None, before)


def test_a_place_with_a_pool_is_refused(source: Store, there: Engine, target: Store) -> None:
    HandPool(there)
    with pytest.raises(Refused, match="1 pools"):
        db_copy.begin(source, target, token=1, now=0)


def test_a_queue_does_not_move_onto_itself(source: Store) -> None:
    with pytest.raises(Refused, match="is the same queue"):
        db_copy.begin(source, source, token=1, now=0)
    assert meta(source).sealed is None


def test_a_queue_that_has_moved_moves_no_more(source: Store, target: Store, elsewhere: Store) -> None:
    move(source, target)
    with pytest.raises(Refused, match=r"has moved to .* already"):
        db_copy.begin(source, target, token=2, now=0)
    with pytest.raises(Refused, match=r"has moved to .*; go on with that"):
        db_copy.begin(source, elsewhere, token=2, now=0)
    with pytest.raises(Refused, match="has moved to"):
        db_copy.begin(elsewhere, source, token=2, now=0)
    move(target, elsewhere)  # but from its new place it does
    assert jobs(elsewhere) == JOBS


def test_an_unfinished_copy_is_neither_source_nor_somebody_elses_target(
    source: Store, target: Store, elsewhere: Store
) -> None:
    db_copy.begin(source, target, token=1, now=0)
    with pytest.raises(Refused, match="is itself an unfinished copy"):
        db_copy.begin(target, elsewhere, token=2, now=0)
    with pytest.raises(Refused, match="name another"):
        db_copy.begin(elsewhere, target, token=2, now=0)
    assert meta(elsewhere).sealed is None


def test_a_pool_or_a_held_job_keeps_a_queue_where_it_is(engine: Engine, source: Store, target: Store) -> None:
    pool = HandPool(engine)
    before = meta(target)
    with pytest.raises(Refused, match=f"pool {pool.id} has just begun"):
        db_copy.begin(source, target, token=1, now=0)
    assert meta(target).sealed is None, "nothing is left of the copy"
    assert meta(target).database_id not in (meta(source).database_id, before.database_id)
    pool.claim(1)
    with source.transaction():
        source.ask("remove_pool", pool=pool.id)
    with pytest.raises(Refused, match="still held by a pool"):
        db_copy.begin(source, target, token=1, now=0)
    assert (meta(source).sealed, meta(target).sealed) == (None, None)


# ── giving up ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_copy_that_is_aborted_leaves_nothing(engine: Engine, source: Store, there: Engine, target: Store) -> None:
    db_copy.begin(source, target, token=1, now=0)
    list(db_copy.copy(source, target))
    db_copy.abort(source, target)
    assert (meta(source).sealed, meta(target).sealed, jobs(target)) == (None, None, 0)
    assert meta(target).database_id != meta(source).database_id
    engine.enqueue([command()])
    there.enqueue([command()])
    with pytest.raises(Refused, match="another `covey db copy`"):
        db_copy.unseal(source, token=1)


def test_a_copy_can_be_aborted_without_its_target(source: Store, target: Store) -> None:
    db_copy.begin(source, target, token=1, now=0)
    db_copy.abort(source, None)
    assert meta(source).sealed is None


def test_a_copy_whose_source_is_open_again_can_be_cleared_away(source: Store, target: Store) -> None:
    db_copy.begin(source, target, token=1, now=0)
    db_copy.unseal(source, token=1)
    db_copy.abort(source, target)
    assert meta(target).sealed is None


def test_what_cannot_be_aborted(source: Store, target: Store, elsewhere: Store) -> None:
    for place in (target, None):
        with pytest.raises(Refused, match="nothing to abort"):
            db_copy.abort(source, place)
    db_copy.begin(source, target, token=1, now=0)
    with pytest.raises(Refused, match="abort that one"):
        db_copy.abort(source, elsewhere)
    with pytest.raises(Refused, match="abort that one"):
        db_copy.abort(target, None)
    list(db_copy.copy(source, target))
    db_copy.finish(source, target, token=1)
    with pytest.raises(Refused, match="which may be in use"):
        db_copy.abort(source, target)
    assert (meta(source).sealed, meta(target).sealed) == (target.dialect.url, None)
