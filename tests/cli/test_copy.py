"""covey db copy: a queue moves between databases, and is the same queue afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from covey.engine import db_copy
from covey.engine.engine import Engine
from covey.engine.sealing import writing
from covey.errors import Refused
from covey.store.tables import LEFT_OUT, TABLES, Rows
from covey.testing import FakeClock
from tests.kit import HandPool, check_queue, command

from .conftest import CommandLine, here, lost, until
from .copies import Places, both_ways, by_direction, contents, fill, ids, move, opened, work_off

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
        assert list(target.store.dialect.take_ids("tokens", 1)) == [3]
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
def test_tokens_come_along_as_they_are_and_requests_stay_behind(place: Places, direction: tuple[str, str]) -> None:
    old, new = map(place, direction)
    with opened(old) as source, opened(new) as target:
        source.create_token("ci", "worker", queues=["a", "b"], expires_s=60)
        source.create_token("gone", "read")
        source.revoke_token("gone")
        source.enqueue([command()], request="r")
        move(source, target)
        assert target.token_rows() == source.token_rows()
        assert [view.state for view in target.tokens()] == ["valid", "revoked"]
        assert target.store.raw("select * from {requests}") == []


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
        db_copy.begin(one.store, target.store, token=1, now=0)
        with pytest.raises(Refused, match="is an unfinished copy of"):
            db_copy.begin(other.store, target.store, token=2, now=0)
        with pytest.raises(Refused, match="is itself an unfinished copy"):
            db_copy.begin(target.store, other.store, token=2, now=0)
        assert other.enqueue([command()])
