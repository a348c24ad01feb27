"""Stored turns by the million: copies of one turn that Hermes stored, each of a user and a conversation of its own.

The rows are made inside PostgreSQL, a chunk in a transaction. Sealed columns are copied as they are: nothing reads the copies' words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import psycopg

CHUNK = 25_000
DAYS = 25
"""The copies are spread over so many days before now; the journal's retention leaves them alone."""
TABLES = (
    ("users", "id = %(user_id)s"),
    ("data_keys", "user_id = %(user_id)s"),
    ("user_channels", "user_id = %(user_id)s"),
    ("credit_balances", "user_id = %(user_id)s"),
    ("credit_entries", "user_id = %(user_id)s"),
    ("conversations", "id = %(conversation_id)s"),
    ("sessions", "id = %(session_id)s"),
    ("graph_messages", "session_id = %(session_id)s"),
    ("graph_log", "session_id = %(session_id)s"),
    ("graph_samples", "session_id = %(session_id)s"),
    ("inbox", "turn_id = %(turn_id)s"),
    ("runs", "turn_id = %(turn_id)s"),
    ("run_events", "turn_id = %(turn_id)s"),
    ("outbox", "turn_id = %(turn_id)s"),
    ("interactions", "turn_id = %(turn_id)s"),
    ("calls", "turn_id = %(turn_id)s"),
)
OWN_ID = {"users": "user_id", "conversations": "conversation_id", "sessions": "session_id", "calls": "call_id"}
REPLACED = {
    "user_id": "b.user_id",
    "turn_id": "b.turn_id",
    "conversation_id": "b.conversation_id",
    "session_id": "b.session_id",
    "event_key": "'bulk ' || b.n",
    "channel_id": "'bulk ' || b.n",
    "sender_id": "'bulk ' || b.n",
    "referral_code": "'bulk ' || b.n",
    "day": "(b.at at time zone 'UTC')::date",
    "xid": "pg_current_xact_id()",
    "event": "case when t.turn_id is null then 'bulk ' || b.n else b.turn_id || '/' || t.attempt end",
    "event_number": "nextval('event_numbers')",
}
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Template:
    """The turn that is copied."""

    user_id: UUID
    turn_id: UUID
    conversation_id: UUID
    session_id: UUID

    @classmethod
    def read(cls, url: str, channel: str) -> Template:
        """The only turn of this channel of the API."""
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "select i.user_id, i.turn_id, i.conversation_id, x.session_id from inbox as i join interactions as x using (turn_id)"
                " join conversations as k on k.id = i.conversation_id where k.channel_id = %s",
                [channel],
            ).fetchone()
        assert row is not None
        return cls(*row)

    @property
    def values(self) -> dict[str, UUID]:
        return {name: getattr(self, name) for name in ("user_id", "turn_id", "conversation_id", "session_id")}


def fill_to(url: str, template: Template, users: int, progress: Progress) -> None:
    """Add copies until there are so many users; then vacuum, as autovacuum would have by then."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        connection.execute("set session_replication_role = replica")  # the copies' references are right by construction
        connection.execute("select make_months(now() - %s * interval '1 day', now())", [DAYS])
        statements = copy_statements(connection, template)
        [(count,)] = connection.execute("select count(*) from users").fetchall()
        while count < users:
            more = min(CHUNK, users - count)
            with connection.transaction():
                connection.execute(
                    "create temp table bulk on commit drop as " + BULK, {"first": count, "last": count + more - 1, "days": DAYS}
                )
                for statement in statements:
                    connection.execute(statement.encode())
            count += more
            if count % (10 * CHUNK) == 0 or count == users:
                progress(f"{count:,} of {users:,} users and turns")
        progress("vacuum")
        connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")


BULK = """
select n, at, gen_random_uuid() as user_id, gen_random_uuid() as conversation_id, gen_random_uuid() as session_id,
    (left(id_of_time(at)::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid as turn_id,
    (left(id_of_time(at)::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid as call_id
from (select n, now() - random() * %(days)s * interval '1 day' as at from generate_series(%(first)s::bigint, %(last)s::bigint) as n) as each
order by at
"""


def copy_statements(connection: psycopg.Connection, template: Template) -> list[str]:
    """One statement for each table: its rows of the template, once for each row of `bulk`."""
    statements = []
    for table, condition in TABLES:
        connection.execute(f"create temp table template_{table} as select * from {table} where {condition}", template.values)  # noqa: S608
        columns = connection.execute(
            "select attname, atttypid::regtype::text from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum"
            " where attrelid = %s::regclass and attnum > 0 and not attisdropped and attgenerated = '' and attidentity = ''"
            " and coalesce(pg_get_expr(adbin, adrelid), '') not like 'nextval%%id_seq%%' order by attnum",
            [table],
        ).fetchall()
        values = ", ".join(value_of(table, name, kind) for name, kind in columns)
        names = ", ".join(name for name, _ in columns)
        statements.append(f"insert into {table} ({names}) select {values} from bulk as b cross join template_{table} as t order by b.at")  # noqa: S608
    return statements


def value_of(table: str, column: str, kind: str) -> str:
    if column == "id" and table in OWN_ID:
        return f"b.{OWN_ID[table]}"
    value = "b.at" if kind == "timestamp with time zone" else REPLACED.get(column)
    return f"t.{column}" if value is None else f"case when t.{column} is not null then {value} end"


def table_sizes(url: str, limit: int = 8) -> list[tuple[str, float]]:
    """The largest tables, partitions added up, in megabytes."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "select coalesce(inhparent::regclass::text, relname), sum(pg_total_relation_size(c.oid))::float8 / 1e6"
            " from pg_class as c left join pg_inherits on inhrelid = c.oid where relnamespace = 'public'::regnamespace and relkind = 'r'"
            " group by 1 order by 2 desc limit %s",
            [limit],
        ).fetchall()
