"""Models' answers in WhatsApp's own markup, read as WhatsApp reads it."""

import re
import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hermes.channels.text import RichText, SpanKind, read_markdown
from hermes.channels.whatsapp.markup import LOOKALIKES, STYLE, WORD_JOINER, markup_size, render_markup
from tests.unit.channels.whatsapp.payloads import WHATSAPP
from tests.unit.channels.whatsapp.reader import shown

STAR, LOW, WAVE, TICK = (LOOKALIKES[sign] for sign in "*_~`")
SPANS = {
    "*": {SpanKind.BOLD, SpanKind.HEADING},
    "_": {SpanKind.ITALIC},
    "~": {SpanKind.STRIKE},
    "`": {SpanKind.CODE, SpanKind.BLOCK, SpanKind.TABLE},
    ">": {SpanKind.QUOTE},
}
ALIKE = str.maketrans({**{twin: sign for sign, twin in LOOKALIKES.items()}, WORD_JOINER: None})


def rendered(markdown: str) -> str:
    return render_markup(read_markdown(markdown, STYLE))


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("**bold**, *italic*, ~~gone~~ and `code`", "*bold*, _italic_, ~gone~ and `code`"),
        ("***both*** and **a *b* c**", "_*both*_ and *a _b_ c*"),
        ("# Head **bold**\n\ntext", "*Head bold*\n\ntext"),
        ("- one\n- two **x**\n\n1. a\n2. b", "- one\n- two *x*\n\n1. a\n2. b"),
        ("**two\nlines**", "*two*\n*lines*"),
        ("> said **so\n> twice**\n>\n> again\n\nand then", "> said *so*\n> *twice*\n\n> again\n\nand then"),
        ("```python\nx = a * b * c\n```", "```x = a * b * c```"),
        ("see [the map](https://m.example/_a_/b)", "see the map (https://m.example/_a_/b)"),
        ("**https://m.example/a**", "https://m.example/a"),
        ("**see https://m.example/a now**", "*see https://m.example/a now*"),
        ("un**believ**able, and **Note:**this", "unbelievable, and Note:this"),
        ("``a`b``", "```a`b```"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "```a | b\n--+--\n1 | 2```"),
    ],
)
def test_marks(markdown: str, text: str) -> None:
    assert rendered(markdown) == text


@pytest.mark.parametrize(
    "text",
    [
        "2 * 3 * 4",
        "2*3*4",
        "snake_case_name",
        "rm *.py",
        "a ~ b ~ c",
        "f(*args, **kwargs)",
        "5 * stars",
        "me_and_you@mail.example",
        "~100",
        "a > b",
    ],
)
def test_signs_that_mean_nothing_stay(text: str) -> None:
    assert rendered(text) == text


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        (r"\*not bold\*", f"{STAR}not bold*"),
        (r"\_not\_ \~this\~", f"{LOW}not_ {WAVE}this~"),
        (r"\*a\* \*b\*", f"{STAR}a* {STAR}b*"),
        (r"\*open **bold**", f"{STAR}open *bold*"),
        (r"**a\* b**", f"*a{STAR} b*"),
        (r"\`not code\`", f"{TICK}not code{TICK}"),
        (r"\> 5 people", f"{WORD_JOINER}> 5 people"),
        (r"https://m.example/\*a\* and \*b\*", f"https://m.example/*a* and {STAR}b*"),
        ("```\na\n``` b\n```", f"```a\n`{WORD_JOINER}`` b```"),
        ("`` `x` ``", f"```{WORD_JOINER}`x`{WORD_JOINER}```"),
    ],
)
def test_signs_that_would_become_marks_do_not(markdown: str, text: str) -> None:
    assert rendered(markdown) == text


