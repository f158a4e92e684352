"""The rules of families, one by one: what a run may spawn, what ends mean, who waits again, how much time is left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from covey.core import tree
from covey.core.model import JobRow, Report, Spawn
from covey.errors import Refused
from tests.kit.factories import after, child, command, sibling


def row(**fields: Any) -> JobRow:
    """A root that runs."""
    given: dict[str, Any] = dict.fromkeys(JobRow.__struct_fields__[:20])
    given |= {"id": 7, "state": "processing", "phase": "run", "queue": "q", "root_id": 7, "priority": 4}
    given |= {"children_total": 3, "children_unfinished": 1, "children_failed": 0, "on_error": "wait"}
    return JobRow(**given | fields)


def report(*spawned: Spawn, **fields: Any) -> Report:
    return Report(7, 1, "success", spawned=list(spawned), **fields)


# ── spawning ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_is_spawned_has_queue_and_priority_of_the_spawner_unless_it_says_otherwise() -> None:
    spawned = child("c"), sibling("s", queue="o"), after("u", priority=0)
    made = tree.plan(row(parent_id=1), report(*spawned), {})
    assert [(spec.queue, spec.priority) for spec in made.children] == [("q", 4)]
    assert [(spec.queue, spec.priority) for spec in made.siblings] == [("o", 4)]
    assert [(spec.queue, spec.priority, always) for spec, always in made.uncles] == [("q", 0, False)]
    assert tree.plan(row(), report(after("u", when="always")), {}).uncles[0][1] is True
    nothing = tree.plan(row(), Report(7, 1, "success"), {})
    assert (nothing.children, nothing.siblings, nothing.uncles, nothing.mode) == ([], [], [], "concurrent")


def test_a_join_may_spawn_uncles_only() -> None:
    joining = row(phase="join", parent_id=1)
    assert len(tree.plan(joining, report(after()), {}).uncles) == 1
    for spawn in (child(), sibling()):
        with pytest.raises(Refused, match="the join of job 7 may not spawn"):
            tree.plan(joining, report(spawn), {})


def test_a_tree_is_as_deep_as_its_queue_says() -> None:
    tree.plan(row(depth=1, max_depth=2), report(child()), {})
    tree.plan(row(depth=2, max_depth=2, parent_id=1), report(sibling(), after()), {})
    with pytest.raises(Refused, match="job 7 is at depth 2 and its tree may be 2 deep"):
        tree.plan(row(depth=2, max_depth=2), report(child()), {})


def test_a_root_has_no_siblings() -> None:
    with pytest.raises(Refused, match="job 7 is a root"):
        tree.plan(row(), report(sibling()), {})


@pytest.mark.parametrize(
    ("enqueued", "told", "mode"),
    [
        (None, None, "concurrent"),
        ("serial", None, "serial"),
        (None, "serial", "serial"),
        ("serial", "serial", "serial"),
        ("serial", "concurrent", None),
    ],
)
def test_the_mode_is_what_either_says(enqueued: Any, told: Any, mode: str | None) -> None:
    said = row(child_mode=enqueued), report(child(), child_mode=told)
    if mode is None:
        with pytest.raises(Refused, match="has serial children and its run asked for concurrent ones"):
            tree.plan(*said, {})
    else:
        assert tree.plan(*said, {}).mode == mode


def test_a_key_stands_for_one_call() -> None:
    twins = [command("a", key="k"), command("b"), command("a", key="k"), command("b")]
    assert tree.distinct(twins, {}, 7) == [twins[0], twins[1], twins[3]]
    known = {"k": ("shell", twins[0].args)}
    assert tree.distinct(twins, known, 7) == [twins[1], twins[3]]
    with pytest.raises(Refused, match="the key 'k' names two different children of job 7"):
        tree.distinct([*twins, command("c", key="k")], {}, 7)
    with pytest.raises(Refused, match="of job 3"):
        tree.plan(row(parent_id=3), report(sibling("x", key="k")), known)


# ── the end of a child ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "failed", "step"),
    [
        ({"state": "processing", "children_unfinished": 0}, True, "nothing"),
        ({"state": "dead", "children_unfinished": 0}, True, "nothing"),
        ({"children_unfinished": 0}, False, "settle"),
        ({"children_unfinished": 0, "on_error": "cancel"}, True, "settle"),
        ({"on_error": "cancel"}, True, "cancel_all"),
        ({"on_error": "cancel"}, False, "nothing"),
        ({"on_error": "wait"}, True, "nothing"),
        ({"on_error": "collect", "child_mode": "serial"}, True, "advance"),
        ({"child_mode": "serial"}, False, "advance"),
        ({"child_mode": "serial", "on_error": "cancel"}, True, "cancel_all"),
        ({"child_mode": "concurrent"}, False, "nothing"),
    ],
)
def test_what_is_due_for_a_parent(fields: dict[str, Any], failed: bool, step: str) -> None:
    assert tree.after_ends(row(**{"state": "waiting", **fields}), failed=failed) == step


def test_a_dead_parent_names_its_first_children_that_did_not_complete() -> None:
    parent = row(children_total=9, children_failed=7)
    failed = [(1, "dead", "e"), (2, "cancelled", None), (3, "dead", "x" * 200), (4, "dead", "x" * 201), (5, "dead", "")]
    said = tree.describe(parent, failed)
    assert said == (
        "7 of 9 children did not complete: job 1 dead: e; job 2 cancelled; "
        f"job 3 dead: {'x' * 200}; job 4 dead: {'x' * 200}…; job 5 dead; and 2 more"
    )
    assert tree.describe(row(children_failed=1), failed[:1]).endswith("job 1 dead: e")
    assert tree.describe(parent, [*failed, (6, "dead", "six")]) == said
    assert tree.describe(row(children_failed=6), failed).endswith("; and 1 more")


def test_numbers_of_children_add_up_by_name() -> None:
    texts = ['{"a": 1, "b": 0.5, "c": "text", "d": true}', None, '{"a": 2, "b": 1}', "[1]", "3"]
    assert json.loads(tree.sum_infos(texts) or "") == {"a": 3, "b": 1.5}
    assert tree.sum_infos([None, "[]", '{"a": "x"}']) is None
    assert tree.sum_infos(['{"a": 1e308}', '{"a": 1e308}', '{"b": 1}']) == '{"b": 1}'


def test_a_jobs_own_info_has_its_childrens_numbers_added() -> None:
    assert tree.with_children({"a": 1, "t": "x", "y": True}, {"a": 2, "b": 3, "t": 4, "y": 5}) == {
        "a": 3,
        "t": "x",
        "y": True,
        "b": 3,
    }
    assert tree.with_children(None, {"a": 1}) == {"a": 1}
    assert tree.with_children({"a": 1}, None) == {"a": 1}
    assert tree.with_children("text", {"a": 1}) == "text"
    own = {"a": 1}
    tree.with_children(own, {"a": 1})
    assert own == {"a": 1}


# ── uncles ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_how_an_edge_closes() -> None:
    assert [tree.outcome(state) for state in ("completed", "dead", "cancelled")] == ["ok", "bad", "gone"]


@pytest.mark.parametrize(
    ("edges", "step"),
    [
        ([(None, 0)], None),
        ([("ok", 0), (None, 1)], None),
        ([("ok", 0)], "unblocked"),
        ([("bad", 0), ("ok", 0)], "unblocked"),
        ([("bad", 1)], "unblocked"),
        ([("gone", 1)], "unblocked"),
        ([("bad", 0)], None),
        ([("bad", 0), ("gone", 0)], None),
        ([("gone", 0), ("gone", 0)], "cancel"),
    ],
)
def test_what_its_edges_make_of_an_uncle(edges: list[tuple[str | None, int]], step: str | None) -> None:
    assert tree.unblocks(edges) == step


# ── second tries ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ancestors_wait_again_up_to_the_first_that_never_stopped() -> None:
    dead, waiting, above = row(id=3, state="dead"), row(id=2, state="waiting"), row(id=1, state="waiting")
    assert tree.reopened(row(), []) == []
    assert tree.reopened(row(), [dead, waiting, above]) == [dead, waiting]
    assert tree.reopened(row(), [dead]) == [dead]
    assert tree.reopened(row(), [waiting, row(id=1, state="completed")]) == [waiting]


@pytest.mark.parametrize(
    ("states", "says"),
    [
        (["completed"], "job 1, its parent, has completed without job 7"),
        (["dead", "processing"], "job 2, its parent, has joined what there was without job 7"),
        (["cancelled"], "job 7 belongs to job 1, which was cancelled; retry 1 instead"),
        (["dead", "cancelled", "cancelled"], "job 7 belongs to job 3, which was cancelled; retry 3 instead"),
        (["completed", "cancelled"], "job 7 belongs to job 2, which was cancelled"),
    ],
)
def test_an_ancestor_that_cannot_wait_again_refuses(states: list[Any], says: str) -> None:
    ancestors = [row(id=number, state=state) for number, state in enumerate(states, 1)]
    with pytest.raises(Refused, match=says):
        tree.reopened(row(), ancestors)


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_has_its_own_time_but_no_more_than_its_tree() -> None:
    assert tree.time_left_s(None, None, 0) is None
    assert tree.time_left_s(5.0, None, 0) == 5.0
    assert tree.time_left_s(None, 9_000_000, 2_000_000) == 7.0
    assert tree.time_left_s(5.0, 9_000_000, 2_000_000) == 5.0
    assert tree.time_left_s(9.0, 9_000_000, 2_000_000) == 7.0
    assert tree.time_left_s(9.0, 1, 2_000_000) == 0.001
