"""Which statements a connection sends, as libpq itself traces them."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of

SENT = re.compile(r"\tF\t\d+\t(Query|Execute)\t")


@contextmanager
def logged_statements(tx: Transaction) -> Iterator[list[str]]:
    """Collect the statements of a connection: the list is filled when the block ends."""
    statements: list[str] = []
    connection = connection_of(tx).pgconn
    with tempfile.TemporaryFile("w+") as file:
        connection.trace(file.fileno())
        try:
            yield statements
        finally:
            connection.untrace()
        file.seek(0, os.SEEK_SET)
        statements += [line for line in file if SENT.search(line)]
