"""covey status --watch: the same, anew every second."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from covey.open import open_engine
from covey.testing import until
from tests.kit import command


def test_what_changes_is_shown_until_it_is_interrupted(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "queue.db"), create=True)
    engine.enqueue([command()])
    words = [sys.executable, "-m", "covey", "--db", str(tmp_path / "queue.db"), "status", "--watch"]
    seen = tmp_path / "seen"
    with open(seen, "w") as out, subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE) as process:
        until(lambda: "1 pending" in seen.read_text(), 30, "it is shown")
        engine.enqueue([command()])
        until(lambda: "2 pending" in seen.read_text(), 30, "it is shown anew")
        process.send_signal(signal.SIGINT)
        process.wait(30)
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    engine.close()
