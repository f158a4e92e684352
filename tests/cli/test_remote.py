"""The command line on a queue behind a server; servers and workers that are found and used again."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from covey.discovery import read_note
from covey.engine.engine import Engine

from .conftest import CommandLine, here, until


@pytest.fixture
def server(covey: CommandLine) -> str:  # type: ignore[override]
    """The address of a running server; the command line is on its queue."""
    url = serve(covey)
    covey.env["COVEY_DB"] = url
    return url


def serve(covey: CommandLine, *words: str) -> str:
    log = covey.directory / "server.log"
    with log.open("ab") as file:
        covey.popen("server", "--port", "0", *words, "--db", str(covey.db), stdout=file, stderr=file)
    until(lambda: " at http" in log.read_text())
    found = re.search(r"http://\S+", log.read_text())
    assert found
    return found[0].rstrip(";")


def test_every_verb_that_asks_for_a_queue_takes_a_server(covey: CommandLine, server: str) -> None:
    one, two = (
        covey("enqueue", "--batch", "b", "echo one").ids
        + covey("enqueue", "--key", "k/2", "--max-attempts", "1", "exit 3").ids
    )
    assert covey("list", "--json").json[0]["id"] == two
    assert covey("show", "k/2", "--json").json["id"] == two
    assert covey("edit", "k/2", "--priority", "7").code == 0
    assert covey("config", "set", "max_attempts", "1").code == 0
    assert covey("config", "get", "max_attempts").out == "1\n"
    assert covey("queue", "pause", "default").code == 0
    assert "paused" in covey("why", str(one)).out
    assert covey("queue", "resume", "default").code == 0
    assert covey("queue", "set", "slow", "--serial").code == 0
    assert covey("status", "--json").json["counts"]["pending"] == 2
    covey.popen("worker", "start", "--count", "1", "--drain").wait(30)
    assert covey("wait", str(one)).code == 0
    assert covey("logs", str(one)).out == "one\n"
    assert covey("wait", "k/2", "--timeout", "30s").code == 3
    assert "echo one" in covey("tree", str(one)).out
    assert [job["id"] for job in covey("dlq", "list", "--json").json] == [two]
    assert covey("retry", "k/2").code == 0
    assert covey("cancel", "k/2").code == 0
    assert covey("remove", "--force", "k/2").code == 0
    assert covey("worker", "list", "--json").json == []
    assert covey("worker", "events", "--json").json
    assert covey("config", "unset", "max_attempts").code == 0


def test_run_through_a_server_starts_a_pool_follows_the_job_and_ends_like_it(covey: CommandLine, server: str) -> None:
    done = covey("run", "--max-attempts", "1", "echo out; echo err >&2; exit 4")
    assert (done.code, done.out) == (4, "out\n")
    assert done.err.splitlines()[0] == "err"
    assert covey("worker", "list", "--json").json == []


def test_output_is_followed_while_the_job_runs_at_a_remote_pool(covey: CommandLine, server: str) -> None:
    covey.pool()
    (job,) = covey("enqueue", "echo first; until test -e go; do sleep 0.05; done; echo second").ids
    follower = covey.popen("logs", "-f", str(job))
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"first\n"
    (covey.directory / "go").touch()
    assert follower.stdout.readline() == b"second\n"
    assert follower.wait(20) == 0


@pytest.mark.parametrize("words", [("db", "check"), ("db", "prune"), ("token", "list"), ("worker", "reap")])
def test_what_needs_the_database_itself_says_so(covey: CommandLine, server: str, words: tuple[str, ...]) -> None:
    done = covey(*words)
    assert done.code == 2
    assert (
        done.err == f"error: {server} is a server; this works on a database itself, so run it where the server runs\n"
    )


def test_nobody_there_is_one_clear_line(covey: CommandLine) -> None:
    for code, *words in ((2, "status"), (1, "enqueue", "true"), (1, "worker", "start", "--count", "1")):
        done = covey("--db", "http://127.0.0.1:9", *map(str, words))
        assert done.code == code
        assert done.err == (
            "error: no server answers at http://127.0.0.1:9 (connection refused); `covey server` starts one\n"
        )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://", "no address of a server"),
        ("http://host:port", "no address of a server"),
        ("http://me:secret@host", "a token does not belong into the address"),
    ],
)
def test_an_address_that_makes_no_sense_is_refused(covey: CommandLine, url: str, said: str) -> None:
    done = covey("--db", url, "list")
    assert done.code == 2
    assert said in done.err
    assert "secret" not in done.err
    assert len(done.err.splitlines()) == 1


def test_a_token_comes_from_a_file_or_the_environment(covey: CommandLine) -> None:
    token = covey("token", "create", "me", "--role", "admin").out.strip()
    url = serve(covey, "--require-token")
    covey.env["COVEY_DB"] = url
    refused = covey("list")
    assert (refused.code, refused.err) == (1, "error: a token is needed; pass it as `Authorization: Bearer …`\n")
    (covey.directory / "token").write_text(f"{token}\n")
    assert covey("--token-file", "token", "list", "--json").json == []
    assert covey("list", "--json", env={"COVEY_TOKEN_FILE": "token"}).json == []
    assert covey("list", "--json", env={"COVEY_TOKEN": token}).json == []
    gone = covey("--token-file", "nowhere", "list")
    assert (gone.code, len(gone.err.splitlines())) == (2, 1)


# ── found and used again ────────────────────────────────────────────────────────────────────────────────────────────


def test_workers_of_a_running_server_are_used_instead_of_starting_more(covey: CommandLine, engine: Engine) -> None:
    url = serve(covey)
    engine.register(here(name="theirs", boot="theirs", host="elsewhere", kinds=("command",)))
    again = covey("worker", "start", "--count", "1")
    assert again.code == 0
    assert again.err.startswith(f"the server at {url} has ")
    assert "--no-reuse" in again.err
    assert len(covey.pids()) == 1


def test_without_reuse_or_without_workers_a_pool_is_started(covey: CommandLine, engine: Engine) -> None:
    serve(covey)
    first = covey.pool("--count", "1")  # a server, but nobody works
    covey.pool("--count", "1", "--no-reuse")
    assert len(covey.pids()) == 2
    assert covey("worker", "start", "--queue", "x", "--count", "1").code == 0  # a pool for all queues has this one
    assert first.poll() is None


def test_a_queue_that_nobody_serves_gets_its_own_workers(covey: CommandLine, engine: Engine) -> None:
    serve(covey)
    engine.register(here(name="theirs", boot="theirs", host="elsewhere", kinds=("command",), queues=("a",)))
    covey.pool("--count", "1", "--queue", "b")
    assert len(covey.pids()) == 2


def test_run_uses_workers_elsewhere_if_a_server_has_them(covey: CommandLine, engine: Engine) -> None:
    url = serve(covey)
    remote = covey.popen("worker", "start", "--db", url, "--count", "1", stderr=subprocess.DEVNULL)
    until(lambda: remote.pid in covey.pids())
    assert covey("run", "echo $PPID").code == 0
    assert covey.pids() == [remote.pid]


@pytest.mark.parametrize(("field", "said"), [("database_id", "serves another queue"), ("version", "restart it")])
def test_a_server_that_does_not_fit_is_refused(covey: CommandLine, engine: Engine, field: str, said: str) -> None:
    serve(covey)
    side = Path(engine.store.dialect.side)
    note = json.loads((side / "server.json").read_text())
    (side / "server.json").write_text(json.dumps({**note, field: "other"}))
    for words in (("worker", "start", "--count", "1"), ("run", "true")):
        done = covey(*words)
        assert done.code in (1, 125)
        assert said in done.err
        assert len(done.err.splitlines()) == 1
    assert covey("run", "--no-reuse", "true").code == 0


def test_a_note_of_a_server_that_is_gone_means_nothing(covey: CommandLine, engine: Engine) -> None:
    serve(covey)
    side = engine.store.dialect.side
    note = read_note(side)
    assert note is not None
    covey.stop()
    assert read_note(side) is None  # a clean stop takes it away
    (Path(side) / "server.json").write_text(json.dumps({name: getattr(note, name) for name in note.__struct_fields__}))
    assert covey("run", "true").code == 0
    assert covey("server", "stop").err == "no server of this queue runs on this host\n"


def test_doctor_looks_at_a_server_as_far_as_it_lets_it_in(covey: CommandLine, server: str) -> None:
    well = covey("doctor")
    assert well.code == 0
    assert server in well.out
    nobody = covey("--db", "http://127.0.0.1:9", "doctor", "--json")
    assert (nobody.code, nobody.json[-1]["verdict"]) == (1, "bad")
    closed = serve(covey_with_token(covey), "--require-token")
    refused = covey("--db", closed, "doctor", "--json")
    assert (refused.code, refused.json[-1]["check"]) == (1, "token")


def covey_with_token(covey: CommandLine) -> CommandLine:
    """Another queue beside the first, with a token in it."""
    other = CommandLine(covey.directory)
    other.db = covey.directory / "other.db"
    other.env["COVEY_DB"] = str(other.db)
    other._pools = covey._pools
    (covey.directory / "server.log").unlink()
    other("token", "create", "me", "--role", "admin")
    return other
