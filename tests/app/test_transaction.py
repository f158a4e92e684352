"""Many enqueues, one write."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from covey import Covey, Duplicate, InvalidInput, Job, Refused
from covey.core.view import Filter

from . import functions


def stored(app: Covey) -> int:
    return len(app.client.jobs(Filter()).jobs)


def test_everything_in_the_block_is_stored_at_its_end(app: Covey) -> None:
    add = app.task(functions.add)
    with app.transaction() as tx:
        jobs = [
            add.enqueue(1),
            add.using(priority=4, tx=tx).enqueue(2),
            tx.enqueue(add, 3, b=4),
            tx.enqueue(add.using(queue="fast"), 5),
            *add.enqueue_many([add.call(6), add.call(7)]),
            app.shell("true"),
            app.shell("false", tx=tx),
            app.enqueue("elsewhere.task"),
        ]
        assert stored(app) == 0
    assert [job.id for job in jobs] == list(range(jobs[0].id, jobs[0].id + 9))
    assert [job.state for job in jobs] == ["pending"] * 9
    assert (jobs[1].view.priority, jobs[2].view.args, jobs[3].view.queue) == (4, [[3], {"b": 4}], "fast")


def test_a_job_has_no_id_before_the_end(app: Covey) -> None:
    with app.transaction():
        job = app.task(functions.add).using(key="k").enqueue(1)
        assert (job.key, repr(job)) == ("k", "<Job not stored key 'k'>")
        for ask in (lambda: job.id, lambda: job.state, lambda: job.wait(0), job.cancel):
            with pytest.raises(Refused, match="no id yet"):
                ask()
    assert job.id > 0


def test_an_exception_in_the_block_stores_nothing(app: Covey) -> None:
    add = app.task(functions.add)
    jobs: list[Job[int]] = []
    with pytest.raises(ZeroDivisionError), app.transaction():
        jobs.extend(add.enqueue(1 // n) for n in (1, 0))
    assert stored(app) == 0
    with pytest.raises(Refused, match="never stored: an exception"):
        _ = jobs[0].id
    assert add.enqueue(2).id > 0


def test_a_refused_write_stores_nothing(app: Covey) -> None:
    add = app.task(functions.add)
    first = add.using(key="taken").enqueue(0)
    jobs: list[Job[int]] = []
    with pytest.raises(Duplicate) as refused, app.transaction():
        jobs.extend(add.using(key=key).enqueue(1) for key in ("free", "taken"))
    assert refused.value.job_id == first.id
    assert stored(app) == 1
    with pytest.raises(Refused, match="never stored"):
        _ = jobs[0].id


def test_an_existing_job_is_found_at_the_end(app: Covey) -> None:
    add = app.task(functions.add)
    first = add.using(key="k").enqueue(0)
    with app.transaction():
        job = add.using(key="k", if_exists="return").enqueue(1)
    assert (job.id, job.existing) == (first.id, True)


def test_an_empty_block_writes_nothing(app: Covey) -> None:
    with app.transaction():
        pass
    assert stored(app) == 0


def test_transactions_do_not_nest(app: Covey) -> None:
    add = app.task(functions.add)
    with app.transaction():
        with pytest.raises(Refused, match="do not nest"), app.transaction():
            pass
        add.enqueue(1)
    assert stored(app) == 1


def test_a_transaction_is_used_once(app: Covey) -> None:
    add = app.task(functions.add)
    with app.transaction() as tx:
        pass
    with pytest.raises(Refused, match="has ended"):
        tx.enqueue(add, 1)
    with pytest.raises(Refused, match="has ended"), tx:
        pass
    assert add.enqueue(1).id > 0


def test_two_apps_may_each_have_one(app: Covey) -> None:
    with Covey("memory:") as other:
        add, theirs = app.task(functions.add), other.task(functions.add)
        with app.transaction() as tx, other.transaction():
            mine, other_job = add.enqueue(1), theirs.enqueue(2)
            with pytest.raises(InvalidInput, match="another app"):
                theirs.using(tx=tx).enqueue(3)
            with pytest.raises(InvalidInput, match="another app"):
                tx.enqueue(theirs, 3)
        assert (stored(app), stored(other)) == (1, 1)
        assert (mine.view.args, other_job.view.args) == ([[1], {}], [[2], {}])


def test_another_thread_is_not_in_the_block(app: Covey) -> None:
    add, ids = app.task(functions.add), []
    with app.transaction():
        thread = threading.Thread(target=lambda: ids.append(add.enqueue(1).id))
        thread.start()
        thread.join()
        assert stored(app) == 1
    assert ids == [1]


def test_another_thread_may_be_handed_the_transaction(app: Covey) -> None:
    add = app.task(functions.add)
    with app.transaction() as tx:
        thread = threading.Thread(target=lambda: tx.enqueue(add, 1))
        thread.start()
        thread.join()
        assert stored(app) == 0
    assert stored(app) == 1


def test_async_tasks_each_have_their_own(app: Covey) -> None:
    add = app.task(functions.add)

    async def one(fails: bool, met: asyncio.Barrier) -> None:
        with app.transaction():
            await add.aenqueue(1)
            await met.wait()  # both blocks are open at this moment
            await add.aenqueue(2)
            if fails:
                raise ValueError

    async def both() -> None:
        met = asyncio.Barrier(2)
        outcomes = await asyncio.gather(one(False, met), one(True, met), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), ValueError]

    asyncio.run(both())
    assert stored(app) == 2


def test_what_outlives_the_block_enqueues_by_itself(app: Covey) -> None:
    add = app.task(functions.add)

    async def go() -> None:
        ended = asyncio.Event()

        async def later() -> None:
            await ended.wait()
            await add.aenqueue(2)

        with app.transaction():
            straggler = asyncio.create_task(later())
            add.enqueue(1)
        ended.set()
        await straggler

    asyncio.run(go())
    assert stored(app) == 2


def test_a_forked_child_does_not_write_its_parents_block(app: Covey) -> None:
    add = app.task(functions.add)
    with app.transaction() as tx:
        add.enqueue(1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                tx.__exit__(None, None, None)
            except Refused:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert stored(app) == 1
