"""Values with everything filled in, so that a test names only what it is about."""

from __future__ import annotations

import json
from typing import Any

from covey.core.model import KINDS, SHELL, Kind, Policy, Relation, Spawn, Spec
from covey.core.turn import PoolInfo

POLICY_FIELDS = frozenset(Policy.__struct_fields__)


def command(line: str = "true", **fields: Any) -> Spec:
    """A shell job. Fields of Policy (``max_attempts=…``) may be given beside those of Spec."""
    return _spec(task=SHELL, kind="command", args=json.dumps({"command": line}), **fields)


def python_task(task: str = "tests.tasks.nothing", *args: Any, kind: Kind = "sync", **fields: Any) -> Spec:
    return _spec(task=task, kind=kind, args=json.dumps({"args": args}) if args else None, **fields)


def child(line: str = "true", **fields: Any) -> Spawn:
    """A command that a run spawns below itself. ``queue`` and ``priority`` are inherited unless they are given."""
    return _spawn("child", line, **fields)


def sibling(line: str = "true", **fields: Any) -> Spawn:
    return _spawn("sibling", line, **fields)


def after(line: str = "true", **fields: Any) -> Spawn:
    """An uncle: a command that waits for the root of whoever spawns it."""
    return _spawn("after", line, **fields)


def _spawn(relation: Relation, line: str, **fields: Any) -> Spawn:
    told = {name: fields.pop(name) for name in ("queue", "priority", "when") if name in fields}
    return Spawn(relation, command(line, **fields), **told)


def _spec(**fields: Any) -> Spec:
    policy = {name: fields.pop(name) for name in POLICY_FIELDS & fields.keys()}
    return Spec(policy=Policy(**policy), **fields)


def pool_info(
    name: str = "hand",
    *,
    queues: tuple[str, ...] | None = None,
    kinds: tuple[Kind, ...] = KINDS,
    count: int = 4,
    host: str = "host-a",
    boot: str = "boot-a",
    pid: int = 4242,
    ticks: int = 1,
    lease_s: float = 30.0,
    **fields: Any,
) -> PoolInfo:
    """A pool somewhere else: nothing on this machine has its boot."""
    return PoolInfo(
        name=name,
        host=host,
        boot=boot,
        pid=pid,
        ticks=ticks,
        queues=queues,
        kinds=kinds,
        count=count,
        version="test",
        lease_s=lease_s,
        **fields,
    )
