"""Jobs whose pool's row has vanished."""

from __future__ import annotations

from covey.engine.engine import Engine
from tests.kit import HandPool, command


def test_jobs_of_a_pool_whose_row_is_gone_are_found_and_handed_back(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.claim_one()
    with engine.store.transaction():
        engine.store.ask("remove_pool", pool=pool.id)
    assert engine.orphaned_pools() == [pool.id]
    assert engine.status().health == "warning"
    assert engine.reap(pool.id, 0) == 1
    assert (engine.job(made.id).state, engine.orphaned_pools()) == ("pending", [])
