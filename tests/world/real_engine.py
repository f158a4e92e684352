"""A real dockerd of the tests' own, in namespaces of its own: whatever it starts or mounts is gone with it.

Needs root and Debian's docker.io. Its image is an empty skeleton: the interpreter and the project are mounted into
each container, read-only. It has one bridge, in a network namespace of its own; supervisors and servers run in there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from covey.testing.until import until
from tests.kit.lacking import need, need_root
from tests.kit.running import Yard

PROGRAMS = ("dockerd", "docker", "containerd", "runc", "unshare", "nsenter", "ip", "mount")
GATEWAY = "172.30.77.1"
IMAGE = "covey-skeleton"
START_S = 30.0
PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).parents[2]


def need_engine() -> None:
    """An engine can be started."""
    need_root("a container engine of our own")
    need(*PROGRAMS)


class RealEngine:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = f"unix://{home}/docker.sock"
        self.group = f"/covey-test-{os.getpid()}"
        self._log = open(home / "log", "wb")  # noqa: SIM115
        places = f"--host {self.socket} --data-root {home}/data --exec-root {home}/x --pidfile {home}/pid"
        network = f"--bip {GATEWAY}/24 --iptables=false --ip6tables=false --ip-masq=false --userland-proxy=false"
        dockerd = f"dockerd {places} {network} --storage-driver vfs --cgroup-parent {self.group}"
        script = f"mount -t tmpfs tmpfs /run && ip link set lo up && {dockerd} & wait"
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )

    def started(self) -> RealEngine:
        """It answers and has the image; AssertionError with its last words if not."""

        def answers() -> bool:
            assert self._process.poll() is None, f"dockerd ended: {self.said()}"
            return self.call("version").returncode == 0

        until(answers, START_S, f"dockerd answers: {self.said()}")
        self._import()
        return self

    def said(self) -> str:
        return (self.home / "log").read_text(errors="replace")[-2000:]

    def _import(self) -> None:
        """An image with nothing but places to mount things."""
        skeleton = self.home / "skeleton"
        for name in ("etc", "proc", "sys", "dev", "tmp", "run", "root", "sbin", "usr", "var/tmp"):
            (skeleton / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (skeleton / name).symlink_to(f"usr/{name}")
        (skeleton / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        with tarfile.open(self.home / "image.tar", "w") as tar:
            tar.add(skeleton, arcname=".")
        path = f"PATH={os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin"
        self.ask("import", "--change", f"ENV {path}", "--change", "ENV PYTHONDONTWRITEBYTECODE=1",
                 str(self.home / "image.tar"), IMAGE)  # fmt: skip

    # ── what can be asked ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def environ(self) -> dict[str, str]:
        return {"DOCKER_HOST": self.socket}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", *words], env=os.environ | self.environ, capture_output=True, text=True, timeout=60, check=False
        )

    def ask(self, *words: str) -> str:
        told = self.call(*words)
        assert told.returncode == 0, f"docker {' '.join(words)}: {told.stderr}"
        return told.stdout

    def ours(self, yard: Yard) -> list[str]:
        """All containers with the label of the yard's queue."""
        label = f"label=covey.database={yard.engine.database_id}"
        return sorted(self.ask("ps", "-a", "--filter", label, "--format", "{{.Names}}").split())

    def mounts(self) -> list[str]:
        """What containers need besides the skeleton: system, interpreter, project."""
        places = {"/usr", str(ROOT), sys.base_prefix, sys.prefix}
        inner = {place for place in places if any(place.startswith(f"{other}/") for other in places)}
        return [word for place in sorted(places - inner) for word in ("--mount", f"{place}:{place}")]

    def inside(self) -> list[str]:
        """Runs what follows where containers can reach it."""
        (init,) = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return ["nsenter", f"--net=/proc/{init}/ns/net"]

    def close(self) -> None:
        """No process, mount or control group of it is left, and no file."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            if names := self.ask("ps", "-aq").split():
                self.call("rm", "-f", *names)
        self._process.kill()
        self._process.wait()
        self._log.close()
        for place in Path("/sys/fs/cgroup").glob(f"*{self.group}"):
            _remove_group(place)
        shutil.rmtree(self.home)


def _remove_group(place: Path) -> None:
    deadline = time.monotonic() + 10
    while place.exists():
        with contextlib.suppress(OSError):
            for path, _, _ in os.walk(place, topdown=False):
                os.rmdir(path)
        assert time.monotonic() < deadline, f"{place} is still in use"
        time.sleep(0.02)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class HarbourYard(Yard):
    """A yard whose commands run in the engine's network."""

    def __init__(self, home: Path, engine: RealEngine) -> None:
        super().__init__(home, heartbeat_seconds=2, lock_lease_seconds=10)
        self.docker = engine

    def covey(self) -> list[str]:  # type: ignore[override]
        return [*self.docker.inside(), sys.executable, "-m", "covey"]

    def environ(self) -> dict[str, str]:
        return super().environ() | self.docker.environ
