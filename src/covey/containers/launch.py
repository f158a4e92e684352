"""What a container of a pool is started with, and how its owner is told from its labels."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from msgspec import Struct

from ..core.turn import LostPool
from ..env import alive, boot, hostname, start_ticks
from .docker import Container, Docker

DATABASE, OWNER, HOST = "covey.database", "covey.pool", "covey.host"
TOKEN = "/run/covey/token"
GATEWAY_NAME = "host.docker.internal"  # podman gives its containers host.containers.internal by itself


class Group(Struct, frozen=True):
    """Containers that are alike: a worker type, or all of a pool without types."""

    title: str
    queues: tuple[str, ...] | None  # None = every queue
    count: int


class ContainerOptions(Struct, frozen=True, kw_only=True):
    image: str
    groups: tuple[Group, ...]
    server: str  # as the containers reach it
    token_file: str | None = None  # on this host
    user: str | None = None  # instead of the image's
    memory: int | None = None
    cpus: float | None = None
    mounts: tuple[tuple[str, str], ...] = ()  # host → container, read-only
    app: str | None = None
    drain: bool = False
    grace_s: float = 10.0
    name: str | None = None
    quiet: bool = False
    logs: str | None = None
    parent_pid: int | None = None
    max_startup: int | None = None
    max_jobs: int | None = None
    max_memory: int | None = None


def owner() -> str:
    """This process, so that nobody else is ever taken for it: boot and pid namespace, pid, start ticks."""
    return f"{boot()}:{os.getpid()}:{start_ticks(os.getpid()) or 0}"


def is_gone(owner: str) -> bool:
    """That supervisor of this host does not live. One in another pid namespace is taken for alive."""
    space, _, ticks = owner.rpartition(":")
    space, _, pid = space.rpartition(":")
    if not (space and pid.isdecimal() and ticks.isdecimal()):
        return False
    if space == boot():
        return not alive(int(pid), int(ticks))
    return space.partition(":")[0] != boot().partition(":")[0]  # this host has been restarted since


def is_orphan(container: Container) -> bool:
    """Its supervisor is gone. One on another host cannot be judged from here."""
    return container.labels.get(HOST) == hostname() and is_gone(container.labels.get(OWNER, ""))


def orphans(docker: Docker, database_id: str) -> list[Container]:
    """Containers of this database whose supervisor is gone, running or not."""
    return [each for each in docker.containers(f"{DATABASE}={database_id}") if is_orphan(each)]


def rows_of(pools: Sequence[LostPool], name: str) -> list[LostPool]:
    """The pool that runs in a container has its name."""
    return [pool for pool in pools if pool.name == name]


def container_name(tag: str, worker: str) -> str:
    """Of one worker of a supervisor, whose tag no other one has; engines allow fewer characters than queues."""
    return f"covey-{tag}-{re.sub(r'[^a-zA-Z0-9_.-]', '-', worker)}"


def arguments(options: ContainerOptions, group: Group, name: str, database_id: str, *, podman: bool) -> list[str]:
    """Everything after `docker run`. The token is nowhere in it: it comes as a file."""
    words = ["--name", name, "--init", "--pull", "never"]
    labels = {DATABASE: database_id, OWNER: owner(), HOST: hostname()}
    words += [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    if not podman:
        words += ["--add-host", f"{GATEWAY_NAME}:host-gateway"]
    if options.user:
        words += ["--user", options.user, *(["--userns", "keep-id"] if podman else [])]
    if options.memory:  # without swap: a limit that only slows down is none
        words += ["--memory", str(options.memory), "--memory-swap", str(options.memory)]
    if options.cpus:
        words += ["--cpus", f"{options.cpus:g}"]
    mounts = [*options.mounts, *([(options.token_file, TOKEN)] if options.token_file else [])]
    for source, target in mounts:
        words += ["--mount", f"type=bind,source={source},target={target},readonly"]
    return [*words, "--entrypoint", "covey", options.image, *command(options, group, name)]


def command(options: ContainerOptions, group: Group, name: str) -> list[str]:
    """What runs in it: a pool of one worker."""
    words = ["worker", "start", "--db", options.server, "--count", "1", "--name", name]
    words += ["--token-file", TOKEN] if options.token_file else []
    words += [word for queue in group.queues or () for word in ("--queue", queue)]
    words += ["--grace", f"{options.grace_s:g}"]
    words += ["--app", options.app] if options.app else []
    words += ["--max-jobs", str(options.max_jobs)] if options.max_jobs else []
    words += ["--max-memory", str(options.max_memory)] if options.max_memory else []
    return words + (["--drain"] if options.drain else [])
