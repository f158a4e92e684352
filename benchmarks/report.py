"""One figure, and the table of all of them."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """What was measured beside what. ``need`` is a bound for the ratio: ('≥', 0.35) or ('≤', 1.5); None: only told."""

    measure: str
    what: str
    ours: float
    theirs: float
    unit: str
    reference: str
    need: tuple[str, float] | None = None
    goal: float | None = None
    note: str = ""
    given: float | None = None  # the ratio, where it is not simply ours / theirs

    @property
    def ratio(self) -> float:
        if self.given is not None:
            return self.given
        return self.ours / self.theirs if self.theirs else float("nan")

    @property
    def verdict(self) -> str:
        if self.need is None:
            return ""
        sign, bound = self.need
        met = self.ratio >= bound if sign == "≥" else self.ratio <= bound
        return "met" if met else "NOT met"

    def line(self) -> str:
        wanted = "" if self.need is None else f"{self.need[0]} {self.need[1]:g}"
        if self.goal is not None:
            wanted += f" (goal {self.goal:g})"
        shown = f"{_number(self.ours):>9} : {_number(self.theirs):<9} {self.unit:<7}"
        text = f"{self.measure:<9} {self.what:<40} {shown} ratio {_ratio(self.ratio):<7} {wanted:<18} {self.verdict:<8}"
        return f"{text} vs {self.reference}{f'; {self.note}' if self.note else ''}"


@dataclass(frozen=True)
class Remark:
    """Something the reader must know: a peer that could not be installed, a share by name."""

    measure: str
    text: str

    def line(self) -> str:
        return f"{self.measure:<9} {self.text}"


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    import apsw

    try:
        lines = Path("/etc/os-release").read_text().splitlines()
        system = next(line.partition("=")[2].strip('"') for line in lines if line.startswith("PRETTY_NAME="))
    except (OSError, StopIteration):
        system = platform.system()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": system,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "apsw": apsw.apsw_version(),
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def save(path: str, figures: Iterable[Figure | Remark]) -> None:
    rows = [asdict(figure) | _derived(figure) for figure in figures]
    Path(path).write_text(json.dumps({"machine": machine(), "figures": rows}, indent=1, ensure_ascii=False) + "\n")


def _derived(figure: Figure | Remark) -> dict[str, object]:
    return {"ratio": figure.ratio, "verdict": figure.verdict} if isinstance(figure, Figure) else {}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
