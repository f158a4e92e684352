"""Schemathesis asks everything that the OpenAPI document allows, and much that it does not: no 5xx, no lie."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.open import open_engine
from tests.kit.factories import command
from tests.kit.http_server import Served

# Where a document of types cannot say all that must hold: JSON or a duration inside a string, fields that exclude each
# other, a body that must repeat a number of the path.
BEYOND_TYPES = ["enqueue", "enqueue_jobs", "spawn", "turn", "set_setting"]
BEYOND_TYPES += ["put_schedule", "backfill_schedule", "pause_schedule"]

CONFIG = f"""
[[operations]]
include-operation-id = {BEYOND_TYPES}
checks.positive_data_acceptance.enabled = false
"""


@pytest.mark.parametrize(
    ("phases", "more"),
    [
        ("coverage", []),
        # 221.0 is an integer to JSON Schema and none to us: so here what is valid by the document may be refused.
        ("examples,fuzzing,stateful", ["--exclude-checks", "positive_data_acceptance"]),
    ],
)
def test_no_request_makes_the_server_fail_or_break_its_word(
    tmp_path: Path, proof: Callable[[int, int], int], phases: str, more: list[str]
) -> None:
    mode = ("positive", "all")[proof(0, 1)] if phases == "coverage" else "all"
    db = str(tmp_path / "queue.db")
    engine = open_engine(db)
    engine.set_setting("durability", "normal")
    engine.enqueue([command(key="one"), command(queue="other")])
    token = engine.create_token("schemathesis", "admin")[1]
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    served = Served(lambda: open_engine(db), socket=True, needs_token=True)
    served._loop.call_soon_threadsafe(served.app._hub.dismiss)  # nobody waits for anything that never comes
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
                *("--config-file", "schemathesis.toml", "run", f"{served.url}/openapi.json"),
                *("-H", f"Authorization: Bearer {token}"),
                *("--phases", phases, "--max-examples", str(proof(1, 250)), "--mode", mode),
                *("--exclude-path", "/v1/stream"),  # endless by nature
                *("--generation-deterministic", "--no-color", "--no-shrink"),
                *("--continue-on-failure", "--request-timeout", "10", "--suppress-health-check", "all", *more),
            ],
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "NO_PROXY": "*", "COLUMNS": "200"},
            timeout=proof(240, 3600),
            check=False,
        )
    finally:
        served.close()
        engine.close()
    said = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, said[-8000:] + done.stderr.decode("utf-8", "replace")[-2000:]
    assert token not in said
