"""make mutants: bugs are planted one by one, and each must be found by the checks that are there for it.

    python -m tools.torture.mutants [NAME…]

First the harness runs as it is and must find nothing: a checker that always shouts would find every mutant too.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from .checks import Findings
from .run import LEASE_S, Torture

JOBS = 160
STILL_S = 6.0


class Mutant(Struct, frozen=True):
    """``caught_by``: the checks that are there for it; others may find it too. ``seeds``: tried until it is caught.

    ``kinds``: only these are struck, where the death of others would hide it.
    """

    about: str
    caught_by: tuple[str, ...]
    served: bool = False
    kills: int = 8
    seeds: tuple[int, ...] = (3, 4, 5)
    lease_s: float = LEASE_S
    kinds: tuple[str, ...] | None = None


MUTANTS = {
    "no_fence": Mutant("what a stale run reports is written", ("steps and fences",)),
    "early_answer": Mutant("clients are answered before the commit", ("lost",)),
    "counted_late": Mutant("an attempt counts when it ends, not when it begins", ("attempts",)),
    "uncounted": Mutant("no attempt is counted", ("attempts",)),
    "group_only": Mutant("commands are ended by process group only", ("processes left",)),
    "deferred_begin": Mutant("a deferred BEGIN, without the gate", ("errors told to clients",)),
    "live_copy": Mutant("a backup copies the file of the living database", ("backups",)),
    # Only servers: a pool that is killed, or given up for its silence, forgets with its jobs its bug.
    "forgetful": Mutant(
        "over HTTP, reports without an answer are not told again",
        ("stranded",),
        served=True,
        kills=2,
        lease_s=60,
        kinds=("server",),
    ),
}
NONE = Mutant("nothing", ())


def hunt(name: str, seed: int, jobs: int = JOBS) -> Findings:
    """What a short run with this bug in it finds."""
    mutant = MUTANTS.get(name, NONE)
    with tempfile.TemporaryDirectory(prefix="covey-mutant-") as directory:
        torture = Torture(
            Path(directory),
            seed=seed,
            jobs=jobs,
            kills=mutant.kills,
            mutants=name.split(),
            still_s=STILL_S,
            lease_s=mutant.lease_s,
            kinds=mutant.kinds,
            served=mutant.served,
        )
        return torture.run()


def caught(name: str, found: Findings) -> dict[str, list[str]]:
    """The checks that are there for this mutant and have found something."""
    return {check: found.checks[check] for check in MUTANTS[name].caught_by if found.checks[check]}


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in MUTANTS]
    if unknown:
        print(f"mutants: no mutant {unknown[0]!r}; known: {', '.join(MUTANTS)}", file=sys.stderr)
        return 2
    print("| mutant | what is wrong | caught by | after | for example |\n|---|---|---|---:|---|")
    sound = True
    began = time.monotonic()
    problems = hunt("", 3).problems
    print(f"| none | nothing | {'**' + problems[0] + '**' if problems else '–'} | {time.monotonic() - began:.0f} s | |")
    for name in names or MUTANTS:
        sound &= _row(name)
    return 0 if sound and not problems else 1


def _row(name: str) -> bool:
    began = time.monotonic()
    for seed in MUTANTS[name].seeds:
        if seen := caught(name, hunt(name, seed)):
            example = re.sub(r"/\S*/", "", next(iter(seen.values()))[0])  # no path of this machine
            checks = ", ".join(f"{check} ({len(problems)})" for check, problems in seen.items())
            print(
                f"| {name} | {MUTANTS[name].about} | {checks} | {time.monotonic() - began:.0f} s | {example} |",
                flush=True,
            )
            return True
    print(f"| {name} | {MUTANTS[name].about} | **survived** | {time.monotonic() - began:.0f} s | |", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
