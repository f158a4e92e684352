"""Values with everything filled in, so that a test names only what it is about."""

from __future__ import annotations

import json
from typing import Any

from ..core.model import KINDS, SHELL, Kind, Policy, PoolInfo, Spec

POLICY_FIELDS = frozenset(Policy.__struct_fields__)


def command(line: str = "true", **fields: Any) -> Spec:
    """A shell job. Fields of Policy (``max_attempts=…``) may be given beside those of Spec."""
    return _spec(task=SHELL, kind="command", args=json.dumps({"command": line}), **fields)


def python_task(task: str = "tests.tasks.nothing", *args: Any, kind: Kind = "sync", **fields: Any) -> Spec:
    return _spec(task=task, kind=kind, args=json.dumps({"args": args}) if args else None, **fields)


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
