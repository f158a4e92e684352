"""A yard whose workers live in containers of the fake engine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from covey.testing.until import until
from tests.kit.running import RunningPool, Yard

FAKE = Path(__file__).parent / "fake_docker.py"
SERVER = ("--server", "http://nowhere:1")  # the fake's containers work on the file


class Dock:
    """The fake engine's state, and supervisors that use it."""

    def __init__(self, yard: Yard, program: str = "docker") -> None:
        self.yard, self.home = yard, yard.home / "engine"
        (self.home / "containers").mkdir(parents=True)
        self.bin = yard.home / "bin"
        self.bin.mkdir()
        self._script(program, f'exec {sys.executable} -S {FAKE} "$@"')
        self._script("covey", f'exec {sys.executable} -m covey "$@"')
        self.say("database", yard.db)

    def _script(self, name: str, line: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "FAKE_DOCKER": str(self.home)}

    def say(self, name: str, text: object = "") -> None:
        """The engine is steered by a file of that name."""
        (self.home / name).write_text(str(text))

    def unsay(self, name: str) -> None:
        (self.home / name).unlink()

    # ── supervisors ─────────────────────────────────────────────────────────────────────────────────────────────────

    def start(
        self, *flags: str, server: tuple[str, ...] = SERVER, failpoints: dict[str, str] | None = None
    ) -> RunningPool:
        """A supervisor is on its way."""
        words = ("--executor", "docker", "--image", "img", "--grace", "0.3", *server, *flags)
        return self.yard.pool(*words, count=None, commands_only=True, environ=self.environ, failpoints=failpoints)

    def refused(self, *flags: str) -> str:
        """The one line that a start which makes no sense ends with."""
        told = self.covey("worker", "start", *flags)
        assert told.returncode == 2, told
        (line,) = told.stderr.strip().splitlines()
        return line

    def covey(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.yard.covey(), *words],
            env=self.yard.environ() | self.environ | {"COVEY_DB": self.yard.db},
            cwd=self.yard.home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    # ── the engine ──────────────────────────────────────────────────────────────────────────────────────────────────

    def calls(self, verb: str) -> list[list[str]]:
        try:
            lines = (self.home / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [call for call in map(json.loads, lines) if call[0] == verb]

    def containers(self) -> list[str]:
        return sorted(os.listdir(self.home / "containers"))

    def first_pid(self, name: str) -> int:
        """The pid of a container's first process, seen from here."""
        box = self.home / "containers" / name
        until(lambda: (box / "pid").exists(), 5, f"{name} runs")
        return int((box / "pid").read_text().split()[0])

    def docker(self, *words: str) -> str:
        return subprocess.run(
            [self.bin / "docker", *words], env=os.environ | self.environ, capture_output=True, text=True, check=True
        ).stdout

    def close(self) -> list[str]:
        """No container is left; the names of those that were."""
        left = self.containers()
        for name in left:
            self.docker("rm", "--force", name)
        return left


def told(dock: Dock, job: int) -> list[str]:
    """How the job was interrupted."""
    return [event.text or "" for event in dock.yard.engine.events(job) if event.kind == "interrupted"]


def state(dock: Dock, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dock.docker("inspect", name))[1]
    return found
