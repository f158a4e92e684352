"""Who waits at a server is woken when there is something to do: at once by the bell, within a second without it.

At once means: without a look. The server never looks by itself here, so whoever was not woken sleeps until the end of
his wait, however slow the machine is; and who sleeps on after somebody else was woken is still to be seen in the hub.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from covey.core import bodies
from covey.engine.engine import Engine
from covey.remote.remote import Remote
from covey.testing import until
from covey.web import notifier
from tests.kit import HandPool, child, command, pool_info
from tests.kit.http_server import Served
from tests.kit.running import Watch

from .conftest import BOTH

SOON_S = 30.0


class Waiting:
    """A pool driven by hand that waits in a thread of its own."""

    def __init__(self, remote: Remote, threads: ThreadPoolExecutor, **fields: Any) -> None:
        self.remote, self._threads = remote, threads
        self.pool = HandPool(remote, pool_info(**fields))

    def wait(self, queues: tuple[str, ...] | None = None, timeout_s: float = SOON_S, **more: Any) -> Future[bool]:
        """Whether the wait was over because something changed."""
        return self._threads.submit(self.remote.wait, self.pool.id, queues, timeout_s, **more)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(100) as threads:
        yield threads


@pytest.fixture(autouse=True)
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server never looks by itself, so that whoever was not woken sleeps on; except where that is the point."""
    if "without_a_bell" not in request.node.name:
        monkeypatch.setattr(notifier, "LOOK_S", 60.0)


@pytest.fixture
def make(connect: Callable[[], Remote], threads: ThreadPoolExecutor) -> Iterator[Callable[..., Waiting]]:
    made: list[Waiting] = []

    def make(**fields: Any) -> Waiting:
        made.append(Waiting(connect(), threads, **fields))
        return made[-1]

    yield make
    for each in made:
        each.remote.wake()  # who sleeps on need not do so to the end


@pytest.fixture
def waiting(served: Served) -> Callable[[int], None]:
    """Returns once so many wait at the server: who was woken has left in the same moment."""
    return lambda count: until(lambda: len(served.app._hub._waiters) == count, SOON_S, f"{count} wait") and None


Make = Callable[..., Waiting]
Wait = Callable[[int], None]


@BOTH
def test_a_job_that_another_process_writes_into_the_database_wakes_a_waiter_at_once(
    engine: Engine, make: Make, waiting: Wait, url: str
) -> None:
    waiter = make()
    waiter.pool.turn()
    woken = waiter.wait()
    waiting(1)
    program = "import sys; from covey.open import open_engine; from tests.kit import command\n"
    program += "open_engine(sys.argv[1]).enqueue([command()])"
    subprocess.run([sys.executable, "-c", program, url], check=True, cwd=Path(__file__).parents[2])
    assert woken.result()
    assert waiter.pool.claim_one()


