"""The last thing a worker does for a job: it tells of it, whatever the task has made of the report."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from covey.core.model import Claim, Report
from covey.worker import messages, slot
from covey.worker.context import Context
from covey.worker.pool_link import PoolLink
from covey.worker.slot import Slot
from covey.worker.sync_worker import set_requests


@pytest.fixture
def ends() -> Iterator[tuple[PoolLink, socket.socket]]:
    """A worker's place, and where its reports arrive."""
    (jobs, others), (reports, arriving) = socket.socketpair(), socket.socketpair()
    fd = slot.create(1)
    memory = Slot(fd, 1)
    try:
        yield PoolLink("w1", jobs, reports, memory, "", {}), arriving
    finally:
        memory.close()
        os.close(fd)
        for end in (jobs, others, reports, arriving):
            end.close()


def arrived(end: socket.socket) -> list[messages.FromWorker]:
    return messages.unframe(bytearray(end.recv(1 << 16)))


@pytest.mark.parametrize("odd", [object(), 10**30, "\ud800"])
def test_a_report_that_cannot_be_sent_is_told_as_a_failure(ends: tuple[PoolLink, socket.socket], odd: Any) -> None:
    link, end = ends
    link.end(0, 7, Report(3, 5, "success", 100, result=odd))
    (done,) = arrived(end)
    assert isinstance(done, messages.JobDone)
    told = done.report
    assert (done.serial, told.id, told.fence, told.outcome) == (7, 3, 5, "failure")
    assert (told.worker, told.started_at, told.result) == ("w1", 100, None)
    assert "what became of it cannot be sent: " in (told.error or "")


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(ends: tuple[PoolLink, socket.socket]) -> None:
    link, end = ends
    messages.send_answer(end, 0, b"[0]")  # to somebody who was stopped while he waited
    messages.send_answer(end, 1, b"[1]")
    assert link.ask(7) == b"[1]"
    assert arrived(end) == [messages.Ask(7, 1)]
    big = b"[" + b"1," * (1 << 20) + b"1]"
    messages.send_answer(end, 2, big)
    assert link.ask(8) == big
    messages.send_answer(end, 3, None)
    assert link.ask(9) is None


def test_who_asks_does_not_wait_for_ever(ends: tuple[PoolLink, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    link, end = ends
    monkeypatch.setattr("covey.worker.pool_link.ANSWER_S", 0.05)
    assert link.ask(7) is None
    end.shutdown(socket.SHUT_RDWR)
    assert link.ask(7) is None


def test_a_task_whose_question_is_not_answered_has_what_it_was_told_with_its_claim() -> None:
    claim = Claim(5, 1, "t", "sync", 1, 1, None, "q", None, None, 0, 0, None, parent_id=3)
    claim.failed_siblings = '[{"id":4,"key":null,"task":"t","state":"dead"}]'
    asked: list[int] = []

    def silence() -> None:
        asked.append(1)

    told = Context.from_claim(claim, siblings=silence).failed_siblings()
    assert ([child.id for child in told], asked) == ([4], [1])
    assert Context.from_claim(claim, siblings=lambda: b"[]").failed_siblings() == []


def test_a_message_that_cannot_be_read_keeps_nothing_that_came_before_it_from_being_heard() -> None:
    buffer = bytearray(
        messages.frame(messages.Ready("w1")) + b"\x02\x00\x00\x00\xc1\xc1" + messages.frame(messages.Ready("w2"))
    )
    ready, broken = messages.unframe(buffer)
    assert ready == messages.Ready("w1")
    assert isinstance(broken, messages.Broken)
    assert broken.name == messages.GARBLED
    assert not buffer


def test_a_message_of_the_wrong_shape_keeps_none_that_came_after_it_from_being_heard() -> None:
    odd = messages.frame(messages.JobDone(7, Report(3, 5, "success", after_s="soon")))  # type: ignore[arg-type]
    done = messages.JobDone(8, Report(4, 1, "success"))
    broken, heard = messages.unframe(bytearray(odd + messages.frame(done)))
    assert isinstance(broken, messages.Broken)
    assert heard == done


def test_what_is_wrong_with_what_a_run_asked_for_is_the_job_s_failure() -> None:
    context = Context.detached()
    context.collected = {"odd": object()}
    told = Report(3, 5, "success", result="1")
    set_requests(told, None, context)  # type: ignore[arg-type]
    assert (told.outcome, told.result, told.info, told.spawned) == ("failure", None, None, None)
    assert "odd" in (told.error or "")
