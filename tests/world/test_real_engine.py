"""Supervisors with a real dockerd: containers killed, out of memory, supervisors killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.discovery import found as find_server
from covey.testing.until import until
from tests.kit.running import RunningPool, Watch

from .real_engine import IMAGE, HarbourYard, RealEngine, need_engine

HOG = "python -c 'x = bytearray(400 * 1024 * 1024)'"


@pytest.fixture(scope="module")
def docker(own_temp: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    need_engine()
    engine = RealEngine(tmp_path_factory.mktemp("e"))
    try:
        yield engine.started()
    finally:
        engine.close()


@pytest.fixture
def yard(docker: RealEngine, tmp_path: Path) -> Iterator[HarbourYard]:
    with HarbourYard(tmp_path, docker) as yard:
        yield yard
        for pool in yard.pools:
            if pool.process.poll() is None:
                pool.stop()
        left = docker.ours(yard)
        if left:
            docker.ask("rm", "-f", *left)
        assert not left, f"containers with our label were left: {left}"


def supervise(yard: HarbourYard, *flags: str) -> RunningPool:
    words = (
        "--executor",
        "docker",
        "--image",
        IMAGE,
        "--memory",
        "256M",
        "--grace",
        "0.3",
        *yard.docker.mounts(),
        *flags,
    )
    pool = yard.pool(*words, count=None)
    until(lambda: " workers in " in pool.said() or pool.process.poll() is not None, 60, "the containers start")
    assert "failed" not in pool.said(), pool.said()
    assert pool.process.poll() is None, pool.said()
    return pool


def interruptions(yard: HarbourYard, job: int) -> list[str]:
    return [event.text or "" for event in yard.engine.events(job) if event.kind == "interrupted"]


def test_jobs_run_in_containers_over_http_and_an_int_leaves_nothing(yard: HarbourYard, docker: RealEngine) -> None:
    pool = supervise(yard, "--worker", "notebook=2")
    ids = yard.shells(["cat /proc/1/comm; id -u; cat /run/covey/token | wc -c"] * 4, queue="notebook", cwd="/")
    yard.completes(*ids)
    lines = (yard.attempt(ids[0]).stdout or "").split()
    assert lines[0] in ("docker-init", "tini", "catatonit")
    assert int(lines[2]) > 40
    assert len(docker.ours(yard)) == 2
    (made,) = yard.engine.tokens()
    assert (made.role, made.queues, made.state) == ("worker", ["notebook"], "valid")
    assert pool.stop(signal.SIGINT) == 0
    assert docker.ours(yard) == []
    assert [token.state for token in yard.engine.tokens()] == ["revoked"]
    assert yard.engine.pool_views() == []


def test_a_command_that_runs_out_of_memory_says_so_and_its_container_lives_on(
    yard: HarbourYard, docker: RealEngine
) -> None:
    pool = supervise(yard, "--worker", "default=1")
    before = docker.ours(yard)
    job = yard.shell(HOG, cwd="/", max_attempts=1)
    (view,) = yard.ends(job)
    assert view.state == "dead"
    assert (view.error or "").endswith("out of memory"), view.error
    assert docker.ours(yard) == before
    yard.completes(yard.shell("true", cwd="/"))
    pool.stop()


def test_a_killed_container_is_replaced_and_its_job_runs_again(
    yard: HarbourYard, docker: RealEngine, tmp_path: Path
) -> None:
    supervise(yard, "--worker", "default=1")
    (first,) = docker.ours(yard)
    job = yard.shell("sleep 1000", cwd="/")
    yard.runs(job)
    watch = Watch()
    docker.ask("kill", "--signal", "KILL", first)
    until(lambda: interruptions(yard, job), 20, "the job is told")
    assert interruptions(yard, job) == ["its pool was lost: its container was killed by SIGKILL"]
    yard.runs(job)
    assert watch.within(10 + 10)  # lease + 10 s
    assert first not in docker.ours(yard)


def test_a_container_whose_pool_is_killed_for_lack_of_memory_is_reported_as_such(
    yard: HarbourYard, docker: RealEngine
) -> None:
    """The kernel is told to take the pool: by itself it takes the largest."""
    supervise(yard, "--worker", "default=1")
    job = yard.shell("sleep 1000", cwd="/")
    yard.runs(job)
    (name,) = docker.ours(yard)
    (pid,) = [view.pid for view in yard.engine.pool_views() if view.name == name]
    docker.call("exec", name, "sh", "-c", f"echo 1000 >/proc/{pid}/oom_score_adj; {HOG}")
    until(lambda: interruptions(yard, job), 30, "the job is told")
    assert interruptions(yard, job) == ["its pool was lost: its container ran out of memory (OOM-killed)"]


def test_what_a_killed_supervisor_left_is_removed_at_the_next_start(yard: HarbourYard, docker: RealEngine) -> None:
    first = supervise(yard, "--worker", "default=2")
    job = yard.shell("sleep 1000", cwd="/")
    yard.runs(job)
    left = docker.ours(yard)
    labels = docker.ask("inspect", "--format", "{{range $k, $v := .Config.Labels}}{{$k}}={{$v}} {{end}}", left[0])
    words = [word for label in labels.split() for word in ("--label", label)]
    docker.ask("create", "--name", "only-created", *words, IMAGE, "true")
    first.kill()
    # Its server goes with it; until then it would be found, and those who work through it used.
    until(lambda: find_server(f"{yard.db}-covey") is None, 30, "the server has ended")
    second = supervise(yard, "--worker", "default=1")
    assert not {*left, "only-created"} & {*docker.ours(yard)}
    assert interruptions(yard, job) == [
        "its pool was lost: its container was removed: the supervisor that had started it was lost"
    ]
    yard.runs(job, within_s=20)
    assert second.stop(signal.SIGTERM) in (0, 1)
    assert docker.ours(yard) == []


def test_worker_reap_removes_what_a_killed_supervisor_left(yard: HarbourYard, docker: RealEngine) -> None:
    pool = supervise(yard, "--worker", "default=1")
    pool.kill()
    told = yard.run("worker", "reap")
    assert "removed what a lost supervisor left" in told.stdout, told
    assert docker.ours(yard) == []
