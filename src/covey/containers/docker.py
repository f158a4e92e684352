"""The command line of a container engine, docker or podman: containers are started, listed, signalled, removed.

Only what both understand in the same way is used. Output is asked for in formats of our own, so that no table is
parsed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from ..errors import ContainerError, InvalidInput

ENGINES = ("docker", "podman")
PATIENCE_S = 60.0  # for one command; an engine that takes longer is as good as gone
FORMAT = "[{{json .Name}},{{json .State}},{{json .Config.Labels}}]"
ENDED = ("exited", "dead", "stopped")


class Container(Struct, frozen=True):
    """A container as the engine describes it."""

    name: str
    status: str  # created, running, paused, restarting, removing, exited, dead
    exit_code: int
    oom_killed: bool
    error: str
    labels: dict[str, str]

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    def exit_reason(self, *, had_oom: bool = False) -> str:
        """How it ended, in words for the job that it ran. ``had_oom``: it was known before that memory had run out."""
        if self.error:
            return f"its container could not start: {self.error}"
        if self.oom_killed and not had_oom and self.exit_code == 128 + signal.SIGKILL:
            return "its container ran out of memory (OOM-killed)"
        # The engine remembers an OOM kill of any process inside, also if the pool has survived it.
        earlier = "; a process in it had been killed for lack of memory" if self.oom_killed else ""
        if self.exit_code > 128:
            try:
                return f"its container was killed by {signal.Signals(self.exit_code - 128).name}{earlier}"
            except ValueError:
                pass
        return f"its container exited with code {self.exit_code}{earlier}"


class Docker:
    """``program`` is the engine's command line, by name or path."""

    def __init__(self, program: str, *, patience_s: float = PATIENCE_S) -> None:
        self.program, self._patience_s = program, patience_s
        self.is_podman = os.path.basename(program) == "podman"

    @classmethod
    def find(cls, executor: str) -> Docker:
        """The named one, or for `container` whichever is there; one clear line if there is none or it does not run."""
        names = ENGINES if executor == "container" else (executor,)
        found = [name for name in names if shutil.which(name)]
        if not found:
            raise InvalidInput(f"--executor {executor}: no {' or '.join(names)} on PATH; install it first")
        failures = []
        for name in found:
            engine = cls(name)
            try:
                engine._ask("ps", "--quiet", "--last", "1")
                return engine
            except ContainerError as error:
                failures.append(str(error))
        raise InvalidInput(f"--executor {executor}: {'; '.join(failures)}")

    # ── images and networks ─────────────────────────────────────────────────────────────────────────────────────────

    def image_user(self, image: str) -> str | None:
        """The user that the image runs as, "" for root; None if the image is not here."""
        try:
            return self._ask("image", "inspect", "--format", "{{.Config.User}}", image).strip()
        except ContainerError as error:
            if "no such" in str(error).lower() or "not known" in str(error).lower():
                return None
            raise

    def pull(self, image: str) -> None:
        """The image is here; progress goes to standard error. However long that takes."""
        if subprocess.run([self.program, "pull", "--quiet", image], stdin=subprocess.DEVNULL, stdout=2).returncode:
            raise InvalidInput(f"--image {image}: not here and cannot be pulled; build or load it first")

    def user_id(self, image: str, user: str) -> int:
        """The number of the image's user."""
        name = user.partition(":")[0]
        if not name or name.isdecimal():
            return int(name or 0)
        asked = self._ask("run", "--rm", "--network", "none", "--entrypoint", "id", image, "-u")
        return int(asked.strip())

    def gateway(self) -> str | None:
        """This host's address as containers of the default network see it; None if the engine does not say."""
        network = "podman" if self.is_podman else "bridge"
        form = (
            "{{range .Subnets}}{{.Gateway}} {{end}}" if self.is_podman else "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
        )
        try:
            words = self._ask("network", "inspect", "--format", form, network).split()
        except ContainerError:
            return None
        return next((word for word in words if "." in word), None)

    # ── containers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, arguments: Sequence[str]) -> None:
        """A container has been started; ContainerError says why not. What could only be created may be left."""
        self._ask("run", "--detach", *arguments)

    def containers(self, label: str) -> list[Container]:
        """All that carry the label, in whatever state."""
        ids = self._ask("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}").split()
        if not ids:
            return []
        # One that is gone meanwhile makes it fail, and the others are told all the same.
        told = self._call("inspect", "--type", "container", "--format", FORMAT, *ids)
        if told.returncode and not re.search("no such (container|object)", told.stderr, re.I):
            raise ContainerError(f"{self.program} cannot tell of its containers: {_last_line(told.stderr)}")
        return [_container(*json.loads(line)) for line in told.stdout.splitlines() if line.startswith("[")]

    def send(self, names: Iterable[str], number: signal.Signals) -> None:
        """Those that run have the signal."""
        if names := list(names):
            self._call("kill", "--signal", number.name.removeprefix("SIG"), *names)

    def remove(self, names: Iterable[str]) -> None:
        """They are gone, running or not; who is gone already is no fault."""
        for name in names:
            told = self._call("rm", "--force", "--volumes", name)
            # "No such container" or "removal is already in progress": somebody was faster.
            if told.returncode and not re.search("no such container|already in progress", told.stderr, re.I):
                raise ContainerError(f"{self.program} cannot remove {name}: {_last_line(told.stderr)}")

    def last_words(self, name: str) -> str:
        """The last line that it said."""
        told = self._call("logs", "--tail", "1", name)
        return _last_line(told.stdout + told.stderr)

    def watch(self, label: str) -> subprocess.Popen[bytes]:
        """A process that prints a line whenever such a container starts or ends: a hint to look."""
        return subprocess.Popen(
            [self.program, "events", "--filter", f"label={label}", "--format", "{{.Status}}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us
        )

    # ── the command line ────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, *words: str) -> str:
        told = self._call(*words)
        if told.returncode:
            raise ContainerError(f"{self.program} {words[0]}: {_last_line(told.stderr) or f'exit {told.returncode}'}")
        return told.stdout

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self.program, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=self._patience_s,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise ContainerError(f"{self.program} {words[0]} did not answer within {self._patience_s:g} s") from None
        except OSError as error:
            raise ContainerError(f"{self.program} cannot be run: {error.strerror or error}") from None


def _container(name: str, state: dict[str, Any], labels: dict[str, str] | None) -> Container:
    return Container(
        name=name.lstrip("/"),
        status=str(state.get("Status", "")).lower(),
        exit_code=int(state.get("ExitCode") or 0),
        oom_killed=bool(state.get("OOMKilled")),
        error=_last_line(str(state.get("Error") or "")),
        labels=labels or {},
    )


def _last_line(text: str) -> str:
    """Of what a program said: usually the reason. `docker run` ends with advice, which is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "--help" not in line]
    return lines[-1][-300:] if lines else ""
