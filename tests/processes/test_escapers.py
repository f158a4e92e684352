"""Whatever a job's processes do to outlive it, none does: every escaper of the zoo, at every way a job can end.

All animals of one end live in one pool at the same time; `make proof` also has each of them alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from covey.core.view import JobView
from covey.system import process_tree
from covey.testing import until
from covey.testing.until import slack
from tests.kit.running import RunningPool, Yard

from .escapers import COMMANDS, TASKS, Animal, everybody

HERE = Path(__file__).parent
MUCH = 20_000_000, 5_000_000_000  # bytes of output; `make proof` writes the latter
GRACE_S = 5.0  # of time-outs and cancels
TIMEOUT_S = 5.0  # long enough for all animals to be up, also on a busy machine
SOON_S = 2.0  # what may pass beyond the grace


@dataclass
class Cage:
    """One animal, its job, and what became of both."""

    animal: Animal
    marker: str
    job: int
    seen: int = 0  # how many processes it had before its end
    left: list[int] = field(default_factory=list)  # who lived when all should have been gone
    let_go_too_early: list[int] = field(default_factory=list)  # who lived when no pool held the job any more
    view: JobView | None = None  # its job afterwards
    told: str = ""  # what the pools had to say
    seen_again: str = ""  # who was there of the first run when the second began


class Zoo:
    """A queue whose jobs are animals, and its pool."""

    def __init__(self, yard: Yard, animals: Sequence[Animal], much: int) -> None:
        self.yard, self._much = yard, much
        self.go = yard.home / "go"
        self.cages: dict[str, Cage] = {}
        self._animals = animals
        self.pool = self.next_pool()
        self.pool.started()

    def next_pool(self) -> RunningPool:
        return self.yard.pool(count=sum(animal.kind != "async" for animal in self._animals))

    def open(self, *, may_end: bool = False, timeout_s: float | None = None) -> None:
        """All animals are up."""
        (self.yard.home / "marks").mkdir()
        for animal in self._animals:
            marker = str(self.yard.home / "marks" / animal.name)
            id = self._submit(animal, marker, may_end, timeout_s)
            self.cages[animal.name] = Cage(animal, marker, id)
        until(lambda: not self._absent(), 30, f"all are up but {self._absent()}")
        for marker, pids in self.look().items():
            self.cage(marker).seen = len(pids)

    def _submit(self, animal: Animal, marker: str, may_end: bool, timeout_s: float | None) -> int:
        if animal.kind == "command":
            words = animal.words(marker, self.go, self._much)
            return self.yard.shell(words, timeout_s=timeout_s, max_attempts=1)
        extra = [1.0 if may_end else 1000.0] if animal.name == "python-holds-the-gil" else []
        name, args = animal.name.replace("-", "_"), [marker, str(self.go), *extra]
        return self.yard.call(name, *args, kind=animal.kind, timeout_s=timeout_s, max_attempts=1)

    @staticmethod
    def _ups(cage: Cage) -> int:
        with contextlib.suppress(FileNotFoundError):
            return Path(cage.marker).read_text().count("up\n")
        return 0

    def _absent(self) -> list[str]:
        return [cage.animal.name for cage in self.cages.values() if self._ups(cage) < cage.animal.ups]

    def cage(self, marker: str) -> Cage:
        return next(cage for cage in self.cages.values() if cage.marker == marker)

    def look(self) -> dict[str, list[int]]:
        return everybody([cage.marker for cage in self.cages.values()])

    def job(self, cage: Cage) -> JobView:
        return self.yard.job(cage.job)

    def kill(self, *pids: int) -> None:
        """All of them at once: none can react to another's death in between."""
        process_tree.send(list(pids), signal.SIGSTOP)
        process_tree.send(list(pids), signal.SIGKILL)
        if self.pool.pid in pids:
            self.pool.process.wait()

    def watch(self, within_s: float, *, since: Callable[[Cage], float] | None = None) -> None:
        """Each cage says who is left when that time is over. ``since`` when: on the wall clock."""
        began = time.time()
        starts = {cage.marker: since(cage) if since else began for cage in self.cages.values()}
        limits = {
            cage.marker: starts[cage.marker] + within_s * slack() + cage.animal.chase_s for cage in self.cages.values()
        }
        last = max(limits.values(), default=began)
        sizes: dict[str, int] = {}
        empty: dict[str, list[float]] = {marker: [] for marker in starts}  # looks in a row that found nobody
        while True:
            free = {cage.marker for cage in self.cages.values() if self.job(cage).pool is None}
            found, now = self.look(), time.time()
            for marker, pids in found.items():
                if pids and marker in free:
                    self.cage(marker).let_go_too_early = pids
                size = os.path.getsize(marker)
                if not pids and sizes.get(marker, size) == size:
                    empty[marker].append(now)
                else:
                    empty[marker].clear()
                    if now > limits[marker]:
                        self.cage(marker).left = pids or [0]
                sizes[marker] = size
            if all(len(looks) >= 3 for looks in empty.values()) or now > last + 1:
                break
            time.sleep(0.02)

    def note(self) -> None:
        """The cages say what became of the jobs."""
        for cage in self.cages.values():
            cage.view, cage.told = self.job(cage), self.yard.describe(cage.job)
            if cage.animal.kind == "command":
                cage.seen_again = "".join(attempt.stdout for attempt in self.yard.engine.history(cage.job)[-1:])
            else:
                cage.seen_again = str(cage.view.result)

    def close(self) -> None:
        """The animals are dead, whatever Covey has done about them."""
        quiet = 0
        while quiet < 3:  # one look may miss who forks all the time
            found = [pid for pids in self.look().values() for pid in pids]
            process_tree.send(found, signal.SIGKILL)
            quiet = 0 if found else quiet + 1


