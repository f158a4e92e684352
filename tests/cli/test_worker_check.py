"""covey worker check: what a probe is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from covey.env import hostname
from covey.open import open_engine
from tests.kit import HandPool


def check(db: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "covey", "--db", str(db), "worker", "check", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_pool_that_shows_itself_lives_and_one_that_is_silent_does_not(tmp_path: Path) -> None:
    db = tmp_path / "queue.db"
    engine = open_engine(str(db), create=True)
    assert check(db).returncode == 1
    pool = HandPool(engine, name="here", host=hostname(), lease_s=86_000.0)
    assert check(db).returncode == check(db, "here").returncode == check(db, str(pool.id)).returncode == 0
    engine.store.raw("update {pools} set beat_at = beat_at - 90000000000")
    said = check(db, "here")
    assert said.returncode == 1
    assert "pool here is silent for 900" in said.stderr
    assert check(db, "nobody").returncode == 1
    engine.close()
