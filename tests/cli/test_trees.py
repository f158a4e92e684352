"""tree, spawn, after, queue set, and how far the children are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from covey.engine.engine import Engine
from tests.kit import HandPool, child, command

from .conftest import CommandLine


def plant(engine: Engine, *widths: int) -> int:
    """A tree of these widths by level; the first child of the root has died. The root's id."""
    engine.set_queue("default", max_depth=5)
    pool = HandPool(engine)
    (root,) = engine.enqueue([command("root", key="root", max_attempts=1)])
    claims = pool.claim(1)
    for width in widths:
        for claim in claims:
            pool.spawn(claim, *(child(f"child {n}", key=f"key-{n}", max_attempts=1) for n in range(width)))
        claims = pool.claim(10_000)
    if claims:
        pool.fail(claims[0], "it broke\nin two")
        for claim in claims[1:-1]:
            pool.succeed(claim)
    return root.id


def test_a_tree_is_drawn_with_states_children_and_errors(covey: CommandLine, engine: Engine) -> None:
    root = plant(engine, 3)
    lines = covey("tree", "root").out.splitlines()
    assert lines[0].startswith(f"{root} waiting  root: root  2/3 children, 1 failed")
    assert [line.split()[2] for line in lines[1:]] == ["dead", "completed", "processing"]
    assert lines[1].startswith("├── ")
    assert lines[1].endswith("it broke in two")
    assert lines[3].startswith("└── ")


def test_what_is_too_much_is_left_out_and_said(covey: CommandLine, engine: Engine) -> None:
    root = plant(engine, 30, 2)
    lines = covey("tree", str(root), "--depth", "1", "--limit", "2").out.splitlines()
    assert lines[-1] == "└── … 28 more (--limit 30)"
    assert any(line.startswith("│   └── … 2 more (covey tree ") for line in lines)
    assert len(covey("tree", str(root), "--limit", "30").out.splitlines()) == 1 + 30 + 60
    assert covey("tree", str(root), "--limit", "0").out.splitlines()[1].endswith(f"… 30 more (covey tree {root})")


def test_a_large_tree_is_read_page_by_page(covey: CommandLine, engine: Engine) -> None:
    root = plant(engine, 2500)
    found = covey("tree", str(root), "--limit", "2400", "--json").json
    assert [each["child_no"] for each in found["branches"]] == list(range(2400))
    assert (found["more"], found["children"]["total"]) == (100, 2500)


def test_json_nests_the_jobs(covey: CommandLine, engine: Engine) -> None:
    root = plant(engine, 2, 1)
    found: dict[str, Any] = covey("tree", "root", "--json").json
    assert (found["id"], found["more"], len(found["branches"])) == (root, 0, 2)
    (grandchild,) = found["branches"][0]["branches"]
    assert (grandchild["parent_id"], grandchild["depth"], grandchild["branches"]) == (found["branches"][0]["id"], 2, [])


def test_following_returns_when_the_tree_has_ended(covey: CommandLine, engine: Engine) -> None:
    root = plant(engine, 2)
    follower = covey.popen("tree", "-f", str(root))
    engine.cancel([root])
    out, _ = follower.communicate(timeout=120)
    assert follower.returncode == 0
    assert out.decode().startswith(f"{root} cancelled")


def test_a_tree_is_not_looked_for_below_its_leaves(covey: CommandLine, engine: Engine) -> None:
    root = plant(engine, 2)
    deep = covey("tree", str(root), "-d", "99999999999999999999")
    assert (deep.code, deep.out.count("\n")) == (0, 3)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["tree", "99"], 1), (["tree", "root", "--depth", "-1"], 2), (["tree", "root", "--limit", "x"], 2), (["tree"], 2)],
)
def test_bad_questions_get_one_line(covey: CommandLine, engine: Engine, words: list[str], code: int) -> None:
    plant(engine, 1)
    answer = covey(*words)
    assert (answer.code, answer.out) == (code, "")
    assert "Traceback" not in answer.err
    assert answer.err.startswith(("error: ", "Usage"))


