"""`make mutants-processes`: bugs planted in what keeps processes together, each found by the tests of real pools.

What families, the zygote and workers do happens in other processes than the test's, so nothing can be planted in
memory: each bug is written into a copy of the source, and the tests run in an environment with that copy installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from covey.system import process_tree

ROOT = Path(__file__).parents[2]
PACKAGES = Path(sys.prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


TRIES = 3


class Planted(NamedTuple):
    name: str
    file: str  # under src/covey
    good: str  # stands there exactly once
    bad: str
    test: str  # under tests
    only: str = ""


BUGS = [
    Planted(
        "nobody is a subreaper",
        "system/process_tree.py",
        "prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)",
        "prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)",
        "processes/test_families.py",
        "a_daemon",
    ),
    Planted(
        "only process groups of the command are ended",
        "system/process_tree.py",
        "return [pid for pid in descendants(os.getpid(), keep) if start_ticks(pid) is not None]",
        "mine, living = children(os.getpid()), descendants(os.getpid(), keep)\n"
        "    return [pid for pid in living if start_ticks(pid) is not None and os.getpgid(pid) in mine]",
        "processes/test_families.py",
        "a_daemon",
    ),
    Planted(
        "a frozen family is not thawed after its TERM",
        "system/process_tree.py",
        "    send(list(frozen), signal.SIGCONT)\n",
        "",
        "processes/test_families.py",
        "clean_up",
    ),
    Planted(
        "who ignores TERM is not killed",
        "system/process_tree.py",
        "immune.update(send(left, signal.SIGKILL))",
        "immune.update(send(left, signal.SIGTERM))",
        "processes/test_families.py",
        "ignores_term",
    ),
    Planted(
        "the kernel is not asked to end a function with its pool",
        "system/process_tree.py",
        "os.O_NONBLOCK | os.O_ASYNC",
        "os.O_NONBLOCK",
        "processes/test_lost.py",
        "nothing_survives",
    ),
    Planted(
        "marks are looked for, but nothing below them",
        "system/process_tree.py",
        "dict.fromkeys([*found, *(below for pid in found for below in descendants(pid))])",
        "dict.fromkeys(found)",
        "processes/test_lost.py",
        "empty_environment",
    ),
    Planted(
        "a pool is known by its pid alone",
        "pool/reaper.py",
        "not alive(pool.pid, pool.ticks)",
        "start_ticks(pool.pid) is None",
        "processes/test_lost.py",
        "stale_row",
    ),
    Planted(
        "the zygote does not bury its children",
        "worker/zygote.py",
        "                    pass\n            self._bury()",
        "                    pass",
        "processes/test_poison.py",
        "killed_from_outside",
    ),
    Planted(
        "the zygote leaves alone what a dead worker left",
        "worker/zygote.py",
        "            for pid in strangers:\n"
        "                process_tree.send([pid, *process_tree.descendants(pid)], signal.SIGKILL)\n",
        "            break\n",
        "processes/test_poison.py",
        "takes_its_family",
    ),
    Planted(
        "the zygote goes without ending what is below it",
        "worker/zygote.py",
        "            process_tree.end_all(grace_s=0)",
        "            pass",
        "processes/test_lost.py",
        "workers_that_cannot_notice",
    ),
    Planted(
        "a worker keeps the zygote's socket open",
        "worker/zygote.py",
        "                self._control.close()\n",
        "",
        "processes/test_lost.py",
        "killed_while_idle",
    ),
    Planted(
        "nobody stands above the zygote",
        "worker/zygote_guard.py",
        "            process_tree.end_all(grace_s=0)\n",
        "            pass\n",
        "processes/test_zygote.py",
        "outlive",
    ),
    Planted(
        "the guard goes as soon as the zygote is killed",
        "worker/zygote_guard.py",
        "            if code >= 0:\n",
        "            if True:\n",
        "processes/test_zygote.py",
        "outlive",
    ),
    Planted(
        "a frozen zygote is waited for",
        "pool/zygote_client.py",
        "            self._process.kill()  #",
        "            pass  #",
        "processes/test_zygote.py",
        "below_a_frozen",
    ),
    Planted(
        "a worker's end is left to its zygote to tell",
        "pool/zygote_client.py",
        "                self._pool.watch(worker.handle, partial(self._on_gone, worker))",
        "                pass",
        "processes/test_zygote.py",
        "below_a_frozen",
    ),
    Planted(
        "what is kept in the background is heard no more",
        "worker/command_worker.py",
        "                self._drains.append(reader)",
        "                os.close(reader)",
        "processes/test_kept.py",
        "may_write_on",
    ),
    Planted(
        "a command has its worker's descriptors",
        "worker/command_worker.py",
        "err_reader, err_writer = os.pipe2(os.O_CLOEXEC)",
        "err_reader, err_writer = os.pipe2(0)",
        "processes/test_commands.py",
        "a_command",
    ),
    Planted(
        "a command is started with TERM blocked",
        "worker/command_worker.py",
        "setsigmask=[]",
        "setsigmask=[signal.SIGTERM]",
        "processes/test_commands.py",
        "no_signal_is_blocked",
    ),
    Planted(
        "a worker does not die with its pool",
        "worker/main.py",
        "        process_tree.die_with(config.lifeline)",
        "        pass",
        "processes/test_lost.py",
        "nothing_survives",
    ),
    Planted(
        "an async worker hears of its pool's end in its loop alone",
        "worker/async_worker.py",
        'threading.Thread(target=self._end_with_pool, name="covey-lifeline", daemon=True).start()',
        "loop.add_reader(self._link.reports, self._end_with_pool)",
        "processes/test_lost.py",
        "nothing_survives",
    ),
]


def install(home: Path) -> Path:
    """An environment like ours, with a copy of the source in place of the source: its interpreter."""
    shutil.copytree(ROOT / "src", home / "src")
    packages = home / PACKAGES.relative_to(sys.prefix)
    packages.mkdir(parents=True)
    for each in PACKAGES.iterdir():
        if "editable_impl_covey" in each.name:
            (packages / each.name).write_text(str(home / "src"))
        else:
            (packages / each.name).symlink_to(each)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", home / "pyvenv.cfg")
    (home / "bin").mkdir()
    for name in ("python", "python3"):
        (home / "bin" / name).symlink_to(Path(sys._base_executable))  # type: ignore[attr-defined]
    return home / "bin" / "python"


def passes(python: Path, test: str, only: str) -> bool:
    """Whether these tests pass there, once in three tries: they have deadlines that a busy machine may miss."""
    return any(_passes(python, test, only) for _ in range(TRIES))


def _passes(python: Path, test: str, only: str) -> bool:
    """Nothing of them is left, whatever the bug lets live."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
    environ["COVEY_PROOF"] = "full"  # else some tests run on PostgreSQL only, which cannot be started from the copy
    chosen = f"{only or 'test'} and not postgres"
    words = [str(python), "-m", "pytest", "-x", "-q", "-p", "no:xdist", f"tests/{test}", "-k", chosen]
    done = subprocess.run(
        words, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False
    )
    process_tree.end_all(grace_s=0)
    if done.returncode not in (0, 1):
        sys.exit(f"{test} -k {only} could not be run:\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def show(title: str, verdict: str, seconds: float, test: str) -> None:
    print(f"{title:58} {verdict:9} {seconds:5.0f} s  {test}", flush=True)


def main() -> int:
    process_tree.become_subreaper()
    wanted = [bug for bug in BUGS if all(word in bug.name for word in sys.argv[1:])]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="covey-") as temp:
        python = install(Path(temp))
        for test, only in dict.fromkeys((bug.test, bug.only) for bug in wanted):
            began = time.monotonic()
            if not passes(python, test, only):
                sys.exit(f"tests/{test} -k {only} fails without any bug; nothing is proved")
            show("nothing", "passes", time.monotonic() - began, f"{test} -k {only}")
        for bug in wanted:
            file = Path(temp, "src", "covey", bug.file)
            source = file.read_text()
            if source.count(bug.good) != 1:
                sys.exit(f"{bug.name}: what it changes is no longer in {bug.file} exactly once; look what it is now")
            began = time.monotonic()
            file.write_text(source.replace(bug.good, bug.bad))
            caught = not passes(python, bug.test, bug.only)
            file.write_text(source)
            survived += not caught
            show(bug.name, "caught" if caught else "SURVIVED", time.monotonic() - began, f"{bug.test} -k {bug.only}")
    print(f"{len(wanted) - survived} of {len(wanted)} caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
