"""Containers: from the enqueue call to the first line of the job, with nothing running and with everything warm."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.kit.lacking import Lacking
from tests.world.real_engine import IMAGE, HarbourYard, RealEngine, need_engine

from covey.testing.until import until

from .report import Figure, Remark
from .timing import median

NAME = "containers"


def run(quick: bool) -> Iterator[Figure | Remark]:
    try:
        need_engine()
    except Lacking as lack:
        yield Remark(NAME, f"not measured: {lack}")
        return
    cold: list[float] = []
    warm: list[float] = []
    home = Path(tempfile.mkdtemp(prefix="covey-bench-"))
    engine = RealEngine(home)
    try:
        engine.started()
        for number in range(1 if quick else 3):
            with (
                tempfile.TemporaryDirectory(prefix=f"covey-yard-{number}-") as place,
                HarbourYard(Path(place), engine) as yard,
            ):
                cold.append(_cold(yard, engine))
                warm += [_started_after(yard) for _ in range(10)]
                yard.pools[-1].stop(signal.SIGINT)
    finally:
        engine.close()
    yield Figure(
        NAME, "second run, from enqueue to start", median(warm), median(cold), "ms",
        "the cold run: server and two containers first", ("≤", 0.1),
    )  # fmt: skip


def _cold(yard: HarbourYard, engine: RealEngine) -> float:
    before = time.time()
    (job,) = yard.shells(["date +%s%N"], queue="notebook", cwd="/")
    yard.pool("--executor", "docker", "--image", IMAGE, "--worker", "notebook=2", *engine.mounts(), count=None)
    return _milliseconds(yard, job, before)


def _started_after(yard: HarbourYard) -> float:
    time.sleep(0.2)
    before = time.time()
    (job,) = yard.shells(["date +%s%N"], queue="notebook", cwd="/")
    return _milliseconds(yard, job, before)


def _milliseconds(yard: HarbourYard, job: int, before: float) -> float:
    until(lambda: yard.engine.job(job).state == "completed", 120, "the job has run in a container")
    (run,) = yard.engine.history(job)
    return (int(run.stdout) / 1e9 - before) * 1e3
