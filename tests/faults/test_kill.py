"""Random kills while clients enqueue and cancel; and bugs planted on purpose, which the same checker must find."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.testing.postgres import Given, Server
from covey.testing.torture.run import Torture

Proof = Callable[[int, int], int]


def test_nothing_is_lost_doubled_or_charged_wrongly_under_random_kills(tmp_path: Path, proof: Proof) -> None:
    torture = Torture(tmp_path, jobs=proof(200, 2000), kills=proof(20, 200), seed=proof(1, 2))
    found = torture.run()
    assert found.problems == []
    assert found.kills.total() == torture.kills


def test_the_same_on_postgresql(tmp_path: Path, proof: Proof, server: Server | Given) -> None:
    schema = f"kill_{os.getpid()}"
    torture = Torture(
        tmp_path, jobs=proof(100, 2000), kills=proof(10, 200), seed=proof(4, 5), url=server.url(schema), limit_s=300
    )
    found = torture.run()
    with server.admin() as db:
        db.execute(f"drop schema {schema} cascade".encode())
    assert found.problems == []
    assert found.kills.total() == torture.kills


def test_a_planted_bug_is_caught_on_postgresql(tmp_path: Path, server: Server | Given) -> None:
    schema = f"mutant_{os.getpid()}"
    url = server.url(schema)
    found = Torture(tmp_path, jobs=120, kills=6, seed=3, mutants=["no_fence"], limit_s=10, url=url).run()
    with server.admin() as db:
        db.execute(f"drop schema {schema} cascade".encode())
    assert any("went from cancelled to completed" in problem for problem in found.problems), found.problems[:5]


@pytest.mark.parametrize(
    ("mutant", "symptom"),
    [
        ("no_fence", "went from cancelled to completed"),
        ("early_answer", "was acknowledged"),
        ("uncounted", "+0 attempts from pending to processing"),
    ],
)
def test_a_planted_bug_is_caught(tmp_path: Path, mutant: str, symptom: str) -> None:
    found = Torture(tmp_path, jobs=160, kills=8, seed=3, mutants=[mutant], limit_s=12).run()
    assert any(symptom in problem for problem in found.problems), found.problems[:5]
