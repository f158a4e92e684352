"""Enqueue in the caller's own transaction, through SQLAlchemy, Django and psycopg2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import django
import django.db
import psycopg2
import pytest
import sqlalchemy
from django.conf import settings
from django.db import DatabaseError, connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from covey import Covey, Duplicate, InvalidInput, Refused
from covey.core.view import Filter
from covey.errors import StoreError
from tests.kit.postgres import Given, Server

from .. import functions
from .looks import stored


def dsn(server: Server | Given) -> str:
    return " ".join(f"{name}={value}" for name, value in conninfo_to_dict(server.admin_url).items())


# ── SQLAlchemy ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["psycopg", "psycopg2"])
def database(request: pytest.FixtureRequest, server: Server | Given) -> Iterator[sqlalchemy.Engine]:
    where = conninfo_to_dict(server.admin_url)
    engine = sqlalchemy.create_engine(f"postgresql+{request.param}://", connect_args=where)
    yield engine
    engine.dispose()


def test_a_session(app: Covey, database: sqlalchemy.Engine) -> None:
    add = app.task(functions.add)
    with Session(database) as session:
        job = add.using(tx=session).enqueue(1)
        assert stored(app) == []
        session.commit()
        assert stored(app) == [job.id]
        add.using(tx=session).enqueue(2)
        session.rollback()
        add.using(tx=session).enqueue(3)
    assert stored(app) == [job.id], "closed without a commit"
    with Session(database) as session, session.begin():
        more = app.shell("true", tx=session)
    assert stored(app) == [job.id, more.id]


def test_a_sessions_savepoint_and_a_taken_key(app: Covey, database: sqlalchemy.Engine) -> None:
    add = app.task(functions.add)
    with Session(database) as session, session.begin():
        first = add.using(tx=session, key="a").enqueue(1)
        nested = session.begin_nested()
        add.using(tx=session).enqueue(2)
        nested.rollback()
        with pytest.raises(Duplicate) as refusal:
            add.using(tx=session, key="a").enqueue(3)
        assert refusal.value.job_id == first.id
        assert session.execute(sqlalchemy.text("select 1")).scalar() == 1
    assert stored(app) == [first.id]


def test_a_scoped_session(app: Covey, database: sqlalchemy.Engine) -> None:
    session = scoped_session(sessionmaker(database))
    job = app.task(functions.add).using(tx=session).enqueue(1)
    session.commit()
    session.remove()
    assert stored(app) == [job.id]


def test_a_connection_that_has_not_begun_knows_that_it_has(app: Covey, database: sqlalchemy.Engine) -> None:
    add = app.task(functions.add)
    with database.connect() as conn:
        job = add.using(tx=conn).enqueue(1)
        assert stored(app) == []
        conn.commit()
        assert stored(app) == [job.id]
        add.using(tx=conn).enqueue(2)
    with database.begin() as conn:
        more = add.using(tx=conn).enqueue(3)
    assert stored(app) == [job.id, more.id]


def test_sqlalchemys_autocommit_is_refused(app: Covey, database: sqlalchemy.Engine) -> None:
    add = app.task(functions.add)
    with database.connect() as conn:
        conn.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(Refused, match="autocommit"):
            add.using(tx=conn).enqueue(1)
    assert stored(app) == []


def test_a_session_that_must_roll_back_is_refused(app: Covey, database: sqlalchemy.Engine) -> None:
    add = app.task(functions.add)
    with Session(database) as session:
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            session.execute(sqlalchemy.text("select 1 / 0"))
        with pytest.raises(Refused, match="failed already; roll it back"):
            add.using(tx=session).enqueue(1)
        session.rollback()
        conn = session.connection()
        conn.close()
        with pytest.raises(StoreError, match=r"^tx= cannot be used: .*$"):
            add.using(tx=conn).enqueue(1)


def test_another_kind_of_database_is_refused(app: Covey) -> None:
    add = app.task(functions.add)
    with Session() as unbound, pytest.raises(StoreError, match="tx= cannot be used"):
        add.using(tx=unbound).enqueue(1)
    mock = sqlalchemy.create_mock_engine("mysql+mysqldb://", executor=lambda *_: None)
    with pytest.raises(InvalidInput, match="it takes app"):
        add.using(tx=mock).enqueue(1)


# ── Django ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def databases(server: Server | Given) -> Iterator[None]:
    named = conninfo_to_dict(server.admin_url)
    words = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port", "PASSWORD": "password"}
    one = {"ENGINE": "django.db.backends.postgresql"} | {word: str(named.get(name, "")) for word, name in words.items()}
    all = {"default": one, "other": dict(one), "light": {"ENGINE": "django.db.backends.dummy"}}
    if not settings.configured:
        settings.configure(DATABASES=all, USE_TZ=True)
        django.setup()
    yield
    connections.close_all()


@pytest.mark.usefixtures("databases")
def test_django_in_atomic(app: Covey) -> None:
    add = app.task(functions.add)
    with transaction.atomic():
        job = add.using(tx=django.db.connection, key="a").enqueue(1)
        assert stored(app) == []
    assert stored(app) == [job.id]
    with transaction.atomic(using="other"):
        more = add.using(tx=connections["other"]).enqueue(2)
        transaction.set_rollback(False, using="other")
    assert stored(app) == [job.id, more.id]


@pytest.mark.usefixtures("databases")
def test_django_rolls_back_and_back_to_savepoints(app: Covey) -> None:
    add = app.task(functions.add)

    def fail() -> None:
        with transaction.atomic():
            add.using(tx=django.db.connection).enqueue(1)
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert stored(app) == []
    with transaction.atomic():
        first = add.using(tx=django.db.connection, key="a").enqueue(2)
        with pytest.raises(ValueError):
            fail()
        with pytest.raises(Duplicate) as refusal:
            add.using(tx=django.db.connection, key="a").enqueue(3)
        assert refusal.value.job_id == first.id
        with django.db.connection.cursor() as cursor:
            cursor.execute("select 1")
    assert stored(app) == [first.id]


@pytest.mark.usefixtures("databases")
def test_django_outside_atomic_is_refused(app: Covey) -> None:
    add = app.task(functions.add)
    with pytest.raises(Refused, match=r"autocommit mode.*transaction.atomic\(\)"):
        add.using(tx=django.db.connection).enqueue(1)
    django.db.connection.set_autocommit(False)
    job = add.using(tx=django.db.connection).enqueue(2)
    assert stored(app) == []
    django.db.connection.commit()
    django.db.connection.set_autocommit(True)
    assert stored(app) == [job.id]


@pytest.mark.usefixtures("databases")
def test_djangos_failed_transaction_is_refused(app: Covey) -> None:
    add = app.task(functions.add)
    with transaction.atomic():
        with pytest.raises(DatabaseError), transaction.atomic(savepoint=False):
            django.db.connection.cursor().execute("select 1 / 0")
        with pytest.raises(Refused, match="failed already"):
            add.using(tx=django.db.connection).enqueue(1)
        transaction.set_rollback(True)
    assert stored(app) == []


@pytest.mark.usefixtures("databases")
def test_djangos_other_databases_are_refused(app: Covey) -> None:
    with pytest.raises(InvalidInput, match="not to the queue's PostgreSQL"):
        app.task(functions.add).using(tx=connections["light"]).enqueue(1)


# ── psycopg2 ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def old(server: Server | Given) -> Iterator[Any]:
    conn = psycopg2.connect(dsn(server))
    yield conn
    conn.close()


def test_psycopg2(app: Covey, old: Any) -> None:
    add = app.task(functions.takes_anything)
    text = "' \\ % %% %s %(p0)s ü 🐈"
    job = add.using(tx=old, key="a").enqueue(text)
    with pytest.raises(Duplicate):
        add.using(tx=old, key="a").enqueue(1)
    many = add.using(tx=old).enqueue_many([add.call(n) for n in range(1001)])
    assert stored(app) == []
    old.commit()
    assert job.view.args == [[text], {}]
    assert many[1000].view.args == [[1000], {}]
    add.using(tx=old).enqueue(1)
    old.rollback()
    assert app.client.jobs(Filter(limit=1)).jobs[0].id == many[1000].id


def test_what_is_refused_of_psycopg2(app: Covey, old: Any) -> None:
    add = app.task(functions.add)
    old.autocommit = True
    with pytest.raises(Refused, match="autocommit"):
        add.using(tx=old).enqueue(1)
    old.autocommit = False
    with pytest.raises(psycopg2.Error):
        old.cursor().execute("select 1 / 0")
    with pytest.raises(Refused, match="failed already"):
        add.using(tx=old).enqueue(1)
    old.close()
    with pytest.raises(StoreError, match="closed or broken"):
        add.using(tx=old).enqueue(1)
