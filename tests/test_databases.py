"""A database that a test has used is as new for the next test, or it is dropped."""

import psycopg
import pytest

from tests.databases import DatabasePool

ROWS = """
    insert into users (id, state, referral_code) values (gen_random_uuid(), 'active', 'x');
    insert into meals (user_id, at, eaten) select id, now(), '' from users;
    delete from schema_migrations;
"""
READ = "select (select count(*) from users), (select count(*) from meals), (select count(*) > 0 from schema_migrations)"


def test_rows_and_sequences_are_as_in_the_template(databases: DatabasePool) -> None:
    with databases.take() as first, psycopg.connect(first) as connection:
        connection.execute(ROWS)
        assert connection.execute(READ).fetchall() == [(1, 1, False)]
    with databases.take() as second, psycopg.connect(second) as connection:
        assert connection.execute(READ).fetchall() == [(0, 0, True)]
        connection.execute(ROWS)
        assert connection.execute("select id from meals").fetchall() == [(1,)]
    assert first == second


@pytest.mark.parametrize(
    "change",
    [
        "alter table users alter column tier set default 'gold'",
        "alter table users set (autovacuum_enabled = off)",
        "alter table users enable row level security",
        "grant select on users to public",
        "alter sequence meals_id_seq increment by 7",
        "alter function post_credit cost 7",
        "alter view open_reserves set (security_barrier = on)",
        "create type mood as enum ('good', 'bad')",
        "create index on users (tier)",
        "create schema elsewhere",
        "comment on table users is 'people'",
        "select lo_create(0)",
        "do $$ begin execute format('alter database %I set work_mem = ''8MB''', current_database()); end $$",
    ],
)
def test_a_database_with_another_schema_is_dropped(change: str, databases: DatabasePool) -> None:
    with databases.take() as first, psycopg.connect(first) as connection:
        connection.execute(change.encode())
    with databases.take() as second:
        assert second != first


def test_a_database_that_a_client_still_uses_is_dropped(databases: DatabasePool) -> None:
    with databases.take() as first:
        left = psycopg.connect(first, autocommit=True)
    with pytest.raises(psycopg.OperationalError), left:
        left.execute("select 1")
    with databases.take() as second:
        assert second != first