# ── the ends ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class End:
    name: str
    strike: Callable[[Zoo], None]
    state: str
    attempts: int = 1
    interruptions: int = 0
    error: str | None = None
    without: tuple[str, ...] = ()


def at_their_time_out(zoo: Zoo) -> None:
    zoo.open(timeout_s=TIMEOUT_S)
    until(lambda: all(zoo.job(cage).started_at for cage in zoo.cages.values()), 5)
    zoo.watch(GRACE_S + SOON_S, since=lambda cage: wall(zoo.job(cage).started_at) + TIMEOUT_S)
    zoo.yard.ends(*ids(zoo))


def at_their_cancel(zoo: Zoo) -> None:
    zoo.open()
    zoo.yard.engine.cancel(ids(zoo))
    zoo.watch(GRACE_S + SOON_S)
    until(lambda: all(zoo.job(cage).pool is None for cage in zoo.cages.values()), 5, "the pool lets them go")


def at_the_end_of_their_main_process(zoo: Zoo) -> None:
    zoo.open(may_end=True)
    zoo.go.touch()
    zoo.yard.ends(*ids(zoo), within_s=120)
    zoo.watch(0)


def at_worker_stop(zoo: Zoo) -> None:
    """It waits for what runs; what that leaves behind is gone with the pool."""
    zoo.open(may_end=True)
    zoo.yard.engine.stop_pools([zoo.pool.id])
    until(lambda: "no new jobs are taken" in zoo.pool.said(), 5, "it waits")
    assert zoo.yard.counts() == {"processing": len(zoo.cages)}
    zoo.go.touch()
    done = zoo.yard.run("worker", "stop", timeout_s=120)
    assert (done.returncode, zoo.pool.ended(1)) == (0, 0), done.stderr + zoo.pool.said()
    zoo.watch(0)


def at_worker_stop_now(zoo: Zoo) -> None:
    zoo.open()
    done = zoo.yard.run("worker", "stop", "--now")
    assert (done.returncode, zoo.pool.ended(1)) == (0, 1), done.stderr + zoo.pool.said()
    zoo.watch(0)


def at_the_death_of_their_workers(zoo: Zoo) -> None:
    zoo.open()
    zoo.kill(*zoo.pool.workers())
    zoo.watch(SOON_S)
    zoo.yard.ends(*ids(zoo))


def at_the_death_of_the_zygote(zoo: Zoo) -> None:
    """Running jobs go on. What they leave behind has nobody but their worker and the pool to end it."""
    zoo.open(may_end=True)
    zoo.kill(zoo.pool.zygote)
    until(lambda: "the zygote was lost" in zoo.pool.said(), 5, "the pool notices")
    assert zoo.yard.counts() == {"processing": len(zoo.cages)}
    zoo.go.touch()
    zoo.yard.ends(*ids(zoo), within_s=120)
    zoo.watch(SOON_S)


def at_the_death_of_the_zygote_and_their_workers(zoo: Zoo) -> None:
    zoo.open()
    zoo.kill(zoo.pool.zygote, *zoo.pool.workers())
    zoo.watch(SOON_S)
    zoo.yard.ends(*ids(zoo))


def at_the_death_of_the_pool(zoo: Zoo) -> None:
    zoo.open()
    zoo.kill(zoo.pool.pid)
    zoo.watch(SOON_S)
    run_again(zoo)


def at_the_death_of_the_pool_and_their_workers(zoo: Zoo) -> None:
    zoo.open()
    zoo.kill(zoo.pool.pid, *zoo.pool.workers())
    zoo.watch(SOON_S)
    run_again(zoo)


def at_the_death_of_the_pool_and_the_zygote(zoo: Zoo) -> None:
    zoo.open()
    zoo.kill(zoo.pool.pid, zoo.pool.zygote)
    zoo.watch(SOON_S)
    run_again(zoo)


def at_the_death_of_all_but_the_guard(zoo: Zoo) -> None:
    zoo.open()
    zoo.kill(zoo.pool.pid, zoo.pool.zygote, *zoo.pool.workers())
    zoo.watch(SOON_S)
    run_again(zoo)


def at_the_death_of_all_four(zoo: Zoo) -> None:
    """Nobody is left who could end them: the next pool does, before it starts anything."""
    zoo.open()
    zoo.kill(zoo.pool.pid, zoo.pool.guard, zoo.pool.zygote, *zoo.pool.workers())
    alive = [cage.animal.name for cage in zoo.cages.values() if not zoo.look()[cage.marker]]
    assert alive in ([], ["python-holds-the-gil"])  # that one is its worker
    run_again(zoo)
    zoo.watch(0)


