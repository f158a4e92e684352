"""What a pool holds, and how many more jobs it has room for: no thread, no queue."""

from __future__ import annotations

import pytest

from covey.core.model import Claim, Kind, Report
from covey.core.turn import Capacity, Held, Turn
from covey.pool.capacity import Ledger, TypeCapacity, kinds_of, queues_of
from covey.pool.worker_types import plain, typed

ALONE = {"command": 1, "sync": 1}


def claim(id: int, kind: Kind = "sync", queue: str = "default", fence: int = 1) -> Claim:
    return Claim(id, fence, "task", kind, 1, 1, None, queue, None, None, 0, 0, None)


def ended(id: int, fence: int = 1) -> Report:
    return Report(id, fence, "success")


def turn(reports: list[Report], wants: list[Capacity]) -> Turn:
    return Turn(pool=1, database_id="d", number=1, reports=reports, wants=wants)


@pytest.fixture
def ledger() -> Ledger:
    """Of a pool with two sync workers."""
    ledger = Ledger(plain(2, None))
    assert ledger.resize({"": TypeCapacity({"sync": 2}, 2, ALONE, 50)})
    return ledger


def free(ledger: Ledger, *reports: Report) -> int:
    (left,) = ledger.left(reports)
    return left.limit


def test_what_is_claimed_takes_room_and_what_is_reported_gives_it_back(ledger: Ledger) -> None:
    assert (free(ledger), len(ledger)) == (2, 0)
    ledger.take([claim(1), claim(2)])
    assert (free(ledger), len(ledger)) == (0, 2)
    assert free(ledger, ended(1)) == 1  # once that is heard
    assert (free(ledger), len(ledger)) == (0, 2)
    ledger.end([ended(1)])
    assert (free(ledger), ledger.held()) == (1, [Held(2, 1)])


def test_a_report_of_another_fence_ends_nothing(ledger: Ledger) -> None:
    ledger.take([claim(1, fence=3)])
    ledger.end([ended(1, fence=2), ended(7)])
    assert (free(ledger, ended(1, fence=2)), ledger.held()) == (1, [Held(1, 3)])
    assert ledger.held(without=[ended(1, fence=2)]) == [Held(1, 3)]
    assert ledger.held(without=[ended(1, fence=3)]) == []


def test_a_turn_that_filled_all_places_is_followed_by_another_and_one_that_did_not_waits(ledger: Ledger) -> None:
    (wants,) = ledger.left()
    ledger.settle(turn([], [wants]), [claim(1), claim(2)])
    ledger.end([ended(1)])
    assert ledger.is_worth_a_turn()  # there was more than we could take
    (wants,) = ledger.left()
    ledger.settle(turn([], [wants]), [])
    assert free(ledger) == 1
    assert not ledger.is_worth_a_turn()
    ledger.look_again()  # something rang
    assert ledger.is_worth_a_turn()


def test_room_that_grows_is_worth_a_turn_and_room_that_shrinks_is_not(ledger: Ledger) -> None:
    (wants,) = ledger.left()
    ledger.settle(turn([], [wants]), [])
    assert not ledger.resize({"": TypeCapacity({"sync": 2}, 2, ALONE, 50)})  # the same
    assert not ledger.resize({"": TypeCapacity({"sync": 1}, 2, ALONE, 50)})
    assert not ledger.is_worth_a_turn()
    assert ledger.resize({"": TypeCapacity({"sync": 2}, 2, ALONE, 50)})
    assert ledger.is_worth_a_turn()


def test_a_pool_that_stops_takes_nothing_and_still_knows_what_it_holds(ledger: Ledger) -> None:
    ledger.take([claim(1)])
    assert not ledger.resize({})
    assert (ledger.left(), ledger.is_worth_a_turn(), ledger.held()) == ([], False, [Held(1, 1)])


def test_types_have_their_own_room(ledger: Ledger) -> None:
    ledger = Ledger(typed({"mail": 1, "shell": 2}))
    ready = TypeCapacity({"command": 2, "sync": 2}, 2, ALONE, 50)
    ledger.resize({"mail": ready, "shell": ready})
    assert ledger.take([claim(1, "sync", "mail"), claim(2, "sync", "mail"), claim(3, "command", "shell")]) == {
        "mail": 2,
        "shell": 1,
    }
    mail, shell = ledger.left()
    assert (mail.queues, mail.limit, mail.idle) == (("mail",), 0, False)
    assert (shell.queues, shell.limit, shell.places) == (("shell",), 1, {"command": 1, "sync": 1})
    ledger.forget()
    assert (len(ledger), [each.limit for each in ledger.left()]) == (0, [2, 2])


def test_coroutines_have_places_beside_the_count() -> None:
    ledger = Ledger(plain(1, None))
    ledger.resize({"": TypeCapacity({"command": 1, "async": 1}, 1, ALONE, 50)})
    ledger.take([claim(1, "command"), *(claim(id, "async") for id in range(2, 32))])
    (left,) = ledger.left()
    assert (left.places, left.bound, left.limit, left.idle) == ({"command": 0, "async": 20}, 0, 20, False)
    assert kinds_of([left]) == ("async",)


def test_a_pool_listens_only_where_it_has_room() -> None:
    some, none = Capacity(("a", "b"), {"sync": 1}, 1), Capacity(None, {"sync": 1}, 1)
    assert queues_of([some, Capacity(("b", "c"), {"sync": 1}, 1)]) == ("a", "b", "c")
    assert queues_of([some, none]) is None
    assert queues_of([]) == kinds_of([]) == ()
