"""The page: what stands between the marks is replaced, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import compare, ground, table

from . import made_up

PAGE = ground.ROOT / "docs" / "benchmarks.md"


def test_only_what_stands_between_the_marks_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"# Before\n\n| a | b |\n\n{table.BEGIN}\n\nold\n\n{table.END}\n\n## After\n\nno new line at the end"
    )
    table.write(page, "new\n")
    assert page.read_text() == (
        f"# Before\n\n| a | b |\n\n{table.BEGIN}\n\nnew\n\n{table.END}\n\n## After\n\nno new line at the end"
    )


def test_the_published_page_keeps_everything_around_the_tables(tmp_path: Path) -> None:
    copied, figures = tmp_path / "benchmarks.md", tmp_path / "figures.json"
    copied.write_text(PAGE.read_text())
    figures.write_text(json.dumps(made_up.whole()))
    assert compare.main(["--resume", "--json", str(figures), "--markdown", str(copied)]) == 0
    old, new = PAGE.read_text(), copied.read_text()
    assert old.partition(table.BEGIN)[0] == new.partition(table.BEGIN)[0] != ""
    assert old.partition(table.END)[2] == new.partition(table.END)[2] != ""
    assert new.count(table.BEGIN) == new.count(table.END) == 1
    assert table.markdown(made_up.whole()) in new


def test_the_same_figures_written_again_change_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}{table.END}\nafter\n")
    table.write(page, table.markdown(made_up.whole()))
    once = page.read_text()
    table.write(page, table.markdown(made_up.whole()))
    assert page.read_text() == once


def test_where_there_is_no_page_there_is_one_afterwards(tmp_path: Path) -> None:
    table.write(tmp_path / "page.md", "new\n")
    assert (tmp_path / "page.md").read_text() == f"{table.BEGIN}\n\nnew\n\n{table.END}\n"


@pytest.mark.parametrize("text", ["a page\n", f"a page\n{table.BEGIN}\nno end\n", f"a page\n{table.END}\n", ""])
def test_a_page_without_both_marks_is_refused_before_anything_is_measured(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text(text)
    with pytest.raises(ValueError, match="lacks a mark"):
        table.write(page, "new\n")
    with pytest.raises(SystemExit):
        compare.main(["--json", str(figures), "--markdown", str(page)])
    assert "lacks a mark" in capsys.readouterr().err
    assert page.read_text() == text
    assert not figures.exists()


def test_what_a_queue_promises_stands_on_the_page_of_who_was_measured() -> None:
    page = table.markdown(made_up.whole())
    assert page.count("| thing 1.2 | as it comes | once | nothing | a row |") == sum(
        len(results) for results in made_up.whole()["results"].values()
    )
