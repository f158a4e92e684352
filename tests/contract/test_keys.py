"""Keys: the caller's own unique names."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import Duplicate, NotFound
from tests.kit import HandPool, command


def test_a_duplicate_key_is_refused_with_the_first_job_s_id_and_changes_nothing(engine: Engine) -> None:
    (first,) = engine.enqueue([command("echo 1", key="a", priority=1)])
    before = engine.job(first.id)
    with pytest.raises(Duplicate) as refusal:
        engine.enqueue([command("echo 2"), command("echo 3", key="a", priority=2)])
    assert refusal.value.job_id == first.id
    assert str(first.id) in str(refusal.value)
    assert engine.job("a") == before
    assert len(engine.jobs(Filter()).jobs) == 1


def test_if_exists_return_answers_the_first_job(engine: Engine) -> None:
    (first,) = engine.enqueue([command("echo 1", key="a")])
    same, new = engine.enqueue([command("echo 2", key="a", if_exists="return"), command(key="b", if_exists="return")])
    assert (same.id, same.existing) == (first.id, True)
    assert not new.existing
    assert engine.job("a").command == "echo 1"


@pytest.mark.parametrize("end", ["completed", "dead", "cancelled"])
def test_a_key_stays_taken_after_its_job_has_ended(engine: Engine, pool: HandPool, end: str) -> None:
    (first,) = engine.enqueue([command(key="a", max_attempts=1)])
    if end == "cancelled":
        engine.cancel([first.id])
    else:
        claim = pool.claim_one()
        pool.succeed(claim) if end == "completed" else pool.fail(claim)
    assert engine.job("a").state == end
    with pytest.raises(Duplicate) as refusal:
        engine.enqueue([command(key="a")])
    assert refusal.value.job_id == first.id
    assert engine.enqueue([command(key="a", if_exists="return")])[0].id == first.id


def test_a_key_is_free_again_once_its_job_is_removed(engine: Engine) -> None:
    (first,) = engine.enqueue([command(key="a")])
    engine.remove(["a"], force=True)
    with pytest.raises(NotFound):
        engine.job("a")
    (second,) = engine.enqueue([command(key="a")])
    assert second.id != first.id


def test_the_same_key_twice_in_one_batch_is_refused_or_returned(engine: Engine) -> None:
    with pytest.raises(Duplicate):
        engine.enqueue([command(key="a"), command(key="a")])
    assert engine.jobs(Filter()).jobs == []
    one, two, three = engine.enqueue([command(key="a"), command(key="b"), command(key="a", if_exists="return")])
    assert (three.id, three.existing) == (one.id, True)
    assert not two.existing
    assert len(engine.jobs(Filter()).jobs) == 2


def test_a_key_and_a_unique_key_of_the_same_spelling_are_different_names(engine: Engine) -> None:
    one, two = engine.enqueue([command(key="a"), command(unique_key="a")])
    assert one.id != two.id


def test_a_unique_key_admits_one_job_that_has_not_started(engine: Engine, pool: HandPool) -> None:
    (first,) = engine.enqueue([command(unique_key="u")])
    with pytest.raises(Duplicate) as refusal:
        engine.enqueue([command(unique_key="u")])
    assert refusal.value.job_id == first.id
    pool.claim_one()
    (second,) = engine.enqueue([command(unique_key="u")])
    assert second.id != first.id


def test_a_lost_pool_s_job_returns_although_its_unique_key_has_a_new_owner(engine: Engine, pool: HandPool) -> None:
    (first,) = engine.enqueue([command(unique_key="u")])
    pool.claim_one()
    (second,) = engine.enqueue([command(unique_key="u")])
    pool.lose()
    assert [engine.job(id).state for id in (first.id, second.id)] == ["pending", "pending"]


def test_a_cancelled_job_gives_its_unique_key_back(engine: Engine) -> None:
    (first,) = engine.enqueue([command(unique_key="u")])
    engine.cancel([first.id])
    (second,) = engine.enqueue([command(unique_key="u")])
    assert second.id != first.id
    engine.retry([first.id])
    assert engine.job(first.id).state == "pending"


def test_a_job_is_named_by_id_or_key_and_an_unknown_name_is_not_found(engine: Engine) -> None:
    (made,) = engine.enqueue([command(key="nightly build/7")])
    assert engine.job(made.id) == engine.job(str(made.id)) == engine.job("nightly build/7")
    for name in (made.id + 1, "no-such-key", "0", "-1", "9" * 30, "²", ""):
        with pytest.raises(NotFound) as refusal:
            engine.job(name)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("if_exists", ["error", "return"])
def test_of_many_concurrent_enqueues_of_one_key_one_makes_the_job(
    engine: Engine, connect: Callable[[], Engine], if_exists: str, proof: Callable[[int, int], int]
) -> None:
    count = proof(40, 100)
    engines = [connect() for _ in range(8)]
    ids: list[int] = []
    refused: list[int] = []

    def enqueue(place: int) -> None:
        try:
            (made,) = engines[place % 8].enqueue([command(key="only", if_exists=if_exists)])
            ids.append(made.id)
        except Duplicate as refusal:
            refused.append(refusal.job_id)

    threads = [threading.Thread(target=enqueue, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (job,) = engine.jobs(Filter()).jobs
    assert set(ids) == {job.id}
    assert len(ids) + len(refused) == count
    assert set(refused) <= {job.id}
    assert len(refused) == (count - 1 if if_exists == "error" else 0)
