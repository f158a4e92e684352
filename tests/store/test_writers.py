"""Many writers, one truth."""

from __future__ import annotations

import ast
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import covey
from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.store.sqlite.database import Sqlite
from tests.kit import HandPool, check_queue, command
from tests.kit.faults import Child

from . import programs


def read_then_write(path: str, opened: Callable[[str], Engine], threads: int, rounds: int) -> list[BaseException]:
    """Every thread reads a counter and writes it back plus one, each through a connection of its own."""
    engines = [opened(path) for _ in range(threads)]
    engines[0].pause("counter", for_s=0)
    problems: list[BaseException] = []

    def count(engine: Engine) -> None:
        try:
            for _ in range(rounds):
                with engine.store.transaction():
                    stored = dict(engine.store.ask("config")).get("counter", "0")
                    engine.store.ask("set_config", key="counter", value=str(int(stored) + 1))
        except BaseException as problem:
            problems.append(problem)

    running = [threading.Thread(target=count, args=(engine,)) for engine in engines]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    total = int(dict(engines[0].store.ask("config"))["counter"])
    if total != threads * rounds and not problems:
        problems.append(AssertionError(f"{total} of {threads * rounds} counted"))
    return problems


def test_no_reader_that_turns_writer_ever_meets_a_stale_snapshot(
    path: str, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    assert read_then_write(path, opened, 8, proof(60, 2000)) == []


def test_a_planted_deferred_begin_is_caught(
    path: str, opened: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    import contextlib
    from collections.abc import Iterator

    @contextlib.contextmanager
    def deferred(self: Sqlite, **_: bool) -> Iterator[None]:
        self._db.set_busy_timeout(50)
        self._db.execute("begin deferred")
        try:
            yield
            self._db.execute("commit")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("rollback")
            raise

    opened(path)
    monkeypatch.setattr(Sqlite, "transaction", deferred)
    assert read_then_write(path, opened, 4, 200)


def test_the_code_has_no_bare_begin() -> None:
    bare = []
    for file in Path(covey.__file__).parent.rglob("*.py"):
        if file.parent.name == "postgres":
            continue  # a transaction there never has to become a writer
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value.strip().lower()
                if re.match(r"begin\b(?! (immediate|deferred)$)", text) and "\n" not in text and len(text) < 40:
                    bare.append(f"{file.name}: {node.value}")
    assert bare == []
    # A deferred transaction only reads, and only the snapshot opens one.
    room = Path(covey.__file__).parent
    texts = {str(file.relative_to(room)): file.read_text() for file in room.rglob("*.py")}
    assert [name for name, text in texts.items() if '"begin deferred"' in text] == ["store/sqlite/database.py"]


def test_many_processes_claim_each_job_exactly_once(
    path: str, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    engine = opened(path)
    ids = [made.id for made in engine.enqueue([command() for _ in range(proof(1500, 10_000))])]
    workers = [Child(programs.WORKER, path, 7) for _ in range(proof(6, 16))]
    try:
        for worker in workers:
            assert worker.line() == "ready"
        for worker in workers:
            worker.say("go")
        shares = [[int(word) for word in worker.line().split()] for worker in workers]
        assert [worker.end()[0] for worker in workers] == [0] * len(workers)
    finally:
        for worker in workers:
            worker.__exit__()
    times = Counter(id for share in shares for id in share)
    assert times == Counter(ids)
    assert engine.status().counts["completed"] == len(ids)
    assert min(map(len, shares)) > 0  # nobody stands idle while there is work
    assert check_queue(engine, acknowledged=ids) == []


def test_a_reaper_and_a_completion_never_undo_each_other(
    path: str, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    """The reaper has looked; then, in every order, the pool completes or the job is claimed anew; then it reaps."""
    engine, reaper, dice = opened(path), opened(path), Random(8)
    for _ in range(proof(120, 1000)):
        (made,) = engine.enqueue([command()])
        pool = HandPool(engine)
        claim = pool.claim_one()
        beat = next(each.beat for each in reaper.pools() if each.id == pool.id)
        steps = dice.sample(["complete", "reap", "reap"], 3)
        done = False
        for step in steps:
            if step == "complete":
                reply = pool.succeed(claim)
                done = not reply.lost
            else:
                reaper.reap(pool.id, beat)
        job = engine.job(made.id)
        assert (job.state, job.interruptions) == (("completed", 0) if done else ("pending", 1))
        if not done:  # reclaimed in between: the old beat reaps nothing of the new claim
            other = HandPool(engine)
            again = other.claim_one()
            assert reaper.reap(pool.id, beat) == 0
            other.succeed(again)
            assert engine.job(made.id).state == "completed"
        else:
            engine.leave(pool.id)


def test_reaper_and_pool_race_in_threads_and_the_job_ends_one_way(
    path: str, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    engine, reaper = opened(path), opened(path)
    for _ in range(proof(60, 1000)):
        (made,) = engine.enqueue([command()])
        pool = HandPool(engine)
        claim = pool.claim_one()
        beat = next(each.beat for each in reaper.pools() if each.id == pool.id)
        barrier = threading.Barrier(2)
        answers: dict[str, object] = {}

        def complete(pool: HandPool = pool, claim: object = claim, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            answers["reply"] = pool.succeed(claim)  # type: ignore[arg-type]  # noqa: B023

        thread = threading.Thread(target=complete)
        thread.start()
        barrier.wait()
        reaped = reaper.reap(pool.id, beat)
        thread.join()
        job = engine.job(made.id)
        if answers["reply"].lost:  # type: ignore[attr-defined]
            assert (reaped, job.state, job.interruptions) == (1, "pending", 1)
            engine.remove([made.id], force=True)
        else:
            assert (reaped, job.state, job.interruptions) == (0, "completed", 0)
            engine.leave(pool.id)
    assert not engine.jobs(Filter(states=("processing", "pending"))).jobs
