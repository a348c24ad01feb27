"""Values are equal, hashed and replaced like frozen dataclasses."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from hermes.values import value


@value(frozen=True, slots=True, kw_only=True)
class Made:
    name: str
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    name: str
    parts: tuple[int, ...] = ()


def test_values_are_compared_and_hashed_by_their_fields() -> None:
    one = Made(name="a", parts=(1,))
    assert one == Made(name="a", parts=(1,)) != Made(name="a")
    assert {one: 1}[Made(name="a", parts=(1,))] == 1
    assert replace(one, parts=()) == Made(name="a")
    assert hash(one) == hash(Frozen(name="a", parts=(1,)))


def test_what_changes_is_no_value() -> None:
    options: dict[str, Any] = {"frozen": False}
    with pytest.raises(TypeError, match="use dataclass"):
        value(**options)
