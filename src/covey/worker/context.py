"""What a running task knows about its own job, and what it may ask for. It never speaks to the store: its pool does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, overload

from msgspec.structs import replace

from .. import settings as config
from ..core import codec
from ..core.model import Claim, Mode, Phase, Relation, Spawn, When
from ..core.specs import shell_spec
from ..errors import InvalidInput
from .children import Children
from .output import show_info
from .spawns import Called, Family, Spawnable, Spawned, Spawns

P = ParamSpec("P")

MAX_INFO = 64 << 10
CHILD_WORDS = ("key", "queue", "priority", "mode")
SIBLING_WORDS = ("key", "queue", "priority")
AFTER_WORDS = ("unique_key", "when", "key", "queue", "priority")


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
        root_id: int = 0,
        phase: Phase = "run",
        family: Family | None = None,
        cwd: str | None = None,
        failed_siblings: str | None = None,
        settings: Mapping[str, Any] | None = None,
        siblings: Callable[[], bytes | None] | None = None,
        info_path: str | None = None,
    ) -> None:
        family = family or Family(job_id)
        self.job_id = job_id
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.task = task
        self.queue = queue
        self.key = key
        self.deadline = deadline  # on time.monotonic(), None without a time-out
        self.parent = family.parent_id  # an id, None for a root
        self.root_id = root_id
        self.depth = family.depth  # 0 for a root
        self.collected: dict[str, Any] = {}
        self.spawns = Spawns(family, config.effective({}, {}) if settings is None else settings)
        self.spawns.joining = phase == "join"
        self._cwd = cwd
        self._failed_siblings = failed_siblings
        self._siblings = siblings
        self._info_path = info_path  # where what was said can be seen while the task runs
        self._stopping = stopping

    @classmethod
    def from_claim(
        cls,
        claim: Claim,
        *,
        deadline: float | None = None,
        stopping: Callable[[], bool] = never,
        settings: Mapping[str, Any] | None = None,
        siblings: Callable[[], bytes | None] | None = None,
        info_path: str | None = None,
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
            root_id=claim.root_id,
            phase=claim.phase,
            family=Family(claim.id, claim.parent_id, claim.depth, claim.max_depth, claim.child_mode),
            cwd=claim.cwd,
            failed_siblings=claim.failed_siblings,
            settings=settings,
            siblings=siblings,
            info_path=info_path,
        )

    @classmethod
    def detached(cls, task: str = "") -> Context:
        """A context without a job, for plain calls: job 0, the first and only attempt; what it spawns goes nowhere."""
        return cls(job_id=0, attempt=1, max_attempts=1, task=task, queue="")

    @property
    def stopping(self) -> bool:
        """True once the job is to end: cancelled, timed out, or its pool is leaving."""
        return self._stopping()

    def remaining(self) -> float | None:
        """Seconds until the time-out, never below 0; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def info(self, **values: Any) -> None:
        """These values are kept with the attempt; the last one of a name wins. Nothing changes if one is not JSON.

        They can be seen while the task runs, as its output can.
        """
        merged = {**self.collected, **values}
        text = codec.encode(merged, what=f"info of job {self.job_id}", limit=MAX_INFO)
        self.collected = codec.decode(text)  # as it is now: the task may change its objects
        if self._info_path and self.spawns.is_open:
            show_info(self._info_path, text)

    # ── the tree ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def spawned(self) -> tuple[Spawn, ...]:
        """Everything that this run has asked for so far."""
        return self.spawns.peek()

    def failed_siblings(self) -> Children:
        """Children of the same parent that have ended otherwise than well by now, the first 100.

        The pool asks the queue, which takes a moment: do not ask in a tight loop, and in a coroutine that shares its
        loop with others ask in a thread (``await asyncio.to_thread(ctx.failed_siblings)``). If the queue cannot be
        asked within 5 seconds, these are the ones that had failed when this run was claimed.
        """
        found = self._siblings() if self._siblings is not None and self.parent is not None else None
        return Children.from_json(self._failed_siblings if found is None else found)

    # The first form of each is typed like the task. The others take options beside the arguments: those are checked
    # when it is called, by the function's own signature; a parameter of the function wins over an option of its name.

    @overload
    def spawn(self, task: Spawnable[P], /, *args: P.args, **kwargs: P.kwargs) -> Spawned: ...
    @overload
    def spawn(
        self,
        task: Spawnable[...],
        /,
        *args: Any,
        key: str,
        queue: str | None = None,
        priority: int | None = None,
        mode: Mode | None = None,
        **kwargs: Any,
    ) -> Spawned: ...
    @overload
    def spawn(
        self,
        task: Spawnable[...],
        /,
        *args: Any,
        queue: str,
        priority: int | None = None,
        mode: Mode | None = None,
        **kwargs: Any,
    ) -> Spawned: ...
    @overload
    def spawn(
        self, task: Spawnable[...], /, *args: Any, priority: int, mode: Mode | None = None, **kwargs: Any
    ) -> Spawned: ...
    @overload
    def spawn(self, task: Spawnable[...], /, *args: Any, mode: Mode, **kwargs: Any) -> Spawned: ...

    def spawn(self, task: Spawnable[...], /, *args: Any, **kwargs: Any) -> Spawned:
        """A child of this job, if this run succeeds. The job is complete when all its children are."""
        return self._ask("child", task, args, kwargs, CHILD_WORDS)

    def spawn_many(self, calls: Iterable[Called], *, mode: Mode | None = None) -> int:
        """A child for each ``task.call(…)``, in order; how many. For very many: calls may come from a generator."""
        return self.spawns.add_many(calls, mode)

    def spawn_shell(
        self,
        command: str | Sequence[str],
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        mode: Mode | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
        max_attempts: int | None = None,
    ) -> Spawned:
        """A child that runs a command, in ``cwd``, else where this task runs."""
        place = os.fspath(cwd or "")
        if not os.path.isabs(place):
            place = os.path.normpath(os.path.join(self._cwd or os.getcwd(), place))
        spec = shell_spec(
            command,
            settings=self.spawns.settings,
            key=key,
            cwd=place,
            env=env,
            timeout_s=timeout.total_seconds() if isinstance(timeout, timedelta) else timeout,
            max_attempts=max_attempts,
        )
        return self.spawns.add("child", spec, queue=queue, priority=priority, mode=mode)

    @overload
    def spawn_sibling(self, task: Spawnable[P], /, *args: P.args, **kwargs: P.kwargs) -> Spawned: ...
    @overload
    def spawn_sibling(
        self,
        task: Spawnable[...],
        /,
        *args: Any,
        key: str,
        queue: str | None = None,
        priority: int | None = None,
        **kwargs: Any,
    ) -> Spawned: ...
    @overload
    def spawn_sibling(
        self, task: Spawnable[...], /, *args: Any, queue: str, priority: int | None = None, **kwargs: Any
    ) -> Spawned: ...
    @overload
    def spawn_sibling(self, task: Spawnable[...], /, *args: Any, priority: int, **kwargs: Any) -> Spawned: ...

    def spawn_sibling(self, task: Spawnable[...], /, *args: Any, **kwargs: Any) -> Spawned:
        """One more child of this job's parent, behind the others, if this run succeeds."""
        return self._ask("sibling", task, args, kwargs, SIBLING_WORDS)

    @overload
    def after(self, task: Spawnable[P], /, *args: P.args, **kwargs: P.kwargs) -> Spawned: ...
    @overload
    def after(
        self,
        task: Spawnable[...],
        /,
        *args: Any,
        unique_key: str,
        when: When = "success",
        queue: str | None = None,
        priority: int | None = None,
        **kwargs: Any,
    ) -> Spawned: ...
    @overload
    def after(
        self,
        task: Spawnable[...],
        /,
        *args: Any,
        when: When,
        queue: str | None = None,
        priority: int | None = None,
        **kwargs: Any,
    ) -> Spawned: ...

    def after(self, task: Spawnable[...], /, *args: Any, **kwargs: Any) -> Spawned:
        """A job of its own that starts once the whole tree has ended. One ``unique_key``: one job for many trees."""
        return self._ask("after", task, args, kwargs, AFTER_WORDS)

    def _ask(
        self,
        relation: Relation,
        task: Spawnable[...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        words: tuple[str, ...],
    ) -> Spawned:
        options = {word: kwargs.pop(word) for word in words if word in kwargs and not task.takes(word)}
        self.spawns.allow(relation, options.get("mode"))
        call = task.call(*args, **kwargs)
        given = call.source.options
        named = {name: options[name] for name in ("key", "unique_key") if options.get(name) is not None}
        spec = call.source.spec(call.args, self.spawns.settings)
        when = options.get("when", "success")
        if when not in ("success", "always"):
            raise InvalidInput(f"when {when!r}: 'success' or 'always'")
        return self.spawns.add(
            relation,
            replace(spec, **named) if named else spec,
            queue=given.get("queue") if options.get("queue") is None else options["queue"],
            priority=given.get("priority") if options.get("priority") is None else options["priority"],
            when=when,
        )

    def __repr__(self) -> str:
        return f"<Context job {self.job_id} attempt {self.attempt}/{self.max_attempts}>"
