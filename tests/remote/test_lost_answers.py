"""What was committed and not answered is asked again: it is answered the same, and counts once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import urllib3

from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import Unreachable
from covey.log import Log
from covey.pool.reaper import Reaper
from covey.remote.remote import Remote
from covey.testing import until
from tests.kit import HandPool, command, pool_info
from tests.kit.hand_pool import report
from tests.kit.running import Watch

from .conftest import BOTH, times
from .cutting import Cutting

# ── the pool protocol ───────────────────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_turn_s_report_whose_answer_was_lost_counts_once(engine: Engine, remote: Remote, cutting: Cutting) -> None:
    (job,) = engine.enqueue([command()])
    pool = HandPool(remote)
    told = report(pool.claim_one(), "success")
    cutting.cut("/turn", times=2)
    for _ in range(2):
        with pytest.raises(Unreachable):
            pool.turn(told, held=[])
    assert pool.turn(told, held=[]).refused == []
    assert (engine.job(job.id).state, times(engine, job.id, "completed")) == ("completed", 1)


@BOTH
def test_a_claim_whose_answer_was_lost_goes_back_with_the_next_turn(
    engine: Engine, remote: Remote, cutting: Cutting
) -> None:
    (job,) = engine.enqueue([command(max_attempts=1)])
    pool = HandPool(remote)
    cutting.cut("/turn")
    with pytest.raises(Unreachable):
        pool.claim(1)
    assert engine.job(job.id).state == "processing"
    claims = pool.turn(want=1, held=[]).claims
    assert [(claim.id, claim.attempt) for claim in claims] == [(job.id, 1)]  # at no cost
    pool.succeed(claims[0])
    assert times(engine, job.id, "completed") == 1


def test_a_turn_that_never_arrived_is_made_up_for_by_the_next(engine: Engine, remote: Remote, cutting: Cutting) -> None:
    (job,) = engine.enqueue([command()])
    pool = HandPool(remote)
    told = report(pool.claim_one(), "success")
    cutting.cut("/turn", "before")
    with pytest.raises(Unreachable):
        pool.turn(told)
    assert engine.job(job.id).state == "processing"
    assert pool.turn(told, held=[]).refused == []
    assert times(engine, job.id, "completed") == 1


def test_a_pool_is_registered_once_although_the_answer_was_lost(
    engine: Engine, remote: Remote, cutting: Cutting
) -> None:
    other = HandPool(engine, pool_info("other", pid=1))
    cutting.cut("/v1/pools", times=2)
    pool = HandPool(remote)
    assert cutting.struck["/v1/pools"] == 2
    assert {found.id for found in engine.pools()} == {other.id, pool.id}
    engine.enqueue([command()])
    assert pool.claim_one()


@pytest.mark.parametrize("queues", [None, ("own",)])
def test_a_pool_is_registered_once_also_if_it_gave_up_in_between_and_may_see_some_queues_only(
    engine: Engine, cutting: Cutting, queues: tuple[str, ...] | None
) -> None:
    token = engine.create_token("w", "worker", queues=queues)[1]
    remote = Remote(cutting.url, token=token, patience_s=0)
    try:
        for _ in range(3):
            cutting.cut("/v1/pools")
            with pytest.raises(Unreachable):
                remote.register(pool_info(queues=queues))
        first = remote.register(pool_info(queues=queues))
        assert [pool.id for pool in engine.pools()] == [first.pool]
        assert len(engine.pool_events()) == 1
        assert remote.register(pool_info(queues=queues)).pool != first.pool  # another one, and meant so
        cutting.cut("/v1/pools")
        with pytest.raises(Unreachable):
            remote.register(pool_info(queues=queues))
        ghost = max(pool.id for pool in engine.pools())
        engine.reap(ghost, 0)  # given up before it was asked for again
        assert remote.register(pool_info(queues=queues)).pool > ghost
        assert len(engine.pools()) == 3
    finally:
        remote.close()


def test_leaving_reaping_and_enqueuing_are_asked_again_by_themselves(
    engine: Engine, remote: Remote, cutting: Cutting
) -> None:
    cutting.cut("/v1/jobs/specs", times=2)
    made = remote.enqueue([command(), command()])
    assert [job.id for job in engine.jobs(Filter()).jobs] == [job.id for job in reversed(made)]
    lost, pool = HandPool(remote), HandPool(remote)
    claim = lost.claim_one()
    cutting.cut("/reap")
    lost.lose()
    assert (engine.job(claim.id).state, engine.job(claim.id).interruptions) == ("pending", 1)
    cutting.cut("/leave")
    remote.leave(pool.id)
    assert engine.pools() == []
    assert cutting.struck == {"/v1/jobs/specs": 2, "/reap": 1, "/leave": 1}


# ── one job at a time ───────────────────────────────────────────────────────────────────────────────────────────────


class Worker:
    """Somebody who speaks plain HTTP."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._http = urllib3.PoolManager(retries=False)

    def ask(self, path: str, **body: Any) -> tuple[int, Any]:
        """(status, answer), sent again until there is one."""
        for _ in range(3):
            try:
                answer = self._http.request(
                    "POST",
                    self._url + path,
                    body=msgspec.json.encode(body),
                    headers=self._headers,
                )
            except urllib3.exceptions.HTTPError:
                continue
            return answer.status, msgspec.json.decode(answer.data)
        raise AssertionError("no answer")

    def once(self, path: str, **body: Any) -> None:
        """Asked once; the answer is lost."""
        with pytest.raises(urllib3.exceptions.HTTPError):
            self._http.request("POST", self._url + path, body=msgspec.json.encode(body))

    def claim(self) -> tuple[str, dict[str, int]]:
        """The job's path, and what proves that we have it."""
        status, answer = self.ask("/v1/jobs/claim?wait=5")
        lent = answer["lent"]
        assert status == 200
        assert lent
        return f"/v1/jobs/{lent['job']['id']}", {"pool": lent["pool"], "fence": lent["fence"]}

    def close(self) -> None:
        self._http.clear()


