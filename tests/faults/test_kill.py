"""Random kills while clients enqueue and cancel; and bugs planted on purpose, which the same checker must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.testing.kill import Torture


def test_nothing_is_lost_doubled_or_charged_wrongly_under_random_kills(tmp_path: Path, proof) -> None:
    torture = Torture(tmp_path, jobs=proof(200, 2000), kills=proof(20, 200), seed=proof(1, 2))
    found = torture.run()
    print(f"{dict(found.kills)} killed, {found.jobs} jobs, {found.starts} starts, {found.seconds:.0f} s")
    assert found.problems == []
    assert found.kills.total() == torture.kills


@pytest.mark.parametrize(
    ("mutant", "symptom"),
    [
        ("no_fence", "went from cancelled to completed"),
        ("early_answer", "told twice: id"),
        ("uncounted", "without an attempt counted"),
    ],
)
def test_a_planted_bug_is_caught(tmp_path: Path, mutant: str, symptom: str) -> None:
    found = Torture(tmp_path, jobs=160, kills=8, seed=3, mutant=mutant, limit_s=12).run()
    assert any(symptom in problem for problem in found.problems), found.problems[:5]
