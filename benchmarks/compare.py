"""python -m benchmarks compare [PEER…] [--quick]: Covey and its peers on the same work; tables, plots, what is lost.

Contestants take turns within a round. What was measured is kept after each of them: --resume goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import commands, contest, plots, report, stores, table
from .contest import Contestant, Sizes
from .contestants import COVEY, PEERS, covey
from .environments import Missing
from .ground import PLACE


def main(words: Sequence[str]) -> int:
    known = [name for family in PEERS.values() for name in family]
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PEER", help=f"measured again; all if none: {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="smaller numbers, one round: a look, not a result")
    parser.add_argument("--resume", action="store_true", help="measure only what the file lacks")
    parser.add_argument("--json", metavar="FILE", default=str(PLACE / "compare.json"), help="where figures are kept")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables there, between its marks")
    parser.add_argument("--plots", metavar="DIRECTORY", help="write the plots there")
    given = parser.parse_args(words)
    if unknown := set(given.names) - set(known):
        parser.error(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if given.markdown:
        try:
            table.around(Path(given.markdown))  # now, not after an hour
        except ValueError as problem:
            parser.error(str(problem))
    book = Book(Path(given.json), quick=given.quick, keep=given.resume or bool(given.names))
    if not given.resume:
        for name in given.names:
            book.forget(name)
    began = time.monotonic()
    for family in PEERS:
        chosen = [name for name in PEERS[family] if not given.names or name in given.names]
        if chosen:
            Race(family, [COVEY, *chosen], book, contest.QUICK if given.quick else contest.FULL).run()
    print(f"compare took {time.monotonic() - began:.0f} s; figures are in {given.json}", flush=True)
    text = table.markdown(book.all)
    if given.markdown:
        table.write(Path(given.markdown), text)
    else:
        print(text)
    if given.plots:
        plots.write(Path(given.plots), book.all)
    for loss in table.unexplained(book.all):
        print(f"NO REASON IS KNOWN for a loss, benchmarks/reasons.py lacks it: {loss}", flush=True)
    return 0


class Book:
    """The figures, on disk after every change."""

    def __init__(self, path: Path, *, quick: bool, keep: bool) -> None:
        self._path = path
        self.run = report.machine()["when"]
        found = json.loads(path.read_text()) if keep and path.exists() else {}
        if found and found["quick"] != quick:
            raise SystemExit(f"{path} holds {'quick' if found['quick'] else 'full'} figures: name another --json FILE")
        self.all: dict[str, Any] = found or {"machine": report.machine(), "quick": quick, "stores": {}, "results": {}}

    def of(self, family: str, name: str) -> dict[str, Any]:
        results: dict[str, Any] = self.all["results"].setdefault(family, {})
        return results.setdefault(name, {"rounds": []})  # type: ignore[no-any-return]

    def forget(self, name: str) -> None:
        for results in self.all["results"].values():
            results.pop(name, None)

    def save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self.all, indent=1, ensure_ascii=False) + "\n")
        fresh.replace(self._path)


class Race:
    """One family: everybody in every round, then the backlogs."""

    def __init__(self, family: str, names: list[str], book: Book, sizes: Sizes) -> None:
        self._family, self._names, self._book, self._sizes = family, names, book, sizes

    def run(self) -> None:
        if not any(self._lacks(name) for name in self._names):
            return
        try:
            with stores.opened(self._family) as store:
                self._book.all["stores"][self._family] = store.about
                there = self._there()
                for number in range(self._sizes.rounds):
                    for name in there if number % 2 == 0 else reversed(there):
                        if len(self._book.of(self._family, name)["rounds"]) <= number:
                            self._note(name, f"round {number + 1}", self._round(name, there[name], store))
                for name in there:
                    if self._grows() and "backlog" not in self._book.of(self._family, name):
                        self._note(name, "backlog", self._backlog(name, there[name], store))
        except Missing as problem:
            for name in self._names:
                if not self._whole(name):
                    self._miss(name, problem)

    def _lacks(self, name: str) -> bool:
        """Who could not be had is tried again only beside others, or when named."""
        return not self._whole(name) and "missing" not in self._book.of(self._family, name)

    def _whole(self, name: str) -> bool:
        found = self._book.of(self._family, name)
        return len(found["rounds"]) >= self._sizes.rounds and ("backlog" in found or not self._grows())

    def _grows(self) -> bool:
        return self._family != "commands"

    def _there(self) -> dict[str, Contestant]:
        """Those that can be had, of those that lack something; the others are noted with the reason."""
        there = {}
        for name in self._names:
            if self._whole(name):
                continue
            self._book.of(self._family, name).pop("missing", None)
            try:
                there[name] = covey() if name == COVEY else PEERS[self._family][name].ready()
            except Exception as problem:  # whatever it is: named, not dropped
                self._miss(name, problem)
        return there

    def _round(self, name: str, contestant: Contestant, store: stores.Store) -> dict[str, Any]:
        found = self._book.of(self._family, name)
        if self._family == "commands":
            try:
                found["about"] = commands.about(name)
                figures: dict[str, Any] = {"commands": commands.RUNNERS[name](self._sizes.commands)}
            except Exception as problem:  # whatever it is: named, not dropped
                figures = {"failed": {"commands": contest.said(problem)}}
        else:
            figures = contest.measures(contestant, self._ground(name, store), self._sizes)
            found["about"] = figures.pop("about", None) or found.get("about")
        found["rounds"].append(figures | {"run": self._book.run})
        return figures

    def _backlog(self, name: str, contestant: Contestant, store: stores.Store) -> dict[str, Any]:
        figures = contest.backlog(contestant, self._ground(name, store), self._sizes)
        self._book.of(self._family, name).update(figures)
        return figures

    def _ground(self, name: str, store: stores.Store) -> stores.Store:
        """Covey does not know Redis: beside its queues it stands on a file."""
        return stores.Files() if name == COVEY and self._family == "redis" else store

    def _miss(self, name: str, problem: Exception) -> None:
        self._book.of(self._family, name)["missing"] = why = contest.said(problem)
        self._book.save()
        print(f"{self._family:<9} {name:<15} not measured: {why}", flush=True)

    def _note(self, name: str, what: str, figures: dict[str, Any]) -> None:
        self._book.save()
        print(f"{self._family:<9} {name:<15} {what:<8} {table.brief(figures)}", flush=True)
