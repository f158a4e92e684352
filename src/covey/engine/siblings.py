"""What a running child may know of the others: those that have failed by now."""

from __future__ import annotations

from ..core.model import Child
from ..errors import LeaseLost
from ..store.store import Store


class Siblings:
    store: Store

    def failed_siblings(self, pool: int, job: int, fence: int) -> list[Child]:
        """Children of the same parent that have ended otherwise than well, the first 100 in the order of spawning.

        LeaseLost if that run is not the pool's any more: it is nobody else's business.
        """
        row = self.store.row(job)
        if row is None or row.pool != pool or fence not in (row.fence, row.fence - 1):
            raise LeaseLost(f"job {job} is not yours any more: it was given up, or it has ended")
        return [] if row.parent_id is None else self.store.failed_children(row.parent_id)
