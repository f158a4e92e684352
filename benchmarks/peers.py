"""Other queues, in an environment of their own, so that none of their packages is ever beside Covey's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .ground import PLACE

VENV = PLACE / "venv"
_failed: dict[str, str] = {}


def install(name: str, packages: Sequence[str] = ()) -> Path | None:
    """The interpreter that has the peer, or None where it cannot be installed (`reason` says why)."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    if _has(python, name):
        return python
    if name not in _failed:
        done = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *(packages or [name])],
            capture_output=True, text=True, env=os.environ | {"CARGO_NET_RETRY": "0"},
        )  # fmt: skip
        if done.returncode == 0 and _has(python, name):
            return python
        _failed[name] = _last_error(done.stderr)
    return None


def reason(name: str) -> str:
    return _failed.get(name, "")


def rate(python: Path, name: str, place: Path, **options: Any) -> float:
    """Jobs a second of the peer, by its own script."""
    script = Path(__file__).with_name(f"peer_{name}.py")
    done = subprocess.run(
        [python, script, str(place), json.dumps(options)], capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-1000:]}")
    return float(done.stdout.split()[-1])


def _has(python: Path, name: str) -> bool:
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 0


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("WARNING")]
    telling = [line for line in lines if re.match(r"(?i)error: (failed|no matching|could not|can't)", line)]
    return (telling or lines or ["pip gave no reason"])[0].partition(" as a dependency")[0][:160]
