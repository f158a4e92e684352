"""The worked example: rounds never mix, batches run side by side, and a kill changes neither."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.testing.until import until
from tests.kit.running import Yard

EXAMPLE = Path(__file__).parents[2] / "examples" / "derive"
STAGES = ["detect", "derive", "flush", "report", "publish"]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path, url=str(tmp_path / "derive.db"), app="pipeline:app", path=[EXAMPLE]) as yard:
        yard.engine.set_queue("derive", serial=True)
        for name in ("sources", "batches", "seen"):
            (tmp_path / name).mkdir()
        yield yard


def environ(yard: Yard) -> dict[str, str]:
    """Where the app works; the queue that it names is the one of this directory."""
    return {"DERIVE_HOME": str(yard.home), "DERIVE_PACE": "0.1"}


def change(yard: Yard, numbers: range, amount: int) -> None:
    for number in numbers:
        (yard.home / "sources" / f"item-{number:02}.json").write_text(json.dumps({"amount": amount}))


def detect(yard: Yard) -> int:
    return yard.call("detect", queue="derive", max_attempts=5, backoff_base=1.0, backoff_cap_s=0.05)


def settled(yard: Yard) -> None:
    until(lambda: set(yard.counts()) <= {"completed"}, 60, "everything has completed")


def table(yard: Yard, name: str) -> dict[str, int]:
    found: dict[str, int] = json.loads((yard.home / f"{name}.json").read_text())
    return found


def test_top_level_jobs_never_overlap_and_children_do(yard: Yard) -> None:
    yard.pool(count=4, environ=environ(yard))
    change(yard, range(20), 1)
    first = detect(yard)
    yard.trace("diary", 3)  # the first round is under way
    change(yard, range(8), 5)
    second = detect(yard)
    yard.completes(first, second, within_s=60)
    settled(yard)
    diary = yard.traces("diary")
    assert together(diary, top_level=True) == 1
    assert together(diary, top_level=False) >= 2
    assert stages(diary)[:5] == STAGES, "the first round is published before the second begins"
    assert table(yard, "published") == {"rows": 20, "total": 2 * (8 * 5 + 12 * 1)}


def test_killed_workers_change_nothing(yard: Yard) -> None:
    pool = yard.pool(count=2, environ=environ(yard)).started()
    change(yard, range(20), 3)
    first = detect(yard)
    for least in (4, 8, 12):
        yard.trace("diary", least)
        victim = next((worker.pid for worker in pool.view().workers if worker.kind == "sync"), None)  # type: ignore[union-attr]
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
    yard.completes(first)
    settled(yard)
    assert table(yard, "published") == {"rows": 20, "total": 120}
    assert together(finished(yard.traces("diary")), top_level=True) == 1


def together(diary: list[str], *, top_level: bool) -> int:
    """How many jobs were under way at the same time, at most."""
    running: set[str] = set()
    most = 0
    for line in diary:
        stage, job = line[1:].split()
        if (stage != "refresh") != top_level:
            continue
        if line.startswith("+"):
            running.add(job)
        else:
            running.discard(job)
        most = max(most, len(running))
    return most


def stages(diary: list[str]) -> list[str]:
    return [line[1:].split()[0] for line in diary if line.startswith("-") and not line.startswith("-refresh")]


def finished(diary: list[str]) -> list[str]:
    """Without beginnings of runs that were killed: their jobs began once more."""
    kept: list[str] = []
    for place, line in enumerate(diary):
        if line.startswith("+") and line in diary[place + 1 :]:
            continue
        kept.append(line)
    return kept
