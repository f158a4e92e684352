"""What the database does for each hot statement, with enough rows to make a wrong plan hurt."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.engine.engine import Engine
from covey.open import open_engine
from covey.store import statements
from tests.kit import command

SQL = statements.load("sqlite")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory, proof: Callable[[int, int], int]) -> Iterator[Engine]:
    """A queue with a long history, a backlog, and the statistics of neither."""
    path: Path = tmp_path_factory.mktemp("plans") / "queue.db"
    engine = open_engine(str(path))
    count = proof(20_000, 100_000)
    engine.enqueue([command(queue=f"q{n % 3}", key=f"k{n}" if n % 10 == 0 else None) for n in range(count)])
    with engine.store.transaction():
        ask = engine.store.dialect.query
        ask("update jobs set state = 'completed', finished_at = 1 where id % 2 = 0", {})
        ask("update jobs set state = 'dead', finished_at = 1 where id % 101 = 0", {})
        ask("update jobs set state = 'processing', pool = 1 where id % 103 = 0 and finished_at is null", {})
        ask("update jobs set state = 'scheduled', run_at = 9e15 where id % 107 = 0 and state = 'pending'", {})
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def leak_guard() -> None:
    """The crowded queue lives as long as this module."""


def plan(engine: Engine, sql: str) -> str:
    params = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
    for name in ("ids", "queues", "open", "kinds", "states", "names", "parents", "keys", "pools"):
        if name in params:
            params[name] = json.dumps([1, 2])  # type: ignore[assignment]
    rows = engine.store.dialect.query(f"explain query plan {sql}", params)
    return "\n".join(row[3] for row in rows)


def test_a_claim_reads_the_ready_index_in_order_and_sorts_nothing(crowded: Engine) -> None:
    found = plan(crowded, SQL["lane"])
    assert "COVERING INDEX jobs_ready (queue=? AND kind=?)" in found
    assert "TEMP B-TREE" not in found
    assert "SCAN jobs" not in found


def test_finding_the_lanes_that_have_work_skips_over_the_backlog(crowded: Engine) -> None:
    """One step of the search per lane, however many jobs wait in it."""
    found = plan(crowded, SQL["ready_lanes"])
    assert "COVERING INDEX jobs_ready (queue>?)" in found
    assert "COVERING INDEX jobs_ready (queue=? AND kind=?)" in found
    assert "TEMP B-TREE" not in found


EXPECTED = {
    "claim": ["INTEGER PRIMARY KEY"],
    "rows": ["INTEGER PRIMARY KEY"],
    "row": ["INTEGER PRIMARY KEY"],
    "change": ["INTEGER PRIMARY KEY"],
    "complete": ["INTEGER PRIMARY KEY"],
    "states_of": ["INTEGER PRIMARY KEY"],
    "promote": ["jobs_due (run_at<?)"],
    "next_due": ["jobs_due"],
    "held_by": ["jobs_held (pool=?)"],
    "held_page": ["jobs_held (pool=?)"],
    "held_by_pools": ["jobs_held (pool=?)"],
    "stopping_of": ["jobs_held (pool=?)"],
    "stopping": ["jobs_held"],
    "held_without_pool": ["jobs_held"],
    "orphans": ["jobs_held"],
    "id_of_key": ["jobs_key (key=?)"],
    "id_of_unique_key": ["jobs_unique_key (unique_key=?)"],
    "ready_lanes": ["jobs_ready"],
    "position": ["jobs_ready (queue=?"],
    "pool_for_turn": ["jobs_held (pool=?)", "jobs_due", "jobs_deadline"],
    "pools_for_turns": ["pools USING INTEGER PRIMARY KEY", "jobs_held (pool=?)", "jobs_due", "jobs_deadline"],
    "beat_pools": ["pools USING INTEGER PRIMARY KEY"],
    "ready_counts": ["COVERING INDEX jobs_ready (queue>?)", "COVERING INDEX jobs_ready (queue=? AND kind=?)"],
    "undrained": ["jobs_ready", "jobs_due", "jobs_held"],
    "prunable": ["INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "prune_events": ["events_at (at<?)"],
    "prune_requests": ["requests_at (at<?)"],
    "request": ["sqlite_autoindex_requests_1 (id=?)"],
    "events_of_job": ["events_job (job_id=?)"],
    "attempts_of": ["PRIMARY KEY (job_id=?)"],
    "free_lane": ["jobs_ready (queue=? AND kind=?)"],
    "owned_lane": ["jobs_lane (queue=? AND lane=? AND kind=?)"],
    "running_in": ["jobs_held"],
    "instants": ["jobs_due", "jobs_deadline"],
    "expired": ["jobs_deadline (tree_deadline_at"],
    "unfinished_below": ["jobs_children (parent_id=? AND child_no>?)", "jobs_children (parent_id=?)"],
    "next_child": ["jobs_children (parent_id=? AND child_no>?)"],
    "infos_below": ["jobs_children (parent_id=?)"],
    "outcomes": ["jobs_children (parent_id=?)"],
    "calls_of_children": ["jobs_child_key (parent_id=? AND key=?)"],
    "held_in_tree": ["jobs_held"],
    "last_children": ["jobs_children (parent_id=?)"],
    "stuck_parents": ["jobs_still", "jobs_children (parent_id=?)"],
    "stranded": ["SCAN e", "SEARCH j USING INTEGER PRIMARY KEY", "SEARCH o USING PRIMARY KEY (job_id=?)"],
    "count_ends": ["INTEGER PRIMARY KEY"],
    "change_many": ["INTEGER PRIMARY KEY"],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_hot_statement_uses_its_index(crowded: Engine, name: str) -> None:
    found = plan(crowded, SQL[name])
    for index in EXPECTED[name]:
        assert index in found, found
    assert not re.search(r"SCAN jobs(?! USING (COVERING )?INDEX)", found), found


VIEWS = {
    "where_dead": "jobs_buried",
    "where_processing": "jobs_held",
    "where_batch": "jobs_batch (batch=?)",
    "where_ids": "INTEGER PRIMARY KEY (rowid=?)",
    "where_before": "INTEGER PRIMARY KEY (rowid<?)",
    "where_parent": "jobs_children (parent_id=? AND child_no>?)",
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_page_is_found_by_index(crowded: Engine, name: str) -> None:
    order = "j.child_no" if name == "where_parent" else "j.id desc"
    found = plan(crowded, f"{SQL['view']} where {SQL[name]} order by {order} limit :limit")
    assert name != "where_parent" or "TEMP B-TREE" not in found, found
    assert VIEWS[name] in found, found
    assert "SCAN j\n" not in found + "\n", found


def test_the_oldest_pending_job_is_found_without_reading_history(crowded: Engine) -> None:
    assert "jobs_ready" in plan(crowded, SQL["oldest_pending"])
