"""What a running task knows about its own job. It speaks to the worker that made it, never to the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..core import codec
from ..core.model import Claim

MAX_INFO = 64 << 10


def never() -> bool:
    return False


class Context:
    """A task whose first parameter is annotated ``Context`` is given one; callers do not pass it."""

    def __init__(
        self,
        *,
        job_id: int,
        attempt: int,
        max_attempts: int,
        task: str,
        queue: str,
        key: str | None = None,
        deadline: float | None = None,
        stopping: Callable[[], bool] = never,
    ) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.task = task
        self.queue = queue
        self.key = key
        self.deadline = deadline  # on time.monotonic(), None without a time-out
        self.collected: dict[str, Any] = {}
        self._stopping = stopping

    @classmethod
    def from_claim(
        cls, claim: Claim, *, deadline: float | None = None, stopping: Callable[[], bool] = never
    ) -> Context:
        """The context of the run that this claim is about to start; without a deadline the time-out begins now."""
        if deadline is None and claim.timeout_s is not None:
            deadline = time.monotonic() + claim.timeout_s
        return cls(
            job_id=claim.id,
            attempt=claim.attempt,
            max_attempts=claim.max_attempts,
            task=claim.task,
            queue=claim.queue,
            key=claim.key,
            deadline=deadline,
            stopping=stopping,
        )

    @classmethod
    def detached(cls, task: str = "") -> Context:
        """A context without a job, for plain calls: job 0, the first and only attempt, no deadline."""
        return cls(job_id=0, attempt=1, max_attempts=1, task=task, queue="")

    @property
    def stopping(self) -> bool:
        """True once the job is to end: cancelled, timed out, or its pool is leaving."""
        return self._stopping()

    def remaining(self) -> float | None:
        """Seconds until the time-out, never below 0; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def info(self, **values: Any) -> None:
        """These values are kept with the attempt; the last one of a name wins. Nothing changes if one is not JSON."""
        merged = {**self.collected, **values}
        codec.encode(merged, what=f"info of job {self.job_id}", limit=MAX_INFO)
        self.collected = merged

    def __repr__(self) -> str:
        return f"<Context job {self.job_id} attempt {self.attempt}/{self.max_attempts}>"
