"""What a job costs in statements: counted, so that a regression is seen whatever else the machine does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import costs


@pytest.mark.parametrize("name", costs.WORKS)
def test_a_job_costs_as_many_statements_as_recorded(
    name: str, tmp_path: Path, postgres_queue: Callable[[], str]
) -> None:
    """More is a regression; fewer is to be recorded: python -m benchmarks.costs --record."""
    known = costs.recorded()["statements"]
    found = {
        "sqlite": costs.statements(str(tmp_path / "queue.db"), name),
        "postgres": costs.statements(postgres_queue(), name),
    }
    assert found == {database: known[database][name] for database in found}


def test_a_statement_more_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "look, nothing there"

    def wasteful(engine: object, pool: object, jobs: int) -> None:
        for _ in range(jobs):
            pool.claim(4)  # type: ignore[attr-defined]
            engine.store.ask("queues")  # type: ignore[attr-defined]

    monkeypatch.setitem(costs.WORKS, name, wasteful)
    assert costs.statements(str(tmp_path / "queue.db"), name) == costs.recorded()["statements"]["sqlite"][name] + 1
