"""Threads that begin at the same moment, and locks that somebody stands before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from covey.engine.engine import Engine
from covey.testing import until


def together(*works: Callable[[], Any]) -> list[Any]:
    """What each answers, begun at the same moment, each in a thread. An exception is an answer too."""
    barrier = threading.Barrier(len(works))
    answers: list[Any] = [None] * len(works)

    def run(place: int, work: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            answers[place] = work()
        except Exception as error:
            answers[place] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def fine(answers: Sequence[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return list(answers)


def waits_for_a_lock(engine: Engine, sessions: int = 1) -> None:
    """That many sessions stand before a lock."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'covey'"
    until(lambda: engine.store.dialect.query(waiting, {})[0][0] >= sessions, 10, "a session waits for a lock")