def test_show_and_list_say_how_far_the_children_are(covey: CommandLine, engine: Engine) -> None:
    root = plant(engine, 3)
    assert "children  2/3 children, 1 failed" in covey("show", str(root)).out
    listed = covey("list").out.splitlines()
    assert "CHILDREN" in listed[0]
    assert "2/3, 1 failed" in listed[-1]
    kid = engine.tree(root).children[0].id
    assert f"parent    {root}" in covey("show", str(kid)).out


# ── queues ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_queue_set_changes_only_what_is_named(covey: CommandLine, engine: Engine) -> None:
    said = covey("queue", "set", "office", "--serial", "--concurrency", "4").out
    assert said == "office: serial, at most 4 at a time\n"
    assert covey("queue", "set", "office", "--max-depth", "3", "--no-serial").out == (
        "office: at most 4 at a time, max depth 3\n"
    )
    assert covey("queue", "set", "office", "--concurrency", "none", "--max-depth", "1").out == (
        "office: as any other queue\n"
    )
    covey("queue", "set", "office", "--serial")
    assert "serial" in covey("queue", "list").out
    (view,) = covey("queue", "list", "--json").json
    assert (view["serial"], view["concurrency"], view["max_depth"]) == (True, None, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["office"],
        ["office", "--concurrency", "0"],
        ["office", "--concurrency", "many"],
        ["office", "--concurrency", "-3"],
        ["office", "--max-depth", "-1"],
        ["office", "--max-depth", "deep"],
        ["of fice", "--serial"],
        ["--serial"],
    ],
)
def test_queue_set_refuses_what_makes_no_sense(covey: CommandLine, words: list[str]) -> None:
    answer = covey("queue", "set", *words)
    assert (answer.code, answer.out) == (2, "")
    assert "Traceback" not in answer.err


def test_enqueue_takes_what_a_tree_needs(covey: CommandLine, engine: Engine) -> None:
    assert covey("enqueue", "--on-error", "cancel", "--tree-timeout", "2h", "true").code == 0
    assert covey("enqueue", '{"command": "true", "on_error": "collect", "mode": "serial", "tree_timeout": 9}').code == 0
    (first, second) = engine.store.dialect.query(
        "select on_error, child_mode, tree_timeout_s from jobs order by id", {}
    )
    assert (first, second) == (("cancel", None, 7200.0), ("collect", "serial", 9.0))
    for bad in (["--on-error", "maybe"], ["--tree-timeout", "soon"], ["--tree-timeout", "0"]):
        answer = covey("enqueue", *bad, "true")
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1), answer


# ── inside a job ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def inside(tmp_path: Path) -> dict[str, str | None]:
    """The environment of a command at depth 0, without any way to the database."""
    path = tmp_path / "7.1.spawn"
    path.write_text("")
    return {
        "COVEY_SPAWN": str(path),
        "COVEY_JOB_ID": "7",
        "COVEY_RUN": "db:1:7:1",
        "COVEY_DEPTH": "0",
        "COVEY_MAX_DEPTH": "1",
        "COVEY_DB": "/nonexistent/queue.db",
    }


def lines(inside: dict[str, str | None]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(str(inside["COVEY_SPAWN"])).read_text().splitlines()]


