"""A connection does not survive a fork, and says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import StoreError
from tests.kit import HandPool, check_queue, command
from tests.kit.faults import Child, ForkError, in_fork

VERBS: dict[str, Callable[[Engine], object]] = {
    "enqueue": lambda engine: engine.enqueue([command()]),
    "job": lambda engine: engine.job(1),
    "jobs": lambda engine: engine.jobs(Filter()),
    "status": lambda engine: engine.status(),
    "cancel": lambda engine: engine.cancel([1]),
    "register": lambda engine: HandPool(engine),
    "wait_for": lambda engine: engine.wait_for([1], 0),
}


@pytest.mark.parametrize("verb", VERBS)
def test_an_engine_used_in_a_forked_child_is_refused_cleanly(real: Engine, verb: str) -> None:
    real.enqueue([command()])
    with pytest.raises(ForkError, match="open it anew after a fork") as raised:
        in_fork(lambda: VERBS[verb](real))
    assert raised.value.kind is StoreError
    assert real.status().counts["pending"] == 1


def test_a_child_may_open_the_queue_anew_and_the_parent_s_locks_stay(
    path: str, real: Engine, opened: Callable[[str], Engine]
) -> None:
    def work() -> int:
        from covey.open import open_engine

        real.close()  # leaves the parent's connection alone
        engine = open_engine(path)
        (made,) = engine.enqueue([command()])
        engine.close()
        return made.id

    ids = [made.id for made in real.enqueue([command()])]
    for _ in range(3):
        ids.append(in_fork(work))
        ids += [made.id for made in real.enqueue([command()])]
    assert check_queue(opened(path), acknowledged=ids) == []
    assert ids == sorted(set(ids))


def test_a_child_that_ends_as_usual_takes_nothing_with_it(path: str, opened: Callable[[str], Engine]) -> None:
    code = """
import os, sys
from covey.open import open_engine
from tests.kit import command
engine = open_engine(sys.argv[1])
for n in range(5):
    print(engine.enqueue([command()])[0].id, flush=True)
    if os.fork() == 0:
        del engine
        sys.exit(0)  # with every finaliser
    os.wait()
    print(engine.enqueue([command()])[0].id, flush=True)
os.kill(os.getpid(), 9)
"""
    with Child(code, path) as child:
        ids = [int(line) for line in child.lines()]
    assert len(ids) == 10
    assert check_queue(opened(path), acknowledged=ids) == []
