"""Enqueue in the caller's own transaction, on an async connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from covey import Covey, Duplicate, InvalidInput, Refused
from covey.errors import StoreError
from tests.kit.postgres import Given, Server

from .. import functions
from .looks import stored

Connect = Callable[..., Any]


@pytest.fixture
def connect(server: Server | Given) -> Connect:
    @asynccontextmanager
    async def connect(**options: Any) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        conn = await psycopg.AsyncConnection.connect(server.admin_url, **options)
        try:
            yield conn
        finally:
            await conn.close()

    return connect


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_job_is_there_when_the_caller_commits_and_not_before(app: Covey, connect: Connect) -> None:
    add = app.task(functions.add)

    async def main() -> None:
        async with connect() as conn:
            job = await add.using(tx=conn, key="a").aenqueue(1)
            assert stored(app) == []
            await conn.commit()
            assert stored(app) == [job.id]
            assert job.view.args == [[1], {}]
            await add.using(tx=conn).aenqueue(2)
            await conn.rollback()
            await add.using(tx=conn).aenqueue(3)
        assert stored(app) == [job.id], "closed before the commit"

    run(main)


def test_keys_and_savepoints(app: Covey, connect: Connect) -> None:
    add = app.task(functions.add)

    async def main() -> None:
        async with connect() as conn:
            async with conn.transaction():
                first = await add.using(tx=conn, key="a").aenqueue(1)
                async with conn.transaction(force_rollback=True):
                    await add.using(tx=conn).aenqueue(2)
                with pytest.raises(Duplicate) as refusal:
                    await add.using(tx=conn, key="a").aenqueue(3)
                assert refusal.value.job_id == first.id
                again = await add.using(tx=conn, key="a", if_exists="return").aenqueue(4)
                assert (again.id, again.existing) == (first.id, True)
            assert stored(app) == [first.id]

    run(main)


def test_the_loop_goes_on_while_a_key_is_waited_for(app: Covey, connect: Connect) -> None:
    """More of them than the loop's executor has threads, all waiting for the one that is to free them."""
    add = app.task(functions.add)

    async def one(conn: Any) -> int:
        try:
            await add.using(tx=conn, key="a").aenqueue(2)
        except Duplicate as error:
            await conn.rollback()
            return error.job_id
        raise AssertionError("the key was free")

    async def main() -> None:
        async with connect() as first, asyncio.TaskGroup() as group:
            job = await add.using(tx=first, key="a").aenqueue(1)
            conns = [await psycopg.AsyncConnection.connect(first.info.dsn) for _ in range(40)]
            waiting = [group.create_task(one(conn)) for conn in conns]
            while await _waiting(first) < len(conns):
                await asyncio.sleep(0.02)
            other = await add.using(tx=first).aenqueue(3)
            await first.commit()
            assert await asyncio.gather(*waiting) == [job.id] * len(conns)
            for conn in conns:
                await conn.close()
        assert stored(app) == [job.id, other.id]

    run(main)


async def _waiting(conn: Any) -> int:
    sql = "select count(*) from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0"
    async with psycopg.AsyncCursor(conn) as cursor:
        await cursor.execute("select pg_stat_clear_snapshot()")
        ((count,),) = await (await cursor.execute(sql)).fetchall()
        return int(count)


def test_a_cancelled_enqueue_has_let_go_of_the_connection(app: Covey, connect: Connect) -> None:
    """Cancelled while it waits for a key: what it did is undone, and the same transaction goes on."""
    add = app.task(functions.add)

    async def main() -> None:
        async with connect() as mine, connect() as theirs:
            kept = await add.using(tx=mine).aenqueue(1)
            await add.using(tx=theirs, key="a").aenqueue(2)
            waits = asyncio.create_task(add.using(tx=mine, key="a").aenqueue(3))
            while not await _waiting(theirs):
                await asyncio.sleep(0.02)
            waits.cancel()
            done, _ = await asyncio.wait([waits], timeout=10)
            await theirs.rollback()  # if it still waits, this is the end of that
            assert done == {waits}
            assert waits.cancelled()
            also = await add.using(tx=mine).aenqueue(4)
            await mine.commit()
        assert stored(app) == [kept.id, also.id]

    run(main)


@pytest.mark.parametrize("steps", range(60))
def test_an_enqueue_cancelled_anywhere_leaves_a_usable_transaction(app: Covey, connect: Connect, steps: int) -> None:
    add = app.task(functions.add)

    async def main() -> None:
        async with connect() as conn:
            await conn.execute("select 1")
            going = asyncio.create_task(add.using(tx=conn).aenqueue(1))
            for _ in range(steps):
                await asyncio.sleep(0.0005)
            going.cancel()
            await asyncio.wait([going])
            kept = await add.using(tx=conn).aenqueue(2)
            await conn.commit()
        others = stored(app)[:-1]
        assert stored(app) == [*others, kept.id]
        assert len(others) <= 1, "there, if it was done already when it was cancelled"
        assert going.cancelled() or others == [going.result().id]

    run(main)


def test_sync_and_async_are_not_mixed_up(app: Covey, connect: Connect, server: Server | Given) -> None:
    add = app.task(functions.add)

    async def main() -> None:
        async with connect() as conn:
            with pytest.raises(InvalidInput, match=r"async connection; write `await task.using\(tx=conn\).aenqueue"):
                add.using(tx=conn).enqueue(1)
            with pytest.raises(InvalidInput, match="async connection"):
                app.shell("true", tx=conn)
        with psycopg.connect(server.admin_url) as sync, pytest.raises(InvalidInput, match="call enqueue instead"):
            await add.using(tx=sync).aenqueue(1)
        with pytest.raises(InvalidInput, match="call enqueue instead"):
            await add.using(tx=object()).aenqueue(1)

    run(main)


def test_what_is_refused(app: Covey, connect: Connect) -> None:
    add = app.task(functions.add)

    async def main() -> None:
        async with connect(autocommit=True) as conn:
            with pytest.raises(Refused, match="autocommit"):
                await add.using(tx=conn).aenqueue(1)
            with pytest.raises(InvalidInput):
                await add.using(tx=conn, key="12").aenqueue(1)
        with pytest.raises(StoreError, match="closed or broken"):
            await add.using(tx=conn).aenqueue(1)
        async with connect() as conn:
            with Covey("memory:async") as sqlite, pytest.raises(InvalidInput, match="PostgreSQL"):
                await sqlite.task(functions.add).using(tx=conn).aenqueue(1)

    run(main)


def test_sqlalchemys_async_session_and_connection(app: Covey, server: Server | Given) -> None:
    add = app.task(functions.add)

    async def main() -> None:
        engine = create_async_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(server.admin_url))
        try:
            async with AsyncSession(engine) as session:
                first = await add.using(tx=session).aenqueue(1)
                assert stored(app) == []
                await session.commit()
                await add.using(tx=session).aenqueue(2)
                await session.rollback()
            async with engine.connect() as conn:
                second = await add.using(tx=conn).aenqueue(3)
                await conn.commit()
                await add.using(tx=conn).aenqueue(4)
            with pytest.raises(InvalidInput, match="async connection"):
                add.using(tx=session).enqueue(5)
            assert stored(app) == [first.id, second.id]
        finally:
            await engine.dispose()

    run(main)
