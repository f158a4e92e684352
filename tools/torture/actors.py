"""Who takes part: clients, one who cancels, pools, a server. Each is a process that may be killed at any moment.

python -m tools.torture.actors client URL NUMBER SEED COUNT
python -m tools.torture.actors canceller URL SEED PAUSE_S
python -m tools.torture.actors pool URL NAME WORKERS
python -m tools.torture.actors server DB PORT
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from covey import open as compose
from covey.core.model import Spec
from covey.engine.engine import Engine
from covey.errors import Refused, StoreError, Unknown, Unreachable
from covey.remote.remote import Remote
from covey.settings import effective

from . import jobs, planted
from .history import History

PACE_S = 0.05  # between two requests of a client
LOOK_S = 0.005  # between two looks for something to cancel: some jobs are to end by themselves in the same moment
DIRECTORY = Path(os.environ.get(jobs.DIRECTORY, "."))
MUTANTS = os.environ.get(jobs.MUTANTS, "").split()
SETTINGS = effective(jobs.SETTINGS, {})


class Producer:
    """A client that goes on where it was killed: its history says how far it came.

    Every other request has an id of its own. If nobody knows what became of it, it is sent again under that id and
    must count once; without an id it stays unknown.
    """

    def __init__(self, url: str, number: int, seed: int, count: int) -> None:
        self._url, self._number, self._seed, self._count = url, number, seed, count
        self._history = History(DIRECTORY, number)
        self._queue: Engine | Remote | None = None

    def run(self) -> None:
        past = self._history.requests()
        for index, request in enumerate(past):
            if not request.is_answered and index % 2:
                self._until_answered(request.name, self._specs(index)[: request.count])
        left = self._count - sum(request.count for request in self._history.requests() if request.ids is not None)
        index, pace = len(past), random.Random(f"pace {self._seed} {self._number}")
        while left > 0 and not (DIRECTORY / "enough").exists():
            if (DIRECTORY / "hold").exists():
                time.sleep(0.02)
                continue
            specs = self._specs(index)[:left]
            left -= len(specs) if self._enqueue(index, specs) else 0
            index += 1
            time.sleep(pace.uniform(0, PACE_S))

    def _specs(self, index: int) -> list[Spec]:
        name = self._name(index)
        return jobs.specs(name, SETTINGS, random.Random(f"{self._seed} {name}"))

    def _name(self, index: int) -> str:
        return f"{self._number}-{index}"

    def _enqueue(self, index: int, specs: list[Spec]) -> bool:
        """True once they are acknowledged, False if that is refused or not known."""
        name = self._name(index)
        self._history.ask(name, len(specs))
        if "early_answer" in MUTANTS:
            queue = self._open()
            assert isinstance(queue, Engine)
            planted.answer_before_commit(queue, self._history, name, specs)
        elif index % 2:
            self._until_answered(name, specs)
        else:
            try:
                self._history.told(name, [each.id for each in self._open().enqueue(specs)])
            except (Unknown, Unreachable):
                return False
            except StoreError as error:
                self._history.refused(name, str(error))
                return False
        return True

    def _until_answered(self, name: str, specs: list[Spec]) -> None:
        while True:
            try:
                self._history.told(name, [each.id for each in self._open().enqueue(specs, request=name)])
            except StoreError as error:
                jobs.append(DIRECTORY / "errors", f"{type(error).__name__}: {error}\n")
                time.sleep(0.1)
            else:
                return

    def _open(self) -> Engine | Remote:
        if self._queue is None:
            self._queue = compose.open_client(self._url)
            planted.plant(self._queue, MUTANTS)
        return self._queue


def canceller(url: str, seed: int, pause_s: float) -> None:
    """Asks for the end of jobs, now and then of trees, that are at work just now; ``pause_s`` at most between two."""
    engine: Engine | None = None
    rng = random.Random(f"canceller {seed}")
    while True:
        state = "waiting" if rng.random() < 0.1 else "processing"
        try:
            engine = engine or compose.open_engine(url)
            busy = engine.store.raw("select id from {jobs} where state = :state order by id", state=state)
            if busy:
                (id,) = rng.choice(busy)
                jobs.append(DIRECTORY / "cancels", f"{id}\n")
                engine.cancel([id])
                time.sleep(rng.uniform(0, pause_s))
        except (Refused, StoreError):
            pass  # it has ended meanwhile; the database is away
        time.sleep(LOOK_S)


def pool(url: str, name: str, workers: int) -> int:
    from covey.pool.main import PoolOptions, run

    try:
        source = compose.open_client(url)
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    planted.plant(source, MUTANTS)
    return run(source, PoolOptions(url=url, count=workers, app="tools.torture.jobs:app", name=name, quiet=True))


def server(db: str, port: int) -> int:
    from covey.cli import serving

    open_engine = compose.open_engine

    def open(url: str, **options: bool) -> Engine:
        engine = open_engine(url, **options)
        planted.plant(engine, MUTANTS)
        return engine

    compose.open_engine = open  # type: ignore[assignment]
    return serving.start(db, hosts=["127.0.0.1"], port=port, names=[], needs_token=False, quiet=True)


def main(role: str, url: str, *rest: str) -> int:
    match role, *rest:
        case "client", number, seed, count:
            Producer(url, int(number), int(seed), int(count)).run()
        case "canceller", seed, pause_s:
            canceller(url, int(seed), float(pause_s))
        case "pool", name, workers:
            return pool(url, name, int(workers))
        case "server", port:
            return server(url, int(port))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
