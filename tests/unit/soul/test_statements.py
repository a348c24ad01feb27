"""What is read in messages of 16 languages: told, corrected, forgotten, and what is about others, asked, supposed, quoted or denied.

The rows are in `statements/`, one file for each language."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hermes.soul.extract_rules import Found, read_statements, same_item
from hermes.soul.facts import LISTS, Op, items
from hermes.soul.recall_terms import fold

ROWS = Path(__file__).parent / "statements"
OPS = {"=": Op.SET, "+": Op.ADD, "-": Op.REMOVE, "!": Op.FORGET}


@dataclass(frozen=True, slots=True)
class Row:
    language: str
    kind: str
    text: str
    expected: tuple[tuple[str | None, Op, str], ...]

    @property
    def is_held_out(self) -> bool:
        return hashlib.sha256(f"14 {self.language} {self.kind} {self.text}".encode()).digest()[0] % 2 == 1


def rows() -> Iterator[Row]:
    for path in sorted(ROWS.glob("*.txt")):
        kind = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                kind = line.strip("[]")
            elif line.strip():
                text, _, said = line.partition(" -> ")
                yield Row(path.stem, kind, text, ((None, Op.FORGET, ""),) if kind == "forget_all" else tuple(map(parsed, filter(None, said.split(" | ")))))


def parsed(said: str) -> tuple[str | None, Op, str]:
    found = re.fullmatch(r"([a-z_]+|\*)([=+!-])(.*)", said)
    assert found, said
    return None if found[1] == "*" else found[1], OPS[found[2]], found[3]


def is_read(row: Row) -> bool:
    """Whether exactly what the row says is found. What is set needs no taking back before; what is denied may be taken back."""
    found = read_statements(row.text)
    set_keys = {key for key, op, _ in row.expected if op is Op.SET}
    left = [each for each in found if not (each.op is Op.REMOVE and (each.key in set_keys or row.kind == "negation"))]
    expected = [each for each in row.expected if not (each[1] is Op.REMOVE and each[0] in set_keys)]
    return len(left) == len(expected) and all(any(agree(each, wanted) for each in left) for wanted in expected)


def agree(found: Found, wanted: tuple[str | None, Op, str]) -> bool:
    key, op, value = wanted
    if found.key != key or found.op is not op:
        return False
    if key in LISTS and value:
        one, other = items(found.value), items(value)
        return len(one) == len(other) and all(same_item(first, second) for first, second in zip(one, other, strict=True))
    return fold(found.value) == fold(value) or (key == "home_area" and bool(value) and same_item(found.value, value))


def shares(*, held_out: bool) -> tuple[dict[str, float], dict[str, float], list[Row]]:
    chosen = [row for row in rows() if row.is_held_out == held_out]
    missed = [row for row in chosen if not is_read(row)]

    def share(name: str) -> dict[str, float]:
        wrong = Counter(getattr(row, name) for row in missed)
        return {each: 1 - wrong[each] / count for each, count in Counter(getattr(row, name) for row in chosen).items()}

    return share("language"), share("kind"), missed
