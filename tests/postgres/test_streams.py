"""A stream of tiny jobs, with claims handed out while the server works on the next turn: stopped, cancelled, cut."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.core.view import Filter
from covey.errors import Refused
from covey.testing import until
from tests.kit import check_queue
from tests.kit.proxy import Proxy

from .field import Field, _spec

JOBS = 6000


@pytest.fixture
def field(tmp_path: Path, url: str) -> Iterator[Field]:
    with Field(tmp_path, url) as field:
        yield field


def stream(field: Field) -> list[int]:
    return [each.id for each in field.engine.enqueue([_spec(number) for number in range(JOBS)])]


def ran(field: Field) -> Counter[str]:
    return Counter(field.traces())


def test_a_stop_in_the_middle_leaves_nothing_claimed_and_costs_nothing(field: Field) -> None:
    ids = stream(field)
    for least in (JOBS // 8, JOBS // 4):
        pool = field.pool(count=2)
        field.trace(least=least)
        assert pool.started().stop() == 0, pool.said()
        assert field.counts().get("pending", 0) > 0  # else there was no middle
        assert field.counts().get("processing", 0) == 0
        assert {job.attempts for job in field.engine.jobs(Filter(states=("pending",), limit=1000)).jobs} <= {0}
    field.pool(count=2)
    field.trace(least=JOBS * 3 // 4)
    field.all_ended(6)  # the last ones too are handed out at once, not with the next beat (10 s)
    assert set(ran(field).values()) == {1}
    assert len(ran(field)) == JOBS
    assert check_queue(field.engine, acknowledged=ids) == []


def test_cancelled_jobs_of_the_stream_never_start_after_their_answer(field: Field) -> None:
    ids = stream(field)
    field.pool(count=2)
    field.trace(least=JOBS // 4)
    for first in range(JOBS - 20, JOBS // 4, -20):  # all of them or none: where the stream is faster, none
        with contextlib.suppress(Refused):
            field.engine.cancel(ids[first : first + 20])
    field.all_ended(60)
    ended = field.engine.status().counts
    assert ended["completed"] + ended["cancelled"] == JOBS
    assert ended["cancelled"] > 0
    assert ended["completed"] <= len(ran(field)) <= JOBS
    assert set(ran(field).values()) == {1}
    assert check_queue(field.engine, acknowledged=ids) == []


def test_connections_that_are_cut_in_the_middle_lose_and_double_nothing(tmp_path: Path, proxy: Proxy) -> None:
    with Field(tmp_path, proxy.url) as field:
        ids = stream(field)
        pool = field.pool(count=2).started()
        for part in range(1, 7):
            field.trace(least=JOBS * part // 8)
            proxy.cut()
        until(lambda: len(field.traces()) >= JOBS, 60, "every job has run")
        proxy.cut()
        field.all_ended(60)
        assert set(ran(field).values()) == {1}
        assert pool.process.poll() is None
        assert check_queue(field.engine, acknowledged=ids) == []
