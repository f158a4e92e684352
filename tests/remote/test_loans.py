"""Loans through a server: a claim that is asked again, one whose asker hangs up, hand-backs and time-outs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from covey.engine.engine import Engine
from covey.errors import Busy
from covey.open import open_engine
from covey.testing import until
from covey.web.api import loans
from tests.kit import command
from tests.kit.faults import failpoint
from tests.kit.http_server import Served

from ..web.process import running
from .conftest import BOTH, times
from .cutting import Cutting
from .test_lost_answers import Worker


@pytest.fixture
def worker(cutting: Cutting) -> Iterator[Worker]:
    worker = Worker(cutting.url)
    yield worker
    worker.close()


# ── a claim with a name ─────────────────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_claim_that_is_asked_again_under_its_name_gives_the_same_loan(
    engine: Engine, worker: Worker, cutting: Cutting
) -> None:
    ids = [made.id for made in engine.enqueue([command(timeout_s=9), command()])]
    cutting.cut("/claim", times=2)
    status, answer = worker.ask("/v1/jobs/claim", request="one", lease_s=20)
    lent = answer["lent"]
    assert (status, lent["job"]["id"], lent["attempt"], lent["timeout_s"]) == (200, ids[0], 1, 9)
    again = worker.ask("/v1/jobs/claim", request="one", lease_s=20)[1]["lent"]
    assert {name: again[name] for name in again if name != "job"} == {
        name: lent[name] for name in lent if name != "job"
    }
    assert again["job"]["id"] == ids[0]
    assert [engine.job(id).state for id in ids] == ["processing", "pending"]
    assert worker.ask("/v1/jobs/claim", request="two")[1]["lent"]["job"]["id"] == ids[1]
    hold = {"pool": lent["pool"], "fence": lent["fence"]}
    assert worker.ask(f"/v1/jobs/{ids[0]}/complete", **hold)[0] == 200
    assert worker.ask("/v1/jobs/claim", request="one") == (200, {"lent": None})  # it is over, and there is no other
    assert times(engine, ids[0], "processing") == 1


def test_the_names_of_two_tokens_are_not_mixed_up(engine: Engine, served: Served) -> None:
    engine.enqueue([command(), command()])
    pools = set()
    for name in ("a", "b"):
        worker = Worker(served.url, engine.create_token(name, "worker")[1])
        try:
            pools.add(worker.ask("/v1/jobs/claim", request="mine")[1]["lent"]["pool"])
        finally:
            worker.close()
    assert len(pools) == 2


@contextmanager
def asking(url: str, **body: object) -> Iterator[None]:
    """Somebody who has asked for a job and does not wait for the answer longer than the block lasts."""
    data = json.dumps(body).encode()
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as asking:
        asking.sendall(b"POST /v1/jobs/claim?wait=30 HTTP/1.1\r\nHost: localhost\r\n")
        asking.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        yield


def hang_up(url: str, engine: Engine, job: int, **body: object) -> None:
    """A claim of somebody who is gone before he hears that he was lent the job."""
    with failpoint("turn.after_commit", "sleep:3"), asking(url, **body):
        until(lambda: engine.job(job).state == "processing", 20)


@BOTH
def test_what_was_lent_to_somebody_who_hung_up_in_that_moment_is_handed_back(engine: Engine, served: Served) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    hang_up(served.url, engine, made.id, lease_s=600)
    until(lambda: engine.job(made.id).state == "pending", 20)
    assert (engine.job(made.id).attempts, engine.job(made.id).interruptions) == (0, 0)
    until(lambda: engine.pools() == [], 10)


def test_with_a_name_it_waits_a_moment_for_who_comes_again(
    engine: Engine, served: Served, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    hang_up(served.url, engine, made.id, lease_s=600, request="mine")
    lent = worker.ask("/v1/jobs/claim", request="mine", lease_s=600)[1]["lent"]
    assert lent["job"]["id"] == made.id
    hold = {"pool": lent["pool"], "fence": lent["fence"]}
    assert worker.ask(f"/v1/jobs/{made.id}/release", **hold) == (200, {"id": made.id})
    monkeypatch.setattr(loans, "NAMED_S", 0.2)
    hang_up(served.url, engine, made.id, lease_s=600, request="never again")
    until(lambda: engine.job(made.id).state == "pending", 20)
    until(lambda: engine.pools() == [], 10)


@BOTH
def test_a_named_claim_that_failed_once_is_tried_anew_when_it_is_asked_again(engine: Engine, worker: Worker) -> None:
    (made,) = engine.enqueue([command()])
    with failpoint("turn.before_commit", "raise"):
        for _ in range(2):
            assert worker.ask("/v1/jobs/claim", request="mine")[0] >= 500
    status, answer = worker.ask("/v1/jobs/claim", request="mine")
    assert (status, answer["lent"]["job"]["id"]) == (200, made.id)


class Slow:
    """Lending that goes on until its asker is known to be gone, and may then fail."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, error: Exception | None = None) -> None:
        self._begun, self._gone, self._error = threading.Event(), threading.Event(), error
        self._lend, hand_back = getattr(loans, name), loans.Lending._hand_back
        patch.setattr(loans, name, self._slowly)
        patch.setattr(loans.Lending, "_hand_back", lambda *each: self._gone.set() or hand_back(*each))

    def _slowly(self, *asked: Any) -> Any:
        lent = None if self._error else self._lend(*asked)
        self._begun.set()
        assert self._gone.wait(20)
        if self._error:
            raise self._error
        return lent

    def hang_up(self, url: str, **body: object) -> None:
        """Of the one who has asked for it; the server has noticed."""
        with asking(url, **body):
            assert self._begun.wait(20)
        assert self._gone.wait(20)


