"""Looking after workers: worker list, events, reap and unit."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.cli.commands.worker_events import KINDS, Feed
from covey.cli.commands.worker_list import size
from covey.core.turn import PoolEvent
from covey.engine.engine import Engine
from covey.env import hostname, start_ticks
from covey.system import process_tree
from tests.kit import HandPool, command
from tests.kit.lacking import need

from .conftest import CommandLine, here, lost, until, worker

REASON = "ModuleNotFoundError: No module named 'a_rather_long_name_of_a_module_that_is_not_there'"


# ── worker list ─────────────────────────────────────────────────────────────────────────────────────────────────────


def crowd(engine: Engine) -> HandPool:
    pool = HandPool(
        engine, here(name="mill", queues=("notebook", "shell"), types={"notebook": 2, "shell": 1}, log="/l")
    )
    pool.turn(
        workers=[
            worker("shell-1", state="busy", queue="shell", job_id=7, busy_since=time.time_ns() // 1000, done=12_345),
            worker("notebook-2", "sync", queue="notebook", memory=200 << 20, failed=3),
            worker("notebook-10", "sync", "dead", queue="notebook", error=REASON),
            worker("notebook-9", "sync", "dead", queue="notebook", error=REASON),
            worker("notebook-3", "async", "starting", queue="notebook"),
        ],
        given_up={"notebook (async)": "OSError: no such device"},
    )
    return pool


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_workers_are_readable_in_any_window_and_no_error_is_lost(
    covey: CommandLine, engine: Engine, columns: int
) -> None:
    crowd(engine)
    shown = covey("worker", "list", env={"COLUMNS": str(columns)})
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= columns
    together = "".join(shown.out.split())
    for said in (REASON, "notebook (async): OSError: no such device", "notebook 2, shell 1", hostname(), "/l"):
        assert "".join(said.split()) in together
    header, *rows = [line.split() for line in shown.out.partition("WORKER")[2].splitlines()]
    assert [row[0] for row in rows[:4]] == ["notebook-2", "notebook-3", "notebook-10", "shell-1"]
    assert rows[3][:2] == ["shell-1", "busy"]
    assert "7" in rows[3]
    for name, least in (("JOB", 0), ("SINCE", 0), ("PID", 60), ("FAILED", 60), ("MEMORY", 80), ("QUEUE", 200)):
        assert name in header or columns < least, (name, shown.out)
    assert columns < 80 or "200M" in shown.out


def test_workers_that_fell_of_the_same_cause_are_one_row(covey: CommandLine, engine: Engine) -> None:
    crowd(engine)
    out = covey("worker", "list").out
    assert "notebook-9" not in out
    assert f"notebook-10 and 1 before: {REASON}" in out


def test_worker_list_as_json_is_everything(covey: CommandLine, engine: Engine) -> None:
    crowd(engine)
    (pool,) = covey("worker", "list", "--json").json
    assert (pool["host"], pool["types"], pool["log"]) == (hostname(), {"notebook": 2, "shell": 1}, "/l")
    seen = {each["name"]: (each["kind"], each["mode"], each["queue"], each["state"]) for each in pool["workers"]}
    assert seen["shell-1"] == ("command", None, "shell", "busy")
    assert seen["notebook-9"] == ("python", "sync", "notebook", "dead")
    assert len(seen) == 5


def test_a_pool_that_is_gone_shows_what_it_holds_and_no_workers(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine, lost())
    engine.enqueue([command()])
    pool.claim(1)
    pool.turn(workers=[worker("command-1")])
    out = covey("worker", "list").out
    assert "gone" in out
    assert "1 jobs; `covey worker reap`" in out
    assert "command-1" not in out


@pytest.mark.parametrize(
    ("memory", "shown"),
    [(None, ""), (0, "0K"), (900 << 10, "900K"), (5 << 20, "5.0M"), (200 << 20, "200M"), (3 << 30, "3.0G")],
)
def test_sizes(memory: int | None, shown: str) -> None:
    assert size(memory) == shown


# ── worker events ───────────────────────────────────────────────────────────────────────────────────────────────────


def told(pool: HandPool, *kinds: str, worker: str = "shell-1", text: str | None = None) -> None:
    pool.turn(events=[PoolEvent(time.time_ns() // 1000, kind, worker, text) for kind in kinds])


def test_events_are_oldest_first_and_limited_to_the_latest(covey: CommandLine, engine: Engine) -> None:
    told(HandPool(engine), "starting", "registered", "ready", "failed")
    assert [event["kind"] for event in covey("worker", "events", "--json").json] == [
        *("pool_started", "starting", "registered", "ready", "failed"),
    ]
    lines = covey("worker", "events", "-n", "2").out.splitlines()
    assert [line.split()[1:] for line in lines] == [["1", "shell-1", "ready"], ["1", "shell-1", "failed"]]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)


def test_events_are_chosen_by_kind_also_from_far_back(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine)
    told(pool, "failed", worker="early")
    told(pool, *["starting", "ready"] * 300)
    found = covey("worker", "events", "--kind", "failed,killed", "--kind", "pool_started", "-n", "5", "--json").json
    assert [(event["kind"], event["worker"]) for event in found] == [("pool_started", None), ("failed", "early")]
    assert covey("worker", "events", "--kind", "failed", "-n", "5").out.count("\n") == 1


def test_a_kind_that_this_command_does_not_know_is_shown_if_it_has_happened(covey: CommandLine, engine: Engine) -> None:
    told(HandPool(engine), "reborn")
    assert [event["kind"] for event in covey("worker", "events", "-k", "reborn", "--json").json] == ["reborn"]
    refused = covey("worker", "events", "-k", "stillborn")
    assert (refused.code, refused.out, len(refused.err.splitlines())) == (2, "", 1)
    assert all(kind in refused.err for kind in KINDS)


def test_events_are_chosen_by_pool_also_when_it_is_gone(covey: CommandLine, engine: Engine) -> None:
    for name in ("one", "two"):
        pool = HandPool(engine, name=name)
        told(pool, "ready", worker=name)
        pool.lose()
    for chosen in ("2", "two"):
        found = covey("worker", "events", chosen, "--json").json
        assert {event["pool"] for event in found} == {2}
        assert [event["kind"] for event in found] == ["pool_started", "ready", "pool_lost"]
    for unknown in ("3", "tw", "9" * 30):
        refused = covey("worker", "events", unknown)
        assert (refused.code, refused.out, len(refused.err.splitlines())) == (1, "", 1)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_long_texts_are_folded_and_not_cut(covey: CommandLine, engine: Engine, columns: int) -> None:
    told(HandPool(engine), "failed", text=f"{REASON}; log: /a/\x1b[31m/b")
    out = covey("worker", "events", env={"COLUMNS": str(columns)}).out
    assert max(map(len, out.splitlines())) <= columns
    assert "".join(REASON.split()) in "".join(out.split())
    assert "\x1b" not in out
    assert time.strftime("%Y-", time.gmtime()) in out


def test_following_shows_what_happens_and_ctrl_c_ends_it_quietly(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine)
    told(pool, "starting")
    following = covey.popen("worker", "events", "-f", "-n", "1", "--kind", "starting,failed", "--json")
    assert following.stdout
    assert json.loads(following.stdout.readline())["kind"] == "starting"
    told(pool, "ready", "failed")
    assert json.loads(following.stdout.readline())["kind"] == "failed"
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=120)
    assert (following.returncode, out, err) == (130, b"", b"")


def test_following_ends_when_nobody_reads_any_more(covey: CommandLine, engine: Engine) -> None:
    told(HandPool(engine), "starting")
    following = covey.popen("worker", "events", "-f")
    assert following.stdout
    following.stdout.readline()
    following.stdout.close()
    assert following.wait(20) in (0, 1)


def test_a_flood_between_two_looks_is_followed_completely(engine: Engine) -> None:
    feed = Feed(engine, None, set())
    assert feed.latest(5) == []
    told(HandPool(engine), *["ready"] * 2500)
    fresh = feed.fresh()
    assert len(fresh) == 2501
    assert [event.id for event in fresh] == sorted(event.id for event in fresh)
    assert feed.fresh() == []


# ── worker reap ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def leave() -> Iterator[Any]:
    """Leaves a process behind that carries a mark, or none."""
    started: list[subprocess.Popen[bytes]] = []

    def leave(mark: str | None, *words: str) -> subprocess.Popen[bytes]:
        environ = {"PATH": os.environ["PATH"], **({process_tree.MARK: mark} if mark else {})}
        started.append(subprocess.Popen(words or ["sleep", "600"], env=environ, start_new_session=True))
        return started[-1]

    yield leave
    for process in started:
        process.kill()
        process.wait()


def test_reaping_ends_the_leftovers_of_lost_pools_and_nobody_else(
    covey: CommandLine, engine: Engine, leave: Any
) -> None:
    (made,) = engine.enqueue([command()])
    pool = HandPool(engine, lost(name="mill"))
    pool.claim_one()
    for _ in range(10):
        living = HandPool(engine, here())  # ids up to 11: "1" is a beginning of those
    left = leave(f"{engine.database_id}:{pool.id}:{made.id}:1", "sleep", "543210")
    others = [
        leave(f"{engine.database_id}:{living.id}:5:1"),
        leave(f"0123456789abcdef:{pool.id}:1:1"),
        leave(f"x{engine.database_id}:{pool.id}:1:1"),
        leave(None),
    ]

    seen = covey("worker", "reap", "--dry-run")
    assert (seen.code, seen.err) == (0, "")
    assert "would reap pool 1 (mill" in seen.out
    assert "1 job, 1 process" in seen.out
    assert f"{left.pid} sleep 543210" in seen.out
    assert covey("worker", "reap", "--dry-run", "--json").json == [
        {
            "id": 1,
            "name": "mill",
            "host": hostname(),
            "pid": os.getpid(),
            "lost": True,
            "reaped": False,
            "jobs": 1,
            "processes": [{"pid": left.pid, "command": "sleep 543210"}],
            "survivors": [],
            "reason": f"its process {os.getpid()} is gone",
        }
    ]
    assert left.poll() is None
    assert engine.job(made.id).state == "processing"
    assert len(engine.pools()) == 11

    done = covey("worker", "reap")
    assert done.code == 0
    assert "reaped pool 1 (mill" in done.out
    assert "1 job handed back, 1 process ended" in done.out
    assert left.wait(60) == -signal.SIGKILL
    assert [other.poll() for other in others] == [None] * 4
    assert (engine.job(made.id).state, engine.job(made.id).attempts) == ("pending", 0)
    assert [each.id for each in engine.pools()] == list(range(2, 12))

    again = covey("worker", "reap")
    assert (again.code, again.out) == (0, "")
    assert "nothing to reap" in again.err


def test_what_a_leftover_started_goes_with_it(covey: CommandLine, engine: Engine, leave: Any) -> None:
    pool = HandPool(engine, lost())
    left = leave(f"{engine.database_id}:{pool.id}:1:1", "sh", "-c", "env -i sleep 432109 & wait")
    until(lambda: process_tree.children(left.pid))
    (child,) = process_tree.children(left.pid)
    (seen,) = covey("worker", "reap", "--json").json
    assert {each["pid"] for each in seen["processes"]} == {left.pid, child}
    until(lambda: start_ticks(child) is None)


def test_pools_that_may_live_are_left_alone(covey: CommandLine, engine: Engine) -> None:
    engine.enqueue([command(), command()])
    far = HandPool(engine, name="far", lease_s=0.001)
    frozen = HandPool(engine, here(name="frozen", lease_s=0.001))
    far.claim_one()
    frozen.claim_one()
    done = covey("worker", "reap")
    assert done.code == 0
    assert "nothing to reap" in done.err
    far_line, frozen_line = done.out.splitlines()
    assert re.search(r"left alone: pool 1 \(far on host-a\), 1 job, silent .* seems lost; .* after 0.001 s", far_line)
    assert re.search(rf"left alone: pool 2 .* its process lives; .*kill -CONT {os.getpid()}", frozen_line)
    assert engine.status().counts["processing"] == 2
    assert [(each["lost"], each["reaped"]) for each in covey("worker", "reap", "--json").json] == [(False, False)] * 2


def test_a_pool_from_before_the_last_restart_of_this_host_is_reaped_once_it_was_silent_for_its_lease(
    covey: CommandLine, engine: Engine
) -> None:
    """Until then it may be a machine with the same name."""
    before, namesake = engine.enqueue([command(), command()])
    HandPool(engine, here(boot="another-boot:1", lease_s=0.001)).claim_one()
    HandPool(engine, here(boot="a-third-boot:1", lease_s=30.0)).claim_one()
    assert "reaped" in covey("worker", "reap").out
    assert [engine.job(made.id).state for made in (before, namesake)] == ["pending", "processing"]


def test_a_leftover_cannot_reap_the_pool_that_it_belongs_to(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine, lost())
    refused = covey("worker", "reap", env={process_tree.MARK: f"{engine.database_id}:{pool.id}:1:1"})
    assert (refused.code, refused.out) == (1, "")
    assert "inside a job" in refused.err
    assert len(engine.pools()) == 1


def test_a_killed_pool_is_reaped_by_hand(covey: CommandLine) -> None:
    pool = covey.pool("--count", "1")
    covey("enqueue", "exec sleep 321098")
    until(lambda: covey.state(1) == "processing")
    pool.kill()
    pool.wait()
    (seen,) = covey("worker", "reap", "--json").json
    assert (seen["lost"], seen["reaped"], seen["jobs"], seen["survivors"]) == (True, True, 1, [])
    assert covey.state(1) == "pending"
    assert [event["kind"] for event in covey("worker", "events", "--json", "-n", "1").json] == ["pool_lost"]


# ── worker unit ─────────────────────────────────────────────────────────────────────────────────────────────────────


def parsed(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(delimiters="=", comment_prefixes="#", strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


def command_of(text: str) -> list[str]:
    """The words that systemd would run, its quotes, specifiers and variables undone; none of the latter may be left."""
    first, *rest = [single("%", word) for word in shlex.split(parsed(text)["Service"]["ExecStart"])]
    return [first, *(single("$", word) for word in rest)]


def single(mark: str, word: str) -> str:
    assert mark not in word.replace(mark * 2, ""), f"systemd would replace something in {word!r}"
    return word.replace(mark * 2, mark)


def test_a_unit_has_all_that_a_pool_needs(covey: CommandLine) -> None:
    text = covey("worker", "unit", "--count", "4", "--app", "tasks:app", "--grace", "60.5").out
    unit = parsed(text)
    service = unit["Service"]
    assert unit["Unit"]["After"]
    assert str(covey.db) in unit["Unit"]["Description"]
    assert service["WorkingDirectory"] == str(covey.directory)
    assert float(service["TimeoutStopSec"]) >= 60.5 + 5
    wanted = {
        "Type": "exec",
        "KillMode": "mixed",
        "KillSignal": "SIGTERM",
        "Restart": "on-failure",
        "RestartSec": "5",
        "Delegate": "yes",
        "OOMPolicy": "continue",
        "StandardError": "journal",
    }
    assert {name: service[name] for name in wanted} == wanted
    assert unit["Install"]["WantedBy"] == "default.target"
    assert "User" not in service
    program, *words = command_of(text)
    assert os.path.isabs(program)
    assert words[-7:] == ["--db", str(covey.db), "worker", "start", "--count=4", "--app=tasks:app", "--grace=60.5"]
    system = parsed(covey("worker", "unit", "--system").out)
    assert system["Install"]["WantedBy"] == "multi-user.target"
    assert system["Service"]["User"]
    assert not covey.db.exists()


def test_odd_names_reach_the_pool_as_they_are(covey: CommandLine) -> None:
    odd = covey.directory / "100% d ü"
    odd.mkdir()
    name = "a \"b\" 'c' \\d $HOME ${x} %n; -x"
    words = ["worker", "unit", "--name", name, "--db", "q $x%i.db", "-w", "a/b=2", "-w", "c=auto", "--max-memory", "1G"]
    done = subprocess.run(
        [sys.executable, "-m", "covey", *words],
        cwd=odd,
        env=covey.environment(None),
        capture_output=True,
        text=True,
        check=True,
    )
    said = command_of(done.stdout)
    assert said[said.index("--db") + 1] == str(odd / "q $x%i.db")
    assert said[said.index("start") + 1 :] == [
        *("--worker=a/b=2", "--worker=c=auto", "--grace=10", f"--name={name}", "--max-memory=1G"),
    ]
    assert parsed(done.stdout)["Service"]["WorkingDirectory"] == str(odd).replace("%", "%%")
    assert subprocess.run([*said, "--help"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("words", [[], ["--system", "--name", 'a "b" $x %i'], ["--worker", "a=1", "--grace", "0"]])
def test_systemd_accepts_the_unit(covey: CommandLine, tmp_path: Path, words: list[str]) -> None:
    need("systemd-analyze")
    file = tmp_path / "covey-test.service"
    file.write_text(covey("worker", "unit", *words).out)
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr
    assert "covey-test" not in checked.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["unit", "--count", "0"],
        ["unit", "--count", "many"],
        ["unit", "--worker", "a"],
        ["unit", "--worker", "a=1", "--queue", "b"],
        ["unit", "--worker", "a=0"],
        ["unit", "--queue", "a b"],
        ["unit", "--app", "tasks"],
        ["unit", "--grace", "-1"],
        ["unit", "--grace", "nan"],
        ["unit", "--max-jobs", "0"],
        ["unit", "--max-memory", "little"],
        ["unit", "--db", "memory:x"],
        ["unit", "--db", "mysql://x"],
        ["unit", "--name", "a\x07"],
        ["unit", "extra"],
        ["events", "--limit", "-1"],
        ["events", "--limit", "100001"],
        ["events", "--limit", "some"],
        ["events", "1", "2"],
        ["reap", "1"],
        ["list", "1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_code_2(covey: CommandLine, words: list[str]) -> None:
    done = covey("worker", *words)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("error: ")
