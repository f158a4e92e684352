"""Who is struck next, and how. Kinds and gaps come in the order of the seed; who is there to be found does not.

Nobody is struck twice: who was killed a moment ago may still be seen, and to pause or kill him again tests nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from covey.env import start_ticks
from covey.system import process_tree
from covey.testing.until import until

from .checks import PAUSE
from .deck import Deck
from .observer import Books

if TYPE_CHECKING:
    from tests.kit.postgres import Server

PAUSED_S = 2.5  # a lease is 1.5
STILL_S = 5.0  # a process that was told to stand still does so by then, or it is dying
GAP_S = (0.02, 0.2)  # between two strikes
DECK = {"pool": 3, "zygote": 2, "worker": 6, "command": 5, "client": 2, PAUSE: 1}
SERVED = {"server": 3}
ON_POSTGRES = {"session": 2, "backend": 1, "postgres": 1}
STANDS, GONE = {"T", "t"}, {"Z", "X", ""}  # states of a process
SESSIONS = "select pid from pg_stat_activity where application_name = 'covey' and pid <> pg_backend_pid()"


class Cast(Protocol):
    """Who can be struck: the processes that the run itself has started, by role, and who of them is ready."""

    def pids(self, role: str) -> list[int]: ...

    def is_over(self, role: str) -> bool: ...


class Killer:
    """``kinds``: only these are struck."""

    def __init__(
        self,
        cast: Cast,
        books: Books,
        seed: int,
        log: Path,
        postgres: Server | None,
        *,
        served: bool,
        kinds: Sequence[str] | None = None,
    ) -> None:
        self._cast, self._books, self._log, self._postgres = cast, books, log, postgres
        known = DECK | (SERVED if served else {}) | (ON_POSTGRES if postgres else {})
        # Dice of their own, so that the order of the cards does not depend on how often the others were thrown.
        self._deck = Deck({kind: count for kind, count in known.items() if kinds is None or kind in kinds}, seed)
        self._gaps, self._choices = (random.Random(f"{what} {seed}") for what in ("gaps", "choices"))
        self._card, self._begun = "", False
        self._struck: set[tuple[int, int]] = set()  # pid and ticks
        self._pauses: dict[int, subprocess.Popen[bytes]] = {}  # of whom → who wakes him
        self.strikes: Counter[str] = Counter()

    @property
    def kills(self) -> int:
        return self.strikes.total() - self.strikes[PAUSE]

    def gap_s(self) -> float:
        return self._gaps.uniform(*GAP_S)

    def strike(self) -> None:
        """The next card has been played if there was anybody to play it against."""
        self._begun = self._begun or bool(self._books.pools_at_work())
        if not self._begun:  # nobody to be found yet
            return
        self._card = self._deck.card(time.monotonic())
        if self._cast.is_over(self._card):
            self._deck.give_up()
        elif self._ways().get(self._card, self._kill)():
            self.strikes[self._card] += 1
            self._deck.played()

    def missed(self) -> Counter[str]:
        """What should have been struck, and nobody was there."""
        return self._deck.never_played()

    def close(self) -> None:
        """Everybody who was paused goes on."""
        for process in self._pauses.values():
            process.wait()

    def _ways(self) -> Mapping[str, Callable[[], bool]]:
        return {PAUSE: self._pause, "session": self._session, "backend": self._backend, "postgres": self._crash}

    # ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _kill(self) -> bool:
        """kill -9 of one process of the card's kind."""
        victim = self._choose(self._victims(self._card))
        if victim is not None:
            process_tree.send([victim], signal.SIGKILL)
        return victim is not None

    def _choose(self, victims: list[int]) -> int | None:
        living = {(pid, ticks) for pid in victims if (ticks := start_ticks(pid)) is not None}
        fresh = sorted(living - self._struck)
        if not fresh:
            return None
        victim, ticks = self._choices.choice(fresh)
        self._struck.add((victim, ticks))
        self._note(victim)
        return victim

    def _victims(self, kind: str) -> list[int]:
        if kind == "client":
            return self._cast.pids(kind)
        if kind == "server":
            return self._cast.pids(kind) if self._books.pools_at_work() else []  # one that nobody uses is no victim
        if kind == "pool":
            at_work = self._books.pools_at_work()
            return [pid for pid in self._cast.pids(kind) if pid in at_work and not self._is_paused(pid)]
        marked = process_tree.marked(f"{self._books.database_id}:")
        if kind == "command":
            return [pid for pid in marked if _is_command(pid)]
        zygotes = {row[0] for row in self._books.ask("select zygote_pid from {pools}")}
        return [pid for pid in marked if (pid in zygotes) == (kind == "zygote") and not _has_job(pid)]

    def _pause(self) -> bool:
        """A pool stands still for longer than its lease, and comes back stale. Who was dying is no victim."""
        victim = self._choose(self._victims("pool"))
        if victim is None:
            return False
        process_tree.send([victim], signal.SIGSTOP)
        with contextlib.suppress(AssertionError):
            until(lambda: _state(victim) in STANDS | GONE, STILL_S)
        if _state(victim) not in STANDS:
            process_tree.send([victim], signal.SIGCONT)
            return False
        self._struck.discard((victim, start_ticks(victim) or 0))  # once it is back, it may be struck again
        wake = f"sleep {PAUSED_S}; kill -CONT {victim} 2>&-"
        self._pauses[victim] = subprocess.Popen(["sh", "-c", wake])
        return True

    def _is_paused(self, pid: int) -> bool:
        return pid in self._pauses and self._pauses[pid].poll() is None

    # ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _session(self) -> bool:
        """One session is ended by the server, as an administrator or a proxy would."""
        return self._at_server(lambda db, pid: bool(db.execute("select pg_terminate_backend(%s)", [pid]).fetchall()))

    def _backend(self) -> bool:
        """kill -9 of one session's process: the server ends all of them and recovers."""

        def kill(_: Any, pid: int) -> bool:
            process_tree.send([pid], signal.SIGKILL)
            return True

        return self._at_server(kill)

    def _at_server(self, hit: Callable[[Any, int], bool]) -> bool:
        import psycopg

        assert self._postgres is not None
        with contextlib.suppress(psycopg.Error), self._postgres.admin() as db:
            victim = self._choose([row[0] for row in db.execute(SESSIONS).fetchall()])
            return victim is not None and hit(db, victim)
        return False

    def _crash(self) -> bool:
        """The whole server goes as in a crash, is away for a moment and comes back."""
        assert self._postgres is not None
        self._note(0)
        self._postgres.stop("immediate")
        time.sleep(self._choices.uniform(0, 0.5))
        self._postgres.start()
        return True

    def _note(self, pid: int) -> None:
        with open(self._log, "a") as log:
            log.write(f"{time.time():.3f} {self._card} {pid}\n")


def _state(pid: int) -> str:
    """As /proc has it; nothing if there is no such process."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(") ")[2][:1]
    return ""


def _has_job(pid: int) -> bool:
    """Whether its mark names a job: then it is a command or what one has started, else a zygote or a worker."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environ:
        for part in environ.read().split(b"\0"):
            if part.startswith(f"{process_tree.MARK}=".encode()):
                return part.split(b":")[2] != b"0"
    return True  # gone


def _is_command(pid: int) -> bool:
    """The shell that runs it, or a fork of that which is about to become something else."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
        return _has_job(pid) and os.getsid(pid) == os.getpgid(pid) and words.read().startswith(b"/bin/sh\0-c")
    return False
