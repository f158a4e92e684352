"""Real pools on PostgreSQL, a producer that keeps books, and what must be true when the weather is fine again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from covey import settings as config
from covey.core import codec
from covey.core.model import Spec
from covey.core.specs import task_spec
from covey.core.view import Filter
from covey.errors import StoreError, Unknown
from covey.open import open_engine
from covey.testing import until
from tests.kit import check_queue
from tests.kit.running import RunningPool, Watch, Yard

HERE = Path(__file__).parent
SETTINGS = config.effective({}, {})


class Field(Yard):
    """A yard whose queue is in a server."""

    def __init__(self, home: Path, url: str, **settings: object) -> None:
        self.home, self._app, self._path = home, "herd:app", [HERE, home]
        self.db = url  # type: ignore[assignment]
        self.engine = open_engine(url)
        self.pools: list[RunningPool] = []
        self.server = None
        for name, value in settings.items():
            self.engine.set_setting(name, str(value))

    def all_ended(self, within_s: float) -> None:
        live = ("pending", "processing", "scheduled", "failed", "waiting", "blocked")

        def nothing_left() -> bool:
            return not self.engine.jobs(Filter(states=live, limit=1)).jobs

        try:
            until(nothing_left, within_s)
        except AssertionError:
            left = self.engine.jobs(Filter(states=live, limit=1)).jobs[0]
            raise AssertionError(f"{self.counts()}: {self.describe(left.id)}") from None


class Producer:
    """Enqueues numbers, a few at a time, and remembers what it was told about each."""

    numbers_from = 0  # no number is used twice

    def __init__(self, url: str, count: int, seconds: float, *, batch: int = 1) -> None:
        self.numbers = range(Producer.numbers_from, Producer.numbers_from + count)
        Producer.numbers_from += count
        self._url, self._batch, self._pause_s = url, batch, seconds / count * batch
        self.made: list[int] = []
        self.refused: list[int] = []  # it was told that nothing was written
        self.unknown: list[int] = []
        self.ids: list[int] = []
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        engine = open_engine(self._url)
        pace = threading.Event()
        try:
            for first in range(0, len(self.numbers), self._batch):
                numbers = self.numbers[first : first + self._batch]
                try:
                    self.ids += [each.id for each in engine.enqueue([_spec(number) for number in numbers])]
                    self.made += numbers
                except Unknown:
                    self.unknown += numbers
                except StoreError:
                    self.refused += numbers
                pace.wait(self._pause_s)
        except BaseException as error:
            self.problem = error
        finally:
            engine.close()

    def finish(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()
        assert self.problem is None, repr(self.problem)


def _spec(number: int) -> Spec:
    return task_spec("herd.trace", settings=SETTINGS, kind="sync", args=codec.encode([[number], {}], what="arguments"))


@contextmanager
def weather(field: Field) -> Iterator[None]:
    """Whatever happens inside: the pools live on and say at most a line a second."""
    pids = [pool.pid for pool in field.pools]
    said = [len(pool.said().splitlines()) for pool in field.pools]
    watch = Watch()
    yield
    for pool, pid, before in zip(field.pools, pids, said, strict=True):
        assert pool.process.poll() is None, f"the pool has ended:\n{pool.said()}"
        assert pool.pid == pid
        more = pool.said().splitlines()[before:]
        assert len(more) <= watch.s + 1, "\n".join(more)


def settled(field: Field, producer: Producer, within_s: float = 60) -> None:
    """0 lost, 0 doubled, 0 stranded."""
    producer.finish(within_s)
    field.all_ended(within_s)
    traces = Counter(number for number in map(int, field.traces()) if number in producer.numbers)
    doubled = {number: times for number, times in traces.items() if times > 1}
    assert not doubled, doubled
    lost = set(producer.made) - traces.keys()
    assert not lost, lost
    ghosts = traces.keys() & set(producer.refused)
    assert not ghosts, ghosts  # it was said that nothing was written
    assert traces.keys() <= set(producer.made) | set(producer.unknown)
    counts = field.counts()
    assert set(counts) == {"completed"}, counts
    assert check_queue(field.engine, acknowledged=producer.ids) == []
    pools = {pool.pid for pool in field.engine.pool_views()}
    assert pools == {pool.pid for pool in field.pools}
