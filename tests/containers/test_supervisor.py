"""Workers in containers, with an engine that is played: what is asked of it, and what becomes of its answers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from covey.testing.until import until
from tests.kit.running import Watch, gone

from .dock import Dock, state, told


def test_each_worker_is_a_container_that_runs_a_pool_of_one(dock: Dock) -> None:
    pool = dock.start("--worker", "notebook=2", "--worker", "shell=1", "--memory", "512M", "--cpus", "1.5").started()
    ids = dock.yard.shells(["true"] * 3, queue="notebook") + dock.yard.shells(["true"], queue="shell")
    dock.yard.completes(*ids)
    said = pool.said()
    assert "✓ started notebook-1" in said
    assert "(3/3)" in said
    assert "started 3/3 workers" in said
    views = {view.name: view for view in dock.yard.engine.pool_views()}
    assert sorted(view.count for view in views.values()) == [0, 1, 1, 1]  # the supervisor claims nothing
    assert [views[name].queues for name in dock.containers()] == [["notebook"], ["notebook"], ["shell"]]
    assert pool.stop() == 0
    assert dock.containers() == []
    assert dock.yard.engine.pool_views() == []


def test_a_container_is_started_with_limits_labels_init_and_a_token_that_nobody_sees(dock: Dock) -> None:
    secret = dock.yard.home / "secret"
    secret.write_text("open-sesame\n")
    data = dock.yard.home / "data"
    data.mkdir()
    flags = ("--memory", "512M", "--cpus", "1.5", "--mount", f"{data}:/data", "--token-file", str(secret))
    pool = dock.start("--queue", "a", "--queue", "b", "--count", "1", "--grace", "3", *flags).started()
    (call,) = dock.calls("run")
    words = " ".join(call)
    identity = f"{pool.pid}:{_ticks(pool.pid)}"
    assert f"--label covey.database={dock.yard.engine.database_id} " in words
    assert f":{identity} " in words.partition("covey.pool=")[2].partition("--")[0]
    for part in (
        "--detach",
        "--init",
        "--pull never",
        "--memory 536870912 --memory-swap 536870912",
        "--cpus 1.5",
        f"--mount type=bind,source={data},target=/data,readonly",
        "target=/run/covey/token,readonly",
        "--add-host host.docker.internal:host-gateway",
        "--entrypoint covey img worker start --db http://nowhere:1 --count 1",
        f"--name {dock.containers()[0]} --token-file /run/covey/token --queue a --queue b --grace 3",
    ):
        assert part in words, part
    token = words.partition(",target=/run/covey/token")[0].rpartition("source=")[2]
    assert Path(token).read_text() == "open-sesame\n"
    assert (os.stat(token).st_mode & 0o777, os.stat(os.path.dirname(token)).st_mode & 0o777) == (0o600, 0o700)
    seen = (dock.home / "calls").read_text() + Path(f"/proc/{pool.pid}/cmdline").read_text() + pool.said()
    assert "open-sesame" not in seen
    pool.stop()
    assert not os.path.exists(os.path.dirname(token))


def _ticks(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def test_a_killed_container_is_replaced_and_its_job_is_told_how_it_ended(dock: Dock) -> None:
    pool = dock.start("--worker", "default=1").started()
    (first,) = dock.containers()
    job = dock.yard.shell("echo run >>traces; sleep 1000", max_attempts=1)
    dock.yard.trace()
    watch = Watch()
    os.kill(dock.first_pid(first), signal.SIGKILL)
    dock.yard.trace(least=2)
    assert watch.within(dock.yard.engine.settings()["lock_lease_seconds"] + 10)
    assert told(dock, job) == ["its pool was lost: its container was killed by SIGKILL"]
    view = dock.yard.job(job)
    assert (view.attempts, view.interruptions) == (1, 1)  # a lost pool costs no attempt
    assert first not in dock.containers()
    assert "default-1: its container was killed by SIGKILL; it is replaced" in pool.said()

    def happened() -> set[tuple[str, str | None]]:
        return {(event.kind, event.worker) for event in dock.yard.engine.pool_events(pool.id)}

    until(lambda: {("failed", "default-1"), ("ready", "default-2")} <= happened(), 10, "both are told")


def test_an_oom_kill_is_reported_as_such(dock: Dock) -> None:
    pool = dock.start("--worker", "default=1").started()
    job = dock.yard.shell("echo run >>traces; sleep 1000")
    dock.yard.trace()
    dock.say("oom")
    os.kill(dock.first_pid(dock.containers()[0]), signal.SIGKILL)
    dock.yard.trace(least=2)
    assert told(dock, job) == ["its pool was lost: its container ran out of memory (OOM-killed)"]
    assert "ran out of memory" in dock.covey("why", str(job)).stdout
    lost = [event.text or "" for event in dock.yard.engine.pool_events() if event.kind == "pool_lost"]
    assert lost == ["1 jobs handed back: its container ran out of memory (OOM-killed)"]
    pool.stop()


def test_what_a_killed_supervisor_left_is_removed_by_the_next_one_running_or_only_created(dock: Dock) -> None:
    first = dock.start("--worker", "default=2").started()
    running = dock.containers()
    job = dock.yard.shell("echo run >>traces; sleep 1000")
    dock.yard.trace()
    first.kill()
    dock.say("fail-start", "no more")
    with pytest.raises(subprocess.CalledProcessError):
        dock.docker("run", "--detach", *_labels(dock), "--name", "only-created", "--entrypoint", "x", "img")
    dock.unsay("fail-start")
    assert state(dock, "only-created")["Status"] == "created"
    assert {*running, "only-created"} == {*dock.containers()}
    second = dock.start("--worker", "default=1").started()
    assert not {*running, "only-created"} & {*dock.containers()}
    until(lambda: told(dock, job), 10, "the job is told")
    assert told(dock, job) == [
        "its pool was lost: its container was removed: the supervisor that had started it was lost"
    ]
    dock.yard.trace(least=2)
    second.stop(signal.SIGTERM)
    assert dock.containers() == []


def _labels(dock: Dock) -> list[str]:
    """Those of the first container that was started."""
    (call, *_) = dock.calls("run")
    return [word for at, word in enumerate(call) if word == "--label" or call[at - 1] == "--label"]


def test_a_container_of_a_living_supervisor_is_left_alone(dock: Dock) -> None:
    one = dock.start("--worker", "default=1").started()
    (theirs,) = dock.containers()
    two = dock.start("--worker", "default=1").started()
    two.stop()
    assert dock.containers() == [theirs]
    assert dock.covey("worker", "reap").returncode == 0
    assert dock.containers() == [theirs]
    one.stop()


def test_worker_reap_removes_what_a_killed_supervisor_left(dock: Dock) -> None:
    pool = dock.start("--worker", "default=2").started()
    job = dock.yard.shell("echo run >>traces; sleep 1000")
    dock.yard.trace()
    left = dock.containers()
    pool.kill()
    dry = dock.covey("worker", "reap", "--dry-run")
    assert dock.containers() == left
    done = dock.covey("worker", "reap")
    assert all(name in dry.stdout and name in done.stdout for name in left), (dry, done)
    assert dock.containers() == []
    assert dock.yard.job(job).state == "pending"


def test_a_start_that_comes_late_of_a_killed_supervisor_is_found_by_the_running_one(dock: Dock) -> None:
    """The engine was asked before the supervisor died, and starts the container after the next one has looked."""
    dock.say("hang-start", 3)
    dock.say("slow-run", 1)
    first = dock.start("--worker", "default=1")
    until(lambda: dock.calls("run"), 10, "the engine is asked")
    first.kill()
    dock.unsay("hang-start")
    dock.unsay("slow-run")
    second = dock.start("--worker", "default=1").started()
    until(lambda: len(dock.calls("rm")) >= 1, 15, "the late one is removed")
    until(lambda: len(dock.containers()) == 1, 5, "only ours is there")
    second.stop()


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_int_lets_running_jobs_finish(dock: Dock) -> None:
    pool = dock.start("--worker", "default=2", "--grace", "0").started()
    job = dock.yard.shell("echo run >>traces; until test -e go; do sleep 0.05; done")
    dock.yard.trace()
    pool.send(signal.SIGINT)
    until(lambda: len(dock.containers()) == 1, 10, "the idle one leaves")
    (dock.yard.home / "go").touch()
    assert pool.ended() == 0
    assert dock.yard.job(job).state == "completed"
    assert dock.containers() == []


def test_worker_stop_reaches_the_supervisor(dock: Dock) -> None:
    pool = dock.start("--worker", "default=1").started()
    done = dock.covey("worker", "stop")
    assert done.returncode == 0
    assert f"pid {pool.pid}" in done.stdout
    assert pool.ended() == 0
    assert dock.containers() == []


def test_term_gives_running_jobs_their_grace_and_hands_them_back(dock: Dock) -> None:
    pool = dock.start("--worker", "default=1", "--grace", "0.2").started()
    job = dock.yard.shell("echo run >>traces; sleep 1000")
    dock.yard.trace()
    pool.send(signal.SIGTERM)
    pool.ended(15)
    view = dock.yard.job(job)
    assert (view.state, view.attempts, view.interruptions) == ("pending", 0, 0)
    assert dock.containers() == []


def test_a_second_signal_ends_a_container_that_does_not_listen(dock: Dock) -> None:
    pool = dock.start("--worker", "default=1").started()
    job = dock.yard.shell("echo run >>traces; sleep 1000")
    dock.yard.trace()
    os.kill(dock.first_pid(dock.containers()[0]), signal.SIGSTOP)
    pool.send(signal.SIGINT)
    until(lambda: "no new jobs are taken" in pool.said(), 5, "it stops")
    pool.send(signal.SIGTERM)
    assert pool.ended(15) == 1
    assert dock.containers() == []
    assert dock.yard.job(job).state == "pending"
    assert told(dock, job) == ["its pool was lost: its container was removed when its supervisor was stopped"]


def test_a_supervisor_that_breaks_while_containers_start_removes_them_all_the_same(dock: Dock) -> None:
    pool = dock.start("--worker", "default=2", failpoints={"containers.ticked": "raise"})
    assert pool.ended() != 0
    assert len(dock.calls("run")) == 2
    assert dock.containers() == []


def test_drain_ends_when_nothing_is_left_to_do(dock: Dock) -> None:
    ids = dock.yard.shells(["true"] * 5)
    pool = dock.start("--worker", "default=2", "--drain")
    dock.yard.completes(*ids)
    assert pool.ended() == 0
    assert dock.containers() == []


def test_without_its_parent_it_ends(dock: Dock) -> None:
    parent = subprocess.Popen(["sleep", "1000"])
    pool = dock.start("--worker", "default=1", "--parent-pid", str(parent.pid)).started()
    parent.kill()
    parent.wait()
    pool.ended(20)
    assert dock.containers() == []


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_image_that_cannot_start_is_said_with_its_reason_and_ends_with_1(dock: Dock) -> None:
    dock.say("fail-start", "exec: covey: not found")
    pool = dock.start("--worker", "default=2")
    assert pool.ended() == 1
    assert "started 0/2 workers" in pool.said()
    assert "exec: covey: not found" in pool.said()
    assert dock.containers() == []


def test_a_container_whose_pool_cannot_start_is_said_with_its_last_words(dock: Dock) -> None:
    pool = dock.start("--worker", "default=1", "--app", "no.such.module:app")
    assert pool.ended() == 1
    assert "no.such.module" in pool.said()
    assert dock.containers() == []


def test_containers_that_die_young_are_replaced_ever_later(dock: Dock) -> None:
    pool = dock.start("--worker", "default=1").started()
    for _ in range(3):
        os.kill(dock.first_pid(until(dock.containers, 5)[0]), signal.SIGKILL)
        said = pool.said().count("it is replaced")
        until(lambda: pool.said().count("it is replaced") > said, 10, "its end is noticed")  # noqa: B023
        until(lambda: dock.yard.engine.pool_views()[1:], 20, "another one works")
    delays = [line.rpartition("in ")[2] for line in pool.said().splitlines() if "it is replaced in" in line]
    assert delays == ["0.5 s", "1.0 s"]


def test_an_engine_without_events_is_asked_all_the_same(dock: Dock) -> None:
    dock.say("fail-events", "not supported")
    pool = dock.start("--worker", "default=1").started()
    (first,) = dock.containers()
    os.kill(dock.first_pid(first), signal.SIGKILL)
    until(lambda: "it is replaced" in pool.said(), 10, "its end is noticed by looking")
    pool.stop()


def test_an_engine_that_cannot_tell_of_its_containers_does_not_make_them_be_removed(dock: Dock) -> None:
    """As when it is being restarted: that it says nothing is not that there are none."""
    pool = dock.start("--worker", "default=1").started()
    before = dock.containers()
    dock.say("fail-inspect", "Cannot connect to the Docker daemon. Is the docker daemon running?")
    looks = len(dock.calls("inspect"))
    until(lambda: len(dock.calls("inspect")) > looks, 20, "it looks")
    time.sleep(0.5)
    dock.unsay("fail-inspect")
    assert dock.containers() == before
    assert not dock.calls("rm")
    dock.yard.completes(dock.yard.shell("true"))
    pool.stop()


def test_starts_are_limited_and_go_on_in_parallel(dock: Dock) -> None:
    dock.say("slow-run", 1)
    watch = Watch()
    pool = dock.start("--worker", "default=4", "--max-startup-concurrency", "4").started()
    assert watch.within(4 + 4)  # one after the other they would take 4 s more than the rest
    pool.stop()


def test_no_process_of_a_removed_container_lives(dock: Dock) -> None:
    pool = dock.start("--worker", "default=1").started()
    dock.yard.shell("echo $$ >>pids; exec sleep 1000")
    dock.yard.trace("pids")
    inside = dock.first_pid(dock.containers()[0])
    pool.stop(signal.SIGTERM)
    assert gone(inside)


# ── what makes no sense ─────────────────────────────────────────────────────────────────────────────────────────────


def test_what_makes_no_sense_is_one_line(dock: Dock) -> None:
    good = ("--executor", "docker", "--image", "img", *("--server", "http://x:1"))
    for flags, line in [
        (("--executor", "docker"), "needs --image"),
        (("--executor", "chroot", "--image", "img"), "one of process, docker, podman, container"),
        (("--image", "img"), "--image is for containers; add --executor docker"),
        (("--executor", "podman", "--image", "img"), "no podman on PATH"),
        ((*good, "--memory", "many"), "--memory 'many'"),
        ((*good, "--memory", "2M"), "at least 32M"),
        ((*good, "--cpus", "0"), "--cpus 0"),
        ((*good, "--mount", "/etc"), "write HOST:CONTAINER"),
        ((*good, "--mount", "/no/such:/data"), "there is no /no/such"),
        ((*good, "--port", "0"), "--port 0"),
        ((*good, "--token-file", "/no/such"), "/no/such"),
    ]:
        assert line in dock.refused(*flags), flags


def test_an_engine_that_does_not_run_is_one_line(dock: Dock) -> None:
    dock.say("fail-ps", "Cannot connect to the Docker daemon. Is the docker daemon running?")
    line = dock.refused("--executor", "docker", "--image", "img", *("--server", "http://x:1"))
    assert "Cannot connect to the Docker daemon" in line


def test_an_image_that_is_nowhere_is_one_line(dock: Dock) -> None:
    dock.say("no-image")
    dock.say("fail-pull", "")
    line = dock.refused("--executor", "docker", "--image", "img", *("--server", "http://x:1"))
    assert "--image img: not here and cannot be pulled" in line
