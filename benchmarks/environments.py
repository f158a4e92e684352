"""Where peers live: an environment each under .bench/, never beside Covey; and programs that are not Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from .ground import PLACE

LIMIT_S = 300.0


class Missing(Exception):
    """It cannot be had here; the text says why."""


def install(name: str, packages: Sequence[str], least: tuple[int, int] = (3, 11), tags: str = "") -> Path:
    """The interpreter that has the peer."""
    home = PLACE / "peers" / name
    python, ready = home / "bin" / "python", home / "ready"
    if ready.exists() and ready.read_text() == repr(packages):
        return python
    made = subprocess.run(
        [_interpreter(least), "-m", "venv", "--clear", "--without-pip", str(home)], capture_output=True, text=True
    )
    if made.returncode:
        raise Missing(f"no environment could be made: {_last_error(made.stderr)}")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*pip, *packages], capture_output=True, text=True, timeout=LIMIT_S,
            env=os.environ | {"CARGO_NET_RETRY": "0"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Missing(f"not installed within {LIMIT_S:g} s") from None
    if done.returncode and not (tags and _unpack_wheels(name, packages, tags, home, python)):
        raise Missing(_last_error(done.stderr))
    ready.write_text(repr(packages))
    return python


def _unpack_wheels(name: str, packages: Sequence[str], tags: str, home: Path, python: Path) -> bool:
    """The packages as they are for another system, with this one's SQLite in them; whether that can be imported."""
    wheels = home / "wheels"
    fetch = ["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--platform", tags, "-d", str(wheels)]
    if subprocess.run([sys.executable, "-m", *fetch, *packages], capture_output=True, timeout=LIMIT_S).returncode:
        return False
    (site,) = home.glob("lib/python*/site-packages")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    for brought in site.glob("*.libs/libsqlite3*"):
        shutil.copyfile(_system_sqlite(), brought)
    return subprocess.run([str(python), "-c", f"import {name}"], capture_output=True).returncode == 0


def _system_sqlite() -> Path:
    name, own = "usr/lib/*-linux-gnu/libsqlite3.so.0", PLACE / "debian"
    if not any(Path("/").glob(name)) and not any(own.glob(name)):
        _unpack(["libsqlite3-0"], own)
    return next(path for place in (Path("/"), own) for path in place.glob(name))


def _interpreter(least: tuple[int, int]) -> str:
    """The Python that runs this, or a later one where the peer needs it."""
    if sys.version_info[:2] >= least:
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(least[1], least[1] + 5):
        named = f"python3.{minor}"
        for found in [shutil.which(named), *sorted(str(path) for path in versions.glob(f"3.{minor}.*/bin/python"))]:
            if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
                return found
    raise Missing(f"it needs Python {least[0]}.{least[1]}, which is not here")


def program(name: str, packages: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Its path and the environment that it needs: from PATH, else Debian's packages unpacked under .bench/."""
    if found := shutil.which(name):
        return found, {}
    root = PLACE / "debian"
    path = root / "usr/bin" / name
    if not path.exists():
        _unpack(packages, root)
    if not path.exists():
        raise Missing(f"{', '.join(packages)} hold no {name}")
    return str(path), {"LD_LIBRARY_PATH": ":".join(str(place) for place in root.glob("usr/lib/*-linux-gnu"))}


def _unpack(packages: Sequence[str], root: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing("it is not on PATH, and there is no apt-get to fetch it")
    downloads = PLACE / "debian-packages"
    downloads.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["apt-get", "download", *packages], cwd=downloads, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode:
        raise Missing(f"it is not on PATH, and apt-get download failed: {_last_error(done.stderr)}")
    for package in downloads.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)


def _last_error(text: str) -> str:
    """The line that tells most, and the cause that cargo gives at the bottom of a chain."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not re.match(r"\W*WARNING|W:", line)]
    telling = [line for line in lines if re.match(r"(?i)(error|e): ?(failed|no matching|could not|can't|unable)", line)]
    said = (telling or lines or ["no reason was given"])[0].partition(" as a dependency")[0]
    causes = [line.partition("] ")[2].partition(" (")[0] for line in lines if re.match(r"\[\d+\] ", line)]
    return "; ".join([said, *causes[-1:]])[:200]
