"""Whom Covey is compared with, and what must be installed for each. How each is used: its file in benchmarks/peers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from . import environments
from .contest import Contestant


@dataclass(frozen=True)
class Entry:
    """A peer by the name that people type.

    ``least``: the oldest Python that it runs on. ``tags``: its wheels are for systems with a newer C library than many
    have, but run on older ones once they use the system's SQLite instead of the one they bring.
    """

    module: str
    needs: tuple[str, ...]
    variant: str = ""
    least: tuple[int, int] = (3, 11)
    tags: str = ""

    def ready(self) -> Contestant:
        """Installed; raises Missing if that cannot be done."""
        if not self.needs:
            return Contestant(self.module, Path(sys.executable))
        python = environments.install(self.module, self.needs, self.least, self.tags)
        return Contestant(self.module, python, self.variant)


REDIS = "redis[hiredis]"
PSYCOPG = "psycopg[binary]"
HUEY = ("huey", REDIS)
RQ = ("rq", REDIS)
CELERY = ("celery[redis]", "hiredis")

PEERS: dict[str, dict[str, Entry]] = {
    "sqlite": {
        "huey": Entry("huey", HUEY),
        "huey-nosync": Entry("huey", HUEY, "nosync"),
        "litequeue": Entry("litequeue", ("litequeue",)),
        "persist-queue": Entry("persistqueue", ("persist-queue",)),
        "honker": Entry("honker", ("honker",), tags="manylinux_2_38_x86_64"),
    },
    "redis": {
        "rq": Entry("rq", RQ),
        "rq-fork": Entry("rq", RQ, "fork"),
        "dramatiq": Entry("dramatiq", ("dramatiq[redis]", "hiredis")),
        "celery": Entry("celery", CELERY),
        "celery-prefork": Entry("celery", CELERY, "prefork"),
        "arq": Entry("arq", ("arq",)),
        "saq": Entry("saq", ("saq[redis,hiredis]", "typing_extensions")),
        "taskiq": Entry("taskiq", ("taskiq", "taskiq-redis", "hiredis")),
        "huey-redis": Entry("huey", HUEY),
    },
    "postgres": {
        "pgqueuer": Entry("pgqueuer", ("pgqueuer", "asyncpg", PSYCOPG)),
        "procrastinate": Entry("procrastinate", ("procrastinate", PSYCOPG)),
        "chancy": Entry("chancy", ("chancy", PSYCOPG)),
        "oban": Entry("oban", ("oban", PSYCOPG), least=(3, 12)),
    },
    "commands": {name: Entry(name, ()) for name in ("xargs", "parallel", "task-spooler")},
}
COVEY = "covey"


def covey() -> Contestant:
    return Contestant(COVEY, Path(sys.executable))