@pytest.fixture
def worker(cutting: Cutting) -> Iterator[Worker]:
    worker = Worker(cutting.url)
    yield worker
    worker.close()


@BOTH
def test_complete_is_answered_again_and_counts_once(engine: Engine, worker: Worker, cutting: Cutting) -> None:
    (job,) = engine.enqueue([command()])
    path, mine = worker.claim()
    cutting.cut("/complete", times=2)
    assert worker.ask(f"{path}/complete", **mine, result=7) == (200, {"id": job.id, "state": "completed"})
    assert (cutting.struck["/complete"], times(engine, job.id, "completed"), engine.pools()) == (2, 1, [])
    assert engine.job(job.id).result == 7
    assert worker.ask(f"{path}/fail", **mine, error="no")[0] == 200  # it has ended, and nothing is written
    assert engine.job(job.id).state == "completed"


def test_fail_is_answered_again_even_after_another_worker_has_the_job(
    engine: Engine, worker: Worker, cutting: Cutting
) -> None:
    (job,) = engine.enqueue([command(max_attempts=3, backoff_base=1, backoff_cap_s=0.001)])
    path, first = worker.claim()
    cutting.cut("/fail")
    worker.once(f"{path}/fail", **first, error="boom")
    until(lambda: engine.job(job.id).state in ("failed", "pending"), 5)
    HandPool(engine).turn(held=[])  # promotes it
    _, second = worker.claim()
    assert second != first
    assert worker.ask(f"{path}/fail", **first, error="boom")[0] == 200
    assert (engine.job(job.id).state, engine.job(job.id).attempts) == ("processing", 2)
    assert worker.ask(f"{path}/complete", **second)[0] == 200
    assert times(engine, job.id, "completed") == 1


def test_a_run_that_was_given_up_is_refused_and_stays_so(engine: Engine, worker: Worker) -> None:
    (job,) = engine.enqueue([command()])
    path, first = worker.claim()
    engine.reap(first["pool"], engine.pools()[0].beat)
    for verb in ("heartbeat", "complete", "fail", "complete"):
        more = {"error": "x"} if verb == "fail" else {}
        status, answer = worker.ask(f"{path}/{verb}", **first, **more)
        assert (status, answer["error"]["code"]) == (409, "lease_lost")
    _, second = worker.claim()
    assert worker.ask(f"{path}/complete", **first)[0] == 409
    assert worker.ask(f"{path}/complete", **second)[0] == 200
    assert times(engine, job.id, "completed") == 1


def test_the_end_of_a_cancelled_job_is_answered_again(engine: Engine, worker: Worker, cutting: Cutting) -> None:
    (job,) = engine.enqueue([command()])
    path, mine = worker.claim()
    engine.cancel([job.id])
    cutting.cut("/heartbeat")
    assert worker.ask(f"{path}/heartbeat", **mine) == (200, {"cancelled": True, "reason": "cancelled"})
    cutting.cut("/complete")
    assert worker.ask(f"{path}/complete", **mine) == (200, {"id": job.id, "state": "cancelled"})
    assert (engine.job(job.id).pool, times(engine, job.id, "completed"), engine.pools()) == (None, 0, [])


def test_spawned_once_although_the_answer_was_lost(engine: Engine, worker: Worker, cutting: Cutting) -> None:
    (job,) = engine.enqueue([command()])
    path, mine = worker.claim()
    cutting.cut("/spawn", times=2)
    two = [{"command": "true"}, {"command": "true"}]
    assert worker.ask(f"{path}/spawn", **mine, jobs=two, after=0) == (200, {"staged": 2})
    assert worker.ask(f"{path}/spawn", **mine, jobs=two, after=2) == (200, {"staged": 4})  # meant once more
    status, answer = worker.ask(f"{path}/spawn", **mine, jobs=[{"command": "false"}], after=1)
    assert (status, answer["error"]["code"]) == (409, "refused")
    cutting.cut("/complete")
    assert worker.ask(f"{path}/complete", **mine)[0] == 200
    assert engine.job(job.id).children.total == 4


def test_a_claim_whose_answer_was_lost_strands_the_job_for_its_lease(
    engine: Engine, worker: Worker, cutting: Cutting
) -> None:
    (job,) = engine.enqueue([command(max_attempts=1)])
    cutting.cut("/claim")
    reaper = Reaper(engine, engine.database_id, Log("watcher", quiet=True))
    reaper.look(me=None)
    worker.once("/v1/jobs/claim", lease_s=3)
    watch = Watch()
    reaper.look(me=None, force=True)

    def back() -> bool:
        reaper.look(me=None)
        return engine.job(job.id).state == "pending"

    until(back, 10, "the job is there to be had again")
    assert watch.s > 2
    assert watch.within(3 + 2)
    path, mine = worker.claim()
    assert worker.ask(f"{path}/complete", **mine)[0] == 200
    assert times(engine, job.id, "completed") == 1
