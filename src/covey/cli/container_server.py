"""The server that a supervisor's containers work through: the one that runs, or one of our own for the time being."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from .. import env
from ..errors import InvalidInput, Refused

if TYPE_CHECKING:
    from ..containers.docker import Docker
    from ..engine.engine import Engine
    from ..remote.remote import Remote

START_S = 20.0
STOP_S = 15.0
TOKEN_PREFIX = "containers-"  # then host, pid and start ticks of the supervisor
HOW = "start one that they can (`covey server --host ADDRESS`) and name it with --server URL"


class Reachable(NamedTuple):
    """A server, as containers reach it, and what it lets them in with."""

    url: str
    token: str | None


@contextlib.contextmanager
def server_for_containers(
    queue: Engine | Remote,
    docker: Docker,
    *,
    db: str,
    server: str | None,
    port: int | None,
    queues: Sequence[str] | None,
) -> Iterator[Reachable]:
    """A server for this queue that containers can reach. What was started or made for them ends with the block."""
    from ..open import find_token, is_remote
    from .open_queue import chosen_token

    if server is not None and not is_remote(server):
        raise InvalidInput(f"--server {server!r}: write it as http://HOST:PORT")
    if is_remote(db):
        yield Reachable(_not_loopback(server or db), chosen_token() or find_token())
        return
    engine: Engine = queue  # type: ignore[assignment]
    token = chosen_token()
    with contextlib.ExitStack() as stack:
        if token is None:
            token = stack.enter_context(_own_token(engine, queues))
        url = server or _running(engine, docker) or stack.enter_context(_own_server(engine, docker, port))
        yield Reachable(url, token)


def _not_loopback(url: str) -> str:
    if _is_loopback(urlsplit(url).hostname or ""):
        raise Refused(f"containers cannot reach {url}, this host's loopback; {HOW}")
    return url


def _running(engine: Engine, docker: Docker) -> str | None:
    """The address of this queue's server, if one runs; Refused if containers cannot reach it."""
    from .reusing import find_server

    running = find_server(engine)
    if running is None:
        return None
    address = urlsplit(running.url)
    if not _is_everywhere(address.hostname or ""):
        gateway = docker.gateway()
        if _is_loopback(address.hostname or "") and gateway and _answers(gateway, address.port or 80):
            return f"http://{gateway}:{address.port}"  # it listens in more than one place
        return _not_loopback(running.url)
    gateway = docker.gateway()
    if gateway is None:
        raise Refused(f"{docker.program} does not say how containers reach this host; name it with --server URL")
    return f"http://{gateway}:{address.port}"


@contextlib.contextmanager
def _own_server(engine: Engine, docker: Docker, port: int | None) -> Iterator[str]:
    """A server of ours, on the one address that containers see; it ends with us, however we end."""
    from ..discovery import found
    from ..system.process_tree import die_with_parent
    from .serving import port_of

    gateway = docker.gateway()
    if gateway is None or not _is_ours(gateway):
        where = f"at {gateway}, which is no address of this host" if gateway else "at an address that it does not say"
        raise Refused(f"{docker.program} lets containers reach this host {where}; {HOW}")
    command = [sys.executable, "-m", "covey", "server", "--host", gateway, "--port", str(port_of(port))]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [*command, "--quiet", "--db", engine.store.dialect.url],
            stdin=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for us: the containers need it until they have stopped
            preexec_fn=die_with_parent,
        )
        try:
            deadline = time.monotonic() + START_S
            while (running := found(engine.store.dialect.side)) is None or running.pid != child.pid:
                if child.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    lines = said.read().decode(errors="replace").strip().splitlines()
                    raise Refused(f"the server for the containers did not start: {lines[-1] if lines else 'no reason'}")
                time.sleep(0.02)
            yield running.url
        finally:
            child.terminate()
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextlib.contextmanager
def _own_token(engine: Engine, queues: Sequence[str] | None) -> Iterator[str]:
    """A token for our containers, and for no longer than we live; those of killed supervisors hold no more."""
    mine = f"{TOKEN_PREFIX}{env.hostname()}-"
    for name in [view.name for view in engine.tokens() if view.state == "valid" and view.name.startswith(mine)]:
        pid, _, ticks = name.removeprefix(mine).partition("-")
        if pid.isdecimal() and ticks.isdecimal() and not env.alive(int(pid), int(ticks)):
            engine.revoke_token(name)
    name = f"{mine}{os.getpid()}-{env.start_ticks(os.getpid()) or 0}"
    _, text = engine.create_token(name, "worker", queues=queues)
    try:
        yield text
    finally:
        engine.revoke_token(name)


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _is_everywhere(host: str) -> bool:
    return host in ("0.0.0.0", "::")


def _is_ours(address: str) -> bool:
    """Whether it can be listened on here; engines in a machine of their own have addresses that are not."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
        return True
    except OSError:
        return False


def _answers(host: str, port: int) -> bool:
    from ..discovery import who_answers

    return who_answers(host, port).startswith("a Covey server")
