"""The two ports: what the engine offers is what they ask for, and the contract speaks of every verb."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.core.ports import Client, Source
from covey.engine.engine import Engine
from covey.remote.remote import Remote
from tests.kit import HandPool, check_queue, command, python_task

VERBS = [(port, name) for port in (Client, Source) for name, it in vars(port).items() if inspect.isfunction(it)]
VERBS = [(port, name) for port, name in VERBS if not name.startswith("_")]


@pytest.mark.parametrize("offering", [Engine, Remote])
@pytest.mark.parametrize(("port", "verb"), VERBS)
def test_the_engine_and_the_server_take_what_the_port_promises(port: type, verb: str, offering: type) -> None:
    promised = inspect.signature(getattr(port, verb)).parameters
    offered = inspect.signature(getattr(offering, verb)).parameters
    assert [(p.name, p.kind, p.default) for p in promised.values()] == [
        (p.name, p.kind, p.default) for p in list(offered.values())[: len(promised)]
    ]


def test_the_contract_speaks_of_every_verb() -> None:
    here = Path(__file__).parent
    spoken = "".join(file.read_text() for file in here.glob("test_*.py"))
    silent = [verb for _, verb in VERBS if not re.search(rf"\.{verb}\(", spoken) and verb not in ("turn", "register")]
    assert silent == []  # turn and register are what HandPool is made of


def test_one_engine_serves_many_threads(engine: Engine, proof: Callable[[int, int], int]) -> None:
    rounds, problems, ids = proof(20, 500), [], []

    def work(n: int) -> None:
        try:
            pool = HandPool(engine, name=f"thread-{n}")
            for _ in range(rounds):
                ids.extend(made.id for made in engine.enqueue([command(), python_task("t")]))
                for claim in pool.claim(2):
                    pool.succeed(claim, result="1")
                engine.status()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(set(ids)) == rounds * 8
    assert check_queue(engine, acknowledged=ids) == []
    assert engine.status().counts["completed"] == len(ids)


def test_closing_twice_is_harmless(engine: Engine, connect: Callable[[], Engine]) -> None:
    other = connect()
    other.enqueue([command()])
    other.close()
    other.close()
    assert engine.status().counts["pending"] == 1


def test_names_with_emoji_and_markup_come_back_as_they_went(engine: Engine) -> None:
    odd = "🐦 [red]x[/red] <b>&amp;</b> ñ"
    (made,) = engine.enqueue([command(odd, key=odd, batch=odd, labels={odd: odd}, cwd=f"/tmp/{odd}")])
    job = engine.job(odd)
    assert (job.id, job.key, job.batch, job.labels, job.cwd) == (made.id, odd, odd, {odd: odd}, f"/tmp/{odd}")
    assert job.command == odd
