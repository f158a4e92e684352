"""A job's processes: found wherever they hide, ended with it, and never anybody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey.system import process_tree
from covey.testing import until
from tests.kit.running import RunningPool, Watch, Yard, descriptors, gone, memory, threads, zombies

GRACE_S = 5.0

DEPTH_4 = """
echo $$ >>{0}
sh -c 'echo $$ >>{0}; sh -c "echo \\$\\$ >>{0}; sh -c \\"echo \\\\\\$\\\\\\$ >>{0}; sleep 1000; true\\"; true"; true' &
wait
"""

# Forks twice into sessions of its own, closes its standard streams and renames itself: a proper daemon.
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with open(sys.argv[1], "a") as file:
        print(os.getpid(), file=file)
    for fd in (0, 1, 2):
        os.close(fd)
    os.chdir("/")
    while True:
        time.sleep(1000)
time.sleep(1000)
"""

DEAF = """
trap '' TERM HUP INT
echo $$ >>{0}
sh -c 'echo $$ >>{0}; while :; do sleep 0.2; done' &
wait; wait
"""


def stopped(yard: Yard, id: int, how: str) -> float:
    """Cancels the job, or waits for its time-out; how long it took until no pool held it any more."""
    watch = Watch()
    if how == "cancel":
        yard.engine.cancel([id])
        until(lambda: yard.job(id).pool is None, GRACE_S + 3, "let go")
        assert yard.job(id).state == "cancelled"
    else:
        assert yard.ends(id)[0].error == "timed out after 1 s"
    return watch.s


def limit(how: str) -> float | None:
    return 1.0 if how == "timeout" else None


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_tree_of_depth_four_is_gone(busy: Yard, how: str) -> None:
    name = f"depth-{how}"
    id = busy.shell(DEPTH_4.format(name), timeout_s=limit(how), max_attempts=1)
    pids = list(map(int, busy.trace(name, 4)))
    assert stopped(busy, id, how) < 2
    assert gone(*pids)


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_daemon_that_forked_twice_into_its_own_session_is_gone(busy: Yard, how: str) -> None:
    (busy.home / "daemon.py").write_text(DAEMON)
    name = f"daemon-{how}"
    id = busy.shell([sys.executable, "-IS", "daemon.py", name], timeout_s=limit(how), max_attempts=1)
    pid = busy.pid_in(name)
    assert stopped(busy, id, how) < 2
    assert gone(pid)


def test_a_daemon_is_gone_when_its_command_has_ended_normally(busy: Yard) -> None:
    (busy.home / "daemon.py").write_text(DAEMON.replace("time.sleep(1000)\n", "", 1).replace("\ntime.sleep(1000)", ""))
    script = f"{sys.executable} -IS daemon.py left; while ! test -s left; do sleep 0.01; done"
    (job,) = busy.completes(busy.shell(script))
    assert gone(busy.pid_in("left"))
    assert "[covey: ended 1 processes that the command left behind]" in busy.attempt(job.id).stderr


def test_a_tree_that_ignores_term_is_killed_after_the_grace(busy: Yard, the_pool: RunningPool) -> None:
    id = busy.shell(DEAF.format("deaf"))
    pids = list(map(int, busy.trace("deaf", 2)))
    worker = the_pool.worker_of(id)
    took_s = stopped(busy, id, "cancel")
    assert GRACE_S - 0.1 <= took_s <= GRACE_S + 1.5
    assert gone(*pids)
    assert not gone(worker)  # it did so itself: the pool would have killed it with the family, a second later


def test_a_stopped_process_is_ended_too(busy: Yard) -> None:
    id = busy.shell("echo $$ >>frozen; kill -STOP $$; sleep 1000")
    pid = busy.pid_in("frozen")
    until(lambda: " T " in open(f"/proc/{pid}/stat").read(), 5, "it is stopped")  # noqa: SIM115
    assert stopped(busy, id, "cancel") < 2
    assert gone(pid)


def test_a_command_may_clean_up_in_its_grace_and_what_it_says_is_kept(busy: Yard) -> None:
    script = "trap 'echo bye; echo cleaned >>cleaned; exit 0' TERM; echo $$ >>polite; while :; do sleep 0.05; done"
    id = busy.shell(script)
    busy.trace("polite")
    stopped(busy, id, "cancel")
    assert busy.traces("cleaned") == ["cleaned"]
    assert busy.attempt(id).stdout == "bye\n"


def test_a_command_that_says_much_while_it_stops_does_not_block(busy: Yard) -> None:
    """A full pipe that nobody reads would keep it from ending within its grace."""
    script = (
        "trap 'head -c 1000000 /dev/zero | tr \"\\0\" x; exit 0' TERM; echo $$ >>chatty; while :; do sleep 0.05; done"
    )
    id = busy.shell(script)
    busy.trace("chatty")
    assert stopped(busy, id, "cancel") < 2
    assert len(busy.attempt(id).stdout) == 1_000_000