def run_again(zoo: Zoo) -> None:
    """The next pool has run the jobs once more."""
    zoo.next_pool()
    zoo.yard.ends(*ids(zoo))


def ids(zoo: Zoo) -> list[int]:
    return [cage.job for cage in zoo.cages.values()]


def wall(iso: str | None) -> float:
    return datetime.fromisoformat(iso or "").timestamp()


# A worker of async tasks cannot tell which of them started a process: those of a single one are nobody's to end.
ASYNC = ("python-async-child",)
# A function may leave processes running: what they are to it, nobody knows. They end with the worker.
PYTHON = tuple(animal.name for animal in TASKS)
# With neither parent nor mark, or faster than one can look, only a control group would hold them.
UNTRACEABLE = ("empty-environment", "runs-away")

LOST = "worker lost: "
ENDS = [
    End("time-out", at_their_time_out, "dead", error=f"timed out after {TIMEOUT_S:g} s", without=ASYNC),
    End("cancel", at_their_cancel, "cancelled", without=ASYNC),
    End("normal", at_the_end_of_their_main_process, "completed", without=PYTHON),
    End("worker-stop", at_worker_stop, "completed"),
    End("worker-stop-now", at_worker_stop_now, "pending", attempts=0),
    End("worker-killed", at_the_death_of_their_workers, "dead", error=LOST),
    End("zygote-killed", at_the_death_of_the_zygote, "completed"),
    End("zygote-and-workers-killed", at_the_death_of_the_zygote_and_their_workers, "dead", error=LOST),
    End("pool-killed", at_the_death_of_the_pool, "completed", interruptions=1),
    End("pool-and-workers-killed", at_the_death_of_the_pool_and_their_workers, "completed", interruptions=1),
    End("pool-and-zygote-killed", at_the_death_of_the_pool_and_the_zygote, "completed", interruptions=1),
    End("all-but-guard-killed", at_the_death_of_all_but_the_guard, "completed", interruptions=1),
    End("all-killed", at_the_death_of_all_four, "completed", interruptions=1, without=UNTRACEABLE),
]
MUST_END = {"normal", "worker-stop", "zygote-killed"}


def inhabitants(end: End) -> list[Animal]:
    return [
        animal
        for animal in [*COMMANDS, *TASKS]
        if animal.name not in end.without and (animal.can_end or end.name not in MUST_END)
    ]


def pairs() -> Iterator[Any]:
    for end in ENDS:
        for animal in inhabitants(end):
            yield pytest.param(end, animal, id=f"{end.name}-{animal.name}")


def night(home: Path, end: End, animals: Sequence[Animal], much: int) -> dict[str, Cage]:
    """The cages after the animals have met that end. Nothing of the zoo runs any more."""
    with Yard(home, app="escapers:app", path=[HERE]) as yard:
        zoo = Zoo(yard, animals, much)
        try:
            end.strike(zoo)
            zoo.note()
        finally:
            zoo.close()
    return zoo.cages


NIGHTS: dict[str, dict[str, Cage] | BaseException] = {}


@pytest.fixture
def cage(end: End, animal: Animal, tmp_path_factory: pytest.TempPathFactory, proof: Callable[[int, int], int]) -> Cage:
    """The animal's cage after its end; all that meet the same end share one night, in `make proof` each has its own."""
    alone = proof(0, 1)
    name = f"{end.name}-{animal.name}" if alone else end.name
    if name not in NIGHTS:
        try:
            NIGHTS[name] = night(
                tmp_path_factory.mktemp("night"), end, [animal] if alone else inhabitants(end), proof(*MUCH)
            )
        except Exception as error:  # the other animals of this night need not wait for it again
            NIGHTS[name] = error
    found = NIGHTS[name]
    if isinstance(found, BaseException):
        raise found
    return found[animal.name]


@pytest.mark.parametrize(("end", "animal"), [*pairs()])
def test_nothing_of_a_job_outlives_it(cage: Cage, end: End, animal: Animal) -> None:
    assert cage.seen >= (200 if animal.name == "crowd-of-200" else 1)
    assert not cage.left, f"{len(cage.left)} processes are left: {cage.left}"
    if not animal.chase_s:
        assert not cage.let_go_too_early, "its job could have run elsewhere while these were still there"
    job = cage.view
    assert job
    assert (job.state, job.attempts, job.interruptions) == (end.state, end.attempts, end.interruptions), cage.told
    assert "Traceback" not in cage.told
    assert (job.error or "").startswith(end.error or ""), cage.told
    assert bool(job.error) == bool(end.error), cage.told
    if end.name == "normal":  # no time is lost waiting for a pipe, or for those who do not want to end
        ended = float(Path(f"{cage.marker}.ended").read_text())
        assert wall(job.finished_at) - ended <= SOON_S * slack()
    if end.interruptions:
        assert cage.seen_again in ("", "[]"), "the second run began before the first was gone"
