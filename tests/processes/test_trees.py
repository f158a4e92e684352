"""Jobs that spawn jobs, in real pools."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.core.view import JobView
from covey.testing.until import until
from tests.kit.running import Yard, gone

SERVED = (
    "test_a_function_spawns_and_its_join_makes_the_result",
    "test_a_command_spawns_through_its_file_or_by_covey_spawn",
    "test_a_parent_killed_after_k_of_n_spawns_has_exactly_n_children_after_its_retry",
)

HERE = Path(__file__).parent
STORES = ("file", "postgres")
SOON = {"backoff_base": 1.0, "backoff_cap_s": 0.01}
COVEY = f"{sys.executable} -m covey"
NewQueue = Callable[[], "str | None"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, store: str, new_queue: NewQueue) -> Iterator[Yard]:
    """One queue with one pool of two workers for all tests that do the pool no harm."""
    with grove(tmp_path_factory.mktemp("shared"), new_queue(), store) as yard:
        yard.pool(count=2).started()
        yard.ends(yard.shell("true"), within_s=20)
        yield yard


@pytest.fixture
def own(tmp_path: Path, store: str, new_queue: NewQueue) -> Iterator[Yard]:
    """A queue of its own, without a pool yet."""
    with grove(tmp_path, new_queue(), store) as yard:
        yield yard


def grove(home: Path, url: str | None, store: str) -> Yard:
    yard = Yard(home, url=url, app="grove:app", path=[HERE])
    if store == "http":
        yard.serve()
    return yard


def children(yard: Yard, id: int) -> list[JobView]:
    return yard.engine.tree(id, limit=10_000).children


# ── spawning ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_function_spawns_and_its_join_makes_the_result(shared: Yard) -> None:
    id = shared.call("parent", 5, queue="orchard", priority=4)
    (job,) = shared.completes(id)
    assert job.result == sum(n * n for n in range(5))
    assert (job.children.total, job.children.unfinished, job.children.failed) == (5, 0, 0)
    family = children(shared, id)
    assert [(child.key, child.result, child.queue, child.priority) for child in family] == [
        (f"leaf-{n}", n * n, "orchard", 4) for n in range(5)
    ]
    assert {(child.parent_id, child.root_id, child.depth) for child in family} == {(id, id, 1)}
    assert shared.traces("joins").count(str(id)) == 1


def test_a_coroutine_spawns_and_joins_too(shared: Yard) -> None:
    (job,) = shared.completes(shared.call("aparent", 4, kind="async"))
    assert job.result == {"all": [0, 1, 4, 9, 100], "ten": 100}


def test_without_a_join_the_result_is_the_functions_own(shared: Yard) -> None:
    (job,) = shared.completes(shared.call("no_join", 3))
    assert (job.result, job.children.total) == ("mine", 3)


def test_a_join_without_children_runs_in_the_same_attempt(shared: Yard) -> None:
    (job,) = shared.completes(shared.call("childless"))
    assert (job.result, job.attempts) == ("joined 0 in attempt 1", 1)


def test_a_command_spawns_through_its_file_or_by_covey_spawn(shared: Yard) -> None:
    lines = '{"command": "pwd; exit 0", "key": "a"}', '{"task": "grove.leaf", "args": [3], "key": "b", "priority": 2}'
    script = f"cd /; printf '%s\\n' '{lines[0]}' '{lines[1]}' >> $COVEY_SPAWN; {COVEY} spawn --key c --queue q -- pwd"
    id = shared.shell(f"{script} && {COVEY} after --unique-key u -- true && ls -l $COVEY_SPAWN")
    shared.completes(id)
    by_key = {child.key: child for child in children(shared, id)}
    assert by_key["b"].result == 9
    assert (by_key["b"].priority, by_key["c"].queue, by_key["c"].command) == (2, "q", "pwd")
    assert shared.attempt(by_key["a"].id).stdout == f"{shared.home}\n"
    assert shared.attempt(by_key["c"].id).stdout == "/\n"
    assert shared.attempt(id).stdout.startswith("-rw-------")
    until(lambda: live_files(shared) == [], 10, "the uncle's file is gone too")


def test_a_run_that_fails_after_spawning_has_spawned_nothing(own: Yard) -> None:
    own.pool(count=2)
    jobs = [own.call("spawn_and_fail", how, max_attempts=2, **SOON) for how in ("raise", "retry", "exit")]
    jobs.append(own.call("spawn_and_fail", "sleep", max_attempts=1, timeout_s=0.3))
    jobs.append(own.shell('echo \'{"command": "true"}\' >> $COVEY_SPAWN; exit 3', max_attempts=1))
    for job in own.ends(*jobs):
        assert (job.state, job.children.total) == ("dead", 0), own.describe(job.id)
    assert own.counts() == {"dead": len(jobs)}
    assert own.traces() == []


def test_the_next_attempt_begins_with_an_empty_list(shared: Yard) -> None:
    id = shared.call("fails_once", 3)
    script = 'echo \'{"command": "true"}\' >> $COVEY_SPAWN; [ $COVEY_ATTEMPT = 2 ]'
    command = shared.shell(script, **SOON)
    shared.completes(id, command)
    assert [child.key for child in children(shared, id)] == ["leaf-0", "leaf-1", "leaf-2"]
    assert len(children(shared, command)) == 1


def test_what_the_lines_of_a_command_get_wrong_is_said_with_the_number_of_the_line(shared: Yard) -> None:
    good = '{"command": "true"}\\n'
    wrong = {
        good + '{"comand": "true"}\\n': "line 2: unknown field 'comand'",
        good + "\\n" + '{"command": "tr': "line 3: it was cut short",
        '{"command": "true", "key": "1"}\\n': "line 1: key '1': digits only",
        '{"command": "true", "relation": "aunt"}\\n': "line 1: relation 'aunt': one of child, sibling, after",
        '{"command": "true", "relation": "sibling"}\\n': "line 1: job",
        '{"command": "true", "queue": 5}\\n': "line 1: queue",
        '["true"]\\n': "line 1: a JSON object is needed",
        "\\377\\n": "line 1: not UTF-8",
        '{"command": "true", "serial": true}\\n{"command": "true", "serial": false}\\n': "line 2: job",
    }
    ids = [shared.shell(f"printf '{lines}' >> $COVEY_SPAWN") for lines in wrong]
    for job, expected in zip(shared.ends(*ids), wrong.values(), strict=True):
        assert (job.state, job.attempts, job.children.total) == ("dead", 1, 0), shared.describe(job.id)
        assert f"what it spawned was refused: $COVEY_SPAWN, {expected}" in (job.error or "")


ANOTHER = "the command has put something else in the place of the file"


@pytest.mark.parametrize(
    ("instead", "said"),
    {
        "mkfifo $COVEY_SPAWN": ANOTHER,
        "ln -s /dev/zero $COVEY_SPAWN": ANOTHER,
        "ln -s $PWD/lines $COVEY_SPAWN": ANOTHER,
        "mkdir $COVEY_SPAWN && touch $COVEY_SPAWN/x": ANOTHER,
        "true": "the command has removed the file",
        "truncate -s 1T $COVEY_SPAWN": "1,099,511,627,776 bytes: the limit is",
        "head -c 9 /dev/zero > $COVEY_SPAWN": "line 1: it was cut short",
    }.items(),
)
def test_what_a_command_puts_in_the_place_of_its_file_never_holds_its_worker(
    shared: Yard, instead: str, said: str
) -> None:
    (shared.home / "lines").write_text('{"command": "true"}\n')
    (job,) = shared.ends(shared.shell(f"rm $COVEY_SPAWN && {instead}"))
    assert (job.state, job.attempts, job.children.total) == ("dead", 1, 0), shared.describe(job.id)
    assert (job.error or "").startswith(f"what it spawned was refused: $COVEY_SPAWN, {said}")
    assert "\n" not in (job.error or "")


@pytest.mark.same_disk
def test_nothing_that_stands_in_the_way_of_the_next_commands_file_holds_its_worker_and_nothing_is_left(
    own: Yard,
) -> None:
    own.pool(count=1)
    (first,) = own.completes(own.shell("cd $(dirname $COVEY_SPAWN) && mkfifo 2.1.spawn && mkdir -p 3.1.spawn/x"))
    later = own.shells(['echo \'{"command": "true"}\' >> $COVEY_SPAWN'] * 2)
    assert [first.id, *later] == [1, 2, 3]
    assert [job.children.total for job in own.completes(*later)] == [1, 1]
    assert live_files(own) == []


@pytest.mark.same_disk
def test_what_stands_in_the_place_of_live_output_holds_neither_worker_nor_pool(own: Yard) -> None:
    pool = own.pool(count=1).started()
    replaced = own.shell(
        "cd $(dirname $COVEY_SPAWN) && mkfifo 1.1.out 1.2.out 2.1.out 2.1.err 3.1.out && kill -9 $PPID"
    )
    assert own.is_in(replaced, "failed", "dead").id == 1
    own.engine.cancel([replaced])
    later = own.shell("echo hi; echo ho >&2"), own.call("leaf", 3)
    assert later == (2, 3)
    own.completes(*later)
    assert own.attempt(2).stdout == "hi\n"
    assert pool.process.poll() is None


@pytest.mark.same_disk
def test_the_file_of_a_killed_worker_or_pool_is_removed(own: Yard) -> None:
    pool = own.pool(count=1).started()
    id = own.shell("echo '{}' >> $COVEY_SPAWN; echo $$ >> pids; exec sleep 1000", **SOON)
    own.trace("pids")
    assert live_files(own) == [f"{id}.1.spawn"]
    os.kill(pool.worker_of(id), signal.SIGKILL)
    own.trace("pids", 2)
    assert [name.partition(".")[2] for name in live_files(own)] == ["2.spawn"]
    pool.kill()
    own.pool(count=1).started()
    own.trace("pids", 3)
    assert [name.partition(".")[2] for name in live_files(own)] == ["4.spawn"], own.describe(id)
    own.engine.cancel([id])
    until(lambda: live_files(own) == [], 10, "the file goes with the job")


def live_files(yard: Yard) -> list[str]:
    return [name for name in os.listdir(f"{yard.side}/live") if name.endswith(".spawn")]


def test_a_command_may_spawn_very_many(own: Yard, proof: Callable[[int, int], int]) -> None:
    count = proof(5_000, 100_000)
    own.pool(count=2)
    line = '{"task": "grove.leaf", "args": [1]}'
    id = own.shell(f"yes '{line}' | head -n {count} >> $COVEY_SPAWN")
    (job,) = own.completes(id, within_s=proof(60, 600))
    assert job.children.total == count


# ── what a tree means ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_grandchild_is_refused_and_its_job_is_dead_at_once(shared: Yard) -> None:
    dead, caught = shared.call("too_deep", False), shared.call("too_deep", True)
    shared.ends(dead, caught)
    (child,) = children(shared, dead)
    assert (child.state, child.attempts, shared.traces("tries")) == ("dead", 1, ["1", "1"])
    assert "is at depth 1 and its tree may be 1 deep" in (child.error or "")
    (child,) = children(shared, caught)
    assert child.result == f"SpawnRefused at depth 1 below {caught} of {caught}"


def test_a_command_whose_spawn_is_too_deep_is_dead_at_once_unless_it_goes_on(shared: Yard) -> None:
    deep = f"echo $COVEY_JOB_ID >> deep; {COVEY} spawn true"
    flaky = f"{deep} || true; [ $COVEY_ATTEMPT = 2 ] || exit 7"
    lines = [f"{COVEY} spawn --max-attempts 3 '{script}'" for script in (deep, f"set -e; {deep}; echo no", flaky)]
    id = shared.shell("; ".join(lines), on_error="collect", **SOON)
    shared.ends(id, within_s=60)
    refused, strict, caught = children(shared, id)
    for child in (refused, strict):
        assert (child.state, child.attempts) == ("dead", 1), shared.describe(child.id)
        assert f"job {child.id} is at depth 1 and its tree may be 1 deep" in (child.error or "")
    assert (caught.state, caught.attempts) == ("completed", 2), shared.describe(caught.id)


def test_a_join_that_collects_sees_how_each_child_ended(shared: Yard) -> None:
    (job,) = shared.completes(shared.call("collect", on_error="collect"))
    assert job.result == [
        ["completed", 9, None],
        ["dead", None, "ValueError: one broke"],
        ["dead", None, "exit code 3"],
    ]


def test_serial_children_run_in_the_order_of_spawning(shared: Yard) -> None:
    shared.completes(shared.call("in_order", "order", 8))
    assert shared.traces("order") == [str(n) for n in range(8)]


def test_a_child_adds_siblings_and_the_parent_waits_for_them(shared: Yard) -> None:
    (job,) = shared.completes(shared.call("wants_more", "more", 5))
    assert (job.children.total, job.children.unfinished) == (6, 0)
    assert shared.traces("more") == ["5", "5", "4", "3", "2", "1", "0"]


def test_a_child_can_ask_which_siblings_failed(shared: Yard) -> None:
    shared.ends(shared.call("one_breaks_first", "back"))
    assert shared.traces("back") == ["ValueError: first"]


def test_uncles_run_when_the_tree_has_ended(shared: Yard) -> None:
    shared.completes(shared.call("with_uncles", "well", False))
    assert shared.trace("well", 3)[0] == "child"
    assert sorted(shared.traces("well")) == ["always", "child", "on success"]
    shared.ends(shared.call("with_uncles", "badly", True))
    assert shared.trace("badly") == ["always"]


# ── crashes and crowds ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_parent_killed_after_k_of_n_spawns_has_exactly_n_children_after_its_retry(
    own: Yard, proof: Callable[[int, int], int]
) -> None:
    count = proof(6, 20)
    own.pool(count=2).started()
    ids = own.calls("killed_after", [[count, k] for k in range(count + 1)], **SOON)
    for job in own.completes(*ids, within_s=120):
        assert (job.children.total, job.result) == (count, sum(n * n for n in range(count))), own.describe(job.id)
        keys = [child.key for child in children(own, job.id)]
        assert keys == [f"leaf-{n}" for n in range(count)]
        assert [run.outcome for run in own.engine.history(job.id)] == ["worker_lost"]


def test_a_pool_of_one_finishes_a_parent_that_waits_for_three(own: Yard) -> None:
    own.pool(count=1)
    job, other = own.completes(own.call("parent", 3), own.call("aparent", 3, kind="async"))
    assert (job.result, other.children.total) == (5, 4)


def test_cancelling_a_root_ends_every_family_below_it(own: Yard, proof: Callable[[int, int], int]) -> None:
    width = proof(1, 4)
    own.engine.set_queue("default", max_depth=5)
    own.pool(count=5 * width)
    id = own.call("level", "pids", 5, width)
    own.trace("pids", 5 * width, within_s=30)
    pids = [int(pid) for pid in own.traces("pids")]
    assert own.job(id).state == "waiting"
    own.engine.cancel([id])
    until(lambda: not any(job.pool for job in below(own, id)), 10, "every family is gone")
    assert {job.state for job in below(own, id)} == {"cancelled"}
    assert gone(*pids)


def below(yard: Yard, id: int) -> list[JobView]:
    found = [yard.job(id)]
    for job in found:
        found += children(yard, job.id)
    return found


def test_a_thousand_children_that_end_at_once_continue_their_parent_once(
    own: Yard, proof: Callable[[int, int], int]
) -> None:
    count = 1000
    for _ in range(proof(1, 2)):
        own.pool(count=proof(4, 8))
    id = own.call("parent", count)
    (job,) = own.completes(id, within_s=60)
    assert (job.result, job.attempts) == (sum(n * n for n in range(count)), 1)
    assert own.traces("joins") == [str(id)]
    assert own.counts() == {"completed": count + 1}


def test_random_kills_lose_no_child_and_add_none(own: Yard, proof: Callable[[Any, Any], Any]) -> None:
    """Pools, zygotes and workers die all the time; each tree has the nodes that it was written with, each once."""
    rng = random.Random(4)
    widths = proof([3, 3, 2], [5, 10])
    own.engine.set_queue("default", max_depth=3)
    pools = [own.pool(count=2), own.pool(count=2)]
    trees = [f"tree-{n}" for n in range(proof(3, 200))]
    ids = own.calls("nested", [["nodes", name, widths] for name in trees], max_attempts=1000, **SOON)
    kills: Counter[str] = Counter()
    while not own.engine.wait_for(ids, rng.uniform(0.05, 0.3)) and kills.total() < proof(12, 300):
        victim = rng.choice(("pool", "zygote", "worker", "worker"))
        pool = rng.choice(pools)
        if victim == "pool":
            pool.kill()
            pools.remove(pool)
            pools.append(own.pool(count=2))
        elif (targets := pool.processes()[2 if victim == "zygote" else 3 :]) and pool.process.poll() is None:
            kill(targets[0] if victim == "zygote" else rng.choice(targets))
        kills[victim] += 1
    nodes = 1 + sum(math.prod(widths[: depth + 1]) for depth in range(len(widths)))
    for job in own.completes(*ids, within_s=proof(120, 600)):
        assert job.result == nodes, f"after {kills}: {own.describe(job.id)}"
        assert len(below(own, job.id)) == nodes
    assert own.counts() == {"completed": nodes * len(ids)}
    print(f"{len(ids)} trees of {nodes} jobs under {dict(kills)}")


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
