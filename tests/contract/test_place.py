"""A client says where its queue is, and hears when jobs end where anything rings."""

from __future__ import annotations

import os

from covey.engine.engine import Engine
from covey.remote.remote import Remote
from tests.kit import HandPool, command


def test_a_client_says_where_its_queue_is(engine: Engine) -> None:
    served = isinstance(engine, Remote)
    url, side, said = engine.place
    assert said == served
    assert url.startswith("http://") == served
    assert side == "" or (not served and os.path.isabs(side))


def test_who_listens_hears_that_a_job_has_ended(engine: Engine) -> None:
    ear = engine.listen()
    if engine.place.served:
        assert ear is None  # nothing rings there: one looks, or asks the server to wait
        return
    assert ear is not None
    pool = HandPool(engine)
    engine.enqueue([command()])
    pool.succeed(pool.claim_one())
    assert ear.wait(20)
    ear.close()
