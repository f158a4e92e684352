"""Hosts of a fleet on one machine: network namespaces at a bridge, each with its own host name and pids.

Needs root and iproute2. Whatever a host runs dies with it, and namespaces that a killed test run left are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping

from covey.env import start_ticks
from covey.system import process_tree
from covey.testing.until import until

from .lacking import Lacking, need, need_root
from .running import RunningPool, Yard

PROGRAMS = ("ip", "unshare", "hostname")
NAME = re.compile(r"cv(\d+)[a-z]+\d*")  # the pid of the test run, then what it is


def need_hosts() -> None:
    """Hosts can be made here."""
    need_root("a host of its own on this machine")
    need(*PROGRAMS)
    try:
        _ip("link", "add", _name("x"), "type", "bridge")
        _ip("link", "del", _name("x"))
    except AssertionError as error:
        raise Lacking(f"hosts need the right to make network namespaces and bridges: {error}") from None


class Network:
    """A bridge with the address ``address``; hosts are attached to it. Leaving the block removes everything."""

    def __init__(self) -> None:
        _sweep()
        number = os.getpid() % 250
        self._prefix = f"10.213.{number}"
        self.address, self.range = f"{self._prefix}.1", f"{self._prefix}.0/24"
        self.hosts: list[Host] = []

    def __enter__(self) -> Network:
        _ip("link", "add", _name("br"), "type", "bridge")
        _ip("address", "add", f"{self.address}/24", "dev", _name("br"))
        _ip("link", "set", _name("br"), "up")
        return self

    def host(self, name: str) -> Host:
        self.hosts.append(Host(name, len(self.hosts), f"{self._prefix}.{len(self.hosts) + 2}/24"))
        return self.hosts[-1]

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.close()
        _ip("link", "del", _name("br"))


class Host:
    """Knows nobody's pids but its own, and reaches the others through one cable."""

    def __init__(self, name: str, number: int, address: str) -> None:
        self.name = name
        self._space, self._cable = _name(f"h{number}"), _name(f"c{number}")
        self._pool: RunningPool | None = None
        _ip("netns", "add", self._space)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        _ip("-n", self._space, "address", "add", address, "dev", "eth0")
        _ip("-n", self._space, "link", "set", "eth0", "up")
        _ip("-n", self._space, "link", "set", "lo", "up")
        _ip("link", "set", self._cable, "master", _name("br"), "up")

    def start(
        self,
        yard: Yard,
        *,
        url: str | None = None,
        count: int = 2,
        failpoints: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunningPool:
        """A pool is on its way here, as the host's first process: if that is killed, so is all the rest."""
        space = ["ip", "netns", "exec", self._space, "unshare", "--uts", "--pid", "--fork", "--mount-proc"]
        pool = [*yard.covey(), "worker", "start", "--db", url or yard.db, "--count", str(count)]
        named = ["sh", "-c", 'hostname "$0"; exec "$@"', self.name, *pool]
        home = yard.home / self.name  # a disk of its own
        home.mkdir(exist_ok=True)
        armed = ",".join(f"{name}={action}" for name, action in (failpoints or {}).items())
        environ = {**yard.environ(), "XDG_STATE_HOME": str(home), "COVEY_FAILPOINTS": armed, **(environ or {})}
        self._pool = RunningPool(yard, [*space, "--kill-child", *named], environ, home / "pool.log")
        return self._pool

    @property
    def pool(self) -> RunningPool:
        assert self._pool is not None, f"no pool was started on {self.name}"
        return self._pool

    def stop(self) -> int:
        """Its pool was told to stop and has done so; the exit code."""
        os.kill(self._first(), signal.SIGTERM)
        return self.pool.ended()

    def kill(self) -> None:
        """As if the power were cut: everything here is gone at once."""
        os.kill(self._first(), signal.SIGKILL)
        self.pool.process.wait()

    def cut(self) -> None:
        """Nothing goes in or out any more, and nobody is told."""
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "up")

    def quit(self) -> None:
        """Nothing runs here, and the cable is whole."""
        self.mend()
        if self._pool is not None and self._pool.process.poll() is None:
            with contextlib.suppress(AssertionError, ProcessLookupError):
                os.kill(self._first(), signal.SIGKILL)
            self._pool.process.kill()
            self._pool.process.wait()
        self._pool = None

    def close(self) -> None:
        self.quit()
        _ip("netns", "del", self._space)  # and with it the cable

    def _first(self) -> int:
        """The pid, as we see it, of the process that is 1 here."""
        return until(lambda: process_tree.children(self.pool.pid), 5, f"{self.name} has a first process")[0]


def _name(part: str) -> str:
    return f"cv{os.getpid()}{part}"  # at most 15 bytes


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _sweep() -> None:
    """What test runs that were killed have left is gone; those that run beside us keep theirs."""
    for kind in ("netns", "link"):
        for entry in json.loads(_ip("-json", kind, "list") or "[]"):
            name = entry.get("name") or entry.get("ifname") or ""
            ours = NAME.fullmatch(name)
            if ours and start_ticks(int(ours[1])) is None:
                with contextlib.suppress(AssertionError):
                    _ip(kind, "del", name)
