"""What PostgreSQL does for each hot statement: with fresh statistics, and with those of an empty queue."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from covey.engine.engine import Engine
from covey.open import open_engine
from tests.kit import command
from tests.kit.postgres import Given, Server

NUMBERS = json.dumps(list(range(500, 600)))
PARAMS: dict[str, Any] = {
    **dict.fromkeys(
        ("id", "pool", "parent", "after", "before", "root", "cursor", "owner", "expected", "fresh", "newest", "since"),
        7,
    ),
    **dict.fromkeys(("now", "completed_before", "cancelled_before", "dead_before", "next_at"), 10),
    "limit": 100,
    "upto": 5000,
    "lonely": 3,
    "priority": 0,
    "seq": 7,
    "ended": 1,
    "failed": 0,
    "fence": 1,
    "ids": NUMBERS,
    "parents": NUMBERS,
    "pools": "[1, 2, 3]",
    "queue": "q1",
    "kind": "command",
    "key": "k10",
    "unique_key": "u",
    "kinds": '["command", "sync"]',
    "keys": '["k10"]',
    "queues": '["q1"]',
    "open": '["q1"]',
    "done": json.dumps([(n, 1, "w", 1, 0, None) for n in range(500, 600)]),
    "name": "prune",
    "batch": "b",
    "state": "cancelled",
    "error": "no",
    "was": "pending",
    "turn_no": 5,
    "most": '{"command": 10, "sync": 10}',
}


@pytest.fixture(scope="module", params=["analysed", "statistics of an empty queue"])
def crowded(
    request: pytest.FixtureRequest, server: Server | Given, proof: Callable[[int, int], int]
) -> Iterator[Engine]:
    """A long history, a backlog, some of everything."""
    schema = f"plans_{os.getpid()}_{len(request.param)}"
    engine = open_engine(server.url(schema))
    count = proof(30_000, 100_000)
    with server.admin() as db:
        db.execute(f"alter table {schema}.jobs set (autovacuum_enabled = false)".encode())
        db.execute(f"analyze {schema}.jobs".encode())
    engine.enqueue([command(queue=f"q{n % 3}", key=f"k{n}" if n % 10 == 0 else None) for n in range(count)])
    with engine.store.transaction():
        for change in (
            "state = 'completed', finished_at = 1 where id % 2 = 0",
            "state = 'dead', finished_at = 1 where id % 101 = 0",
            "state = 'processing', pool = id % 5 where id % 103 = 0 and finished_at is null",
            "state = 'scheduled', run_at = 9000000000000000 where id % 107 = 0 and state = 'pending'",
            "parent_id = id - 1, child_no = 0 where id % 109 = 0",
        ):
            engine.store.raw("update {jobs} set " + change)
    if request.param == "analysed":
        with server.admin() as db:
            db.execute(f"analyze {schema}.jobs; analyze {schema}.payloads".encode())
    yield engine
    engine.close()
    with server.admin() as db:
        db.execute(f"drop schema {schema} cascade".encode())


@pytest.fixture(autouse=True)
def leak_guard() -> None:
    """The crowded queue lives as long as this module."""


def plan(engine: Engine, sql: str) -> str:
    """As a transaction of ours has it planned."""
    names = set(re.findall(r"(?<!:):([a-z]\w*)", sql))
    params = {name: PARAMS.get(name) for name in names}
    with engine.store.transaction():
        return "\n".join(row[0] for row in engine.store.dialect.query(f"explain {sql}", params))


EXPECTED = {
    "lane": ["jobs_ready"],
    "lane_locked": ["Index Scan using jobs_ready"],
    "lane_from_locked": ["Index Scan using jobs_ready"],
    "lane_behind_locked": ["Index Scan using jobs_pkey"],
    "owned_lane_locked": ["Index Scan using jobs_lane"],
    "ready_lanes": ["jobs_ready"],
    "ready_behind": ["Index Scan using jobs_pkey"],
    "claim": ["jobs_pkey", "payloads_pkey"],
    "claim_lane": ["Index Scan using jobs_ready", "jobs_pkey", "payloads_pkey"],
    "complete": ["jobs_pkey", "edges_waits_for"],
    "lock_families": ["jobs_pkey"],
    "lock_trees": ["jobs_pkey"],
    "row": ["jobs_pkey"],
    "rows": ["jobs_pkey"],
    "change": ["jobs_pkey"],
    "states_of": ["jobs_pkey"],
    "promote": ["jobs_due", "jobs_pkey"],
    "pool_for_turn": ["jobs_stopping", "jobs_due", "jobs_deadline"],
    "instants": ["jobs_due", "jobs_deadline"],
    "pools_for_turns": ["pools_pkey", "jobs_stopping", "jobs_due", "jobs_deadline"],
    "lock_pools": ["pools_pkey"],
    "beat_pools": ["pools_pkey"],
    "held_by_pools": ["jobs_held"],
    "ready_counts": ["jobs_ready"],
    "stopping": ["jobs_stopping"],
    "stopping_of": ["jobs_stopping"],
    "held_by": ["jobs_held"],
    "held_page": ["jobs_held"],
    "held_without_pool": ["jobs_held"],
    "id_of_key": ["jobs_key"],
    "id_of_unique_key": ["jobs_unique_key"],
    "position": ["jobs_ready"],
    "expired": ["jobs_deadline"],
    "next_child": ["jobs_children"],
    "unfinished_below": ["jobs_children"],
    "calls_of_children": ["jobs_child"],
    "change_many": ["jobs_pkey"],
    "prunable": ["jobs_pkey"],
    "sweep_window": ["jobs_pkey"],
    "prune_events": ["events_at"],
    "ring_unless_backlog": ["jobs_ready"],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_hot_statement_uses_its_index(crowded: Engine, name: str) -> None:
    found = plan(crowded, crowded.store._sql[name])
    for index in EXPECTED[name]:
        assert index in found, found
    assert "Seq Scan on jobs " not in found, found
    assert "Seq Scan on payloads" not in found, found


@pytest.mark.parametrize("name", ["claim", "complete", "change", "rows", "lock_families", "change_many"])
def test_what_is_named_by_id_is_not_looked_for_among_all_that_wait(crowded: Engine, name: str) -> None:
    """With statistics of an empty queue, the index of pending jobs looked like a short way: 0.1 s a turn."""
    found = plan(crowded, crowded.store._sql[name])
    assert not re.search(r"jobs_(ready|held|due|lane|still)", found), found


@pytest.mark.parametrize("name", ["lane", "lane_locked", "lane_from_locked", "lane_behind_locked", "owned_lane_locked"])
def test_a_claim_sorts_nothing(crowded: Engine, name: str) -> None:
    assert "Sort" not in plan(crowded, crowded.store._sql[name])


VIEWS = {
    "where_dead": "jobs_buried",
    "where_processing": "jobs_held",
    "where_batch": "jobs_batch",
    "where_ids": "jobs_pkey",
    "where_before": "jobs_pkey",
    "where_parent": "jobs_children",
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_page_is_found_by_index(crowded: Engine, name: str) -> None:
    order = "j.child_no" if name == "where_parent" else "j.id desc"
    sql = crowded.store._sql
    found = plan(crowded, f"{sql['view']} where {sql[name]} order by {order} limit :limit")
    assert VIEWS[name] in found, found
    assert "Seq Scan on jobs" not in found, found
