"""The leak guard can fail: what a test would leave behind is seen."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

from tests.kit.faults import Child

from ..conftest import _belongings


def test_descriptors_threads_children_and_files_are_seen() -> None:
    before = _belongings()
    reader, writer = os.pipe()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left-over")
    thread.start()
    temporary = Path(tempfile.mkdtemp())
    with Child("import sys; sys.stdin.readline()") as child:
        seen = " ".join(_belongings() - before)
        assert f"process {child.pid}" in seen
    for word in ("descriptor", "pipe:", "thread left-over", f"temporary file {temporary.name}"):
        assert word in seen
    release.set()
    thread.join()
    temporary.rmdir()
    os.close(reader)
    os.close(writer)
    assert not _belongings() - before