def test_two_hundred_processes_at_once_are_gone(busy: Yard) -> None:
    id = busy.shell("for i in $(seq 200); do sleep 1000 & done; echo $$ >>crowd; wait")
    busy.trace("crowd")
    pids = busy.of_job(id)
    assert len(pids) >= 200
    assert stopped(busy, id, "cancel") < 3
    assert gone(*pids)


def test_kill_0_in_a_job_harms_only_itself(busy: Yard, the_pool: RunningPool) -> None:
    workers = set(the_pool.workers())
    (job,) = busy.ends(busy.shell("kill -9 0", max_attempts=1))
    assert job.error == "killed by signal 9 (SIGKILL)"
    assert workers <= set(the_pool.workers())


def test_a_background_grandchild_that_keeps_stdout_does_not_hold_the_job(busy: Yard) -> None:
    watch = Watch()
    (job,) = busy.completes(busy.shell("sh -c 'trap \"\" TERM; echo $$ >>keeps; sleep 1000' & echo main; sleep 0.1"))
    assert watch.within(2.5)
    assert busy.attempt(job.id).stdout == "main\n"
    assert gone(busy.pid_in("keeps"))


def test_what_is_kept_in_the_background_on_request_lives_on(yard: Yard) -> None:
    yard.pool(count=1, commands_only=True)
    script = "sh -c 'echo $$ >>kept; while ! test -e stop; do sleep 0.05; done; echo out >>kept' & sleep 0.1"
    yard.completes(yard.shell(script, keep_background=True))
    pid = yard.pid_in("kept")
    yard.completes(*yard.shells(["true", "sleep 0.2 & true", "sh -c 'sleep 1000 &'"]))
    assert not gone(pid)
    (yard.home / "stop").touch()
    assert yard.trace("kept", 2)[1] == "out"


def test_what_a_kept_process_has_started_lives_on_when_it_has_ended(yard: Yard) -> None:
    yard.pool(count=1, commands_only=True)
    script = "(sleep 0.5; sh -c 'echo $$ >>kept; exec sleep 1000' & sleep 0.2) & sleep 0.1"
    yard.completes(yard.shell(script, keep_background=True))
    pid = yard.pid_in("kept")
    time.sleep(0.3)  # its parent ends, and it falls to the worker
    yard.completes(*yard.shells(["true", "sleep 0.2 & true"]))
    assert not gone(pid)


HEADLESS = """import ctypes, os, threading, time
threading.Thread(target=lambda: (open("headless", "a").write(f"{os.getpid()}\\n"), time.sleep(1000))).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.parametrize("how", ["timeout", "cancel", "stop"])
def test_a_process_whose_first_thread_has_ended_is_ended_like_any_other(yard: Yard, how: str) -> None:
    """It looks like a zombie."""
    pool = yard.pool(count=1, commands_only=True).started()
    (yard.home / "headless.py").write_text(HEADLESS)
    id = yard.shell(f"exec {sys.executable} headless.py", timeout_s=1.0 if how == "timeout" else None, max_attempts=1)
    pid = yard.pid_in("headless")
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z", 5, "it looks like a zombie")
    if how == "cancel":
        yard.engine.cancel([id])
    if how == "stop":
        pool.stop()
    else:
        yard.ends(id, within_s=5)
    until(lambda: not Path(f"/proc/{pid}").exists(), 5, "it is gone")


def test_what_belongs_to_another_user_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As what a command has started by sudo: nobody of us can end it."""
    kill = os.kill

    def forbidden(pid: int, number: int) -> None:
        if pid == theirs.pid:
            raise PermissionError
        kill(pid, number)

    with subprocess.Popen(["sleep", "1000"]) as theirs:
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", forbidden)
            watch = Watch()
            process_tree.end_all(grace_s=0.05, keep=set(process_tree.children(os.getpid())) - {theirs.pid})
        assert watch.within(3)
        theirs.kill()


