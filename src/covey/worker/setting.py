"""What is the same for every worker of a pool."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class WorkerConfig(Struct, frozen=True):
    app: str | None
    live: str
    mark: str  # "": the pool has no number yet
    lifeline: int  # the pool's end of this pipe is closed when it dies
    files: int  # the limit on open files that the pool was started with
    cgroup: str | None = None  # holds the zygote and everything below it
    settings: dict[str, Any] = {}  # what the queue was configured with when the pool registered
    label: str = ""  # what follows a worker's name in what it reports: its pool and host

    def group_of(self, pid: int) -> str:
        """The control group of one worker."""
        return f"{self.cgroup}/worker-{pid}"
