"""covey worker unit: a systemd unit that runs a pool, on stdout."""

from __future__ import annotations

import math
import os
import re
import sys
from typing import Annotated

import typer

from ...errors import InvalidInput
from ..apps_queue import asked
from ..open_queue import database
from ..options import Db
from ..printing import answer
from ..worker_options import check_start
from .worker_start import App, Count, Grace, MaxJobs, MaxMemory, Name, Queues, Workers

SETTLE_S = 15  # after the grace: jobs are killed, and the database may take a while to hear of it
PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)  # words that mean to systemd what they say

System = Annotated[
    bool,
    typer.Option("--system/--user-unit", help="For the system's manager, as this user; else for the user's own."),
]


def unit(
    count: Count = None,
    worker: Workers = None,
    queue: Queues = None,
    app: App = None,
    grace: Grace = 10.0,
    name: Name = None,
    max_jobs: MaxJobs = None,
    max_memory: MaxMemory = None,
    system: System = False,
    db: Db = None,
) -> None:
    """Print a systemd unit that runs a pool with these options, from this directory, on this queue.

    The options are those of `covey worker start`. Nothing is installed or started.
    """
    check_start(count, worker, queue, app, grace, max_jobs, max_memory)
    path = _path_of(database(db) if app is None else asked(app, db))
    words = ["--db", path, "worker", "start"]
    for flag, value in (
        *(("--worker", each) for each in worker or ()),
        ("--count", count),
        *(("--queue", each) for each in queue or ()),
        ("--app", app),
        ("--grace", f"{grace:g}"),
        ("--name", name),
        ("--max-jobs", max_jobs),
        ("--max-memory", max_memory),
    ):
        # In one word, so that a value may begin with a dash.
        words += [f"{flag}={value}"] if value is not None else []
    answer(_unit(_executable(), words, description=f"Covey workers on {path}", grace_s=grace, system=system))


def _unit(executable: list[str], words: list[str], *, description: str, grace_s: float, system: bool) -> str:
    first, *rest = [*executable, *words]
    # Systemd takes the program itself as it stands; only in its arguments it looks for variables.
    command = " ".join([_quoted(first), *(_quoted(word, variables=True) for word in rest)])
    user = f"User={_user()}\n" if system else ""
    return f"""\
[Unit]
Description={_line(description)}
After={"local-fs.target" if system else "basic.target"}

[Service]
Type=exec
{user}WorkingDirectory={_line(os.getcwd())}
ExecStart={command}
# TERM goes to the pool alone, which lets its jobs finish for its grace; what is left after the time-out is killed.
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={math.ceil(grace_s) + SETTLE_S}
# A pool that was told to stop stays stopped; wrong usage, or an app that cannot be imported, does not mend by itself.
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
# The pool has a control group of its own, and a job that the kernel kills for its memory does not end the others.
Delegate=yes
OOMPolicy=continue
StandardOutput=journal
StandardError=journal

[Install]
WantedBy={"multi-user.target" if system else "default.target"}"""


def _executable() -> list[str]:
    """How to call this Covey from anywhere: the program beside this Python, else its module."""
    program = os.path.join(os.path.dirname(sys.executable), "covey")
    return [program] if os.access(program, os.X_OK) else [sys.executable, "-m", "covey"]


def _path_of(url: str) -> str:
    """The absolute path of the queue's file, which need not be there yet."""
    if url.removeprefix("sqlite://") == ":memory:" or url.startswith("memory:"):
        raise InvalidInput("a queue in memory ends with its process; name a file with --db")
    scheme, marker, rest = url.partition("://")
    if marker and scheme not in ("sqlite", "file"):
        raise InvalidInput(f"no database of the kind {scheme!r}; pass a path, or sqlite:///path")
    path = url if not marker else "/" + rest.lstrip("/") if rest.startswith("/") else rest
    return os.path.abspath(os.path.expanduser(path))


def _quoted(word: str, *, variables: bool = False) -> str:
    """A word of a command line. Systemd undoes quotes and escapes, then fills in specifiers and variables."""
    text = word.replace("%", "%%")
    if variables:
        text = text.replace("$", "$$")
    if PLAIN.fullmatch(text.replace("%", "").replace("$", "") or "?"):
        return text
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char, char) for char in _printable(text, but="\n\r\t")) + '"'


def _line(text: str) -> str:
    """A value to the end of its line: systemd takes it as it stands, but for specifiers."""
    if text != text.strip() or text.endswith("\\"):
        raise InvalidInput(f"{text!r} cannot be written into a unit; go to another directory, or name another file")
    return _printable(text).replace("%", "%%")


def _printable(text: str, but: str = "") -> str:
    for char in text:
        if (ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) < 0xE000) and char not in but:
            raise InvalidInput(f"{text!r} cannot be written into a unit: it has characters that are no text")
    return text


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
