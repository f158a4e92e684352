"""covey db copy, cut short: killed, interrupted, failed, given up, and run twice at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from covey.engine import db_copy
from covey.errors import Refused, StoreError
from tests.kit import check_queue, command
from tests.kit.faults import Child

from .conftest import CommandLine, until
from .copies import Places, both_ways, contents, fill, opened

HALF = """
import sys
from covey import env
from covey.open import open_engine
from covey.engine import db_copy
old, new, pages, at = sys.argv[1:]
source, target = open_engine(old), open_engine(new)
if pages == "0":
    env.arm(at, "kill")
db_copy.begin(source.store, target.store, token=5, now=0)
for number, (table, done) in enumerate(db_copy.copy(source.store, target.store, page=3)):
    if number == int(pages):
        env.arm(at, "kill")
db_copy.compare(source.store, target.store)
env.arm(at, "kill")
db_copy.finish(source.store, target.store, token=5)
"""


@both_ways
@pytest.mark.parametrize("at", ["store.before_commit", "store.after_commit", "copy.before_seal", "copy.before_open"])
def test_a_killed_copy_is_resumed_and_misses_nothing(
    covey: CommandLine, place: Places, direction: tuple[str, str], at: str, proof: Callable[[int, int], int]
) -> None:
    old, new = map(place, direction)
    with opened(old) as source:
        fill(source, plain=10)
        before = contents(source)
    pages = [0] if at.startswith("copy.") else [0, 3, 9, 17, 30, 10_000][:: proof(2, 1)]
    for page in pages:
        with Child(HALF, old, new, page, at) as child:
            assert child.end()[0] == -signal.SIGKILL
    done = covey("db", "copy", old, new, "--json")
    if at == "store.after_commit" and done.code:
        assert "already; use that one" in done.err  # the last kill came after the copy was opened
    else:
        assert done.code == 0, done
        assert done.json["resumed"] is (at != "copy.before_seal")
    with opened(new) as target:
        assert contents(target) == before
        assert check_queue(target) == []
        assert target.enqueue([command()])


def test_what_a_kill_leaves_is_sealed_on_both_sides_and_can_be_aborted(covey: CommandLine, place: Places) -> None:
    old, new = place("sqlite"), place("postgres")
    with opened(old) as source:
        fill(source)
        before = contents(source)
    with Child(HALF, old, new, 9, "store.before_commit") as child:
        assert child.end()[0] == -signal.SIGKILL
    for said in (covey("--db", old, "enqueue", "x").err, covey("--db", old, "status").out):
        assert "this queue is being copied to " in said
        assert "run the same `covey db copy` again to finish it, or with --abort to give it up" in said
        assert "has moved" not in said
    assert "is an unfinished copy of" in covey("--db", new, "enqueue", "x").err
    assert "is an unfinished copy of" in covey("--db", new, "status").out
    assert "or give it up with --abort" in covey("db", "copy", old, "third.db").err
    done = covey("db", "copy", old, new, "--abort")
    assert (done.code, done.out) == (0, f"{old} can be used again\n")
    with opened(old) as source, opened(new) as target:
        assert contents(source) == before
        assert not any(contents(target).values())
        assert source.database_id != target.database_id
        assert source.enqueue([command()])
        assert target.enqueue([command()])
    assert "nothing to abort" in covey("db", "copy", old, new, "--abort").err


def test_a_copy_whose_target_was_deleted_can_be_aborted(covey: CommandLine, place: Places) -> None:
    old, new = place("sqlite"), place("sqlite")
    with opened(old) as source, opened(new) as target:
        source.enqueue([command()])
        db_copy.begin(source.store, target.store, token=1, now=0)
    os.unlink(new)
    assert covey("db", "copy", old, new, "--abort").code == 0
    assert covey("--db", old, "enqueue", "true").code == 0
    assert not os.path.exists(new)


@both_ways
def test_a_copy_that_was_given_up_is_begun_anew_and_not_resumed(
    covey: CommandLine, place: Places, direction: tuple[str, str]
) -> None:
    """The source was open in between: rows that were copied may have changed."""
    old, new = map(place, direction)
    with opened(old) as source, opened(new) as target:
        fill(source)
        db_copy.begin(source.store, target.store, token=1, now=0)
        pages = db_copy.copy(source.store, target.store, page=3)
        for _ in range(25):
            next(pages)
        db_copy.unseal(source.store, token=1)
        source.cancel([1])
        (made,) = source.enqueue([command("between")])
        before = contents(source)
    done = covey("db", "copy", old, new, "--json")
    assert (done.code, done.json["resumed"]) == (0, False)
    with opened(new) as target:
        assert contents(target) == before
        assert target.job(1).state == "cancelled"
        assert target.job(made.id).state == "pending"


def test_ctrl_c_opens_the_old_queue_again_and_says_so(covey: CommandLine, place: Places) -> None:
    old, new = str(covey.db), place("postgres")
    covey("enqueue", "true")
    covey.env["COVEY_FAILPOINTS"] = "copy.page=sleep:60"
    running = covey.popen("db", "copy", old, new)
    until(lambda: "being copied to" in covey("enqueue", "x", env={"COVEY_FAILPOINTS": None}).err)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (130, b"")
    assert b"can be used again" in err
    assert b"is incomplete" in err
    del covey.env["COVEY_FAILPOINTS"]
    assert covey("enqueue", "x").code == 0
    assert covey("db", "copy", old, new).code == 0


def test_an_error_opens_the_old_queue_again(covey: CommandLine, place: Places) -> None:
    old, new = str(covey.db), place("sqlite")
    covey("enqueue", "true")
    done = covey("db", "copy", old, new, env={"COVEY_FAILPOINTS": "copy.page=raise"})
    assert done.code == 1
    assert f"{old} can be used again" in done.err
    assert covey("enqueue", "x").code == 0


def test_of_two_copies_at_once_the_earlier_one_can_do_no_harm(place: Places) -> None:
    with opened(place("sqlite")) as source, opened(place("postgres")) as target:
        fill(source)
        db_copy.begin(source.store, target.store, token=1, now=0)
        assert db_copy.begin(source.store, target.store, token=2, now=0) is True
        for act in (
            lambda: db_copy.unseal(source.store, token=1),
            lambda: db_copy.finish(source.store, target.store, token=1),
        ):
            with pytest.raises(Refused, match="has taken over"):
                act()
        for _ in db_copy.copy(source.store, target.store):
            pass
        db_copy.finish(source.store, target.store, token=2)
        db_copy.finish(source.store, target.store, token=2)  # again, because its answer was lost
        assert contents(target) == contents(source)


def test_a_copy_that_is_not_whole_is_not_opened(place: Places) -> None:
    with opened(place("sqlite")) as source, opened(place("postgres")) as target:
        fill(source)
        db_copy.begin(source.store, target.store, token=1, now=0)
        for _ in db_copy.copy(source.store, target.store):
            pass
        with target.store.transaction():
            target.store.raw("delete from {edges}")
        with pytest.raises(StoreError, match=r"has 0 of \d edges; nothing was opened there"):
            db_copy.compare(source.store, target.store)
