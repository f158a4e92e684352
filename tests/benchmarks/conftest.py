"""Where these tests take place: not in .bench/, where real figures and installed peers are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import environments, ground


@pytest.fixture(autouse=True)
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "bench"
    place.mkdir()
    for module in (ground, environments):
        monkeypatch.setattr(module, "PLACE", place)
    return place
