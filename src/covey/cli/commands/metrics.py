"""covey metrics: what Prometheus reads, without a server."""

from __future__ import annotations

from ...errors import InvalidInput
from ..open_queue import database, open_database
from ..options import Db
from ..printing import answer


def metrics(db: Db = None) -> int:
    """Print all that is measured, as Prometheus reads it: for node_exporter's textfile collector."""
    url = database(db)
    if url.startswith(("http://", "https://")):
        raise InvalidInput(f"a server says it itself: let Prometheus scrape {url.rstrip('/')}/metrics")
    from ...telemetry import prometheus

    answer(prometheus.text(open_database(url)).rstrip("\n"))
    return 0
