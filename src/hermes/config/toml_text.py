"""Write a table as TOML: for any value that TOML knows, `tomllib` reads the same table back. Comments are not kept: a table has none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def toml_text(table: Mapping[str, Any]) -> str:
    """Return the table as the text of a file. Raises ValueError for a value that TOML does not know, such as None."""
    return "\n".join(table_lines(table, ())).lstrip("\n") + "\n" if table else ""


def table_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a table: its plain values first, because a value below a heading belongs to that heading."""
    for key, value in table.items():
        if not is_section(value):
            yield f"{key_text(key)} = {value_text(value)}"
    for key, value in table.items():
        place = (*path, key)
        if isinstance(value, Mapping):
            if not value or any(not is_section(inner) for inner in value.values()):
                yield from ("", f"[{'.'.join(map(key_text, place))}]")
            yield from table_lines(value, place)
        elif is_section(value):
            for item in value:
                yield from ("", f"[[{'.'.join(map(key_text, place))}]]")
                yield from table_lines(item, place)


def is_section(value: object) -> bool:
    """Whether a value is written under a heading of its own: a table, or a list of nothing but tables."""
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value))


def key_text(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else string_text(key)


def value_text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return string_text(value)
        case int() | float():
            return str(value)  # also inf and nan
        case date() | time():
            return value.isoformat()
        case Mapping():
            return f"{{{', '.join(f'{key_text(key)} = {value_text(inner)}' for key, inner in value.items())}}}"
        case Sequence():
            return f"[{', '.join(map(value_text, value))}]"
    raise ValueError(f"TOML has no {type(value).__name__}")


def string_text(text: str) -> str:
    """Return a text in quotes, on one line. JSON escapes all that TOML does, but the character DEL; a lone surrogate is no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("this is not UTF-8 text") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
