"""`make mutation`: plants one small bug after the other in core/ and engine/ and shows each to the tests that run it.

Options are words like SAMPLE=600. The report says how many were noticed, by file, and lists those that were not.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from .forking import Ended, forked
from .operators import Mutant, mutants
from .planting import SOURCE, PlantedFile, loaded_functions, plant, read
from .suite import ROOT, Known, baseline, collected, noticed

WANTED = 85.0  # percent
ENOUGH_S = 10.0  # of tests, as the baseline took them, the likeliest first; who survives these is shown to more
MORE_S = 100.0  # a mutant that so many do not notice is said to survive
LIMITS = (signal.SIGALRM, signal.SIGPROF, signal.SIGSEGV)  # a test took far too long, or the interpreter broke
HOME = ROOT / ".mutation"


class Options:
    """Words of the command line.

    SAMPLE=n: so many, drawn by SEED, each file by its share. FILE=core/tree.py: of one file. ONLY=survived: those that
    the last run did not notice (untested: nor ran; new: that it did not come to). JOBS=n at a time. BASELINE=old: the
    tests have not changed. TESTS=path: these alone. NOTHING=1: plants nothing, so that every mutant must survive.
    """

    def __init__(self, words: Sequence[str]) -> None:
        given = {name: value for name, _, value in (word.partition("=") for word in words) if value}
        self.sample = int(given.pop("SAMPLE", 0))
        self.seed = int(given.pop("SEED", 1))
        self.file = given.pop("FILE", "")
        self.only = given.pop("ONLY", "")
        self.jobs = int(given.pop("JOBS", 2))
        self.baseline = given.pop("BASELINE", "")
        self.tests = given.pop("TESTS", "").split()
        self.nothing = bool(given.pop("NOTHING", ""))
        # A trial of the runner itself leaves alone what is known about the code.
        self.home = HOME / "trial" if self.tests or self.nothing else HOME
        self.results, self.known = self.home / "results.jsonl", self.home / "baseline.jsonl"
        if given:
            sys.exit(f"no such option: {', '.join(given)}; there are SAMPLE SEED FILE ONLY JOBS BASELINE TESTS NOTHING")


# ── which ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def everything() -> dict[str, list[Mutant]]:
    paths = sorted([*SOURCE.glob("core/*.py"), *SOURCE.glob("engine/*.py")])
    files = (str(path.relative_to(SOURCE)) for path in paths)
    return {file: found for file in files if (found := mutants(file, read(file)))}


def chosen(options: Options) -> list[Mutant]:
    """The mutants of this run: all, or a sample in which each file has its share."""
    files = everything()
    if options.file:
        files = {file: found for file, found in files.items() if file.startswith(options.file)}
    total = sum(len(found) for found in files.values())
    rng = Random(options.seed)
    share = min(1.0, options.sample / total) if options.sample and total else 1.0
    drawn = [mutant for found in files.values() for mutant in rng.sample(found, math.ceil(len(found) * share))]
    rng.shuffle(drawn)  # so that a run that is cut short is a sample too
    return drawn


def still_wanted(drawn: Sequence[Mutant], options: Options) -> list[Mutant]:
    """Those of which the last run said so; with `new` those that it did not come to."""
    last = {record["id"]: record["verdict"] for record in results(options.results)}
    return [mutant for mutant in drawn if not options.only or last.get(mutant.id, "new") == options.only]


# ── the tests ───────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(home: Path, options: Options) -> None:
    """The baseline says which tests there are and what they run."""

    def work(_: str) -> str:
        with options.known.open("w") as file:

            def say(known: Known) -> None:
                lines = {name: sorted(numbers) for name, numbers in known.lines.items()}
                file.write(json.dumps([known.test, round(known.seconds, 4), lines]) + "\n")

            collected(lambda items: baseline(items, home / "baseline", say), options.tests)
        return "done"

    pid = os.fork()
    if not pid:
        work("")
        os._exit(0)
    os.waitpid(pid, 0)


def known_tests(path: Path) -> dict[str, Known]:
    found = {}
    for text in path.read_text().splitlines():
        test, seconds, lines = json.loads(text)
        found[test] = Known(test, seconds, {file: set(numbers) for file, numbers in lines.items()})
    return found


class Choice:
    """Which tests a mutant is shown to, the likeliest to notice first."""

    def __init__(self, known: dict[str, Known]) -> None:
        self.known = known
        self.by_line: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.killers: dict[tuple[str, object], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        # Quick ones, and those that are about little: they say more about each line.
        self.worth = {test.test: test.seconds * sum(map(len, test.lines.values())) for test in known.values()}
        for test in known.values():
            for file, numbers in test.lines.items():
                for number in numbers:
                    self.by_line[file, number].append(test.test)

    def of(self, mutant: Mutant, limit_s: float) -> list[tuple[str, float]]:
        if mutant.function is None:
            tests = set(self.known)
            related = {test for test in tests if mutant.file in self.known[test].lines}
        else:
            first, last = mutant.lines
            tests = {test for line in range(first, last + 1) for test in self.by_line.get((mutant.file, line), ())}
            related = tests
        kills = self.killers[mutant.file, mutant.function]
        order = sorted(tests, key=lambda test: (-kills.get(test, 0), test not in related, self.worth[test]))
        spent = itertools.accumulate(self.known[test].seconds for test in order)
        return [(test, self.known[test].seconds) for test, s in zip(order, spent, strict=True) if s <= limit_s]

    def killed(self, mutant: Mutant, test: str) -> None:
        self.killers[mutant.file, mutant.function][test] += 1


# ── planting ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Run:
    def __init__(self, options: Options, choice: Choice, home: Path, file: Any) -> None:
        self.options, self.choice, self.home, self.file = options, choice, home, file
        self.done, self.survived, self.began = 0, 0, time.monotonic()
        self.limit_s = ENOUGH_S

    def both(self, wanted: Sequence[Mutant]) -> None:
        if inside := [mutant for mutant in wanted if mutant.function is not None]:
            pid = os.fork()  # what it imports must not be there when files are planted
            if not pid:
                self.functions(inside)
                os._exit(0)
            os.waitpid(pid, 0)
        self.files([mutant for mutant in wanted if mutant.function is None])

    def functions(self, wanted: Sequence[Mutant]) -> None:
        """Mutants inside functions: everything is imported and collected once, then forked and changed in memory."""

        def in_order(items: dict[str, pytest.Item]) -> None:
            functions = loaded_functions()

            def work(mutant: Mutant) -> str:
                tests = [(items[name], s) for name, s in self.choice.of(mutant, self.limit_s) if name in items]
                if not tests:
                    return "untested"
                if not self.options.nothing:
                    plant(mutant, functions)
                return _verdict(noticed(tests, self.home / f"p{os.getpid()}"))

            self.all(work, wanted)

        collected(in_order, self.options.tests)

    def files(self, wanted: Sequence[Mutant]) -> None:
        """Mutants of what runs at import: forked before anything of ours is imported."""

        def work(mutant: Mutant) -> str:
            said = ["killed at import"]
            chosen = self.choice.of(mutant, self.limit_s)
            if not self.options.nothing:
                PlantedFile(mutant).plant()

            def show(items: dict[str, pytest.Item]) -> None:
                tests = [(items[name], seconds) for name, seconds in chosen if name in items]
                said[0] = _verdict(noticed(tests, self.home / f"p{os.getpid()}"))

            collected(show, {name.partition("::")[0] for name, _ in chosen})
            return said[0]

        self.all(work, wanted)

    def all(self, work: Callable[[Mutant], str], wanted: Sequence[Mutant]) -> None:
        for mutant, ended in forked(work, wanted, self.options.jobs):
            self.note(mutant, ended)

    def note(self, mutant: Mutant, ended: Ended) -> None:
        word, _, by = ended.said.partition(" ")
        verdict = {"": "timeout" if ended.signal in LIMITS else "broken", "!": "broken"}.get(word, word)
        if verdict == "killed" and by != "at import":
            self.choice.killed(mutant, by)
        self.done += 1
        self.survived += verdict in ("survived", "untested", "broken")
        record = {"id": mutant.id, "file": mutant.file, "line": mutant.line, "verdict": verdict, "by": by}
        record |= {"operator": mutant.operator, "seconds": round(ended.seconds, 2), "signal": ended.signal}
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        if verdict in ("untested", "broken") or (verdict == "survived" and self.limit_s == MORE_S):
            print(f"{verdict:8} {mutant.id}" + (f"\n{by}" if verdict == "broken" else ""), flush=True)
        if self.done % 100 == 0:
            print(f"… {self.done} in {time.monotonic() - self.began:.0f} s, {self.survived} not noticed", flush=True)


def _verdict(test: str | None) -> str:
    return "survived" if test is None else f"killed {test}"


# ── what came out ───────────────────────────────────────────────────────────────────────────────────────────────────


def results(path: Path) -> Iterator[dict[str, Any]]:
    """The last word about each mutant."""
    last: dict[str, dict[str, Any]] = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(text)
        last[record["id"]] = record
    yield from last.values()


def interval(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, in percent."""
    z, p = 1.96, hits / n
    centre, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 100 * (centre - spread) / (1 + z * z / n), 100 * (centre + spread) / (1 + z * z / n)


