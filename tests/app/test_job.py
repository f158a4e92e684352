"""What a caller can do with a job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from covey import Covey, Job, JobFailed, NotFound, Refused, WaitTimeout
from covey.core.model import Output
from tests.kit import HandPool, child

from . import functions


@pytest.fixture
def job(app: Covey) -> Job[int]:
    return app.task(max_attempts=1)(functions.add).using(key="k").enqueue(1, b=2)


def in_thread(ask: Callable[[], Any]) -> Callable[[], Any]:
    """The question is being asked; call the answer to have it."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def answer() -> Any:
        thread.join(10)
        return answers[0]

    return answer


def test_a_job_is_found_again_by_id_and_key(app: Covey, job: Job[int]) -> None:
    assert app.job(job.id).id == app.job(str(job.id)).id == app.job("k").id == job.id
    assert app.job(job.id).key == job.key == "k"


def test_state_is_now_and_view_is_then(app: Covey, worker: HandPool, job: Job[int]) -> None:
    assert job.view.state == "pending"
    worker.claim_one()
    assert job.view.state == "pending"
    assert job.state == "processing"
    assert job.view.state == "processing"
    assert job.refresh() is job


def test_the_result_is_what_the_task_returned(worker: HandPool, job: Job[int]) -> None:
    worker.succeed(worker.claim_one(), result="3")
    assert job.result(timeout=0) == 3
    assert job.wait(0) is job


def test_no_result_is_none(worker: HandPool, job: Job[int]) -> None:
    worker.succeed(worker.claim_one())
    assert job.result() is None


def test_a_waiting_caller_gets_the_result_when_it_comes(worker: HandPool, job: Job[int]) -> None:
    answer = in_thread(lambda: job.result(timeout=10))
    worker.succeed(worker.claim_one(), result="3")
    assert answer() == 3


def test_a_dead_job_raises_with_id_and_error(worker: HandPool, job: Job[int]) -> None:
    answer = in_thread(lambda: job.result(timeout=10))
    worker.fail(worker.claim_one(), "ValueError: no such file")
    error = answer()
    assert isinstance(error, JobFailed)
    assert error.job_id == job.id
    assert str(error) == f"job {job.id} (tests.app.functions.add) is dead: ValueError: no such file"


def test_a_cancelled_job_raises(job: Job[int]) -> None:
    assert job.cancel() is job
    assert job.state == "cancelled"
    with pytest.raises(JobFailed, match=f"job {job.id} .* was cancelled"):
        job.result()
    assert job.wait() is job


def test_waiting_ends_after_the_time_out(job: Job[int]) -> None:
    with pytest.raises(WaitTimeout, match=f"job {job.id} is still pending after 0 s"):
        job.wait(0)
    with pytest.raises(TimeoutError):
        job.result(timeout=0.01)


def test_retry_makes_it_pending_again(worker: HandPool, job: Job[int]) -> None:
    worker.fail(worker.claim_one())
    assert job.state == "dead"
    assert job.retry() is job
    assert job.state == "pending"
    with pytest.raises(Refused):
        job.retry()


def test_retry_again_is_a_new_job(worker: HandPool, job: Job[int]) -> None:
    worker.succeed(worker.claim_one(), result="3")
    copy = job.retry(again=True)
    assert copy.id != job.id
    assert (copy.state, copy.view.args, job.state) == ("pending", [[1], {"b": 2}], "completed")


def test_retry_of_a_parent_keeps_its_children_or_starts_over(worker: HandPool, job: Job[int]) -> None:
    worker.spawn(worker.claim_one(), child(max_attempts=1))
    worker.fail(worker.claim_one())
    assert (job.state, job.view.children.failed) == ("dead", 1)
    assert (job.retry().state, job.view.children.total) == ("waiting", 1)
    worker.fail(worker.claim_one())
    assert (job.retry(all=True).state, job.view.children.total) == ("pending", 0)


def test_remove_forgets_it(app: Covey, job: Job[int]) -> None:
    with pytest.raises(Refused, match="cancel it first"):
        job.remove()
    job.remove(force=True)
    with pytest.raises(NotFound):
        app.job(job.id)
    with pytest.raises(NotFound):
        job.result()


def test_logs_are_those_of_the_last_attempt(app: Covey, worker: HandPool) -> None:
    job = app.task(backoff_base=1, max_backoff=0)(functions.add).enqueue(1)
    assert (job.logs(), job.history()) == ("", [])
    worker.fail(worker.claim_one(), output=Output(stdout=b"first", stderr=b"oh \xff"))
    assert (job.logs(), job.logs(stream="stderr")) == ("first", "oh \ufffd")
    worker.succeed(worker.claim_one(), output=Output(stdout=b"second"))
    assert (job.logs(), job.logs("stderr")) == ("second", "")
    assert [attempt.outcome for attempt in job.history()] == ["failure", "success"]


def test_a_silent_success_has_no_logs(app: Covey, worker: HandPool) -> None:
    job = app.task(backoff_base=1, max_backoff=0)(functions.add).enqueue(1)
    worker.fail(worker.claim_one(), output=Output(stdout=b"first"))
    worker.succeed(worker.claim_one())
    assert (job.state, job.logs()) == ("completed", "")


def test_no_repr_shows_arguments(app: Covey) -> None:
    task = app.task(functions.takes_anything)
    job = task.using(labels={"a": "secret"}).enqueue("secret")
    for thing in (job, task, task.call("secret"), task.using(key="k").call("secret"), app, app.transaction()):
        assert "secret" not in repr(thing)
    assert repr(job) == f"<Job {job.id}>"
    assert repr(task.call(1)) == "<Call of <Task tests.app.functions.takes_anything>>"


# ── async ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_async_code_awaits_the_result(worker: HandPool, job: Job[int]) -> None:
    async def go() -> int:
        waiting = asyncio.create_task(job.aresult(timeout=10))
        await asyncio.to_thread(lambda: worker.succeed(worker.claim_one(), result="3"))
        return await waiting

    assert asyncio.run(go()) == 3


def test_async_failure_and_time_out(worker: HandPool, job: Job[int]) -> None:
    with pytest.raises(WaitTimeout, match="still pending after 0"):
        asyncio.run(job.aresult(timeout=0))
    worker.fail(worker.claim_one(), "boom")
    with pytest.raises(JobFailed, match="boom"):
        asyncio.run(job.aresult())


def test_a_cancelled_wait_leaves_nothing_behind(job: Job[int]) -> None:
    async def go() -> None:
        waits = [asyncio.create_task(job.aresult()) for _ in range(100)]
        await asyncio.wait(waits, timeout=0)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
        assert all(wait.cancelled() for wait in waits)

    asyncio.run(go())  # returns, and the leak guard finds no thread
