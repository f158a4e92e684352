"""python -m benchmarks [NAME…] [--quick] [--json FILE]: runs the measures and prints both sides and their ratio.

`python -m benchmarks compare` is the comparison with other queues; it has options of its own.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
import traceback

from . import report

MEASURES = (
    "drain",
    "backlog",
    "enqueue",
    "pickup",
    "commands",
    "trees",
    "startup",
    "idle",
    "fairness",
    "claim",
    "cli",
    "costs",
    "gate",
    "postgres",
    "remote",
    "readers",
    "containers",
)


def main() -> int:
    signal.signal(signal.SIGTERM, _end)
    if sys.argv[1:2] == ["compare"]:
        from . import compare

        return compare.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASURES)}; all of them if none")
    parser.add_argument("--quick", action="store_true", help="smaller numbers: a look, not a result")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    given = parser.parse_args()
    if unknown := set(given.names) - set(MEASURES):
        parser.error(f"no measure {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    print("; ".join(f"{key} {value}" for key, value in report.machine().items()), flush=True)
    found: list[report.Figure | report.Remark] = []
    broken = 0
    for name in given.names or MEASURES:
        began = time.monotonic()
        try:
            for figure in importlib.import_module(f".{name}", __package__).run(given.quick):
                found.append(figure)
                print(figure.line(), flush=True)
        except Exception:
            broken += 1
            traceback.print_exc()
        print(f"{name:<9} took {time.monotonic() - began:.0f} s", flush=True)
    if given.json:
        report.save(given.json, found)
    return 1 if broken else 0


def _end(*_: object) -> None:
    """Servers and workers are taken down on the way out; a second signal must not cut that short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


if __name__ == "__main__":
    raise SystemExit(main())
