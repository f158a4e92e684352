"""What a running child is told of the others, in real pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.running import Yard

SERVED = ("test_a_child_sees_a_sibling_die_while_both_run",)
STORES = ("file", "postgres")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, store: str, new_queue: Callable[[], str | None]) -> Iterator[Yard]:
    """One queue with one pool of two workers."""
    with Yard(tmp_path_factory.mktemp("shared"), url=new_queue(), app="grove:app", path=[HERE]) as yard:
        if store == "http":
            yard.serve()
        yard.pool(count=2).started()
        yard.ends(yard.shell("true"), within_s=20)
        yield yard


@pytest.mark.parametrize("how", ["sync", "loop", "threads"])
def test_a_child_sees_a_sibling_die_while_both_run(shared: Yard, how: str) -> None:
    name = f"told-{how}"
    id = shared.call("two_at_a_time", name, how)
    shared.ends(id, within_s=60)
    _, watcher = shared.engine.tree(id).children
    assert watcher.result == [0, f"ValueError: told by {name}"], shared.describe(watcher.id)


def test_a_forked_child_gets_the_picture_of_the_claim_and_disturbs_nobody(shared: Yard) -> None:
    id = shared.call("has_a_child_that_forks")
    shared.completes(id)
    (child,) = shared.engine.tree(id).children
    assert child.result == [0, 0]


def test_a_root_has_nobody_to_ask_about(shared: Yard) -> None:
    (job,) = shared.completes(shared.call("forgets_to_look"))
    assert job.result == [0, 0]
