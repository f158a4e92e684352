"""Verbs for many jobs at once: counted first, asked for, done in pages, gone on with after an interruption."""

from __future__ import annotations

import pytest

from covey.cli import selection
from covey.core.view import Change
from covey.engine.engine import Engine
from covey.errors import Refused
from tests.kit import HandPool, command

from .conftest import CommandLine


@pytest.fixture
def some(covey: CommandLine, engine: Engine) -> CommandLine:
    """1 dead, 2 and 3 pending in mail, 4 pending with a label."""
    engine.enqueue([command(max_attempts=1)])
    pool = HandPool(engine)
    pool.fail(pool.claim_one())
    engine.leave(pool.id)
    engine.enqueue([command(queue="mail"), command(queue="mail"), command(labels={"tenant": "t 7"})])
    return covey


def test_many_are_counted_before_anything_is_done(some: CommandLine) -> None:
    done = some("cancel", "--queue", "mail")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: this would cancel 2 jobs (2 pending); say --yes to do it\n"
    assert some.state(2) == some.state(3) == "pending"
    assert some("cancel", "--queue", "mail", "--yes").out == "2 jobs cancelled\n"
    assert some.state(2) == some.state(3) == "cancelled"
    again = some("cancel", "--queue", "mail", "--yes")
    assert (again.code, again.out, again.err) == (0, "0 jobs cancelled\n", "no jobs match\n")


def test_each_verb_takes_what_it_can_be_done_to(some: CommandLine) -> None:
    assert some("cancel", "--label", "tenant=t 7", "--yes").out == "1 job cancelled\n"
    assert some("retry", "--state", "dead", "--yes").out == "1 job will run again\n"
    assert some.state(1) == "pending"
    assert some("remove", "--query", "age:<1h", "--yes").out == "1 job removed\n"  # what has not ended stays
    assert [job["id"] for job in some("list", "--json").json] == [3, 2, 1]
    assert len(some("cancel", "--all", "--yes", "--json").json) == 3


def test_one_way_to_say_which_is_needed_and_only_one(some: CommandLine) -> None:
    for words in (["cancel"], ["cancel", "1", "--all"], ["retry"], ["remove", "2", "--queue", "mail"]):
        done = some(*words, "--yes") if words[1:] else some(*words)
        assert done.code == 2, words
        assert "name the jobs, or say which" in done.err
    assert "did you mean 'state'" in some("cancel", "--query", "stat:dead", "--yes").err
    assert some.state(2) == "pending"


def test_list_understands_the_same_words(some: CommandLine) -> None:
    assert [job["id"] for job in some("list", "queue:mail", "state:pending", "--json").json] == [3, 2]
    assert [job["id"] for job in some("list", "--query", 'label.tenant:"t 7"', "--json").json] == [4]
    assert some("list", "queue:nowhere").err == "no jobs\n"
    assert some("list", "colour:red").code == 2


def test_what_was_interrupted_is_gone_on_with(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "PAGE", 2)
    engine.enqueue([command() for _ in range(5)])
    pages = 0

    def change(ids: list[int]) -> list[Change]:
        nonlocal pages
        pages += 1
        if pages == 2:
            raise KeyboardInterrupt
        return engine.cancel(ids)

    def cancel_all() -> list[Change]:
        return selection.change_all(engine, "", ("pending",), change, doing="cancel", yes=True)

    with pytest.raises(KeyboardInterrupt):
        cancel_all()
    assert engine.status().counts["cancelled"] == 2
    assert [each.id for each in cancel_all()] == [3, 2, 1]


def test_what_cannot_be_done_is_said_and_hinders_nothing_else(engine: Engine) -> None:
    engine.enqueue([command() for _ in range(4)])

    def change(ids: list[int]) -> list[Change]:
        if 3 in ids:
            raise Refused("job 3 does not want to")
        return engine.cancel(ids)

    changes = selection.change_all(engine, "", ("pending",), change, doing="cancel", yes=True)
    assert sorted(each.id for each in changes) == [1, 2, 4]
