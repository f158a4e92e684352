"""Plays the command line of docker: a container is a process, with a pid namespace of its own where that may be had.

What it is asked is kept in $FAKE_DOCKER/calls, one JSON list a line. Files in $FAKE_DOCKER steer it:

  fail-VERB     that verb says the file's text and exits 1; `fail-start` fails after the container was created
  slow-VERB     that verb takes so many seconds
  oom           containers whose process was killed say OOMKilled
  database      containers work on this database instead of the server that they were told
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ["FAKE_DOCKER"])
BOXES = HOME / "containers"
CLONE_NEWPID = 0x20000000
VALUES = {
    *("--name", "--label", "--pull", "--add-host", "--user", "--userns", "--memory", "--memory-swap", "--cpus"),
    *("--mount", "--entrypoint", "--network", "--filter", "--format", "--signal", "--tail", "--type", "--last"),
}


def main(args: list[str]) -> int:
    with open(HOME / "calls", "a") as calls:
        calls.write(json.dumps(args) + "\n")
    verb = args[0]
    told = _told(f"slow-{verb}")
    if told:
        time.sleep(float(told))
    if (told := _told(f"fail-{verb}")) is not None:
        return _refuse(told)
    options, words = _parse(args[1:])
    match verb:
        case "ps":
            wanted = [label.removeprefix("label=") for label in options.get("--filter", [])]
            for box in _boxes():
                runs = (box / "pid").exists() and not (box / "exit").exists()
                if ("--all" in options or runs) and all(label in _meta(box)["labels"] for label in wanted):
                    print(box.name)
        case "inspect":
            return max([_inspect(name) for name in words], default=0)
        case "run":
            return _run(options, words)
        case "kill":
            number = signal.Signals[f"SIG{options['--signal'][0]}"]
            return max([_kill(name, number) for name in words], default=0)
        case "rm":
            return max([_remove(name) for name in words], default=0)
        case "logs":
            with contextlib.suppress(OSError):
                print((BOXES / words[0] / "log").read_text().strip().rpartition("\n")[2])
        case "events":
            _events()
        case "image":
            if _told("no-image") is not None:
                return _refuse(f"Error: No such image: {words[-1]}")
            print(_told("image-user") or "")
        case "network":
            print(_told("gateway") or "127.0.0.2")
        case _:
            return _refuse(f"unknown command {verb}")
    return 0


def _parse(args: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    options: dict[str, list[str]] = {}
    args = list(args)
    while args and args[0].startswith("-"):
        name = args.pop(0)
        options.setdefault(name, []).append(args.pop(0) if name in VALUES else "")
    return options, args


def _told(name: str) -> str | None:
    try:
        return (HOME / name).read_text().strip()
    except OSError:
        return None


def _refuse(text: str) -> int:
    print(text, file=sys.stderr)
    return 1


# ── containers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _boxes() -> list[Path]:
    return sorted(BOXES.iterdir())


def _meta(box: Path) -> dict[str, list[str]]:
    try:
        found: dict[str, list[str]] = json.loads((box / "meta").read_text())
        return found
    except OSError:
        return {"labels": []}


def _run(options: dict[str, list[str]], words: list[str]) -> int:
    if options["--entrypoint"] == ["id"]:
        print(_told("image-uid"))
        return 0
    box = BOXES / options["--name"][0]
    box.mkdir()
    meta = {"labels": options["--label"], "options": options, "words": words}
    (box / "meta.new").write_text(json.dumps(meta))
    os.rename(box / "meta.new", box / "meta")
    if (told := _told("hang-start")) is not None:
        time.sleep(float(told))
    if (told := _told("fail-start")) is not None:
        (box / "error").write_text(told)
        return _refuse(told)
    command = [*options["--entrypoint"], *words[1:]]
    if database := _told("database"):
        command[command.index("--db") + 1] = database
        if "--token-file" in command:
            at = command.index("--token-file")
            del command[at : at + 2]
    for mount in options.get("--mount", []):
        parts = dict(part.partition("=")[::2] for part in mount.split(","))
        command = [parts["source"] if word == parts["target"] else word for word in command]
    (box / "tmp").mkdir()  # what it leaves there goes with it
    with open(box / "log", "wb") as log:
        subprocess.Popen(
            [sys.executable, __file__, "--shim", str(box), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"TMPDIR": str(box / "tmp")},
        )
    while not (box / "pid").exists():
        time.sleep(0.005)
    print(box.name)
    return 0


def _shim(box: Path, command: list[str]) -> None:
    """Waits for the container's process, as the engine does."""
    if os.getuid() == 0:  # as in a container: nobody outside knows its pids, and all end with the first
        assert ctypes.CDLL(None).unshare(CLONE_NEWPID) == 0
        command = ["unshare", "--mount-proc", *command]
    inner = subprocess.Popen(command, start_new_session=True)
    (box / "pid.new").write_text(f"{inner.pid} {_ticks(inner.pid)}")
    os.rename(box / "pid.new", box / "pid")
    status = inner.wait()
    code = status if status >= 0 else 128 - status
    with contextlib.suppress(OSError):
        if code == 137 and _told("oom") is not None:
            (box / "oom").touch()
        (box / "exit.new").write_text(str(code))
        os.rename(box / "exit.new", box / "exit")


def _ticks(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(") ")[2].split()[19]


def _send(box: Path, number: int) -> None:
    """The container's first process has the signal, if it lives: its pid may be another's by now."""
    with contextlib.suppress(OSError):
        pid, ticks = (box / "pid").read_text().split()
        if _ticks(int(pid)) == ticks:
            os.kill(int(pid), number)


def _inspect(name: str) -> int:
    box = BOXES / name
    if not (box / "meta").exists():
        return _refuse(f"Error: No such container: {name}")
    ended = (box / "exit").exists()
    state = {
        "Status": "exited" if ended else "running" if (box / "pid").exists() else "created",
        "ExitCode": int((box / "exit").read_text()) if ended else 0,
        "OOMKilled": (box / "oom").exists(),
        "Error": (box / "error").read_text() if (box / "error").exists() else "",
    }
    labels = dict(label.split("=", 1) for label in _meta(box)["labels"])
    print(json.dumps([f"/{name}", state, labels]))
    return 0


def _kill(name: str, number: int) -> int:
    box = BOXES / name
    if not (box / "pid").exists() or (box / "exit").exists():
        return _refuse(f"Error: Container {name} is not running")
    _send(box, number)
    return 0


def _remove(name: str) -> int:
    box = BOXES / name
    if not box.exists():
        return _refuse(f"Error: No such container: {name}")
    deadline = time.monotonic() + 10
    while (box / "pid").exists() and not (box / "exit").exists() and time.monotonic() < deadline:
        _send(box, signal.SIGKILL)
        time.sleep(0.005)
    try:
        shutil.rmtree(box)
    except OSError:
        return _refuse(f"Error: removal of container {name} is already in progress")
    return 0


def _events() -> None:
    """A line whenever something has changed, as long as somebody listens."""
    before = None
    while True:
        now = [(box.name, sorted(os.listdir(box))) for box in _boxes() if box.is_dir()]
        if before not in (None, now):
            print("changed", flush=True)
        before = now
        if os.getppid() == 1 or _told("deaf") is not None:
            time.sleep(1000) if os.getppid() != 1 else sys.exit()
        time.sleep(0.05)


if __name__ == "__main__":
    if sys.argv[1] == "--shim":
        _shim(Path(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1:]))
