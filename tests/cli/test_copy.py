"""covey db copy: a queue moves between databases, and is the same queue afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from covey.compose import open_dialect, open_engine
from covey.core.model import ENDED, Output
from covey.engine import moving
from covey.engine.engine import Engine
from covey.engine.sealing import writing
from covey.errors import Refused, StoreError
from covey.store.copying import LEFT_OUT, TABLES, Rows
from covey.store.store import Store
from covey.testing import FakeClock, HandPool, after, check_queue, child, command, python_task
from covey.testing.faults import Child
from covey.testing.postgres import Given, Schema, Server

from .conftest import CommandLine, here, lost, until

Places = Callable[[str], str]
DIRECTIONS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]
BOTH_WAYS = DIRECTIONS[:2]
BINARY = bytes(range(256)) * 40

by_direction = pytest.mark.parametrize("direction", DIRECTIONS, ids="-to-".join)
both_ways = pytest.mark.parametrize("direction", BOTH_WAYS, ids="-to-".join)


# ── places and queues ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def schemas(server: Server | Given) -> list[Schema]:
    return [Schema(server, f"copy_{name}_{os.getpid()}") for name in ("from", "to")]


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Places:
    """Where an empty queue may be: the first one asked for, then the second."""
    asked: list[str] = []

    def place(kind: str) -> str:
        asked.append(kind)
        if kind == "sqlite":
            return str(tmp_path / f"{len(asked)}.db")
        schemas: list[Schema] = request.getfixturevalue("schemas")
        return schemas[len(asked) - 1].emptied()

    return place


@contextlib.contextmanager
def opened(url: str, clock: FakeClock | None = None) -> Iterator[Engine]:
    """The queue with a clock that stands still, so that two of them can be compared."""
    open_engine(url).close()
    engine = Engine(Store(open_dialect(url)), clock=clock or FakeClock(), rng=Random(0))
    try:
        yield engine
    finally:
        engine.close()


def fill(engine: Engine, plain: int = 3) -> None:
    """Jobs of every kind, in every state that a queue without pools can have."""
    pool = HandPool(engine)
    engine.set_setting("max_attempts", "7")
    engine.set_queue("row", serial=True)
    engine.set_queue("Two.at@once", concurrency=2, max_depth=3)
    engine.pause("later")
    engine.enqueue([command("waits", queue="later"), command("in an hour", delay_s=3600)])
    engine.enqueue([command(f"row {n}", queue="row", key=f"row-{n}") for n in range(3)])
    serial = pool.claim(1, places={"command": 1})
    assert [claim.queue for claim in serial] == ["row"]
    pool.spawn(serial[0], child("below"), child("below too"))

    def run(spec: Any, *spawned: Any, **said: Any) -> int:
        (made,) = engine.enqueue([spec])
        (mine,) = [claim for claim in pool.claim(50) if claim.id == made.id or _back(pool, claim)]
        pool.report(mine, said.pop("outcome", "success"), spawned=list(spawned), **said)
        return made.id

    tree = run(
        command("tree", priority=9, joins=True, child_mode="serial", on_error="collect"),
        *(child(f"step {n}", key=f"step-{n}") for n in range(4)),
        after("uncle"),
        after("whatever happens", when="always"),
    )
    (step,) = pool.claim(1, places={"command": 1})
    assert engine.job(step.id).parent_id == tree
    pool.succeed(step, result='{"größe": "日本"}')
    run(
        command("dead", priority=9, max_attempts=1, labels={"wo": "Zürich"}, batch="b"),
        outcome="failure",
        error="kaputt: ÄÖÜ 🦆",
        output=Output(BINARY, BINARY[::-1], 7, 9),
        exit_code=3,
    )
    run(command("tries again", priority=9), outcome="failure", error="once")
    run(python_task("tests.tasks.f", 1, "zwölf", priority=9, kind="async", key="fünf"), result="[1, 2.5, null]")
    engine.enqueue([command(f"plain {n}", unique_key=f"one of {n}", priority=n % 3) for n in range(plain)])
    ended = [made.id for made in engine.enqueue([command("no more"), command("very last")])]
    engine.cancel(ended)
    engine.remove(ended[-1:])  # its number must not be given again
    engine.leave(pool.id)


def _back(pool: HandPool, claim: Any) -> bool:
    pool.report(claim, "taken_back")
    return False


def contents(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    rows = Rows(engine.store)
    columns = {table: sorted(rows.columns(table)) for table in TABLES}
    return {table.name: [row for page in rows.pages(table, columns[table], None) for row in page] for table in TABLES}


def ids(engine: Engine) -> set[int]:
    return {row[0] for row in engine.store.raw("select id from {jobs}")}


def work_off(engine: Engine, clock: FakeClock) -> list[tuple[int, int, str]]:
    """Every run until nothing is left, in order."""
    pool, runs = HandPool(engine), []
    engine.resume("later")
    for _ in range(1000):
        claims = pool.claim(1)
        for claim in claims:
            runs.append((claim.id, claim.fence, claim.phase))
            pool.succeed(claim)
        if not claims:
            if all(state in ENDED or not count for state, count in engine.status().counts.items()):
                return runs
            clock.advance(3600)
    raise AssertionError(engine.status().counts)


def move(source: Engine, target: Engine, page: int = 4) -> None:
    moving.begin(source.store, target.store, token=1, now=0)
    for _ in moving.copy(source.store, target.store, page=page):
        pass
    moving.compare(source.store, target.store)
    moving.finish(source.store, target.store, token=1)


# ── the same queue ──────────────────────────────────────────────────────────────────────────────────────────────────


@by_direction
def test_every_row_arrives_and_the_queue_goes_on_as_it_would_have(
    covey: CommandLine, place: Places, direction: tuple[str, str]
) -> None:
    old, new = map(place, direction)
    clocks = FakeClock(), FakeClock()
    with opened(old, clocks[0]) as source:
        fill(source)
        before, last = contents(source), Rows(source.store).last_ids()
        assert all(before.values()), "an empty table proves nothing"
        done = covey("db", "copy", old, new, "--json")
        assert (done.code, done.err) == (0, "")
        assert done.json["tables"] == {name: len(rows) for name, rows in before.items()}
        assert done.json["resumed"] is False
        with opened(new, clocks[1]) as target:
            assert contents(target) == before
            assert target.database_id == source.database_id
            assert Rows(target.store).last_ids() == last
            assert check_queue(target) == []
            assert target.status().findings != []
            assert "moved" not in " ".join(target.status().notes)
            with source.store.transaction(alone=True):
                source.store.ask("seal", sealed=None)
            runs = work_off(target, clocks[1])
            assert runs == work_off(source, clocks[0])
            assert len(runs) > 15
            assert check_queue(target) == []
            assert ids(target) == ids(source)


@both_ways
def test_numbers_are_not_given_twice_in_the_new_place(place: Places, direction: tuple[str, str]) -> None:
    old, new = map(place, direction)
    with opened(old) as source, opened(new) as target:
        fill(source)
        used = max(ids(source)) + 1  # the removed one
        move(source, target)
        (made,) = target.enqueue([command()])
        assert made.id == used + 1
        assert HandPool(target).id == 2
        assert target.events(limit=1)[0].id > max(row[0] for row in source.store.raw("select id from {events}"))


def test_a_queue_goes_there_and_back(place: Places) -> None:
    old, new = place("sqlite"), place("postgres")
    with opened(old) as source, opened(new) as target, opened(place("sqlite")) as again:
        fill(source)
        move(source, target)
        move(target, again)
        assert contents(again) == contents(source)
        with pytest.raises(Refused, match="has moved to"):
            target.enqueue([command()])
        assert again.enqueue([command()])


@both_ways
def test_a_page_is_bounded_in_bytes(place: Places, direction: tuple[str, str]) -> None:
    old, _ = map(place, direction)
    with opened(old) as source:
        made = [job.id for job in source.enqueue([command("x" * size) for size in (10, 900, 900, 10, 5000, 10)])]
        rows = Rows(source.store, most=4, most_bytes=2200)
        payloads = next(table for table in TABLES if table.name == "payloads")
        pages = [[row[0] for row in page] for page in rows.pages(payloads, ("job_id", "args"), None)]
        assert pages == [made[:4], made[4:5], made[5:]]


def test_every_table_is_copied_or_left_out_on_purpose(place: Places) -> None:
    for kind in ("sqlite", "postgres"):
        with opened(place(kind)) as engine:
            assert engine.store.dialect.tables() - LEFT_OUT == {table.name for table in TABLES}


@both_ways
def test_many_jobs(
    covey: CommandLine, place: Places, direction: tuple[str, str], proof: Callable[[int, int], int]
) -> None:
    old, new = map(place, direction)
    count = proof(5_000, 1_000_000)
    with opened(old) as source:
        for _ in range(0, count, 5_000):
            source.enqueue([command(f"n {n}") for n in range(5_000)])
    assert covey("db", "copy", old, new, "--json").json["tables"]["jobs"] == count
    with opened(new) as target:
        assert target.status().counts["pending"] == count


# ── the old place ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_old_queue_says_where_it_went(covey: CommandLine, place: Places) -> None:
    new = place("postgres")
    covey("enqueue", "true")
    done = covey("db", "copy", str(covey.db), new)
    assert done.code == 0
    assert done.out.startswith("1 jobs moved to postgresql://")
    assert "export COVEY_DB=" in done.err
    for verb in (["enqueue", "x"], ["cancel", "1"], ["queue", "pause", "default"], ["config", "set", "timeout", "9"]):
        refused = covey(*verb)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.startswith("error: this queue has moved to postgresql://")
    assert covey("worker", "start", "--count", "1").code == 1
    status = covey("status")
    assert (status.code, "this queue has moved to postgresql://" in status.out) == (1, True)
    assert "this queue has moved" in covey("doctor").out
    assert len(covey("list", "--json").json) == 1
    again = covey("db", "copy", str(covey.db), new)
    assert (again.code, "has moved to" in again.err, "already" in again.err) == (1, True, True)
    assert covey("db", "copy", str(covey.db), new, "--abort").code == 1
    assert covey("enqueue", "x").code == 1, "an abort must not bring a queue back that has moved"


def test_the_new_place_is_worked_by_real_workers(covey: CommandLine, place: Places) -> None:
    new = place("postgres")
    covey("enqueue", "-", stdin=b"echo a\necho b\n")
    assert covey("db", "copy", str(covey.db), new).code == 0
    assert covey("--db", new, "worker", "start", "--count", "1", "--drain").code == 0
    assert [job["state"] for job in covey("--db", new, "list", "--json").json] == ["completed", "completed"]


def test_a_password_is_not_written_into_the_old_queue(place: Places) -> None:
    new = place("postgres").replace("covey@", "covey:geheim@")
    with opened(place("sqlite")) as source, opened(new) as target:
        source.enqueue([command()])
        move(source, target)
        assert "geheim" not in repr(source.store.ask("meta"))
        assert "***" in source.store.ask("meta")[0][2]


@both_ways
def test_what_was_acknowledged_before_the_seal_arrives(place: Places, direction: tuple[str, str]) -> None:
    old, new = map(place, direction)
    acknowledged: list[int] = []
    refused: list[str] = []

    def produce(engine: Engine) -> None:
        try:
            while True:
                acknowledged.extend(made.id for made in engine.enqueue([command(), command()]))
        except Refused as error:
            refused.append(str(error))

    with opened(old) as source, opened(new) as target, opened(old) as one, opened(old) as two:
        producers = [threading.Thread(target=produce, args=[engine]) for engine in (one, two)]
        for producer in producers:
            producer.start()
        until(lambda: len(acknowledged) > 100)
        move(source, target, page=500)
        for producer in producers:
            producer.join(20)
        assert len(refused) == 2
        assert ids(target) >= set(acknowledged)
        assert contents(target) == contents(source)


@both_ways
def test_the_seal_waits_for_a_writer_that_has_begun(place: Places, direction: tuple[str, str]) -> None:
    old, new = map(place, direction)
    with opened(old) as source, opened(new) as target, opened(old) as producer:
        mover = threading.Thread(target=move, args=[source, target])
        with writing(producer.store):
            (id,) = producer.store.insert([(command(), None)], 1)
            mover.start()
            mover.join(1)
            assert mover.is_alive()
        mover.join(20)
        assert not mover.is_alive()
        assert ids(target) == {id}


# ── pools ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_living_pools_are_named_and_nothing_is_sealed(covey: CommandLine, engine: Engine) -> None:
    HandPool(engine, here(name="busy"))
    done = covey("db", "copy", str(covey.db), "new.db")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: workers are running: busy (1) on ")
    assert "`covey worker stop`" in done.err
    assert not (covey.directory / "new.db").exists()
    assert engine.enqueue([command()])


def test_jobs_of_lost_pools_are_handed_back_first(covey: CommandLine, engine: Engine) -> None:
    engine.enqueue([command(), command()])
    HandPool(engine, lost()).claim(1)
    HandPool(engine, here(host="elsewhere", boot="other", lease_s=0.001)).claim(1)
    assert covey("db", "copy", str(covey.db), "new.db").code == 0
    with opened(str(covey.directory / "new.db")) as target:
        assert [(job.state, job.pool, job.interruptions) for job in map(target.job, (1, 2))] == [
            ("pending", None, 1),
            ("pending", None, 1),
        ]
        assert len(HandPool(target).claim(5)) == 2


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_pool_that_comes_at_the_last_moment_stops_the_copy(place: Places, kind: str) -> None:
    with opened(place(kind)) as source, opened(place("sqlite")) as target:
        source.enqueue([command()])
        pool = HandPool(source)
        with pytest.raises(Refused, match="has just begun to work"):
            move(source, target)
        assert len(pool.claim(1)) == 1
        assert target.enqueue([command()]), "the place is an empty queue again"


def test_a_pool_that_was_given_up_learns_where_the_queue_went(covey: CommandLine, engine: Engine) -> None:
    engine.set_setting("heartbeat_seconds", "0.1")
    running = covey.pool("--count", "1")
    with engine.store.transaction(alone=True):
        engine.store.ask("seal", sealed="/new.db")
    engine.store.ring("pool")
    log = covey.directory / "pool.log"
    until(lambda: "this queue has moved to /new.db; use that one" in log.read_text())
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 1
    assert "Traceback" not in log.read_text()


# ── refused ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["queue.db", "queue.db"], 1, "is the same queue"),
        (["queue.db", "sqlite:///DIR/queue.db"], 1, "is the same queue"),
        (["queue.db", "link.db"], 1, "is the same queue"),
        (["nowhere.db", "new.db"], 1, "no queue at"),
        (["queue.db", "no/such/directory.db"], 1, "no directory"),
        (["queue.db", "mysql://x"], 2, "no database of the kind 'mysql'"),
        (["queue.db", "postgresql://127.0.0.1:1/x"], 1, "cannot reach"),
        (["queue.db", "postgresql://h/x?schema=Bad"], 2, "schema 'Bad'"),
        (["queue.db", "memory:x"], 2, "gone when this command ends"),
        (["queue.db", "full.db"], 1, "has a queue that is not empty (1 queues, 1 jobs, 1 payloads)"),
        (["queue.db", "text.db"], 1, "is not a SQLite database"),
        (["queue.db", "new.db", "--abort"], 1, "nothing to abort"),
        (["queue.db", "full.db", "--abort"], 1, "nothing to abort"),
    ],
)
def test_what_cannot_be_is_one_line(covey: CommandLine, words: list[str], code: int, text: str) -> None:
    covey("enqueue", "true")
    covey("--db", "full.db", "enqueue", "true")
    (covey.directory / "link.db").symlink_to(covey.db)
    (covey.directory / "text.db").write_text("only some text\n" * 200)
    done = covey("db", "copy", *(word.replace("DIR", str(covey.directory).strip("/")) for word in words))
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert text in done.err
    assert done.err.count("\n") == 1
    assert covey("enqueue", "still open").code == 0


def test_an_unfinished_copy_of_another_queue_is_left_alone(place: Places) -> None:
    with opened(place("sqlite")) as one, opened(place("sqlite")) as other, opened(place("sqlite")) as target:
        one.enqueue([command("one")])
        other.enqueue([command("other")])
        moving.begin(one.store, target.store, token=1, now=0)
        with pytest.raises(Refused, match="is an unfinished copy of"):
            moving.begin(other.store, target.store, token=2, now=0)
        with pytest.raises(Refused, match="is itself an unfinished copy"):
            moving.begin(target.store, other.store, token=2, now=0)
        assert other.enqueue([command()])


# ── in the middle ───────────────────────────────────────────────────────────────────────────────────────────────────

HALF = """
import sys
from covey import env
from covey.compose import open_engine
from covey.engine import moving
old, new, pages, at = sys.argv[1:]
source, target = open_engine(old), open_engine(new)
if pages == "0":
    env.arm(at, "kill")
