"""Named SQL from `.sql` files: a query is written once, under a name, in a file that editors show as SQL.

-- name: find_user
select id from users where id = %(user_id)s
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

NAME_LINE = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


PLACEHOLDER = re.compile(rb"%\((\w+)\)[sbt]")


@dataclass(frozen=True, slots=True)
class PositionalQuery:
    """A query in PostgreSQL's own form, with `$1` in the place of the first name. psycopg keeps what it found out about a query with names
    only up to 4,096 bytes; it reads a longer one again each time."""

    text: bytes
    names: tuple[str, ...]

    @classmethod
    def of(cls, query: bytes) -> PositionalQuery:
        names = list(dict.fromkeys(match[1].decode() for match in PLACEHOLDER.finditer(query)))
        text = PLACEHOLDER.sub(lambda match: b"$%d" % (names.index(match[1].decode()) + 1), query)
        return cls(text.replace(b"%%", b"%"), tuple(names))

    def values(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in the order of their numbers."""
        return [values[name] for name in self.names]


def load_queries(file: str, package: str = "") -> dict[str, bytes]:
    """The queries of `sql/{file}.sql` by name, as bytes: psycopg's types accept str only as a literal.

    With a package, `file` is the name of a file in it."""
    path = resources.files(package) / file if package else resources.files(__package__) / "sql" / f"{file}.sql"
    return split_queries(path.read_text(encoding="utf-8"))


def migration_names() -> frozenset[str]:
    """The names of this version's own migrations, as `schema_migrations` has them after they ran."""
    files = (resources.files(__package__) / "migrations").iterdir()
    return frozenset(file.name.removesuffix(".sql") for file in files if file.name.endswith(".sql"))


def split_queries(text: str) -> dict[str, bytes]:
    """Split a file at its `-- name:` lines. The text before the first one is a comment on the whole file."""
    _, *parts = NAME_LINE.split(text)
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError(f"two queries have one name: {', '.join(sorted({name for name in names if names.count(name) > 1}))}")
    return {name: body.strip().encode() for name, body in zip(names, bodies, strict=True)}