def test_endless_output_costs_little_memory_and_keeps_head_and_tail(
    busy: Yard, the_pool: RunningPool, proof: Callable[[int, int], int]
) -> None:
    mega = proof(200, 5000)
    processes = [the_pool.pid, *the_pool.workers()]
    before = {pid: memory(pid) for pid in processes}
    id = busy.shell(f"echo head; head -c {mega}000000 /dev/zero | tr '\\0' '\\n'; echo tail")
    most: dict[int, int] = {}

    def ended() -> bool:
        for pid in processes:
            most[pid] = max(most.get(pid, 0), memory(pid))
        return busy.job(id).state == "completed"

    until(ended, proof(30, 300), "the job ends")
    assert max(most[pid] - before[pid] for pid in processes) < 64 << 20
    attempt = busy.attempt(id)
    assert attempt.stdout.startswith("head\n")
    assert attempt.stdout.endswith("\ntail\n")
    assert len(attempt.stdout) < (1 << 20) + 100
    assert attempt.stdout_dropped == mega * 1_000_000 + 10 - (1 << 20)
    assert f"{attempt.stdout_dropped:,} bytes dropped here" in attempt.stdout


def test_a_python_task_that_prints_without_end_costs_little_memory(
    busy: Yard, the_pool: RunningPool, proof: Callable[[int, int], int]
) -> None:
    processes = [the_pool.pid, *the_pool.workers()]
    before = {pid: memory(pid) for pid in processes}
    ids = [busy.call("prints", proof(50, 1000)), busy.call("aprints", proof(20, 200), kind="async")]
    busy.completes(*ids, within_s=proof(30, 300))
    assert max(memory(pid) - before[pid] for pid in processes) < 64 << 20
    for id in ids:
        attempt = busy.attempt(id)
        assert attempt.stdout.startswith("head\n")
        assert attempt.stdout.endswith("\ntail\n")
        assert len(attempt.stdout) < (1 << 20) + 100
        assert attempt.stdout_dropped > 1_000_000


def test_a_python_task_that_prints_without_end_fills_no_disk(yard: Yard) -> None:
    yard.pool(count=1)
    id = yard.call("prints_and", 100, "go")
    live = Path(f"{yard.side}/live/{id}.{yard.runs(id).fence}.out")
    yard.trace("printed")
    until(lambda: live.stat().st_blocks * 512 <= 8 << 20, 5, "its middle is a hole")
    (yard.home / "go").touch()
    yard.completes(id)
    stdout = yard.attempt(id).stdout
    assert stdout.startswith("head\nxxx")
    assert stdout.endswith("xxx\ntail\n")
    assert "\0" not in stdout
    assert "\ufffd" not in stdout


def test_what_a_lost_worker_had_printed_is_kept_without_reading_all_of_it(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    before = memory(pool.pid)
    id = yard.call("prints_and", 100, "die", max_attempts=1)
    (job,) = yard.ends(id)
    assert (job.state, job.attempts) == ("dead", 1)
    assert memory(pool.pid) - before < 32 << 20
    attempt = yard.attempt(id)
    assert attempt.stdout.startswith("head\nxxx")
    assert attempt.stdout.endswith("xxx\ntail\n")
    assert attempt.stdout_dropped > 50_000_000


def test_many_short_commands_leave_no_zombies_descriptors_or_threads(
    busy: Yard, the_pool: RunningPool, proof: Callable[[int, int], int]
) -> None:
    busy.completes(*busy.shells(["true"] * 20))
    processes = [the_pool.pid, the_pool.zygote, *the_pool.workers()]
    before = {pid: (descriptors(pid), threads(pid)) for pid in processes}
    ids = busy.shells(["true", "sh -c 'true & true'"] * (proof(500, 10_000) // 2))
    busy.completes(*ids, within_s=proof(60, 600))
    until(lambda: not any(zombies(pid) for pid in processes), 5, "no zombies")
    for pid in processes:
        fds, count = before[pid]
        until(lambda pid=pid, fds=fds: abs(descriptors(pid) - fds) <= 5, 5, "descriptors are back")
        assert abs(threads(pid) - count) <= 1


@pytest.mark.parametrize(("task", "kind"), [("leaves_orphans", "sync"), ("aleaves_orphans", "async")])
def test_a_python_worker_that_has_adopted_many_dead_processes_is_replaced_between_jobs(
    yard: Yard, task: str, kind: Any
) -> None:
    """It may not reap them: they could be what user code is about to wait for."""
    pool = yard.pool(count=1).started()
    workers = set()
    for _ in range(6):
        (job,) = yard.completes(yard.call(task, 60, kind=kind))
        assert job.attempts == 1
        workers.add(job.result)
        until(lambda: all(len(zombies(pid)) <= 100 for pid in pool.workers()), 5, "no worker carries too many")
    assert len(workers) >= 2


def test_a_job_lives_on_when_threads_of_its_worker_come_and_go(yard: Yard) -> None:
    """PR_SET_PDEATHSIG would kill a command when the *thread* that started it ends; nothing here relies on it."""
    yard.pool(count=1).started()
    (job,) = yard.completes(yard.call("starts_from_a_thread", "alive"))
    pid = job.result
    assert not gone(pid)
    os.kill(pid, signal.SIGKILL)
