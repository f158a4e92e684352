"""The lease and due tests hold wherever the clock hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ZONES = ("America/Los_Angeles", "UTC", "Asia/Kolkata")
FAR_ZONES = ("Pacific/Kiritimati", "Pacific/Pago_Pago")
SUITE = ("test_reap.py", "test_due.py", "test_fence.py")


def start(zone: str, temp: Path) -> subprocess.Popen[str]:
    contract = Path(__file__).parent.parent / "contract"
    files = [str(contract / name) for name in SUITE]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        f"--basetemp={temp / zone}",
        *files,
    ]
    environ = {**os.environ, "TZ": zone, "COVEY_PROOF": "", "COVEY_TEST_BACKENDS": "memory"}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_lease_suite_passes_in_every_time_zone(
    tmp_path: Path, proof: Callable[[tuple[str, ...], tuple[str, ...]], tuple[str, ...]]
) -> None:
    (tmp_path / "America").mkdir()
    (tmp_path / "Asia").mkdir()
    (tmp_path / "Pacific").mkdir()
    running = {zone: start(zone, tmp_path) for zone in proof(ZONES[-1:], ZONES + FAR_ZONES)}
    said = {zone: suite.communicate(timeout=240)[0] for zone, suite in running.items()}
    assert {zone: suite.returncode for zone, suite in running.items()} == dict.fromkeys(running, 0), said