def test_without_a_bell_a_waiter_is_woken_within_a_second(
    engine: Engine, make: Make, waiting: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter = make()
    waiter.pool.turn()
    woken = waiter.wait()
    waiting(1)
    monkeypatch.setattr(engine.store.dialect, "ring", lambda *_: None)
    engine.enqueue([command()])
    assert woken.result()
    assert notifier.LOOK_S <= 1


def test_a_hundred_waiters_and_a_hundred_jobs_nobody_misses(
    engine: Engine, make: Make, waiting: Wait, proof: Callable[[int, int], int]
) -> None:
    waiters = [make(name=f"w{n}") for n in range(100)]
    for waiter in waiters:
        waiter.pool.turn()
    for _ in range(proof(1, 10)):
        woken = [waiter.wait() for waiter in waiters]
        waiting(100)
        engine.enqueue([command() for _ in range(100)])
        assert all(each.result() for each in woken)
        claims = [claim for waiter in waiters for claim in waiter.pool.claim(1)]
        assert len({claim.id for claim in claims}) == 100
        for waiter, claim in zip(waiters, claims, strict=True):
            waiter.pool.succeed(claim)


def test_one_job_wakes_one_of_them(engine: Engine, make: Make, waiting: Wait, served: Served) -> None:
    waiters = [make(name=f"w{n}") for n in range(10)]
    for waiter in waiters:
        waiter.pool.turn()
    woken = [waiter.wait(queues=("default",)) for waiter in waiters]
    waiting(10)
    engine.enqueue([command()])
    until(lambda: any(each.done() for each in woken), SOON_S)
    (first,) = [waiter for waiter, each in zip(waiters, woken, strict=True) if each.done()]
    first.pool.claim_one()
    last = first.wait(queues=("other",))
    waiting(10)
    engine.enqueue([command(queue="other")])  # a look later than all those that could have woken a second one
    assert last.result()
    waiting(9)


@BOTH
def test_a_job_between_the_turn_and_the_wait_is_not_slept_through(engine: Engine, make: Make, served: Served) -> None:
    """Round after round, whenever the bell is heard: before the wait, in the same moment, after it."""
    waiter = make()
    waiter.wait(timeout_s=0.1).result(20)  # from here on the server listens
    until(lambda: served.app._hub._ears, SOON_S)
    assert waiter.pool.claim(1) == []
    seen = served.app._hub.seen
    engine.enqueue([command()])
    until(lambda: served.app._hub.seen != seen, SOON_S)
    assert waiter.wait().result()
    waiter.pool.succeed(until(lambda: waiter.pool.claim(1), SOON_S)[0])
    for n in range(40):
        assert waiter.pool.claim(1) == []
        writer = threading.Timer(n * 0.0003, engine.enqueue, [[command()]])
        writer.start()
        assert waiter.wait().result()
        writer.join()
        waiter.pool.succeed(until(lambda: waiter.pool.claim(1), SOON_S)[0])


def test_a_full_pool_takes_no_wake_up_from_an_idle_one(engine: Engine, make: Make, waiting: Wait) -> None:
    """Neither one without a free place, nor one that has none for this kind or queue."""
    others = [make(name=f"other{n}") for n in range(3)]
    idle = make(name="idle")
    for waiter in (*others, idle):
        waiter.pool.turn()
    others[0].wait(queues=())
    others[1].wait(kinds=("async",))
    others[2].wait(queues=("mail",))
    waiting(3)
    woken = idle.wait()
    waiting(4)
    engine.enqueue([command()])
    assert woken.result()
    waiting(3)
    idle.pool.claim_one()


def test_a_wait_that_a_turn_has_overtaken_is_over(engine: Engine, make: Make, waiting: Wait, served: Served) -> None:
    """The question "I am full" that arrives after the turn that made room must not be the one that is waited on."""
    waiter = make()
    waiter.pool.turn()
    waiter.pool.turn()
    watch = Watch()
    answer = waiter.remote._ask("wait", bodies.Wait(queues=(), timeout_s=SOON_S, turn=1), pool=waiter.pool.id)
    assert not answer.changed
    assert watch.s < SOON_S
    woken = waiter.wait()
    waiting(1)
    engine.enqueue([command()])
    assert woken.result()


@pytest.mark.parametrize("what", ["stop", "cancel", "reaped"])
@pytest.mark.parametrize("full", [False, True])
def test_a_waiting_pool_is_told_without_a_look(
    engine: Engine, make: Make, waiting: Wait, what: str, full: bool
) -> None:
    (job,) = engine.enqueue([command()])
    waiter = make()
    claim = waiter.pool.claim_one()
    woken = waiter.wait(queues=() if full else None)
    waiting(1)
    match what:
        case "stop":
            engine.stop_pools([waiter.pool.id])
        case "cancel":
            engine.cancel([job.id])
        case "reaped":
            waiter.pool.lose(engine)
    assert woken.result()  # that it was reaped, the next beat finds out
    if what != "reaped":  # told once is enough, however often the server looks
        until(lambda: not waiter.wait(queues=("none",), timeout_s=0.1).result(), SOON_S, "all rings heard")
        waiter.wait(queues=())
        other = make(name="other")
        other.pool.turn()
        waiting(1)
        woken = other.wait()
        waiting(2)
        engine.enqueue([command()])
        assert woken.result()
        waiting(1)
    reply = waiter.pool.beat(claim)
    assert (reply.stop, bool(reply.cancels), reply.lost) == (what == "stop", what == "cancel", what == "reaped")


def test_what_is_due_wakes_one_with_a_free_place(
    engine: Engine, make: Make, waiting: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment after which another one would be woken, should nobody have taken it by then, does not end here."""
    monkeypatch.setattr(notifier, "MOMENT_S", 60.0)
    full, idle = make(name="full"), make(name="idle")
    for waiter in (full, idle):
        waiter.pool.turn()
    full.wait(queues=())
    waiting(1)
    woken = idle.wait()
    waiting(2)
    engine.enqueue([command(delay_s=0.4)])
    assert woken.result()
    waiting(1)
    assert idle.pool.claim_one()


def test_what_is_due_and_nobody_takes_wakes_another_one_even_if_it_is_full(
    engine: Engine, make: Make, waiting: Wait
) -> None:
    full, idle = make(name="full"), make(name="idle")
    for waiter in (full, idle):
        waiter.pool.turn()
    others = [full.wait(queues=()), idle.wait()]
    waiting(2)
    engine.enqueue([command(delay_s=0.4)])
    assert all(each.result() for each in others)


def test_the_end_of_a_tree_s_time_reaches_the_pool_that_runs_it_even_if_it_is_full(
    engine: Engine, make: Make, waiting: Wait
) -> None:
    engine.enqueue([command(tree_timeout_s=0.8)])
    watch, waiter = Watch(), make()
    waiter.pool.spawn(waiter.pool.claim_one(), child())
    claim = waiter.pool.claim_one()
    while not waiter.wait(queues=()).result() or not waiter.pool.beat(claim).cancels:
        assert watch.s < SOON_S, "it was not told"
    assert watch.s > 0.7


def test_a_failed_job_s_second_try_wakes_a_waiter(engine: Engine, make: Make, waiting: Wait) -> None:
    engine.enqueue([command(max_attempts=2, backoff_base=1, backoff_cap_s=0.3, jitter=False)])
    waiter = make()
    waiter.pool.fail(waiter.pool.claim_one())
    assert waiter.wait().result()
    assert waiter.pool.claim_one().attempt == 2


def test_children_wake_a_waiter(engine: Engine, make: Make, waiting: Wait, connect: Callable[[], Remote]) -> None:
    engine.enqueue([command()])
    parent, waiter = HandPool(connect()), make()
    claim = parent.claim_one()
    waiter.pool.turn()
    woken = waiter.wait()
    waiting(1)
    parent.spawn(claim, child())
    assert woken.result()
    assert waiter.pool.claim_one()
