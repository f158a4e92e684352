"""covey dlq where dead letters have families: what can be done is done, the rest is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.cli.commands import dlq
from covey.core.view import Filter
from covey.engine.engine import Engine
from tests.kit import HandPool, child, command

from .conftest import CommandLine


def dead_tree(engine: Engine, *, collects: bool = False) -> tuple[int, int]:
    """(root, child): the child is dead, and so is the root unless it collects what its children died of."""
    pool = HandPool(engine)
    how = {"on_error": "collect", "joins": True} if collects else {}
    (root,) = engine.enqueue([command("root", max_attempts=1, **how)])
    pool.spawn(pool.claim_one(), child("kid", max_attempts=1))
    kid = pool.claim_one()
    pool.fail(kid)
    if collects:
        pool.succeed(pool.claim_one())
    assert engine.job(root.id).state == ("completed" if collects else "dead")
    return root.id, kid.id


def dead_alone(engine: Engine) -> int:
    (job,) = engine.enqueue([command("alone", max_attempts=1)])
    pool = HandPool(engine)
    pool.fail(pool.claim_one())
    return job.id


def states(engine: Engine) -> dict[int, str]:
    return {job.id: job.state for job in engine.jobs(Filter()).jobs}


def test_a_dead_tree_is_purged_whole(covey: CommandLine, engine: Engine) -> None:
    root, kid = dead_tree(engine)
    done = covey("dlq", "purge", "--all", "--yes")
    assert (done.code, done.out, done.err) == (0, "2 removed\n", "")
    assert states(engine) == {}
    root, kid = dead_tree(engine)
    done = covey("dlq", "purge", str(kid), str(root), "--yes")
    assert (done.code, done.out) == (0, "2 removed\n")
    assert states(engine) == {}


def test_a_child_is_purged_with_its_root_though_they_are_on_different_pages(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq, "SOME", 1)
    dead_tree(engine)
    dead_tree(engine)
    changes = dlq._purge(engine, None, yes=True)
    assert {(change.state, change.was) for change in changes} == {("removed", "dead")}
    assert sorted(change.id for change in changes) == [1, 2, 3, 4]
    assert states(engine) == {}


def test_a_dead_child_of_a_completed_root_is_skipped_and_said(covey: CommandLine, engine: Engine) -> None:
    root, kid = dead_tree(engine, collects=True)
    alone = dead_alone(engine)
    done = covey("dlq", "purge", "--all", "--yes")
    assert (done.code, done.out) == (0, "1 removed\n")
    assert done.err == f"1 skipped: job {kid} is a child; remove its root {root} instead\n"
    assert states(engine) == {root: "completed", kid: "dead"}

    alone = dead_alone(engine)
    done = covey("dlq", "retry", "--all")
    assert (done.code, done.out) == (0, f"{alone} pending\n")
    assert done.err.startswith(f"1 skipped: job {root}, its parent, has completed without job {kid}")
    assert len(done.err.splitlines()) == 1
    assert states(engine) == {root: "completed", kid: "dead", alone: "pending"}


@pytest.mark.parametrize("words", [["retry", "--all"], ["purge", "--all"], ["purge", "--all", "--yes"]], ids=" ".join)
def test_where_nothing_can_be_done_that_is_an_error(covey: CommandLine, engine: Engine, words: list[str]) -> None:
    families = [dead_tree(engine, collects=True) for _ in range(3)]
    before = states(engine)
    done = covey("dlq", *words)
    assert (done.code, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("error: 3 skipped: job ")
    assert done.err.endswith(", and 2 more\n")
    assert states(engine) == before
    assert len(families) == 3


@pytest.mark.parametrize("page", [1, 3, 500])
def test_among_many_only_those_that_cannot_run_again_stay_dead(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Halves of a refused page are tried alone; what a parent took along is not asked for again."""
    monkeypatch.setattr(dlq, "SOME", page)
    trees = [dead_tree(engine) for _ in range(3)]
    stuck = [dead_tree(engine, collects=True)[1] for _ in range(2)]
    trees += [dead_tree(engine) for _ in range(2)]
    skipped: list[str] = []
    changes = [
        change
        for jobs in dlq._pages(engine, None)
        for change in dlq._possible(engine, engine.retry, [job.id for job in jobs], skipped)
    ]
    found = states(engine)
    assert [id for id, state in found.items() if state == "dead"] == sorted(stuck, reverse=True)
    assert {found[kid] for _, kid in trees} == {"pending"}
    assert {found[root] for root, _ in trees} == {"waiting"}
    assert len(skipped) == 2
    assert all(change.was == "dead" and found[change.id] == change.state for change in changes)
    assert {kid for _, kid in trees} <= {change.id for change in changes}


def test_a_few_bad_ones_among_many_cost_few_transactions(engine: Engine) -> None:
    asked: list[int] = []
    bad = dead_tree(engine, collects=True)[1]
    pool = HandPool(engine)
    engine.enqueue([command(max_attempts=1) for _ in range(255)])
    for claim in pool.claim(255):
        pool.fail(claim)

    def counted(change: Callable[[list[int]], list[object]]) -> Callable[[list[int]], list[object]]:
        def ask(ids: list[int]) -> list[object]:
            asked.append(len(ids))
            return change(ids)

        return ask

    skipped: list[str] = []
    ids = [job.id for job in engine.jobs(Filter(states=("dead",), limit=500)).jobs]
    changes = dlq._possible(engine, counted(engine.retry), ids, skipped)  # type: ignore[arg-type]
    assert (len(ids), len(changes), len(skipped)) == (256, 255, 1)
    assert len(asked) <= 1 + 2 * 8
    assert engine.job(bad).state == "dead"
