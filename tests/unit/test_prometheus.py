"""What Prometheus reads: well formed, of the queue as it is, and all that rules and dashboards name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.engine.engine import Engine
from covey.open import open_engine
from covey.telemetry import prometheus
from tests.kit import HandPool, command

CONTRIB = Path(__file__).parents[2] / "contrib"
LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.e+-]+)')


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(str(tmp_path / "queue.db"), create=True)
    yield engine
    engine.close()


def read(text: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            seen = LINE.fullmatch(line)
            assert seen, line
            assert (seen[2] or "") not in found.setdefault(seen[1], {}), f"twice: {line}"
            found[seen[1]][seen[2] or ""] = float(seen[3])
    return found


def test_jobs_are_told_by_queue_and_state_and_what_ended_counts_for_ever(engine: Engine) -> None:
    pool = HandPool(engine)
    made = [each.id for each in engine.enqueue([command(max_attempts=1) for _ in range(4)])]
    one, two = pool.claim(2)
    pool.succeed(one)
    pool.fail(two, started_at=engine.clock() - 1_000_000)
    engine.remove([made[0]])
    found = read(prometheus.text(engine))
    assert found["covey_jobs"]['queue="default",state="pending"'] == 2
    assert found["covey_jobs"]['queue="default",state="dead"'] == 1
    assert found["covey_jobs_finished_total"]['queue="default",outcome="completed"'] == 1
    assert found["covey_jobs_finished_total"]['queue="default",outcome="dead"'] == 1
    assert found["covey_jobs_enqueued_total"]['queue="default"'] == 4
    assert found["covey_queue_oldest_pending_age_seconds"]['queue="default"'] >= 0
    assert found["covey_pools"]['state="running"'] == 1
    assert found["covey_job_run_recent_seconds"].keys() >= {'queue="default",task="shell",quantile="0.5"'}
    assert found.keys() <= prometheus.NAMES.keys()


def test_a_name_with_every_bad_character_does_not_break_the_text(engine: Engine) -> None:
    samples: dict[str, list[prometheus.Sample]] = {"covey_up": [((("queue", 'a"b\\c\nd} 1'),), 1.0)]}
    (line,) = [line for line in "".join(prometheus._lines(samples)).split("\n") if line and not line.startswith("#")]
    assert LINE.fullmatch(line)


def test_somebody_with_some_queues_is_told_of_no_other_and_of_no_pool(engine: Engine) -> None:
    HandPool(engine)
    engine.enqueue([command(queue="own"), command(queue="other")])
    text = prometheus.text(engine, lambda name: name == "own", whole=False)
    assert "other" not in text.replace('task="other"', "")
    assert "covey_pools" not in text
    assert read(text)["covey_queue_workers"]['queue="own"'] == 0


@pytest.mark.parametrize("name", ["prometheus/covey.rules.yml", "grafana/covey.json"])
def test_rules_and_dashboards_name_only_what_there_is(name: str) -> None:
    text = (CONTRIB / name).read_text()
    if name.endswith(".json"):
        text = "\n".join(target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])
    named = set(re.findall(r"covey_[a-z_]+", re.sub(r'"[^"]*"(?=:)', "", text)))
    assert named
    assert named <= prometheus.NAMES.keys()


def test_every_name_is_documented() -> None:
    page = (CONTRIB.parent / "docs/monitoring.md").read_text()
    assert [name for name in prometheus.NAMES if f"`{name}`" not in page] == []
