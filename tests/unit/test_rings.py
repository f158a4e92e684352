"""Who is woken by what: every verb that gives pools or waiting people something to do rings the bell, no other does.

Nothing depends on a ring but time; without it all would come to pass a poll later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from covey.engine.engine import Engine
from covey.open import open_dialect, open_engine
from covey.store.store import Store
from covey.testing import FakeClock
from tests.kit import HandPool, after, child, command
from tests.kit.hand_pool import report

POOL, END = {"pool"}, {"end"}


class Street:
    """A queue on a file, two pools that are at work, and what rings there."""

    def __init__(self, path: Path) -> None:
        open_engine(str(path)).close()
        self.clock = FakeClock()
        self.engine = Engine(Store(open_dialect(str(path))), clock=self.clock, rng=Random(0))
        self.pool, self.other = HandPool(self.engine, name="one"), HandPool(self.engine, name="two")
        self.pool.beat()  # its duties are done
        self._ears = {who: self.engine.store.listen(who) for who in ("pool", "end")}

    def rung(self, act: Callable[[], Any]) -> set[str]:
        self.heard()
        act()
        return self.heard()

    def heard(self) -> set[str]:
        return {who for who, ear in self._ears.items() if ear.wait(0)}

    def close(self) -> None:
        for ear in self._ears.values():
            ear.close()
        self.engine.close()


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    street = Street(tmp_path / "queue.db")
    yield street
    street.close()


def test_new_jobs_wake_pools_and_jobs_that_were_there_wake_nobody(street: Street) -> None:
    engine = street.engine
    assert street.rung(lambda: engine.enqueue([command(key="k")])) == POOL
    assert street.rung(lambda: engine.enqueue([command()])) == POOL
    assert street.rung(lambda: engine.enqueue([command(key="k", if_exists="return")])) == set()


def test_what_a_person_changes_wakes_everybody(street: Street) -> None:
    engine = street.engine
    (made,) = engine.enqueue([command()])
    assert street.rung(lambda: engine.cancel([made.id])) == POOL | END
    assert street.rung(lambda: engine.retry([made.id])) == POOL | END
    assert street.rung(lambda: engine.cancel([])) == set()
    assert street.rung(lambda: engine.pause("default")) == POOL
    assert street.rung(lambda: engine.resume("default")) == POOL
    assert street.rung(lambda: engine.set_queue("default", concurrency=3)) == POOL
    assert street.rung(lambda: engine.stop_pools([street.pool.id])) == POOL


def test_a_claim_wakes_nobody_and_an_end_those_who_wait_for_it(street: Street) -> None:
    street.engine.enqueue([command() for _ in range(4)])
    claims = street.pool.claim(4)
    assert street.heard() == POOL  # of the enqueue
    assert street.rung(lambda: street.pool.succeed(claims[0])) == END
    assert street.rung(lambda: street.pool.fail(claims[1])) == END
    assert street.rung(lambda: street.pool.succeed(claims[0])) == set()  # told twice
    assert street.rung(street.pool.beat) == POOL  # the other two were unknown to it, and are there to be had
    assert street.rung(lambda: street.pool.turn(want=2)) == set()


def test_what_a_pool_gives_back_is_somebody_elses(street: Street) -> None:
    street.engine.enqueue([command(), command()])
    street.pool.claim(1)
    assert street.rung(lambda: street.engine.leave(street.pool.id)) == POOL
    street.other.claim(1)
    assert street.rung(street.other.lose) == POOL | END
    third = HandPool(street.engine)
    assert street.rung(lambda: street.engine.leave(third.id)) == set()


def test_children_and_their_parents_wake_pools_for_what_the_spawner_does_not_take(street: Street) -> None:
    street.engine.enqueue([command("root", joins=True)])
    (root,) = street.pool.claim(1)
    assert street.rung(lambda: street.pool.spawn(root, child(), child(), after())) == POOL | END
    one, two = street.pool.claim(2)
    assert street.rung(lambda: street.pool.succeed(one)) == END
    assert street.rung(lambda: street.pool.succeed(two)) == POOL | END  # the join is due
    (join,) = street.pool.claim(1)
    assert street.rung(lambda: street.pool.succeed(join)) == POOL | END  # the uncle may start


def test_whoever_takes_what_it_has_opened_wakes_nobody_for_it(street: Street) -> None:
    street.engine.enqueue([command("root")])
    (root,) = street.pool.claim(1)
    spawned = report(root, "success", spawned=[child(), child()])
    assert street.rung(lambda: street.pool.turn(spawned, want=2)) == END


def test_serial_children_wake_pools_one_by_one(street: Street) -> None:
    street.engine.enqueue([command("root", child_mode="serial")])
    (root,) = street.pool.claim(1)
    assert street.rung(lambda: street.pool.spawn(root, child(), child())) == POOL | END
    (first,) = street.pool.claim(2)
    assert street.rung(lambda: street.pool.succeed(first)) == POOL | END


def test_what_has_become_due_wakes_pools_unless_its_finder_takes_it(street: Street) -> None:
    street.engine.enqueue([command(delay_s=1), command(delay_s=1)])
    street.clock.advance(1)
    assert street.rung(lambda: street.pool.claim(1)) == POOL
    street.engine.enqueue([command(delay_s=1)])
    street.pool.claim(5)
    street.clock.advance(1)
    assert street.rung(lambda: street.pool.claim(1)) == set()
