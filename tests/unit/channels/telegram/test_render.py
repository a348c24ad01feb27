"""Answers as Telegram's text and entities."""

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.channels.telegram.channel import MAX_ENTITIES
from hermes.channels.text import read_markdown
from tests.unit.channels.telegram.strict import faults, spoken
from tests.unit.channels.telegram.updates import TELEGRAM
from tests.unit.channels.text.answers import ANSWERS, MARKDOWN, NOISE, UNHURRIED
from tests.unit.channels.text.stopwatch import seconds


def entity(kind: str, offset: int, length: int, **more: str) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length} | more


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("**bold** _it_ ~~no~~ `x`", "bold it no x", [("bold", 0, 4), ("italic", 5, 2), ("strikethrough", 8, 2), ("code", 11, 1)]),
        ("😀 **b😀** _👩‍🍳_", "😀 b😀 👩‍🍳", [("bold", 3, 3), ("italic", 7, 5)]),
        ("# A **b** c", "A b c", [("bold", 0, 5)]),
        ("**use `x` now**", "use x now", [("bold", 0, 3), ("code", 4, 1), ("bold", 6, 3)]),
        ("***`x`***", "x", [("code", 0, 1)]),
        ("**a _b_**", "a b", [("bold", 0, 3), ("italic", 2, 1)]),
        ("> a `b`\n> > c", "a b\n\nc", [("blockquote", 0, 6), ("code", 2, 1)]),
        ("> ```\n> x\n> ```", "x", [("blockquote", 0, 1), ("pre", 0, 1)]),
        ("|a|b|\n|-|-|\n|1|2|", "a | b\n--+--\n1 | 2", [("pre", 0, 17)]),
    ],
)
def test_marks_become_entities(markdown: str, text: str, entities: list[tuple[str, int, int]]) -> None:
    assert TELEGRAM.render(markdown) == [{"text": text, "entities": [entity(*each) for each in entities]}]


def test_links_and_blocks_say_where_they_lead_and_in_which_language() -> None:
    assert TELEGRAM.render("[the `docs`](https://example.org) https://example.org/x\n\n```py\n  x\n```\n\n```\ny\n```") == [
        {
            "text": "the docs https://example.org/x\n\n  x\n\ny",
            "entities": [
                entity("text_link", 0, 8, url="https://example.org"),
                entity("pre", 32, 3, language="py"),
                entity("pre", 37, 1),
            ],
        }
    ]


def test_an_address_that_is_its_own_text_needs_no_entity() -> None:
    assert TELEGRAM.render("<https://example.org>") == [{"text": "https://example.org"}]


def test_words_alone_have_no_entities() -> None:
    assert TELEGRAM.render("hello *there") == [{"text": "hello *there"}]


@pytest.mark.parametrize("nothing", ["", "  \n", "```\n```", "\u200b", "<br>"])
def test_an_empty_answer_has_no_parts(nothing: str) -> None:
    assert TELEGRAM.render(nothing) == []


def test_plain_is_the_same_text_without_marks() -> None:
    [body] = TELEGRAM.render("**a** `b`")
    assert TELEGRAM.plain(body) == {"text": "a b"}


def test_a_long_answer_is_cut_by_what_telegram_counts() -> None:
    parts = TELEGRAM.render("👩‍🍳" * 2000)  # 5 units each: 819 fit
    assert [len(body["text"].encode("utf-16-le")) // 2 for body in parts] == [4095, 4095, 1810]


def test_a_long_block_of_code_is_closed_and_opened_again() -> None:
    lines = [f"    line_{number} = {number}" for number in range(600)]
    parts = TELEGRAM.render("```python\n" + "\n".join(lines) + "\n```")
    assert [body["entities"] for body in parts] == [[entity("pre", 0, len(body["text"]), language="python")] for body in parts]
    assert "\n".join(body["text"] for body in parts) == "\n".join(lines)
    assert len(parts) == 3


def test_more_entities_than_telegram_takes_are_more_messages() -> None:
    parts = TELEGRAM.render(" ".join(f"**{number}** ," for number in range(250)))
    assert [len(body["entities"]) for body in parts] == [MAX_ENTITIES, MAX_ENTITIES, 50]


@UNHURRIED
@given(ANSWERS)
def test_every_message_is_what_telegram_demands(markdown: str) -> None:
    bodies = TELEGRAM.render(markdown)
    assert [faults(body) for body in bodies] == [[] for _ in bodies]
    assert spoken(bodies) == "".join(read_markdown(markdown).text.split()) or not bodies
    assert json.loads(json.dumps(bodies)) == bodies


@settings(UNHURRIED, max_examples=40)
@given(st.lists(MARKDOWN | NOISE, min_size=4, max_size=8).map("\n\n".join))
def test_so_is_every_part_of_a_long_one(markdown: str) -> None:
    long = markdown * 6
    bodies = TELEGRAM.render(long)
    assert [faults(body) for body in bodies] == [[] for _ in bodies]
    assert spoken(bodies) == "".join(read_markdown(long).text.split()) or not bodies


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"text": " "}, "blank"),
        ({"text": "x" * 4097}, "too long"),
        ({"text": "ab", "entities": [entity("bold", 1, 2)]}, "out of bounds"),
        ({"text": "😀", "entities": [entity("bold", 1, 1)]}, "half a character"),
        ({"text": "a b", "entities": [entity("bold", 0, 2)]}, "white space"),
        ({"text": "abc", "entities": [entity("bold", 0, 2), entity("italic", 1, 2)]}, "overlap"),
        ({"text": "abc", "entities": [entity("bold", 0, 3), entity("code", 1, 1)]}, "within each other"),
        ({"text": "abc", "entities": [entity("italic", 1, 1), entity("bold", 0, 3)]}, "out of order"),
    ],
)
def test_the_judge_finds_faults(body: dict[str, Any], fault: str) -> None:
    assert [found[: len(fault)] for found in faults(body)] == [fault]


def test_an_answer_of_four_kilobytes_takes_a_few_milliseconds() -> None:
    paragraph = "**The Lawn**: daybeds around a pool and a *very* good list of drinks. See `the-lawn.example` first.\n\n- Best at 17:30\n\n"
    assert seconds(partial(TELEGRAM.render, (paragraph * 40)[:4096])) < 0.02
