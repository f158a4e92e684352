"""What a command leaves in the background on request, and what becomes of its output."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from covey.testing import until
from covey.worker.command_worker import MOST_DRAINS
from tests.kit.running import Yard, descriptors, gone

TALKS = """sh -c 'trap "echo killed by PIPE >>heard" PIPE
echo $$ >>kept; until test -e enough; do echo line; echo word >&2; echo wrote >>wrote; sleep 0.02; done
echo out >>kept' &
until test -e wrote; do sleep 0.01; done"""


def test_what_is_kept_in_the_background_may_write_on_after_its_job_has_completed(yard: Yard) -> None:
    """While its worker has nothing to do, and while it runs others."""
    yard.pool(count=1, commands_only=True).started()
    (job,) = yard.completes(yard.shell(TALKS, keep_background=True))
    assert set(yard.attempt(job.id).stdout.splitlines()) == {"line"}
    pid = yard.pid_in("kept")
    wrote = len(yard.traces("wrote"))
    yard.trace("wrote", wrote + 10)
    before = len(yard.traces("wrote"))
    yard.completes(yard.shell(f"until test $(wc -l <wrote) -gt {before + 10}; do sleep 0.02; done"))
    yard.completes(*yard.shells(["true", "sleep 1000 & true", "echo x"]))
    wrote = len(yard.traces("wrote"))
    yard.trace("wrote", wrote + 10)
    assert not gone(pid)
    (yard.home / "enough").touch()
    assert yard.trace("kept", 2)[1] == "out"
    assert yard.traces("heard") == []


def test_what_is_kept_is_not_held_up_however_much_it_writes(yard: Yard) -> None:
    """Far more than a pipe holds; and the worker keeps nothing of it."""
    pool = yard.pool(count=1, commands_only=True).started()
    (worker,) = pool.workers()
    before = _pipes(worker)
    script = "(head -c 20000000 /dev/zero; echo done >>kept) & true"
    yard.completes(yard.shell(script, keep_background=True))
    yard.trace("kept")
    until(lambda: _pipes(worker) == before, 10, "the pipes are closed when nobody writes any more")
    yard.completes(yard.shell("true"))


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_is_kept_ends_with_its_pool(yard: Yard, how: str) -> None:
    pool = yard.pool(count=1, commands_only=True).started()
    yard.completes(yard.shell(TALKS, keep_background=True))
    pid = yard.pid_in("kept")
    (pool.stop if how == "stop" else pool.kill)()
    until(lambda: gone(pid), 5, "it is gone")


def test_a_worker_hears_no_more_of_those_that_it_keeps_than_it_can(yard: Yard) -> None:
    """The eldest go unheard; commands can be started all the same."""
    pool = yard.pool(count=1, commands_only=True).started()
    yard.completes(*yard.shells(["sleep 1000 & true"] * (MOST_DRAINS // 2 + 5), keep_background=True), within_s=60)
    (worker,) = pool.workers()
    assert descriptors(worker) < MOST_DRAINS + 40
    yard.completes(yard.shell("true"))
    os.kill(worker, signal.SIGKILL)


def _pipes(worker: int) -> list[str]:
    links: list[str] = []
    for fd in os.listdir(f"/proc/{worker}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(f"/proc/{worker}/fd/{fd}"))
    return sorted(link for link in links if link.startswith("pipe:"))
