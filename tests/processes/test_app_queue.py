"""Which queue a pool with an app works on: --db, else the one that the app names, else as always."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from covey.core.specs import task_spec
from covey.open import open_engine
from covey.testing import until
from tests.kit.running import RunningPool, Yard

STORES = ("file", "postgres")

MODULE = """import os
from covey import Covey
app = Covey({0})
print("said while it was imported")

@app.task
def queue_here():
    return os.environ["COVEY_DB"], os.environ["COVEY_RUN"]
"""


def start(yard: Yard, names: str, *flags: str, environ: dict[str, str] | None = None) -> RunningPool:
    """A pool with an app that names that queue, in the yard's directory, without a --db of its own."""
    (yard.home / "mine.py").write_text(MODULE.format(names))
    words = [*yard.covey(), "worker", "start", "--count", "1", "--app", "mine:app", *flags]
    env = {**yard.environ(), "HOME": str(yard.home), **(environ or {})}
    pool = RunningPool(yard, words, env, yard.home / f"pool-{len(yard.pools)}.log")
    yard.pools.append(pool)
    return pool


def works(yard: Yard, pool: RunningPool) -> None:
    """It is a pool of the yard's queue, and all of its processes can be told from those of others."""
    until(lambda: pool.view() or pool.process.poll() is not None, 20, "the pool registers")
    assert pool.view(), pool.said()
    (job,) = yard.completes(yard.call("mine.queue_here"))
    (_, mark) = job.result
    assert mark == f"{yard.mark}{pool.id}:0:0"
    marked = set(yard.leftovers())
    assert set(pool.processes()) - {pool.pid} <= marked
    assert "said while it was imported" not in pool.said() or yard.server
    assert "the zygote was lost" not in pool.said(), "the one that went ahead serves"
    assert pool.stop() == 0, pool.said()


def test_a_pool_works_on_the_queue_that_its_app_names(yard: Yard) -> None:
    works(yard, start(yard, repr(yard.db)))


def test_a_queue_that_the_app_names_counts_for_more_than_the_environment(yard: Yard) -> None:
    works(yard, start(yard, repr(yard.db), environ={"COVEY_DB": str(yard.home / "another.db")}))
    assert not (yard.home / "another.db").exists()


def test_an_app_that_names_no_queue_has_the_one_of_the_environment(yard: Yard) -> None:
    works(yard, start(yard, "", environ={"COVEY_DB": yard.db}))


def test_an_app_that_names_no_queue_has_the_one_of_db(yard: Yard) -> None:
    works(yard, start(yard, "", "--db", yard.db, environ={"COVEY_DB": str(yard.home / "another.db")}))


def test_db_may_say_again_what_the_app_says(yard: Yard) -> None:
    works(yard, start(yard, repr(yard.db), "--db", yard.db))


def test_an_app_may_name_a_server_and_have_the_token_for_it(yard: Yard) -> None:
    token = yard.engine.create_token("pool", "worker")[1]
    server = yard.serve()
    pool = start(yard, f"{server.url!r}, token={token!r}")
    works(yard, pool)
    assert token not in pool.said()


def test_a_server_and_the_database_that_it_serves_are_the_same_queue(yard: Yard) -> None:
    server = yard.serve()
    works(yard, start(yard, repr(server.url), "--db", yard.db, "--no-reuse"))


@pytest.mark.file_only
@pytest.mark.parametrize("written", ["queue.db", "../{0}/queue.db", "link.db", "sqlite:///{1}/queue.db"])
def test_the_same_place_may_be_written_in_many_ways(yard: Yard, written: str) -> None:
    os.symlink(yard.db, yard.home / "link.db")
    works(yard, start(yard, "'queue.db'", "--db", written.format(yard.home.name, str(yard.home).lstrip("/"))))


@pytest.mark.file_only
def test_the_same_place_is_the_same_before_there_is_a_queue(yard: Yard) -> None:
    os.symlink(yard.home, yard.home / "round")
    pool = start(yard, "'fresh.db'", "--db", "round/fresh.db", "--drain")
    assert pool.ended() == 0, pool.said()
    assert (yard.home / "fresh.db").exists()


