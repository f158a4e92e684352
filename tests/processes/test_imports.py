"""What an app has started while it was imported goes with the pool, however the import or the pool ends."""

from __future__ import annotations

import os
import signal

import pytest

from covey.system import process_tree
from covey.testing import until
from tests.kit.running import RunningPool, Yard, gone

STORES = ("file",)
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")

# Two, with an environment and sessions of their own: found by nothing but by whose children they are.
MODULE = """import os, signal, subprocess
from covey import Covey
started = [subprocess.Popen(["sleep", "888"], env={{}}, start_new_session=True).pid for _ in range(2)]
with open("started", "a") as file:
    file.write(f"{{os.getpid()}} {{os.getppid()}} {{started[0]}} {{started[1]}}\\n")
{0}
"""
WAITS = "os.read(os.pipe()[0], 1)"
CRASH = "os.kill(os.getpid(), signal.{0})"


def start(yard: Yard, does: str, *flags: str) -> RunningPool:
    """A pool whose app starts something and then does that."""
    (yard.home / "parent.py").write_text(MODULE.format(does))
    words = [*yard.covey(), "worker", "start", "--count", "1", "--app", "parent:app", *flags]
    pool = RunningPool(yard, words, yard.environ() | {"HOME": str(yard.home)}, yard.home / "parent.log")
    yard.pools.append(pool)
    return pool


def nothing_is_left(yard: Yard, least: int = 1) -> bool:
    """Whether all that imports have started is gone; it is ended for the sake of other tests, if not."""
    pids = [int(pid) for line in yard.trace("started", least) for pid in line.split()[2:]]
    left = [pid for pid in pids if not gone(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return not left


@pytest.mark.parametrize("how", ["told to stop", "raises", "exits", "crashes", "names another queue"])
def test_what_an_import_has_started_does_not_outlive_the_pool(yard: Yard, how: str) -> None:
    does, flags, code = {
        "told to stop": (WAITS, (), 0),
        "raises": ("raise RuntimeError('no')", (), 2),
        "exits": ("os._exit(4)", (), 2),
        "crashes": (CRASH.format("SIGSEGV"), (), 2),
        "names another queue": ("app = Covey('another.db')", ("--db", yard.db), 2),
    }[how]
    pool = start(yard, does, *flags)
    yard.trace("started")
    if how == "told to stop":
        pool.send(signal.SIGTERM)
    ended = pool.ended()
    assert nothing_is_left(yard)
    assert ended == code, pool.said()


@pytest.mark.parametrize("does", ["app = Covey('mine.db')", "raise RuntimeError('no')", CRASH.format("SIGSEGV")])
def test_what_an_import_has_started_does_not_outlive_the_question_for_a_unit(yard: Yard, does: str) -> None:
    (yard.home / "parent.py").write_text(MODULE.format(does))
    done = yard.run("worker", "unit", "--app", "parent:app")
    assert nothing_is_left(yard)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("order", ["guard first", "zygote first"])
def test_what_an_import_has_started_goes_when_guard_and_zygote_are_killed_in_it(yard: Yard, order: str) -> None:
    pool = start(yard, f"app = Covey('queue.db')\nif not os.path.exists('go'): {WAITS}")
    zygote, guard, *started = map(int, yard.trace("started")[0].split())
    (yard.home / "go").touch()
    # The pool may be faster than we are with the second one.
    process_tree.send([guard, zygote] if order == "guard first" else [zygote, guard], signal.SIGKILL)
    pool.started()
    assert gone(*started), "they go before the next try"
    assert pool.stop() == 0, pool.said()
    assert nothing_is_left(yard, 2)


def test_what_an_import_has_started_goes_with_a_pool_whose_guard_and_zygote_were_killed(yard: Yard) -> None:
    pool = start(yard, "app = Covey('queue.db')").started()
    zygote, guard, *_ = map(int, yard.trace("started")[0].split())
    process_tree.send([guard, zygote], signal.SIGKILL)
    yard.trace("started", 2)
    until(lambda: "the zygote was lost" in pool.said(), 15, "the pool notices")
    assert pool.stop() == 0, pool.said()
    assert nothing_is_left(yard, 2)


def test_children_that_the_pools_process_had_before_are_left_alone(yard: Yard) -> None:
    """As those of an entry point that ends in `exec covey worker start`."""
    (yard.home / "parent.py").write_text(MODULE.format("raise RuntimeError('no')"))
    words = 'sleep 889 >/dev/null 2>&1 & echo $! >beside; exec "$@"'
    pool = RunningPool(
        yard,
        ["sh", "-c", words, "sh", *yard.covey(), "worker", "start", "--app", "parent:app"],
        yard.environ(),
        yard.home / "parent.log",
    )
    yard.pools.append(pool)
    assert pool.ended() == 2, pool.said()
    beside = yard.pid_in("beside")
    assert not gone(beside)
    os.kill(beside, signal.SIGKILL)
    assert nothing_is_left(yard)


@pytest.mark.parametrize("name", CRASHES)
def test_an_app_that_crashes_when_it_is_imported_is_named_with_the_signal_in_one_line(yard: Yard, name: str) -> None:
    pool = start(yard, CRASH.format(name))
    assert pool.ended() == 2, pool.said()
    assert pool.said() == f"error: cannot import the app 'parent:app': the import was killed by {name}\n"
    assert len(yard.traces("started")) == 1, "it would crash again"
    assert nothing_is_left(yard)