WILD = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            "ß",
            "你",
            "e\u0301",
            "1",
            " ",
            "  ",
            "*",
            "**",
            "_",
            "~~",
            "~",
            "`",
            "```",
            ">",
            "> ",
            "- ",
            "\\",
            "\n",
            "\n\n",
            "#",
            "# ",
        ]
    )
    | st.sampled_from([".", "!", "(", ")", "https://m.example/a_b", "[l](https://m.example/_x_)", "|", "🙂", "🧑\u200d🍳"]),
    max_size=40,
).map("".join)


@given(markdown=WILD)
@example(markdown="*a **b***")
@example(markdown=r"_\_a_ b_")
def test_what_is_shown_is_what_was_meant(markdown: str) -> None:
    assume(not re.search(r"://\S*`", markdown))  # where such an address ends, nobody can say
    document = read_markdown(markdown, STYLE)
    read_back = shown(render_markup(document))
    visible = [sign for sign in read_back if sign.character != WORD_JOINER]
    assert "".join(sign.character for sign in visible).translate(ALIKE) == document.text.translate(ALIKE)
    for place, sign in enumerate(visible):
        for mark in sign.marks if not sign.character.isspace() else ():
            assert any(span.kind in SPANS[mark] and span.start <= place < span.end for span in document.spans), (mark, place)


@given(markdown=WILD)
@example(markdown="`` `x` ``")
@example(markdown="```\na\n``` b\n```")
def test_the_size_is_the_length(markdown: str) -> None:
    document = read_markdown(markdown, STYLE)
    assert markup_size(document) == len(render_markup(document))


def test_what_can_be_marked_is_marked() -> None:
    visible = shown(rendered("**b** (*i*) ~~s~~, `c` **x!**\n\n> **q**"))
    marks = {sign.character: sign.marks for sign in visible if sign.character.isalpha()}
    assert marks == {"b": {"*"}, "i": {"_"}, "s": {"~"}, "c": {"`"}, "x": {"*"}, "q": {"*", ">"}}


# --- parts


def test_an_answer_is_one_body() -> None:
    assert WHATSAPP.render("**Hi**") == [{"text": "*Hi*", "plain": "Hi"}]
    assert WHATSAPP.render("Hi") == [{"text": "Hi"}]


@pytest.mark.parametrize("markdown", ["", " \n ", "\u200b"])
def test_an_empty_answer_has_no_parts(markdown: str) -> None:
    assert WHATSAPP.render(markdown) == []


def test_plain_is_the_same_without_marks() -> None:
    [body] = WHATSAPP.render("**Hi** `x`")
    assert WHATSAPP.plain(body) == {"text": "Hi x"}
    assert WHATSAPP.plain(WHATSAPP.plain(body)) == {"text": "Hi x"}


LONG = st.lists(
    WILD | st.sampled_from(["word " * 300, "**" + "bold " * 400 + "**", "```\n" + "x = 1\n" * 300 + "```", "你好" * 900]), max_size=8
)


@given(pieces=LONG)
def test_parts_fit_and_lose_nothing(pieces: list[str]) -> None:
    markdown = "\n\n".join(pieces)
    bodies = WHATSAPP.render(markdown)
    assert all(0 < len(body["text"]) <= 4096 and body["text"].strip() for body in bodies)
    shown_text = "".join(body.get("plain", body["text"]) for body in bodies).translate(ALIKE)
    assert "".join(shown_text.split()) == "".join(read_markdown(markdown, STYLE).text.translate(ALIKE).split())


@pytest.mark.parametrize("piece", ["*a ", "**b** ", "> *x\n", "`c` ", "_ ", "https://m.example/*a* ", "> q\n\n", "- [ ] **t**\n"])
def test_a_long_answer_takes_no_time(piece: str) -> None:
    started = time.process_time()
    WHATSAPP.render(piece * (30_000 // len(piece)))
    assert time.process_time() - started < 10  # about half a second where nobody else computes


def test_a_document_without_spans_is_its_text() -> None:
    assert render_markup(RichText("a\nb")) == "a\nb"
