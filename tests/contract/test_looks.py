"""What a server looks at for many at once: whether anything was written, how many jobs there are, jobs together."""

from __future__ import annotations

from collections.abc import Callable

from covey.engine.engine import Engine
from covey.testing.until import until
from tests.kit import HandPool, command

BEHIND = True


def test_a_moment_lasts_until_somebody_writes(engine: Engine, connect: Callable[[], Engine]) -> None:
    other = connect()
    # A server may write for itself now and then, in between.
    moment = until(lambda: moment if (moment := engine.moment()) == engine.moment() else None, 10)
    other.enqueue([command()])
    assert engine.moment() != moment


def test_reading_does_not_end_a_moment(engine: Engine, connect: Callable[[], Engine]) -> None:
    other = connect()

    def is_same() -> bool:
        moment = engine.moment()
        other.status()
        return bool(engine.moment() == moment)

    until(is_same, 10)


def test_queues_are_shown_with_what_was_counted_before(engine: Engine) -> None:
    engine.enqueue([command(), command(queue="b")])
    counts = engine.counts()
    assert counts == {"default": {"pending": 1}, "b": {"pending": 1}}
    engine.pause("b")
    shown = {view.name: (view.paused, view.counts) for view in engine.counted_queues(counts)}
    assert shown == {"default": (False, {"pending": 1}), "b": (True, {"pending": 1})}


def test_jobs_are_found_together_by_id_and_by_key_as_one_by_one(engine: Engine, pool: HandPool) -> None:
    made = engine.enqueue([command(), command(key="k"), command(key="ü'\"")])
    pool.claim_one()
    refs = [str(made[0].id), "k", "ü'\"", str(made[1].id)]
    found = engine.jobs_of([*refs, "nobody", "0", "9" * 18, "9" * 30, "\ud800"])
    assert list(found) == refs
    assert found == {ref: engine.job(ref) for ref in refs}
    assert engine.jobs_of([]) == {}
