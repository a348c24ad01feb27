"""Named SQL from `.sql` files: a query is written once, under a name, in a file that editors show as SQL.

-- name: find_user
select id from users where id = %(user_id)s
"""

from __future__ import annotations

import re
from importlib import resources

NAME_LINE = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


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
