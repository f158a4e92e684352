"""covey db backup, db check and back again: what is restored is a whole queue, and is worked to its end."""

from __future__ import annotations

import shutil

import apsw

from covey.core.model import ENDED
from covey.core.view import JobView
from covey.engine.engine import Engine
from tests.kit import HandPool, check_queue, child, command
from tests.kit.checker import every_job
from tests.kit.factories import pool_info

from .conftest import CommandLine, here, worker
from .copies import Places, fill, opened


def busy(engine: Engine) -> None:
    """A queue in which everything is used, at a moment when others work on it."""
    engine.set_setting("heartbeat_seconds", "1")
    engine.set_setting("lock_lease_seconds", "3")
    fill(engine)
    engine.pause("lunch", for_s=3600)
    engine.enqueue([command(": asked once", queue="mine")], request="once")
    engine.enqueue([command(f": held {n}", queue="mine", priority=50) for n in range(3)])
    pool = HandPool(engine, here(name="alive", queues=("mine",)))
    runs, cancelled = pool.claim(2)
    pool.turn(
        held=[runs, cancelled],
        workers=[worker("command-1", state="busy", job_id=runs.id, fence=runs.fence), worker("command-2")],
        events=[],
    )
    engine.cancel([cancelled.id])  # its processes are not gone: the pool still has it
    engine.enqueue([command(": lent", queue="http")])
    lent = engine.lend(pool_info("curl", count=1, host="http", pid=0, queues=("http",)))
    assert lent is not None
    engine.stage(lent[1].id, lent[0], lent[1].fence, [child(": staged")])
    engine.turn(pool.said())


def rows(path: str) -> dict[str, int]:
    """Of every table, how many."""
    look = apsw.Connection(path, apsw.SQLITE_OPEN_READONLY)
    try:
        names = [row[0] for row in look.execute("select name from sqlite_master where type = 'table'")]
        return {str(name): int(look.execute(f"select count(*) from {name}").fetchall()[0][0]) for name in names}
    finally:
        look.close()


def jobs(engine: Engine) -> dict[int, JobView]:
    return {job.id: job for job in every_job(engine)}


def test_a_backup_of_a_queue_at_work_checks_clean_is_restored_and_worked_to_the_end(
    covey: CommandLine, engine: Engine
) -> None:
    busy(engine)
    unused = [name for name, count in rows(str(covey.db)).items() if not count]
    assert unused == [], "what is empty proves nothing"
    before = jobs(engine)
    assert {job.state for job in before.values()} == {
        *("pending", "scheduled", "failed", "processing", "waiting", "blocked", "dead", "completed", "cancelled")
    }
    assert covey("db", "backup", "saved.db").code == 0
    assert covey("db", "check").out == "ok\n"
    checked = covey("--db", "saved.db", "db", "check")
    assert (checked.code, checked.out) == (0, "ok\n")

    restored = covey.directory / "elsewhere" / "queue.db"
    restored.parent.mkdir()
    shutil.move(covey.directory / "saved.db", restored)
    at = ("--db", str(restored))
    assert covey(*at, "db", "check").out == "ok\n"
    assert covey(*at, "queue", "resume", "later").code == 0
    (later,) = [job.id for job in before.values() if job.state == "scheduled"]
    assert covey(*at, "edit", str(later), "--run-at", "now").code == 0
    drained = covey(*at, "worker", "start", "--count", "2", "--drain")
    assert drained.code == 0, drained.err

    assert covey(*at, "db", "check").out == "ok\n"
    with opened(str(restored)) as copy:
        after = jobs(copy)
        assert check_queue(copy, acknowledged=before) == []
        assert [job.id for job in after.values() if job.state not in ENDED or job.pool is not None] == []
        kept = ("dead", "cancelled")
        assert {id for id, job in after.items() if job.state in kept} == {
            id for id, job in before.items() if job.state in kept
        }
        for id, job in before.items():
            if job.state in ENDED and job.pool is None:
                assert (after[id].finished_at, after[id].result, copy.history(id)[:1]) == (
                    job.finished_at,
                    job.result,
                    engine.history(id)[:1],
                )
    assert jobs(engine) == before, "the original is not the backup's concern"


def test_a_row_whose_owner_is_not_there_is_named_by_its_table_and_key(covey: CommandLine, engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    engine.close()
    other = apsw.Connection(str(covey.db))  # where nobody looks after references
    other.execute(
        "insert into workers (pool, name, kind, state, started_at) values (7, 'command-2', 'sync', 'idle', 1)"
    )
    other.execute("insert into edges (job_id, waits_for) values (99, ?)", (made.id,))
    other.execute("delete from jobs")
    other.close()
    done = covey("db", "check", "--json")
    assert done.code == 1
    assert sorted(done.json["problems"]) == [
        f"edges (job_id 99, waits_for {made.id}) belongs to jobs 99, which is not there",
        f"payloads (job_id {made.id}) belongs to jobs {made.id}, which is not there",
        "workers (pool 7, name 'command-2') belongs to pools 7, which is not there",
    ]
    assert covey("db", "check").out.endswith("3 problems; restore a backup, or copy what is left with .recover\n")


def test_a_queue_that_was_copied_checks_clean_in_both_places(covey: CommandLine, place: Places) -> None:
    old, new, again = place("sqlite"), place("postgres"), str(covey.directory / "again.db")
    with opened(old) as source:
        fill(source)
    for first, second in ((old, new), (new, again)):
        assert covey("db", "copy", first, second).code == 0
        assert [covey("--db", each, "db", "check").out for each in (first, second)] == ["ok\n", "ok\n"]