def test_a_named_claim_that_failed_after_its_asker_hung_up_is_tried_anew(
    engine: Engine, served: Served, worker: Worker
) -> None:
    (made,) = engine.enqueue([command()])
    with pytest.MonkeyPatch.context() as patch:
        Slow(patch, "_lend", Busy("the database is busy")).hang_up(served.url, request="mine")
    lent: list[Any] = []

    def told() -> bool:  # who comes before the failure is told of it, once
        lent.append(worker.ask("/v1/jobs/claim", request="mine"))
        return lent[-1][0] == 200

    until(told, 20)
    assert len(lent) <= 2
    assert lent[-1][1]["lent"]["job"]["id"] == made.id


def test_a_loan_that_could_not_be_told_once_more_is_told_when_it_is_asked_again(engine: Engine, worker: Worker) -> None:
    engine.enqueue([command(), command()])
    lent = worker.ask("/v1/jobs/claim", request="mine")[1]["lent"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loans, "_still", busy)
        assert worker.ask("/v1/jobs/claim", request="mine")[0] == 503
    again = worker.ask("/v1/jobs/claim", request="mine")[1]["lent"]
    assert (again["job"]["id"], again["fence"]) == (lent["job"]["id"], lent["fence"])


def busy(*asked: object) -> None:
    raise Busy("the database is busy")


@BOTH
def test_who_hangs_up_twice_under_one_name_leaves_nothing_lent(
    engine: Engine, served: Served, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    hang_up(served.url, engine, made.id, lease_s=600, request="mine")
    assert worker.ask("/v1/jobs/claim", request="mine", lease_s=600)[1]["lent"]["job"]["id"] == made.id
    monkeypatch.setattr(loans, "NAMED_S", 0.2)
    with pytest.MonkeyPatch.context() as patch:
        Slow(patch, "_still").hang_up(served.url, lease_s=600, request="mine")
    until(lambda: engine.job(made.id).state == "pending", 20)
    assert (engine.job(made.id).attempts, engine.job(made.id).interruptions) == (0, 0)
    until(lambda: engine.pools() == [], 10)


# ── handed back, out of time ────────────────────────────────────────────────────────────────────────────────────────


@BOTH
def test_a_released_job_is_to_be_had_again_at_once(engine: Engine, worker: Worker, cutting: Cutting) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    path, hold = worker.claim()
    worker.ask(f"{path}/output", **hold, stdout="half")
    wrong = hold | {"fence": hold["fence"] - 1}
    assert worker.ask(f"{path}/release", **wrong)[0] == 409
    assert engine.job(made.id).state == "processing"
    cutting.cut("/release")
    status, answer = worker.ask(f"{path}/release", **hold)  # again, after the answer was lost
    assert (status, answer["error"]["code"]) == (409, "lease_lost")
    assert (engine.job(made.id).state, engine.job(made.id).attempts, engine.pools()) == ("pending", 0, [])
    path, hold = worker.claim()
    assert worker.ask(f"{path}/complete", **hold)[0] == 200
    assert engine.history(made.id) == []


@pytest.mark.parametrize("verb", ["heartbeat", "output", "spawn", "complete", "fail", "release"])
def test_a_lower_fence_is_a_409_and_no_change(engine: Engine, worker: Worker, verb: str) -> None:
    (made,) = engine.enqueue([command()])
    path, hold = worker.claim()
    more = {"spawn": {"jobs": [{"command": "true"}]}, "fail": {"error": "e"}}.get(verb, {})
    before = engine.job(made.id)
    for step in (-1, 1):
        status, answer = worker.ask(f"{path}/{verb}", **(hold | {"fence": hold["fence"] + step}), **more)
        assert (status, answer["error"]["code"]) == (409, "lease_lost"), step
    assert engine.job(made.id) == before
    assert worker.ask(f"{path}/heartbeat", **hold) == (200, {"cancelled": False, "reason": None})
    assert worker.ask(f"{path}/complete", **hold)[0] == 200


def test_a_loan_whose_borrower_does_not_stop_it_ends_with_its_time_out(tmp_path: Path) -> None:
    with running(tmp_path / "queue.db") as server:
        engine, worker = open_engine(str(server.db)), Worker(server.url)
        try:
            (made,) = engine.enqueue([command(timeout_s=0.5, max_attempts=1)])
            path, hold = worker.claim()
            worker.ask(f"{path}/output", **hold, stdout="so far")
            told = []
            until(lambda: told.append(worker.ask(f"{path}/heartbeat", **hold)) or told[-1][0] == 409, 60)
            assert {(said["cancelled"], said["reason"]) for status, said in told if status == 200} <= {
                (False, None),
                (True, "timed out after 0.5 s"),
            }
            found = engine.job(made.id)
            assert (found.error, found.attempts) == ("timed out after 0.5 s", 1)
            assert [each.stdout for each in engine.history(made.id)] == ["so far"]
            for verb in ("heartbeat", "complete", "complete"):
                status, answer = worker.ask(f"{path}/{verb}", **hold)
                assert (status, answer["error"]["code"]) == (409, "lease_lost")
            assert (engine.job(made.id), engine.pools()) == (found, [])
        finally:
            worker.close()
            engine.close()