@pytest.mark.parametrize("before", [True, False])
def test_a_db_beside_an_app_that_names_another_is_refused_in_one_line(yard: Yard, before: bool) -> None:
    other = yard.home / "another.db"
    (yard.home / "mine.py").write_text(MODULE.format(repr(str(other))))
    words = ["worker", "start", "--app", "mine:app"]
    pool = RunningPool(
        yard,
        [*yard.covey(), *(["--db", yard.db, *words] if before else [*words, "--db", yard.db])],
        yard.environ(),
        yard.home / "refused.log",
    )
    yard.pools.append(pool)
    assert pool.ended() == 2, pool.said()
    shown = yard.engine.store.dialect.url
    line = f"error: --db {shown}, but the app 'mine:app' names {other}; leave out --db, or the app's: Covey()\n"
    assert pool.said() == line
    assert not other.exists()
    assert (yard.engine.pool_views(), yard.engine.pool_events()) == ([], [])


def test_an_app_whose_queue_is_in_memory_is_refused(yard: Yard) -> None:
    pool = start(yard, "'memory:'")
    assert pool.ended() == 2
    assert pool.said().startswith("error: the app 'mine:app' names a queue in memory, which no pool can reach;")
    assert pool.said().count("\n") == 1


@pytest.mark.file_only
def test_a_pool_that_is_told_to_stop_while_the_app_is_imported_stops_and_leaves_nothing(yard: Yard) -> None:
    (yard.home / "slow.py").write_text(
        "import os\nopen('pid', 'w').write(f'{os.getpid()}\\n')\nos.read(os.pipe()[0], 1)\n"
    )
    pool = RunningPool(
        yard, [*yard.covey(), "worker", "start", "--app", "slow:app"], yard.environ(), yard.home / "slow.log"
    )
    yard.pools.append(pool)
    yard.trace("pid")
    everybody = pool.processes()
    assert pool.stop() == 0, pool.said()
    assert pool.said() == ""
    assert not [pid for pid in everybody if Path(f"/proc/{pid}").exists()]


@pytest.mark.file_only
def test_a_unit_names_the_queue_that_the_app_names(yard: Yard) -> None:
    (yard.home / "mine.py").write_text(MODULE.format("'mine.db'"))
    done = yard.run("worker", "unit", "--app", "mine:app")
    assert done.returncode == 0, done.stderr
    assert f"--db {yard.home}/mine.db worker start" in done.stdout
    assert not (yard.home / "mine.db").exists()


# ── advice ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.file_only
def test_what_why_advises_can_be_pasted_as_it_stands(yard: Yard) -> None:
    place = yard.home / "an odd place"
    place.mkdir()
    db = str(place / "it's.db")
    (yard.home / "mine.py").write_text(MODULE.format(repr(db)))
    with closing(open_engine(db)) as engine:
        spec = task_spec("mine.queue_here", settings=engine.settings(), kind="sync")
        id = engine.enqueue([spec])[0].id
        advice = yard.run("--db", db, "why", str(id)).stdout.partition("try: ")[2].splitlines()[0]
        assert advice.startswith("covey --db ")
        for told in (yard.run("--db", db, "status").stdout, yard.run("worker", "list", "--db", db).stderr):
            flags = advice.partition(" worker start")[0]
            assert f"{flags} worker start".replace(" ", "") in "".join(told.split()), told
        line = advice.replace("covey ", f"{' '.join(yard.covey())} ", 1)
        pool = RunningPool(yard, ["sh", "-c", f"{line} --drain"], yard.environ(), yard.home / "advised.log")
        yard.pools.append(pool)
        assert pool.ended() == 0, pool.said()
        assert engine.job(id).state == "completed"


@pytest.mark.file_only
def test_advice_does_not_name_a_queue_that_is_found_anyway(yard: Yard) -> None:
    id = yard.shell("true")
    for words in (["why", str(id)], ["--db", "queue.db", "why", str(id)]):
        assert yard.run(*words).stdout.splitlines()[1] == "  try: covey worker start --queue default"
