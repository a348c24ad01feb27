"""Migrated databases for tests, used again and again: a test that is done leaves its database as empty as it found it.

To make a database takes much longer than to empty one. If a test changed the schema, left a client connected, or left very much behind, its
database is dropped."""

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import make_conninfo

MAX_BYTES = 60_000_000
"""A larger database is dropped: its dead rows would slow down the tests after it."""
LEAVING_S = 1.0
"""How long the server may take to notice that a client has gone, or was killed."""

EMPTY = """
do $$
declare
    place text;
    is_filled boolean;
begin
    set local session_replication_role = replica;
    for place in select format('%I.%I', schemaname, tablename) from pg_tables where schemaname !~ '^(pg_|information_schema)' loop
        execute 'select exists (select from ' || place || ')' into is_filled;
        if is_filled then
            execute 'delete from ' || place;
        end if;
    end loop;
    perform setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
    from pg_sequences where last_value is not null;
end $$
"""
"""Deletes every row without asking triggers or foreign keys, and starts every sequence again."""

SCHEMA_DIGEST = """
with parts (part) as (
    select concat_ws(' ', 'class', oid, xmin) from pg_class where oid >= 16384
    union all select concat_ws(' ', 'column', attrelid, attnum, xmin) from pg_attribute where attrelid >= 16384
    union all select concat_ws(' ', 'default', oid, xmin) from pg_attrdef
    union all select concat_ws(' ', 'constraint', oid, xmin) from pg_constraint
    union all select concat_ws(' ', 'index', indexrelid, xmin) from pg_index where indexrelid >= 16384
    union all select concat_ws(' ', 'trigger', oid, xmin) from pg_trigger
    union all select concat_ws(' ', 'event trigger', oid, xmin) from pg_event_trigger
    union all select concat_ws(' ', 'rule', oid, xmin) from pg_rewrite where oid >= 16384
    union all select concat_ws(' ', 'policy', oid, xmin) from pg_policy
    union all select concat_ws(' ', 'function', oid, xmin) from pg_proc where oid >= 16384
    union all select concat_ws(' ', 'type', oid, xmin) from pg_type where oid >= 16384
    union all select concat_ws(' ', 'label', oid, xmin) from pg_enum
    union all select concat_ws(' ', 'sequence', seqrelid, xmin) from pg_sequence
    union all select concat_ws(' ', 'statistics', oid, xmin) from pg_statistic_ext
    union all select concat_ws(' ', 'comment', classoid, objoid, objsubid, xmin) from pg_description where objoid >= 16384
    union all select concat_ws(' ', 'publication', oid, xmin) from pg_publication
    union all select concat_ws(' ', 'extension', oid, xmin) from pg_extension
    union all select concat_ws(' ', 'schema', oid, xmin) from pg_namespace where nspname !~ '^pg_'
    union all select concat_ws(' ', 'large object', oid, xmin) from pg_largeobject_metadata
    union all select concat_ws(' ', 'setting', setrole, setconfig) from pg_db_role_setting join pg_database on pg_database.oid = setdatabase
        where datname = current_database()
)
select md5(string_agg(part, ';' order by part)) from parts
"""
"""Every change of the schema writes a row of a catalogue, and `xmin` names the transaction that wrote it. 16384 is the first id that the
server gives to what its users make."""


class DatabasePool:
    """Databases on one server, made from one template. Not for several threads."""

    def __init__(self, server_url: str, template: str) -> None:
        self._server_url, self._template = server_url, template
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._digests: dict[str, str] = {}
        with psycopg.connect(self.url_of(template), autocommit=True) as connection:
            self._rows = [(table, copy_rows(connection, table)) for table in filled_tables(connection)]
            used = connection.execute("select sequencename from pg_sequences where last_value is not null").fetchall()
        assert not used, "EMPTY starts every sequence at its beginning"

    @contextmanager
    def take(self) -> Iterator[str]:
        """Yield the address of a database that is as the template."""
        name = self._free.pop() if self._free else self._make()
        try:
            yield self.url_of(name)
        finally:
            if self._is_emptied(name):
                self._free.append(name)
            else:
                self._execute(f"drop database {name} with (force)")

    def url_of(self, name: str) -> str:
        return make_conninfo(self._server_url, dbname=name)

    def _make(self) -> str:
        name = f"test_{next(self._numbers)}"
        self._execute(f"create database {name} template {self._template} strategy file_copy")
        self._execute(f"alter database {name} set synchronous_commit = off")  # no test cuts the power of this server
        with psycopg.connect(self.url_of(name), autocommit=True) as connection:
            self._digests[name] = schema_digest(connection)
        return name

    def _is_emptied(self, name: str) -> bool:
        """Make a database as the template again; return False if that cannot be done."""
        try:
            with psycopg.connect(self.url_of(name), autocommit=True) as connection:
                if not is_left_alone(connection) or schema_digest(connection) != self._digests[name] or size_of(connection) > MAX_BYTES:
                    return False
                connection.execute(EMPTY)
                with connection.transaction():
                    connection.execute("set local session_replication_role = replica")
                    for table, rows in self._rows:
                        with connection.cursor().copy(f"copy {table} from stdin") as copy:
                            copy.write(rows)
        except psycopg.Error:
            return False
        return True

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(statement.encode())


def filled_tables(connection: psycopg.Connection) -> Sequence[str]:
    named = "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname !~ '^(pg_|information_schema)'"
    return [table for (table,) in connection.execute(named).fetchall() if connection.execute(f"table {table} limit 1".encode()).fetchall()]


def copy_rows(connection: psycopg.Connection, table: str) -> bytes:
    with connection.cursor().copy(f"copy {table} to stdout".encode()) as copy:
        return b"".join(copy)


def is_left_alone(connection: psycopg.Connection) -> bool:
    """Whether no other client is connected. One that stays, or comes back, would write into the next test."""
    others = """
        select from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
    """
    end = time.monotonic() + LEAVING_S
    while connection.execute(others).fetchall():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def schema_digest(connection: psycopg.Connection) -> str:
    [(digest,)] = connection.execute(SCHEMA_DIGEST).fetchall()
    return str(digest)


def size_of(connection: psycopg.Connection) -> int:
    [(size,)] = connection.execute("select pg_database_size(current_database())").fetchall()
    return int(size)