moving.begin(source.store, target.store, token=5, now=0)
for number, (table, done) in enumerate(moving.copy(source.store, target.store, page=3)):
    if number == int(pages):
        env.arm(at, "kill")
moving.compare(source.store, target.store)
env.arm(at, "kill")
moving.finish(source.store, target.store, token=5)
"""


@both_ways
@pytest.mark.parametrize("at", ["store.before_commit", "store.after_commit", "copy.before_seal", "copy.before_open"])
def test_a_killed_copy_is_resumed_and_misses_nothing(
    covey: CommandLine, place: Places, direction: tuple[str, str], at: str, proof: Callable[[int, int], int]
) -> None:
    old, new = map(place, direction)
    with opened(old) as source:
        fill(source, plain=10)
        before = contents(source)
    pages = [0] if at.startswith("copy.") else [0, 3, 9, 17, 30, 10_000][:: proof(2, 1)]
    for page in pages:
        with Child(HALF, old, new, page, at) as child:
            assert child.end()[0] == -signal.SIGKILL
    done = covey("db", "copy", old, new, "--json")
    if at == "store.after_commit" and done.code:
        assert "already; use that one" in done.err  # the last kill came after the copy was opened
    else:
        assert done.code == 0, done
        assert done.json["resumed"] is (at != "copy.before_seal")
    with opened(new) as target:
        assert contents(target) == before
        assert check_queue(target) == []
        assert target.enqueue([command()])


def test_what_a_kill_leaves_is_sealed_on_both_sides_and_can_be_aborted(covey: CommandLine, place: Places) -> None:
    old, new = place("sqlite"), place("postgres")
    with opened(old) as source:
        fill(source)
        before = contents(source)
    with Child(HALF, old, new, 9, "store.before_commit") as child:
        assert child.end()[0] == -signal.SIGKILL
    assert "has moved to" in covey("--db", old, "enqueue", "x").err
    assert "is an unfinished copy of" in covey("--db", new, "enqueue", "x").err
    assert "is an unfinished copy of" in covey("--db", new, "status").out
    assert "or give it up with --abort" in covey("db", "copy", old, "third.db").err
    done = covey("db", "copy", old, new, "--abort")
    assert (done.code, done.out) == (0, f"{old} can be used again\n")
    with opened(old) as source, opened(new) as target:
        assert contents(source) == before
        assert not any(contents(target).values())
        assert source.database_id != target.database_id
        assert source.enqueue([command()])
        assert target.enqueue([command()])
    assert "nothing to abort" in covey("db", "copy", old, new, "--abort").err


def test_a_copy_whose_target_was_deleted_can_be_aborted(covey: CommandLine, place: Places) -> None:
    old, new = place("sqlite"), place("sqlite")
    with opened(old) as source, opened(new) as target:
        source.enqueue([command()])
        moving.begin(source.store, target.store, token=1, now=0)
    os.unlink(new)
    assert covey("db", "copy", old, new, "--abort").code == 0
    assert covey("--db", old, "enqueue", "true").code == 0
    assert not os.path.exists(new)


@both_ways
def test_a_copy_that_was_given_up_is_begun_anew_and_not_resumed(
    covey: CommandLine, place: Places, direction: tuple[str, str]
) -> None:
    """The source was open in between: rows that were copied may have changed."""
    old, new = map(place, direction)
    with opened(old) as source, opened(new) as target:
        fill(source)
        moving.begin(source.store, target.store, token=1, now=0)
        pages = moving.copy(source.store, target.store, page=3)
        for _ in range(25):
            next(pages)
        moving.unseal(source.store, token=1)
        source.cancel([1])
        (made,) = source.enqueue([command("between")])
        before = contents(source)
    done = covey("db", "copy", old, new, "--json")
    assert (done.code, done.json["resumed"]) == (0, False)
    with opened(new) as target:
        assert contents(target) == before
        assert target.job(1).state == "cancelled"
        assert target.job(made.id).state == "pending"


def test_ctrl_c_opens_the_old_queue_again_and_says_so(covey: CommandLine, place: Places) -> None:
    old, new = str(covey.db), place("postgres")
    covey("enqueue", "true")
    covey.env["COVEY_FAILPOINTS"] = "copy.page=sleep:60"
    running = covey.popen("db", "copy", old, new)
    until(lambda: "has moved to" in covey("enqueue", "x", env={"COVEY_FAILPOINTS": None}).err)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert (running.returncode, out) == (130, b"")
    assert b"can be used again" in err
    assert b"is incomplete" in err
    del covey.env["COVEY_FAILPOINTS"]
    assert covey("enqueue", "x").code == 0
    assert covey("db", "copy", old, new).code == 0


def test_an_error_opens_the_old_queue_again(covey: CommandLine, place: Places) -> None:
    old, new = str(covey.db), place("sqlite")
    covey("enqueue", "true")
    done = covey("db", "copy", old, new, env={"COVEY_FAILPOINTS": "copy.page=raise"})
    assert done.code == 1
    assert f"{old} can be used again" in done.err
    assert covey("enqueue", "x").code == 0


def test_of_two_copies_at_once_the_earlier_one_can_do_no_harm(place: Places) -> None:
    with opened(place("sqlite")) as source, opened(place("postgres")) as target:
        fill(source)
        moving.begin(source.store, target.store, token=1, now=0)
        assert moving.begin(source.store, target.store, token=2, now=0) is True
        for act in (
            lambda: moving.unseal(source.store, token=1),
            lambda: moving.finish(source.store, target.store, token=1),
        ):
            with pytest.raises(Refused, match="has taken over"):
                act()
        for _ in moving.copy(source.store, target.store):
            pass
        moving.finish(source.store, target.store, token=2)
        moving.finish(source.store, target.store, token=2)  # again, because its answer was lost
        assert contents(target) == contents(source)


def test_a_copy_that_is_not_whole_is_not_opened(place: Places) -> None:
    with opened(place("sqlite")) as source, opened(place("postgres")) as target:
        fill(source)
        moving.begin(source.store, target.store, token=1, now=0)
        for _ in moving.copy(source.store, target.store):
            pass
        with target.store.transaction():
            target.store.raw("delete from {edges}")
        with pytest.raises(StoreError, match=r"has 0 of \d edges; nothing was opened there"):
            moving.compare(source.store, target.store)


# ── the other verbs on PostgreSQL ───────────────────────────────────────────────────────────────────────────────────


def test_a_database_in_postgresql_is_looked_after(covey: CommandLine, place: Places) -> None:
    db = ["--db", place("postgres")]
    assert covey(*db, "db", "migrate").out == "schema 1, nothing to do\n"
    covey(*db, "enqueue", "-", stdin=b"a\nb\nc\n")
    covey(*db, "cancel", "1", "2")
    assert covey(*db, "db", "check").out == "ok\n"
    assert covey(*db, "db", "prune", "--older-than", "0s", "--json").json == {"pruned": 2}
    sizes = covey(*db, "db", "vacuum", "--json")
    assert (sizes.code, sizes.err) == (0, "")
    assert sizes.json["bytes_after"] > 0
    backup = covey(*db, "db", "backup", "copy.sql")
    assert (backup.code, backup.out) == (1, "")
    assert "use pg_dump --schema=copy_from_" in backup.err
    assert backup.err.count("\n") == 1
    assert not (covey.directory / "copy.sql").exists()


def test_a_schema_is_made_where_there_is_none(covey: CommandLine, server: Server | Given) -> None:
    schema = f"fresh_{os.getpid()}"
    try:
        assert covey("--db", server.url(schema), "db", "migrate").out == "applied 0001\nschema 1\n"
    finally:
        with server.admin() as admin:
            admin.execute(f"drop schema if exists {schema} cascade".encode())
