"""covey token create, list, revoke."""

from __future__ import annotations

import pytest

from covey.core.tokens import parse, verdict

from .conftest import CommandLine


def test_the_token_alone_is_on_stdout_and_a_note_says_that_it_is_shown_once(covey: CommandLine) -> None:
    made = covey("token", "create", "ci", "--role", "client")
    assert (made.code, made.out.count("\n")) == (0, 1)
    found = parse(made.out.rstrip("\n"))
    assert found is not None
    assert "shown only once" in made.err
    assert made.err.count("\n") == 1
    assert found[1] not in made.err
    with covey.engine() as engine:
        (row,) = engine.token_rows()
        assert (row.id, row.name, row.role, row.queues, row.expires_at) == (found[0], "ci", "client", None, None)
        assert verdict(row, found[1], engine.clock()) == "ok"


def test_a_token_as_json_has_its_text_and_its_facts(covey: CommandLine) -> None:
    made = covey("token", "create", "w", "--role", "worker", "--queue", "a", "-q", "b", "--expires", "30d", "--json")
    facts = made.json
    text = facts.pop("token")
    assert parse(text) is not None
    assert "shown only once" in made.err
    assert (facts["name"], facts["role"], facts["queues"], facts["state"]) == ("w", "worker", ["a", "b"], "valid")
    with covey.engine() as engine:
        (row,) = engine.token_rows()
        assert row.expires_at == row.created_at + 30 * 86400 * 1_000_000
    listed = covey("token", "list", "--json")
    assert listed.json == [facts]
    assert text[-43:] not in listed.out


def test_tokens_are_listed_for_people(covey: CommandLine) -> None:
    assert covey("enqueue", "true").code == 0
    none = covey("token", "list")
    assert (none.code, none.out) == (0, "")
    assert "token create" in none.err
    assert covey("token", "list", "--json").json == []
    text = covey("token", "create", "ci", "--role", "client", "-q", "office", "--expires", "1h").out.strip()
    covey("token", "create", "ops", "--role", "admin")
    covey("token", "revoke", "ops")
    head, ci, ops = covey("token", "list").out.splitlines()
    assert head.split() == ["ID", "NAME", "ROLE", "STATE", "EXPIRES", "CREATED", "QUEUES"]
    assert (ci.split()[:4], ci.split()[-1]) == (["1", "ci", "client", "valid"], "office")
    assert ops.split()[:5] == ["2", "ops", "admin", "revoked", "never"]
    assert text[-43:] not in ci + ops


def test_a_token_is_revoked_by_name_or_id_once_or_twice(covey: CommandLine) -> None:
    for name in ("a", "b"):
        covey("token", "create", name, "--role", "read")
    for ref in ("a", "a", "2"):
        done = covey("token", "revoke", ref)
        assert (done.code, done.out, done.err) == (0, f"revoked {'b' if ref == '2' else 'a'}\n", "")
    assert [view["state"] for view in covey("token", "list", "--json").json] == ["revoked", "revoked"]
    missing = covey("token", "revoke", "nobody")
    assert (missing.code, missing.out) == (1, "")
    assert missing.err == "error: no token 'nobody'; `covey token list` shows what there is\n"


def test_a_name_that_is_taken_is_refused(covey: CommandLine) -> None:
    covey("token", "create", "ci", "--role", "read")
    again = covey("token", "create", "ci", "--role", "admin")
    assert (again.code, again.out, again.err.count("\n")) == (1, "", 1)
    assert [view["role"] for view in covey("token", "list", "--json").json] == ["read"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ci"], "--role"),
        ([], "NAME"),
        (["ci", "--role", "root"], "one of read, client, worker, admin"),
        (["12", "--role", "read"], "digits"),
        (["a b", "--role", "read"], "letters"),
        (["ci", "--role", "read", "--queue", "a b"], "queue 'a b'"),
        (["ci", "--role", "admin", "--queue", "a"], "every queue"),
        (["ci", "--role", "read", "--expires", "soon"], "--expires 'soon'"),
        (["ci", "--role", "read", "--expires", "0s"], "expires 0.0"),
    ],
)
def test_what_makes_no_sense_exits_2_in_one_line_and_makes_nothing(
    covey: CommandLine, words: list[str], said: str
) -> None:
    refused = covey("token", "create", *words)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1), refused
    assert said in refused.err
    if covey.db.exists():
        with covey.engine() as engine:
            assert engine.tokens() == []


def test_a_queue_that_is_not_there_is_not_made_by_looking(covey: CommandLine) -> None:
    assert covey("token", "list").code == 1
    assert covey("token", "revoke", "ci").code == 1
    assert not covey.db.exists()
