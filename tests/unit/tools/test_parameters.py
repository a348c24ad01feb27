"""What a tool takes: schemas out of signatures, and arguments that models write."""

import json
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, Literal

import pytest

from hermes.tools.parameters import MAX_ARGUMENTS_CHARS, AtMost, BadArguments, Between, parameters_of, parse_arguments


@dataclass(frozen=True)
class Guest:
    name: Annotated[str, "Who.", AtMost(5)]
    age: Annotated[int | None, Between(0, 120)] = None


async def book(
    desk: object,
    context: object,
    *,
    day: Annotated[date, "The day."],
    at: time = time(19),
    until: datetime | None = None,
    people: Annotated[int, "How many.", Between(1, 50)] = 2,
    budget: float | None = None,
    kind: Literal["bar", "club"] = "bar",
    is_late: bool = False,
    guests: Annotated[list[Guest], AtMost(2)] = [],  # noqa: B006  # never changed
    note: Annotated[str, AtMost(10)] = "",
) -> None: ...


BOOK = parameters_of(book)


def read(**given: Any) -> dict[str, Any]:
    return BOOK.read({"day": "2026-01-31", **given})


def test_the_schema_comes_out_of_the_signature() -> None:
    assert BOOK.schema == {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date", "description": "The day."},
            "at": {"type": "string", "format": "time"},
            "until": {"type": "string", "format": "date-time"},
            "people": {"type": "integer", "minimum": 1, "maximum": 50, "description": "How many."},
            "budget": {"type": "number"},
            "kind": {"type": "string", "enum": ["bar", "club"]},
            "is_late": {"type": "boolean"},
            "guests": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "Who."},
                        "age": {"type": "integer", "minimum": 0, "maximum": 120},
                    },
                    "required": ["name"],
                },
            },
            "note": {"type": "string"},
        },
        "required": ["day"],
    }


def test_values_become_what_the_function_takes() -> None:
    assert read(at="18:30", until="2026-01-31T23:00", people="4", budget="12,5", kind="Club", is_late="yes", note=7) == {
        "day": date(2026, 1, 31),
        "at": time(18, 30),
        "until": datetime(2026, 1, 31, 23),  # noqa: DTZ001  # the model speaks of local time
        "people": 4,
        "budget": 12.5,
        "kind": "club",
        "is_late": True,
        "note": "7",
    }


def test_keys_that_nobody_asked_for_are_dropped_and_nulls_are_absent() -> None:
    assert read(people=None, colour="red", __class__="x") == {"day": date(2026, 1, 31)}


async def save(desk: object, *, json: str, copy: int = 1, given: str = "", model_config: str = "", _draft: bool = False) -> None: ...


def test_an_argument_may_have_any_name() -> None:
    parameters = parameters_of(save)
    assert list(parameters.schema["properties"]) == ["json", "copy", "given", "model_config", "_draft"]
    assert parameters.schema["required"] == ["json"]
    assert parameters.read({"json": "{}"}) == {"json": "{}"}
    given = {"json": "a", "copy": 2, "given": "b", "model_config": "c", "_draft": True}
    assert parameters.read(given) == given
    with pytest.raises(BadArguments, match=r"^json is missing; ask the user if you do not know$"):
        parameters.read({"argument_json": "a"})


def test_texts_and_lists_are_cut() -> None:
    assert read(note="a\n b\0\u202ec " + "x" * 50)["note"] == "a bc xxxxx"
    assert read(guests=["Ada", {"name": "Grace Hopper", "age": "36"}, {"name": "third"}])["guests"] == [Guest("Ada"), Guest("Grace", 36)]
    assert read(guests={"name": "Ada"})["guests"] == [Guest("Ada")]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"day": "tomorrow"}, "day must be written like 2026-01-31"),
        ({"at": "seven"}, "at must be written like 19:30"),
        ({"people": 0}, "people must be between 1 and 50"),
        ({"people": 2.5}, "people must be a whole number"),
        ({"people": True}, "people must be a whole number"),
        ({"people": [4]}, "people must be a whole number"),
        ({"budget": "nan"}, "budget must be a number"),
        ({"kind": "pub"}, "kind must be one of: bar, club"),
        ({"is_late": "perhaps"}, "is_late must be true or false"),
        ({"note": {"a": 1}}, "note must be a text"),
        ({"guests": [3]}, "guests must be an object with name, age"),
        ({"guests": [{"age": 3}]}, "guests: name is missing; ask the user if you do not know"),
        ({"guests": [{"age": 3}, {}]}, "guests: name is missing; ask the user if you do not know"),
        ({"day": None}, "day is missing; ask the user if you do not know"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadArguments) as error:
        read(**given)
    assert str(error.value) == fault


@pytest.mark.parametrize("text", ['{"a": ', "[1]", '"a"', "[" * 10_000, " " * (MAX_ARGUMENTS_CHARS + 1)])
def test_arguments_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(BadArguments):
        parse_arguments(text)


def test_no_arguments_are_an_empty_object() -> None:
    assert (parse_arguments(""), parse_arguments(" {} "), parse_arguments(json.dumps({"a": 1}))) == ({}, {}, {"a": 1})


def test_a_kind_that_is_not_known_is_a_fault_of_the_program() -> None:
    async def bad(desk: object, context: object, *, what: bytes) -> None: ...

    with pytest.raises(TypeError, match="bytes"):
        parameters_of(bad)
