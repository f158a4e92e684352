"""The gate: fair, bounded, and it says who does not let us in."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from apsw import ConstraintError

from covey.engine.engine import Engine
from covey.errors import Busy
from covey.store.sqlite.database import Sqlite
from covey.store.sqlite.gate import Gate
from covey.testing import until
from tests.kit import command
from tests.kit.checker import every_job
from tests.kit.faults import Child, ForkError, in_fork

from . import programs


@pytest.fixture
def gate_path(tmp_path: Path) -> str:
    (tmp_path / "queue-covey").mkdir()
    return str(tmp_path / "queue-covey" / "gate")


def waits(pid: int) -> bool:
    """Whether that process stands at the gate: the kernel marks its waiters."""
    with open("/proc/locks") as locks:
        return any("->" in line and line.split()[5] == str(pid) for line in locks)


def test_whoever_leaves_cannot_barge_past_a_waiter(gate_path: str) -> None:
    gate = Gate.of(gate_path)
    with Child(programs.HOLDER, gate_path) as other:
        assert other.line() == "ready"
        for _ in range(10):
            gate.enter(10)
            other.say("enter")
            until(lambda: waits(other.pid), 10, "the other one waits")
            gate.leave()
            with pytest.raises(Busy) as refusal:  # straight back in: no
                gate.enter(0.02)
            assert refusal.value.pid in (other.pid, None)
            assert other.line() == "inside"
            assert gate.holder() == other.pid
            other.say("leave")
            assert other.line() == "left"
            gate.enter(10)
            gate.leave()


def test_several_processes_that_commit_all_the_time_get_like_shares(
    path: str, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    total, count = proof(240, 4000), 4
    code = """
import os, sys
from covey.open import open_engine
from tests.kit import command
engine, total = open_engine(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
while engine.enqueue([command(batch=str(os.getpid()))])[0].id < total:
    pass
engine.close()
"""
    engine = opened(path)
    children = [Child(code, path, total) for _ in range(count)]
    try:
        with engine.store.transaction():  # so that all begin at the same moment
            for child in children:
                assert child.line() == "ready"
                until(lambda child=child: waits(child.pid), 20, "all wait at the gate")
        assert [child.end()[0] for child in children] == [0] * count
    finally:
        for child in children:
            child.__exit__()
    shares = Counter(job.batch for job in every_job(engine))
    fair = total / count
    assert len(shares) == count
    assert all(fair / 2 <= share <= fair * 2 for share in shares.values()), shares


def test_a_writer_stopped_inside_its_transaction_is_named_with_its_state(
    path: str, opened: Callable[[str], Engine]
) -> None:
    opened(path)
    impatient = Sqlite(path, timeout_s=0.1)
    with Child(programs.ONCE, path, failpoints={"store.after_begin": "stop"}) as stopped:
        until(lambda: state_of(stopped.pid) == "T", 20, "it stops itself")
        for _ in range(2):
            with pytest.raises(Busy) as refusal, impatient.transaction():
                pass
            assert refusal.value.pid == stopped.pid
            assert f"pid {stopped.pid}" in str(refusal.value)
            assert "stopped" in str(refusal.value)
        stopped.signal(signal.SIGCONT)
        assert stopped.end()[0] == 0
    with impatient.transaction():  # nobody is in the way any more, not even our own abandoned wait
        pass
    impatient.close()
    with Child(programs.ONCE, path) as other:
        assert other.end()[0] == 0


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_killed_holder_lets_the_next_one_in(gate_path: str) -> None:
    gate = Gate.of(gate_path)
    with Child(programs.HOLDER, gate_path) as other:
        assert other.line() == "ready"
        other.say("enter")
        assert other.line() == "inside"
        with pytest.raises(Busy):
            gate.enter(0.02)
        other.kill()
    gate.enter(10)
    gate.leave()


def test_a_wait_that_was_given_up_does_not_keep_the_gate(gate_path: str) -> None:
    gate = Gate.of(gate_path)
    with Child(programs.HOLDER, gate_path) as one, Child(programs.HOLDER, gate_path) as two:
        assert one.line() == two.line() == "ready"
        one.say("enter")
        assert one.line() == "inside"
        with pytest.raises(Busy):
            gate.enter(0.02)
        one.say("leave")
        assert one.line() == "left"
        two.say("enter")
        assert two.line() == "inside"
        two.say("leave")
        assert two.line() == "left"


def test_threads_of_one_process_take_turns_and_name_their_own_process(gate_path: str) -> None:
    gate = Gate.of(gate_path)
    gate.enter(1)
    problems: list[Busy] = []

    def second() -> None:
        try:
            gate.enter(0.02)
        except Busy as busy:
            problems.append(busy)

    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    gate.leave()
    assert [problem.pid for problem in problems] == [os.getpid()]
    assert Gate.of(gate_path) is gate


def test_a_forked_child_does_not_inherit_the_lock(gate_path: str) -> None:
    gate = Gate.of(gate_path)
    gate.enter(1)
    try:
        with pytest.raises(ForkError, match=f"pid {os.getpid()}") as refusal:
            in_fork(lambda: Gate.of(gate_path).enter(0.05))
        assert refusal.value.kind is Busy
    finally:
        gate.leave()


def test_a_gate_follows_its_file_when_the_queue_was_deleted_and_made_anew(gate_path: str) -> None:
    Gate.of(gate_path).enter(1)
    Gate.of(gate_path).leave()
    shutil.rmtree(os.path.dirname(gate_path))
    os.mkdir(os.path.dirname(gate_path))
    gate = Gate.of(gate_path)
    with Child(programs.HOLDER, gate_path) as other:
        assert other.line() == "ready"
        other.say("enter")
        assert other.line() == "inside"
        with pytest.raises(Busy):
            gate.enter(0.02)


def test_a_block_that_raises_leaves_no_transaction_and_no_lock(path: str, opened: Callable[[str], Engine]) -> None:
    one, two = opened(path), opened(path)
    for _ in range(3):
        with pytest.raises(ConstraintError), one.store.transaction():
            one.store.many("set_config", [{"key": "x", "value": "1"}, {"key": "y", "value": None}])
        two.enqueue([command()])
        one.enqueue([command()])
    assert dict(one.store.ask("config")) == {}