def report(path: Path, wanted: Sequence[Mutant], whole: int) -> float:
    ids = {mutant.id for mutant in wanted}
    table: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for record in results(path):
        if record["id"] in ids:
            table[record["file"]][record["verdict"]] += 1
            table["all"][record["verdict"]] += 1
    print(f"\n{'file':24} {'mutants':>8} {'killed':>7} {'timeout':>8} {'survived':>9} {'untested':>9} {'score':>7}")
    for file in [*sorted(set(table) - {"all"}), "all"]:
        row = table[file]
        n, killed = sum(row.values()), row["killed"] + row["timeout"]
        counts = f"{n:8} {row['killed']:7} {row['timeout']:8} {row['survived'] + row['broken']:9} {row['untested']:9}"
        print(f"{file:24} {counts} {100 * killed / n:6.1f} %")
    n = sum(table["all"].values())
    hits = table["all"]["killed"] + table["all"]["timeout"]
    if n < whole:
        low, high = interval(hits, n)
        print(f"{n} of {whole} mutants, drawn by chance: the score of all is between {low:.1f} and {high:.1f} % (95 %)")
    return 100 * hits / n


@contextlib.contextmanager
def one_postgres() -> Iterator[None]:
    """All forks share a PostgreSQL server, each with a schema of its own: a fork that is ended leaves none behind.

    It has a keeper, a process of its own: Covey must not be imported here when mutants of files are planted.
    """
    if os.environ.get("COVEY_TEST_POSTGRES"):
        yield
        return
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.mutation.keeper"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    os.environ["COVEY_TEST_POSTGRES"] = keeper.stdout.readline().strip()
    try:
        yield
    finally:
        keeper.stdin.close()
        keeper.wait()


def main() -> int:
    options = Options(sys.argv[1:])
    os.chdir(ROOT)
    options.home.mkdir(parents=True, exist_ok=True)
    drawn = chosen(options)
    wanted = still_wanted(drawn, options)
    whole = sum(len(found) for found in everything().values())
    with (
        one_postgres(),
        tempfile.TemporaryDirectory(prefix="covey-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as temp,
    ):
        if options.baseline != "old" or not options.known.exists():
            began = time.monotonic()
            measure(Path(temp), options)
            print(f"baseline: {len(known_tests(options.known))} tests in {time.monotonic() - began:.0f} s", flush=True)
        if not options.only:
            options.results.unlink(missing_ok=True)
        with options.results.open("a") as file:
            run = Run(options, Choice(known_tests(options.known)), Path(temp), file)
            print(f"{len(wanted)} of {whole} mutants", flush=True)
            if options.only != "survived":
                run.both(wanted)
            survived = {record["id"] for record in results(options.results) if record["verdict"] == "survived"}
            run.limit_s = MORE_S
            run.both([mutant for mutant in wanted if mutant.id in survived])
    return 0 if report(options.results, drawn, whole) >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
