"""Zones come from the newer of the system's database and the package tzdata."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from covey.errors import InvalidInput
from covey.system.time_zones import newest_first, sources, version, zone, zone_from

SUMMER = datetime(2026, 7, 1, tzinfo=UTC)


def database(directory: Path, release: str | None, **files: str) -> str:
    """A directory of zones, in which each name has the rules of another zone."""
    directory.mkdir()
    if release:
        (directory / "tzdata.zi").write_text(f"# version {release}\n# …\n")
    for name, rules in files.items():
        found = next(Path(each.directory) / rules for each in sources() if (Path(each.directory) / rules).exists())
        shutil.copy(found, directory / name)
    return str(directory)


@pytest.mark.parametrize(
    ("system", "package", "hours"),
    [("2025b", "2026f", 9), ("2026f", "2025b", 2), ("2026a", "2026f", 9), (None, "2026f", 9), ("2026f", None, 2)],
)
def test_the_newer_one_is_asked(tmp_path: Path, system: str | None, package: str | None, hours: int) -> None:
    ours = database(tmp_path / "system", system, Nowhere="Europe/Berlin", Here="Europe/Berlin")
    theirs = database(tmp_path / "package", package, Nowhere="Asia/Tokyo")
    found = newest_first(system_directories=[str(tmp_path / "none"), ours], package=theirs)
    offset = zone_from(found, "Nowhere").utcoffset(SUMMER)
    assert offset is not None
    assert offset.total_seconds() == hours * 3600
    assert zone_from(found, "Here").utcoffset(SUMMER) is not None, "what only the older one has is found there"


def test_this_machine_knows_zones_and_says_of_which_release() -> None:
    assert (version() or "")[:2] == "20"
    berlin = zone("Europe/Berlin").utcoffset(SUMMER)
    assert berlin is not None
    assert berlin.total_seconds() == 7200
    assert zone("UTC") is UTC


@pytest.mark.parametrize(
    "name",
    ["", "Europe", "Mars/Olympus", "../etc/passwd", "/etc/localtime", "tzdata.zi", "Europe/Berlin\0", "zone.tab"],
)
def test_what_is_no_zone_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not known; write its name as in"):
        zone(name)


def test_a_machine_without_any_says_what_to_install() -> None:
    with pytest.raises(InvalidInput, match="install the package tzdata"):
        zone_from([], "Europe/Berlin")
