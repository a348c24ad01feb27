"""The sets of schemas that go with calls are made once each."""

from __future__ import annotations

from hermes.tools.schema_sets import MAX_SETS, SchemaSets

SCHEMAS = tuple({"type": "function", "function": {"name": f"tool{number}"}} for number in range(3))


def test_a_set_is_made_once_and_holds_its_schemas_in_their_order() -> None:
    sets = SchemaSets()
    pair = sets.of([SCHEMAS[1], SCHEMAS[0]])
    assert list(pair) == [SCHEMAS[1], SCHEMAS[0]]
    assert sets.of((SCHEMAS[1], SCHEMAS[0])) is pair
    assert list(sets.of(SCHEMAS[:2])) == [SCHEMAS[0], SCHEMAS[1]]
    assert sets.of(()) == ()


def test_other_schemas_with_the_same_name_make_another_set() -> None:
    sets = SchemaSets()
    first = sets.of([dict(SCHEMAS[0])])
    changed = {"type": "function", "function": {"name": "tool0", "description": "new"}}
    assert list(sets.of([changed])) == [changed]
    assert list(first) == [SCHEMAS[0]]


def test_sets_that_are_not_asked_for_are_given_up() -> None:
    sets = SchemaSets()
    kept = sets.of(SCHEMAS)
    for _ in range(MAX_SETS + 5):
        sets.of([{"type": "function", "function": {"name": "new"}}])
        assert sets.of(SCHEMAS) is kept
