"""The rows of a table, out of one database and into another: which tables and columns there are, COPY in both directions, and a digest of
the rows that does not depend on their order.

COPY's text form means the same on every server version, and needs no program beside psycopg. Knows nothing about migrations or files."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import NamedTuple

from psycopg import sql

from hermes.stores.postgres.database import Connection
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("table_copy")

OLDEST_XID = "3"
"""The first transaction number of any server. Numbers of one server mean nothing on another: there every copied row is simply old."""

SAME_TEXT = (
    "set timezone = 'UTC'; set datestyle = 'ISO, YMD'; set intervalstyle = 'postgres'; set extra_float_digits = 1; "
    "set bytea_output = 'hex'; set client_encoding = 'UTF8'; set statement_timeout = 0; set lock_timeout = 0; "
    "set idle_in_transaction_session_timeout = 0"
)
"""Session settings under which equal values have equal text, on whatever server, and under which a long copy is not cut off."""


class Column(NamedTuple):
    """A column that is copied. Generated columns are not: the target computes them."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table, and the columns of it that are copied."""

    name: str
    columns: tuple[Column, ...]

    @property
    def column_list(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(column.name) for column in self.columns)

    @property
    def values(self) -> sql.Composed:
        """What is read in place of the columns: the columns themselves, and for transaction numbers the oldest one."""
        return sql.SQL(", ").join(
            sql.SQL("case when {} is not null then {}::xid8 end").format(sql.Identifier(column.name), sql.Literal(OLDEST_XID))
            if column.type == "xid8"
            else sql.Identifier(column.name)
            for column in self.columns
        )


class SequenceState(NamedTuple):
    """Where a sequence stands."""

    last_value: int
    is_called: bool


@dataclass(slots=True)
class RowsDigest:
    """Counts the rows of COPY's text, and adds up their hashes: two tables with the same rows have the same digest, in any order."""

    rows: int = 0
    _sum: int = 0
    _rest: bytes = field(default=b"", repr=False)

    def update(self, chunk: bytes) -> None:
        """Take a piece of COPY's text. It may end within a row. A line feed ends a row: in values it is written as \\n."""
        *rows, self._rest = (self._rest + chunk).split(b"\n")
        for row in rows:
            self._sum += int.from_bytes(hashlib.blake2b(row, digest_size=16).digest())
        self.rows += len(rows)

    @property
    def value(self) -> str:
        return f"{self._sum % 2**128:032x}"


async def list_tables(connection: Connection) -> list[TableShape]:
    """All tables of the schema but the list of migrations; a table comes after those that it refers to."""
    columns: dict[str, list[Column]] = {}
    for table, name, kind in await (await connection.execute(SQL["columns"])).fetchall():
        columns.setdefault(table, []).append(Column(name, kind))
    order = TopologicalSorter[str](dict.fromkeys(sorted(columns), ()))
    for table, target in await (await connection.execute(SQL["references"])).fetchall():
        if table in columns and target in columns:
            order.add(table, target)
    return [TableShape(table, tuple(columns[table])) for table in order.static_order()]


async def read_rows(connection: Connection, table: TableShape) -> AsyncIterator[bytes]:
    """The rows of a table as COPY's text, in pieces."""
    query = sql.SQL("copy (select {} from {}) to stdout").format(table.values, sql.Identifier(table.name))
    async with connection.cursor().copy(query) as copy:
        async for chunk in copy:
            yield bytes(chunk)


async def write_rows(connection: Connection, table: TableShape, chunks: AsyncIterable[bytes]) -> RowsDigest:
    """Write rows into a table; return the digest of what was written."""
    digest = RowsDigest()
    query = sql.SQL("copy {} ({}) from stdin").format(sql.Identifier(table.name), table.column_list)
    async with connection.cursor().copy(query) as copy:
        async for chunk in chunks:
            digest.update(chunk)
            await copy.write(chunk)
    return digest


async def digest_rows(connection: Connection, table: TableShape) -> RowsDigest:
    """Read a table only for its digest."""
    digest = RowsDigest()
    async for chunk in read_rows(connection, table):
        digest.update(chunk)
    return digest


async def clear_tables(connection: Connection, tables: Sequence[TableShape]) -> None:
    """Delete the rows that migrations put in. Triggers must be off: the ledger's refuses."""
    names = sql.SQL(", ").join(sql.Identifier(table.name) for table in tables)
    await connection.execute(sql.SQL("truncate {}").format(names))


async def set_triggers(connection: Connection, tables: Sequence[TableShape], *, are_on: bool) -> None:
    """Switch the triggers of the tables, but not their foreign keys. The owner of the tables may do so, without further rights."""
    change = sql.SQL("enable" if are_on else "disable")
    for table in tables:
        await connection.execute(sql.SQL("alter table {} {} trigger user").format(sql.Identifier(table.name), change))


async def read_sequences(connection: Connection) -> dict[str, SequenceState]:
    """Where every sequence of the schema stands. After the rows were read: a sequence is never behind what it numbered."""
    found = {}
    for (name,) in await (await connection.execute(SQL["sequences"])).fetchall():
        query = sql.SQL("select last_value, is_called from {}").format(sql.Identifier(name))
        [(last_value, is_called)] = await (await connection.execute(query)).fetchall()
        found[name] = SequenceState(last_value, is_called)
    return found


async def set_sequence(connection: Connection, name: str, state: SequenceState) -> None:
    query = "select setval(quote_ident(%s)::regclass, %s, %s)"
    await connection.execute(query, [name, state.last_value, state.is_called])
