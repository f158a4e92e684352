"""What Prometheus' own tool says of what we write for it. Debian: the package `prometheus`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from covey.open import open_engine
from covey.telemetry import prometheus
from tests.kit import HandPool, command, lacking

RULES = Path(__file__).parents[2] / "contrib/prometheus"


def promtool(*words: str, text: str = "") -> str:
    done = subprocess.run(["promtool", *words], cwd=RULES, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_rules_say_what_they_shall_and_no_more() -> None:
    lacking.need("promtool")
    assert "SUCCESS" in promtool("check", "rules", "covey.rules.yml")
    assert "SUCCESS" in promtool("test", "rules", "covey.test.yml")


def test_what_is_measured_is_written_as_prometheus_wants_it(tmp_path: Path) -> None:
    lacking.need("promtool")
    engine = open_engine(str(tmp_path / "queue.db"), create=True)
    pool = HandPool(engine)
    engine.enqueue([command(), command(max_attempts=1), command(queue="q")])
    pool.succeed(pool.claim_one())
    pool.fail(pool.claim_one())
    engine.set_queue("q", concurrency=3)
    assert promtool("check", "metrics", text=prometheus.text(engine)) == ""
    engine.close()
