"""Who is struck: processes that live, each once, and a pause is one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tools.torture import killer
from tools.torture.checks import PAUSE, Findings
from tools.torture.killer import Killer
from tools.torture.observer import Books
from tools.torture.report import page

from covey.core.turn import WorkerState
from covey.env import start_ticks
from covey.open import open_engine
from covey.testing.until import until
from tests.kit import HandPool


class Stage:
    """Processes that pass for pools at work; all of them can be seen, dead or alive."""

    def __init__(self, directory: Path) -> None:
        self.engine = open_engine(str(directory / "queue.db"))
        self.books = Books(self.engine, directory, copies_live=False)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.over: set[str] = set()
        self._log = directory / "kills"

    def enters(self) -> int:
        process = subprocess.Popen(["sleep", "1000"])
        self.processes.append(process)
        worker = WorkerState(name="command-1", kind="command", state="idle", pid=1, ticks=1, started_at=1)
        HandPool(self.engine, name=f"p{process.pid}", pid=process.pid).turn(workers=[worker])
        return process.pid

    def pids(self, role: str) -> list[int]:
        return [process.pid for process in self.processes]

    def is_over(self, role: str) -> bool:
        return role in self.over

    def killer(self, *kinds: str) -> Killer:
        return Killer(self, self.books, 1, self._log, None, served=False, kinds=kinds)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.engine.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def strikes(stage: Stage) -> Iterator[Callable[..., Killer]]:
    made: list[Killer] = []

    def make(*kinds: str) -> Killer:
        made.append(stage.killer(*kinds))
        return made[-1]

    yield make
    for each in made:
        for waker in each._pauses.values():
            end_pause(waker)
        each.close()


def end_pause(waker: subprocess.Popen[bytes]) -> None:
    """It is over now."""

    def ended() -> bool:
        if waker.poll() is None:
            for sleep in psutil.Process(waker.pid).children():
                sleep.kill()
        return waker.poll() is not None

    until(ended, 10)


def test_a_pool_that_was_killed_a_moment_ago_is_not_paused(
    stage: Stage, strikes: Callable[..., Killer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killer, "PAUSED_S", 0.05)
    dead = stage.enters()
    os.kill(dead, signal.SIGKILL)
    until(lambda: start_ticks(dead) is None, 10)
    pauses = strikes(PAUSE)
    pauses.strike()
    assert pauses.strikes[PAUSE] == 0
    stage.enters()
    pauses.strike()
    assert pauses.strikes[PAUSE] == 1


def test_a_pool_that_dies_while_it_is_told_to_stand_still_was_not_paused(
    stage: Stage, strikes: Callable[..., Killer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill is under way when the pause comes, as between two strikes of a busy machine."""
    victim = stage.enters()
    send = killer.process_tree.send

    def late(pids: list[int], number: int) -> list[int]:
        if number == signal.SIGSTOP:
            os.kill(victim, signal.SIGKILL)
        return send(pids, number)

    monkeypatch.setattr(killer.process_tree, "send", late)
    pauses = strikes(PAUSE)
    pauses.strike()
    assert pauses.strikes[PAUSE] == 0


def test_who_is_paused_is_not_killed_before_it_is_back(
    stage: Stage, strikes: Callable[..., Killer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killer, "PAUSED_S", 1000)
    victim = stage.enters()
    pauses = strikes(PAUSE)
    pauses.strike()
    assert Path(f"/proc/{victim}/stat").read_text().rpartition(") ")[2][0] == "T"
    assert pauses._victims("pool") == []
    end_pause(pauses._pauses[victim])
    assert pauses._victims("pool") == [victim]


def test_nobody_is_killed_twice(stage: Stage, strikes: Callable[..., Killer]) -> None:
    """Between its kill and its end a process is still to be seen."""
    stage.enters()
    kills = strikes("pool")
    kills.strike()
    kills.strike()
    assert kills.kills == 1
    stage.enters()
    kills.strike()
    assert kills.kills == 2


def test_what_nobody_was_there_for_is_told_in_the_page(stage: Stage, strikes: Callable[..., Killer]) -> None:
    stage.enters()
    kills = strikes("client")
    stage.over = {"client"}
    kills.strike()
    assert kills.missed() == {"client": 1}
    found = Findings({}, kills.strikes, {"jobs enqueued": 0}, 1.0, kills.missed())
    text = page(found, store="sqlite", seed=1, asked="make torture", database="SQLite")
    assert "nobody was there to be struck: kill -9 of a client (1)." in text
