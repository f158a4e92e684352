"""covey worker check: whether a pool lives, for probes."""

from __future__ import annotations

from typing import Annotated

import typer

from ...env import hostname
from ...errors import Refused
from ..open_queue import open_queue
from ..options import Db
from ..printing import answer

Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Of the pool, or its id; else any of this host.", show_default=False),
]


def check(name: Name = None, db: Db = None) -> int:
    """Exit 0 if that pool has shown itself within its lease, 1 if not: HEALTHCHECK of a container, exec probes."""
    pools = open_queue(db).pool_views()
    wanted = [pool for pool in pools if (name in (pool.name, str(pool.id)) if name else pool.host == hostname())]
    if not wanted:
        raise Refused(f"no pool {name!r}; `covey worker list` shows them" if name else "no pool runs on this host")
    living = [pool for pool in wanted if pool.beat_age_s <= pool.lease_s]
    if not living:
        silent = min(wanted, key=lambda pool: pool.beat_age_s)
        raise Refused(f"pool {silent.name} is silent for {silent.beat_age_s:.0f} s; its lease is {silent.lease_s:g} s")
    for pool in living:
        answer(f"{pool.name} {pool.state}, seen {pool.beat_age_s:.1f} s ago")
    return 0
