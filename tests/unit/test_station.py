"""The last thing a worker does for a job: it tells of it, whatever the task has made of the report."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from covey.core.model import Report
from covey.worker import slot, wire
from covey.worker.context import Context
from covey.worker.functions import set_requests
from covey.worker.slot import Slot
from covey.worker.station import Station


@pytest.fixture
def ends() -> Iterator[tuple[Station, socket.socket]]:
    """A worker's place, and where its reports arrive."""
    (jobs, others), (reports, arriving) = socket.socketpair(), socket.socketpair()
    fd = slot.create(1)
    memory = Slot(fd, 1)
    try:
        yield Station("w1", jobs, reports, memory, "", {}), arriving
    finally:
        memory.close()
        os.close(fd)
        for end in (jobs, others, reports, arriving):
            end.close()


def arrived(end: socket.socket) -> list[wire.FromWorker]:
    return wire.unframe(bytearray(end.recv(1 << 16)))


@pytest.mark.parametrize("odd", [object(), 10**30, "\ud800"])
def test_a_report_that_cannot_be_sent_is_told_as_a_failure(ends: tuple[Station, socket.socket], odd: Any) -> None:
    station, end = ends
    station.end(0, 7, Report(3, 5, "success", 100, result=odd))
    (done,) = arrived(end)
    assert isinstance(done, wire.Done)
    told = done.report
    assert (done.serial, told.id, told.fence, told.outcome) == (7, 3, 5, "failure")
    assert (told.worker, told.started_at, told.result) == ("w1", 100, None)
    assert "what became of it cannot be sent: " in (told.error or "")


def test_a_message_that_cannot_be_read_keeps_nothing_that_came_before_it_from_being_heard() -> None:
    buffer = bytearray(wire.frame(wire.Ready("w1")) + b"\x02\x00\x00\x00\xc1\xc1" + wire.frame(wire.Ready("w2")))
    ready, broken = wire.unframe(buffer)
    assert ready == wire.Ready("w1")
    assert isinstance(broken, wire.Broken)
    assert broken.name == wire.GARBLED
    assert not buffer


def test_a_message_of_the_wrong_shape_keeps_none_that_came_after_it_from_being_heard() -> None:
    odd = wire.frame(wire.Done(7, Report(3, 5, "success", after_s="soon")))  # type: ignore[arg-type]
    done = wire.Done(8, Report(4, 1, "success"))
    broken, heard = wire.unframe(bytearray(odd + wire.frame(done)))
    assert isinstance(broken, wire.Broken)
    assert heard == done


def test_what_is_wrong_with_what_a_run_asked_for_is_the_job_s_failure() -> None:
    context = Context.detached()
    context.collected = {"odd": object()}
    told = Report(3, 5, "success", result="1")
    set_requests(told, None, context)  # type: ignore[arg-type]
    assert (told.outcome, told.result, told.info, told.spawned) == ("failure", None, None, None)
    assert "odd" in (told.error or "")
