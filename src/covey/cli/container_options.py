"""What `covey worker start --executor docker` does: from its options to a supervisor of containers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from .container_server import server_for_containers
from .open_queue import choose_token, database, open_queue
from .worker_options import MOST_WORKERS, check_name, check_range, check_start, size_of

if TYPE_CHECKING:
    from ..containers.docker import Docker
    from ..store.store import Store

EXECUTORS = ("process", "docker", "podman", "container")
LEAST_MEMORY = 32 << 20  # less does not even hold the interpreter


def start_containers(
    executor: str,
    *,
    image: str | None,
    memory: str | None = None,
    cpus: float | None = None,
    mount: list[str] | None = None,
    server: str | None = None,
    token_file: str | None = None,
    port: int | None = None,
    count: str | None = None,
    worker: list[str] | None = None,
    queue: list[str] | None = None,
    app: str | None = None,
    drain: bool = False,
    grace: float = 10.0,
    name: str | None = None,
    max_jobs: int | None = None,
    max_memory: str | None = None,
    max_startup_concurrency: int | None = None,
    parent_pid: int | None = None,
    quiet: bool = False,
    db: str | None = None,
) -> int:
    """Workers have run in containers until they were stopped; the exit code."""
    from ..containers.docker import Docker
    from ..containers.launch import ContainerOptions, Group
    from ..containers.secret import token_file as secret_file
    from ..containers.supervisor import run
    from ..system.resources import automatic

    if not image:
        raise InvalidInput(f"--executor {executor} needs --image IMAGE: one with covey in it, see docs/containers.md")
    checked = check_start(count, worker, queue, app, grace, max_jobs, max_memory)
    check_name(name)
    check_range("--max-startup-concurrency", max_startup_concurrency, 1, MOST_WORKERS)
    check_range("--parent-pid", parent_pid, 1, 1 << 22)
    check_range("--port", port, 1, 65535)
    limit = None if memory is None else size_of("--memory", memory)
    if limit is not None and limit < LEAST_MEMORY:
        raise InvalidInput(f"--memory {memory}: at least {LEAST_MEMORY >> 20}M, or the interpreter does not fit in")
    if cpus is not None and not 0.01 <= cpus <= 1024:
        raise InvalidInput(f"--cpus {cpus:g}: from 0.01 to 1,024")
    mounts = tuple(mount_of(each) for each in mount or ())
    if checked.workers:
        groups = tuple(Group(name, (name,), number) for name, number in checked.workers.items() if number)
    else:
        groups = (Group("worker", checked.queues, checked.jobs or automatic()),)
    docker = Docker.find(executor)
    user = image_user(docker, image)
    choose_token(token_file)
    url = database(db)
    source = open_queue(url, create=True)
    store: Store | None = getattr(source, "store", None)
    side = store.dialect.side if store else ""
    queues = None if any(group.queues is None for group in groups) else [q for g in groups for q in g.queues or ()]
    with (
        server_for_containers(source, docker, db=url, server=server, port=port, queues=queues) as found,
        secret_file(docker, image, user, found.token) as (path, run_as),
    ):
        return run(
            source,
            docker,
            ContainerOptions(
                image=image,
                groups=groups,
                server=found.url,
                token_file=path,
                user=run_as,
                memory=limit,
                cpus=cpus,
                mounts=mounts,
                app=app,
                drain=drain,
                grace_s=grace,
                name=name,
                quiet=quiet,
                logs=os.path.join(side, "logs") if side else None,
                parent_pid=parent_pid,
                max_startup=max_startup_concurrency,
                max_jobs=max_jobs,
                max_memory=checked.max_memory,
            ),
        )


def image_user(docker: Docker, image: str) -> str:
    """The image is here; the user that it runs as."""
    user = docker.image_user(image)
    if user is None:
        docker.pull(image)
        user = docker.image_user(image)
    if user is None:
        raise InvalidInput(f"--image {image}: pulled, and still not here")
    return user


def mount_of(text: str) -> tuple[str, str]:
    """HOST:CONTAINER; the host's directory is there, so that the engine need not make an empty one."""
    host, colon, target = text.partition(":")
    if not colon or not target.startswith("/") or ":" in target:
        raise InvalidInput(f"--mount {text!r}: write HOST:CONTAINER, as in --mount ./data:/data; it is read-only")
    host = os.path.abspath(os.path.expanduser(host))
    if "," in host + target or '"' in host + target:
        raise InvalidInput(f"--mount {text!r}: the engine does not take commas or quotes in paths")
    if not os.path.exists(host):
        raise InvalidInput(f"--mount {text!r}: there is no {host}")
    return host, target
