"""What the tests of callers' transactions look at."""

from __future__ import annotations

from typing import Any

import psycopg

from covey import Covey
from covey.core.view import Filter
from covey.engine.engine import Engine

Connection = psycopg.Connection[Any]


def engine_of(app: Covey) -> Engine:
    assert isinstance(app.client, Engine)
    return app.client


def stored(app: Covey) -> list[int]:
    return sorted(job.id for job in app.client.jobs(Filter()).jobs)


def is_usable(conn: Connection) -> bool:
    return conn.execute("select 1").fetchone() == (1,)
