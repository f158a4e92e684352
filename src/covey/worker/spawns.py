"""What a run asks for besides its result. It is only recorded here: it exists once the run's success is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ParamSpec, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ..core.check import check_spec
from ..core.model import MODES, Mode, Relation, Spawn, Spec, When
from ..core.tree import refuse_depth
from ..errors import InvalidInput, Refused, SpawnRefused

P = ParamSpec("P")

MAX_SPAWNS = 1_000_000
MAX_BYTES = 128 << 20  # of arguments together: they travel through the pool and are written in one transaction


class Maker(Protocol):
    """Whoever knows a task and the options that a call was made with."""

    @property
    def options(self) -> Mapping[str, Any]:
        """What was said of the job, in the words of a Spec; what was not said is not in it."""
        ...

    def spec(self, args: str | None, settings: Mapping[str, Any] | None = None) -> Spec: ...


class Called(Protocol):
    """What ``task.call(…)`` gives."""

    @property
    def source(self) -> Maker: ...

    @property
    def args(self) -> str | None: ...


class Spawnable(Protocol[P]):
    """A task, or a task with other options."""

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Called: ...

    def takes(self, name: str) -> bool:
        """Whether the function has a parameter of that name."""
        ...


class Spawned(Struct, frozen=True):
    """A job that was asked for. It has no id yet: it exists once the run that asked for it has succeeded."""

    relation: Relation
    number: int  # among what this run has asked for, from 0
    task: str
    key: str | None = None


class Family(Struct, frozen=True):
    """Where a job stands in its tree: what decides whether it may spawn."""

    job_id: int = 0
    parent_id: int | None = None
    depth: int = 0
    max_depth: int = 1
    mode: Mode | None = None  # how its children run, as it was enqueued


class Spawns:
    """Everything that one run has asked for."""

    def __init__(self, family: Family, settings: Mapping[str, Any]) -> None:
        self.family, self.settings = family, settings
        self.joining = False  # in its second phase a job may not spawn any more
        self.mode: Mode | None = None
        self._asked: list[Spawn] = []
        self._bytes = 0
        self._open = True
        self._children = False

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def is_open(self) -> bool:
        """Whether the run goes on."""
        return self._open

    @property
    def has_children(self) -> bool:
        return self._children

    def peek(self) -> tuple[Spawn, ...]:
        return tuple(self._asked)

    def take(self) -> list[Spawn]:
        """All of it; what a thread that outlives the run asks for later is refused."""
        self._open = False
        return self._asked

    def allow(self, relation: Relation, mode: Mode | None = None) -> None:
        """This run may ask for such a job; SpawnRefused says why it may not."""
        family = self.family
        if not self._open:
            raise SpawnRefused(f"the run of job {family.job_id} has ended; spawn before its function returns")
        if self.joining and relation != "after":
            raise SpawnRefused(f"the join of job {family.job_id} may not spawn; spawn from the task itself")
        if relation == "sibling" and family.parent_id is None:
            raise SpawnRefused(f"job {family.job_id} is a root and has no siblings; spawn a child instead")
        if relation == "child":
            try:
                refuse_depth(family.job_id, family.depth, family.max_depth)
            except Refused as refusal:
                raise SpawnRefused(str(refusal)) from None
            self._choose(mode)

    def _choose(self, mode: Mode | None) -> None:
        if mode is None:
            return
        if mode not in MODES:
            raise InvalidInput(f"mode {mode!r}: one of {', '.join(MODES)}")
        settled = self.mode or self.family.mode
        if settled is not None and settled != mode:
            raise SpawnRefused(f"job {self.family.job_id} has {settled} children already, so {mode} is refused")
        self.mode = mode

    def add(
        self,
        relation: Relation,
        spec: Spec,
        *,
        queue: str | None = None,
        priority: int | None = None,
        when: When = "success",
        mode: Mode | None = None,
    ) -> Spawned:
        """The job will exist if this run succeeds. ``queue`` and ``priority``: None is that of this job."""
        self.allow(relation, mode)
        check_spec(_with(spec, queue, priority))
        self._append(Spawn(relation, spec, queue, priority, when))
        return Spawned(relation, len(self._asked) - 1, spec.task, spec.key)

    def add_many(self, calls: Iterable[Called], mode: Mode | None) -> int:
        """Children for all of the calls, in order; how many. Made one after the other: there may be 100,000."""
        self.allow("child", mode)
        before, checked = len(self._asked), None
        for call in calls:
            options = call.source.options
            queue, priority = options.get("queue"), options.get("priority")
            spec = call.source.spec(call.args, self.settings)
            if call.source is not checked:  # calls of one task differ in their arguments alone, which are checked
                check_spec(_with(spec, queue, priority))
                checked = call.source
            self._append(Spawn("child", spec, queue, priority))
        return len(self._asked) - before

    def _append(self, spawn: Spawn) -> None:
        self._bytes += len(spawn.spec.args or "")
        if len(self._asked) >= MAX_SPAWNS or self._bytes > MAX_BYTES:
            raise SpawnRefused(
                f"job {self.family.job_id} spawns more than {MAX_SPAWNS:,} jobs or {MAX_BYTES >> 20} MiB of arguments; "
                "let children spawn a part each, or pass paths and ids"
            )
        self._asked.append(spawn)
        self._children = self._children or spawn.relation == "child"


def _with(spec: Spec, queue: str | None, priority: int | None) -> Spec:
    if queue is None and priority is None:
        return spec
    return replace(
        spec, queue=spec.queue if queue is None else queue, priority=spec.priority if priority is None else priority
    )