def test_spawn_and_after_write_a_line_and_say_nothing(covey: CommandLine, inside: dict[str, str | None]) -> None:
    asked = [
        ["spawn", "--key", "a", "-q", "slow", "-p", "3", "--serial", "--", "ls", "-l", "*"],
        ["spawn", "--timeout", "2m", "--max-attempts", "2", "-e", "A=ü", "echo 'hi' | cat"],
        ["after", "--unique-key", "flush", "--when", "always", "--", "./flush.sh"],
    ]
    for words in asked:
        answer = covey(*words, env=inside)
        assert (answer.code, answer.out, answer.err) == (0, "", "")
    here = str(covey.directory)
    assert lines(inside) == [
        {
            "relation": "child",
            "argv": ["ls", "-l", "*"],
            "key": "a",
            "queue": "slow",
            "priority": 3,
            "serial": True,
            "cwd": here,
        },
        {
            "relation": "child",
            "command": "echo 'hi' | cat",
            "timeout": "2m",
            "max_attempts": 2,
            "cwd": here,
            "env": {"A": "ü"},
        },
        {"relation": "after", "argv": ["./flush.sh"], "unique_key": "flush", "when": "always", "cwd": here},
    ]


def test_outside_of_a_job_they_say_so(covey: CommandLine) -> None:
    for words in (["spawn", "--", "ls"], ["after", "ls"]):
        answer = covey(*words)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err == (
            "error: this works inside a command that Covey runs, and nowhere else; to queue a job: covey enqueue\n"
        )
    assert not covey.db.exists()


@pytest.mark.parametrize(
    ("words", "changes", "code", "said"),
    [
        (["spawn"], {}, 2, "nothing to queue"),
        (["spawn", "--key", "12", "ls"], {}, 2, "key '12': digits only"),
        (["spawn", "--queue", "a b", "ls"], {}, 2, "queue 'a b'"),
        (["spawn", "--timeout", "soon", "ls"], {}, 2, "timeout 'soon'"),
        (["spawn", "--max-attempts", "0", "ls"], {}, 2, "max_attempts 0"),
        (["spawn", "--sibling", "--serial", "ls"], {}, 2, "--serial is about this job's own children"),
        (["spawn", "--sibling", "ls"], {}, 1, "job 7 is a root and has no siblings"),
        (["spawn", "ls"], {"COVEY_DEPTH": "1", "COVEY_PARENT_ID": "3"}, 1, "job 7 is at depth 1"),
        (["after", "--when", "never", "ls"], {}, 2, "when 'never': success or always"),
        (["spawn", "ls"], {"COVEY_SPAWN": "/nonexistent/7.1.spawn"}, 1, "the job it belonged to may have ended"),
    ],
)
def test_what_the_worker_would_refuse_is_refused_at_once(
    covey: CommandLine, inside: dict[str, str | None], words: list[str], changes: dict[str, str], code: int, said: str
) -> None:
    answer = covey(*words, env={**inside, **changes})
    assert (answer.code, answer.out) == (code, ""), answer
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert [line for line in lines(inside) if "refused" not in line] == []


def test_a_refusal_is_left_for_the_worker_as_the_last_line(covey: CommandLine, inside: dict[str, str | None]) -> None:
    answer = covey("spawn", "ls", env={**inside, "COVEY_DEPTH": "1", "COVEY_PARENT_ID": "3"})
    assert answer.err == f"error: {lines(inside)[0]['refused']}\n"


def test_spawn_does_not_wait_for_a_reader_of_what_stands_in_the_place_of_its_file(
    covey: CommandLine, inside: dict[str, str | None]
) -> None:
    path = Path(str(inside["COVEY_SPAWN"]))
    path.unlink()
    os.mkfifo(path)
    answer = covey("spawn", "ls", env=inside)
    assert (answer.code, answer.err.count("\n")) == (1, 1), answer
    path.unlink()
    path.symlink_to("/dev/null")
    answer = covey("spawn", "ls", env=inside)
    assert (answer.code, answer.err) == (
        1,
        f"error: {path}: this is not the file that Covey made; leave it where it is\n",
    )


def test_a_sibling_may_be_asked_for_at_any_depth(covey: CommandLine, inside: dict[str, str | None]) -> None:
    assert covey("spawn", "--sibling", "ls", env={**inside, "COVEY_DEPTH": "1", "COVEY_PARENT_ID": "3"}).code == 0
    assert lines(inside)[0]["relation"] == "sibling"
