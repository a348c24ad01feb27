"""Markdown of models, as a text with spans."""

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given

from hermes.channels.text import BLOCK_KINDS, RichText, SpanKind, Style, read_markdown
from tests.unit.channels.text.answers import ANSWERS, UNHURRIED
from tests.unit.channels.text.stopwatch import assert_linear, seconds

Marked = tuple[SpanKind, str] | tuple[SpanKind, str, str]
ADDRESS = "https://example.org/"


def marked(document: RichText) -> Sequence[Marked]:
    """What is marked, by its words."""
    words = [(span.kind, document.text[span.start : span.end], span.info) for span in document.spans]
    return [found if found[2] else found[:2] for found in words]


@pytest.mark.parametrize(
    ("markdown", "text", "spans"),
    [
        ("just words", "just words", []),
        ("## The *plan*", "The plan", [(SpanKind.HEADING, "The plan", "2"), (SpanKind.ITALIC, "plan")]),
        ("**bold** and __Too__", "bold and Too", [(SpanKind.BOLD, "bold"), (SpanKind.BOLD, "Too")]),
        ("*it* _it_ ~~gone~~", "it it gone", [(SpanKind.ITALIC, "it"), (SpanKind.ITALIC, "it"), (SpanKind.STRIKE, "gone")]),
        ("***both***", "both", [(SpanKind.ITALIC, "both"), (SpanKind.BOLD, "both")]),
        ("use `x = *1*`", "use x = *1*", [(SpanKind.CODE, "x = *1*")]),
        ("``a ` b``", "a ` b", [(SpanKind.CODE, "a ` b")]),
        (f"[the **docs**]({ADDRESS})", "the docs", [(SpanKind.LINK, "the docs", ADDRESS), (SpanKind.BOLD, "docs")]),
        (f"<{ADDRESS}>", ADDRESS, [(SpanKind.LINK, ADDRESS, ADDRESS)]),
        (f"![a cat]({ADDRESS})", "a cat", [(SpanKind.LINK, "a cat", ADDRESS)]),
        (f"[]({ADDRESS})", ADDRESS, [(SpanKind.LINK, ADDRESS, ADDRESS)]),
        (f"[![badge](https://example.org/b.png)]({ADDRESS})", "badge", [(SpanKind.LINK, "badge", ADDRESS)]),
        ("[top](#top), [mail](mailto:a@b.example), [call](tel:+49123)", "top, mail (a@b.example), call (+49123)", []),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))", []),
        ("```python\nif x:\n    y\n```", "if x:\n    y", [(SpanKind.BLOCK, "if x:\n    y", "python")]),
        ("~~~\n\n  x\n\n~~~", "  x", [(SpanKind.BLOCK, "  x")]),
        ("```{.c++ title='x'}\n1\n```", "1", [(SpanKind.BLOCK, "1", ".c++")]),
        ("> one **two**\n> three", "one two\nthree", [(SpanKind.QUOTE, "one two\nthree"), (SpanKind.BOLD, "two")]),
        ("> one\n> > two", "one\n\ntwo", [(SpanKind.QUOTE, "one\n\ntwo")]),
        ("a\n\n---\n\nb", "a\n\n———\n\nb", []),
        ("**a *b **c** d* e**", "a b c d e", [(SpanKind.BOLD, "a b c d e"), (SpanKind.ITALIC, "b c d")]),
    ],
)
def test_every_mark_is_a_span(markdown: str, text: str, spans: Sequence[Marked]) -> None:
    document = read_markdown(markdown)
    assert (document.text, marked(document)) == (text, spans)


def test_lists_are_text_with_their_items_below_each_other() -> None:
    markdown = """\
Do this:
- one
- two
  goes on
  1) deep
  2) deeper

     of its own
- [ ] open
- [x] done

3. three
4. ```sh
   ls
   ```
5. > said
6.
"""
    assert read_markdown(markdown).text.split("\n") == [
        *("Do this:", "", "• one", "• two", "  goes on", "  1) deep", "", "  2) deeper", "", "     of its own", "☐ open", "☑ done", ""),
        *("3. three", "4.", "ls", "5. said", "6."),
    ]


def test_a_list_with_room_between_its_items_keeps_it() -> None:
    assert read_markdown("- one\n\n- two\n\nend").text == "• one\n\n• two\n\nend"


def test_a_narrow_table_is_aligned_and_a_wide_one_becomes_lines() -> None:
    narrow = read_markdown("| Bar | Price |\n|:--|--:|\n| **Luna** | 12 |\n| 漢字 | 3<br>4 |")
    assert marked(narrow) == [(SpanKind.TABLE, "Bar  | Price\n-----+------\nLuna |    12\n漢字 |   3 4")]
    wide = read_markdown(f"| Bar | Why |\n|---|---|\n| **Luna** | has the [longest]({ADDRESS}) view of all the bars |\n| Sol | |\n|  | x |")
    assert wide.text == "Bar: Luna\nWhy: has the longest view of all the bars\n\nBar: Sol\n\nWhy: x"
    assert marked(wide) == [
        (SpanKind.BOLD, "Bar: Luna"),
        (SpanKind.LINK, "longest", ADDRESS),
        (SpanKind.BOLD, "Bar: Sol"),
        (SpanKind.BOLD, "Why: x"),
    ]


def test_a_style_says_how_things_are_written_that_cannot_be_marked() -> None:
    style = Style(bullet="- ", quote="> ", rule="* * *", spell_links=True, table_width=0)
    document = read_markdown(f"- [docs]({ADDRESS}), [example.org]({ADDRESS})\n\n> a\n> b\n\n---\n\n|x|y|\n|-|-|\n|1|2|", style)
    assert document.text == f"- docs ({ADDRESS}), example.org\n\n> a\n> b\n\n* * *\n\nx: 1\ny: 2"
    assert marked(document)[:2] == [(SpanKind.LINK, ADDRESS, ADDRESS), (SpanKind.LINK, "example.org", ADDRESS)]


@pytest.mark.parametrize(
    "text",
    [
        "2*3*4 = 24, 2**3**2 = 512",
        "5 * 3 * 2",
        "snake_case_name and __init__.py",
        "f(*args, **kwargs)",
        "**never closed",
        "closed never**",
        "a ~~half",
        "a `half",
        "[not](a link",
        "[1]: https://example.org/source",
        "#hashtag and #1",
        "1.5 and 2.",
        "a | b",
        "<b>bold</b> <think>",
        "~5 to ~10",
        "C:\\new\\table",
    ],
)
def test_what_means_nothing_stays_as_it_is(text: str) -> None:
    assert read_markdown(text) == RichText(text, [])


@pytest.mark.parametrize(
    ("markdown", "text", "spans"),
    [
        ("**Note:**this", "Note:this", [(SpanKind.BOLD, "Note:")]),
        ("**重要：**这是**好**的", "重要：这是好的", [(SpanKind.BOLD, "重要："), (SpanKind.BOLD, "好")]),  # noqa: RUF001
        ("*强调*文字", "强调文字", [(SpanKind.ITALIC, "强调")]),
        ("Text\n---\nmore", "Text\n\n———\n\nmore", []),
        ("so:\n    indented\nback", "so:\nindented\nback", []),
        ("one<br>two <br/> three", "one\ntwo\nthree", []),
        ("first\nsecond  \nthird", "first\nsecond\nthird", []),
        ("\\*not\\* &amp; &lt;3", "*not* & <3", []),
        ("```py\nnever closed", "never closed", [(SpanKind.BLOCK, "never closed", "py")]),
        ("~~~gone~~~\nhere", "~gone~\nhere", [(SpanKind.STRIKE, "gone")]),
        ("** not bold **", "** not bold **", []),
        ("a\r\nb\rc\x00\x07", "a\nb\nc", []),
        ("half \ud83d and \ud83d\ude00 whole", "half \ufffd and 😀 whole", []),
    ],
)
def test_it_knows_how_models_write(markdown: str, text: str, spans: Sequence[Marked]) -> None:
    document = read_markdown(markdown)
    assert (document.text, marked(document)) == (text, spans)


def test_what_is_nested_deeper_than_anybody_writes_stays_as_it_is() -> None:
    assert read_markdown(">" * 50 + " hello") == RichText(">" * 50 + " hello")


@UNHURRIED
@given(ANSWERS)
def test_spans_lie_within_each_other_and_never_in_their_own_kind(markdown: str) -> None:
    document = read_markdown(markdown)
    text, spans = document.text, list(document.spans)
    assert spans == sorted(spans, key=lambda span: (span.start, -span.end))
    for place, span in enumerate(spans):
        assert 0 <= span.start < span.end <= len(text)
        words = text[span.start : span.end]
        assert words.rstrip() == words
        if span.kind not in BLOCK_KINDS:
            assert words.strip() == words
        for other in spans[place + 1 :]:
            if other.start < span.end:
                assert other.end <= span.end
                assert other.kind is not span.kind
                assert span.kind not in BLOCK_KINDS


@UNHURRIED
@given(ANSWERS)
def test_no_word_is_lost(markdown: str) -> None:
    """Letters and digits come through in their order, but for addresses, languages and what stands for a sign."""

    def letters(text: str) -> str:
        for gone in ("https://example.org/a?b=c", "python", "c++", "<br>", "&amp;", "[x]", "\ud800", "\ufffd"):
            text = text.replace(gone, "")
        return "".join(sign for sign in text if sign.isalnum() and sign not in "123456789")

    if "|" not in markdown and "`" not in markdown and "](" not in markdown and "~~~" not in markdown:
        assert letters(read_markdown(markdown).text) == letters(markdown)


@pytest.mark.parametrize(
    "bit",
    [
        *("*", "*a ", "a**b", "*_", "**a *b ", "*[a*](https://x) ", "~~a ", "__a", "`a", "[", "![", "[a](", "<a ", "<br ", "&#1", "\\"),
        *(">", "- ", "- [ ] ", "# a\n", "|", "```\n", " \n"),
    ],
)
def test_time_grows_with_the_text_and_no_faster(bit: str) -> None:
    assert_linear(lambda length: partial(read_markdown, (bit * length)[:length]))


def test_an_answer_of_four_kilobytes_takes_a_few_milliseconds() -> None:
    paragraph = "**The Lawn**: daybeds around a pool and a *very* good list of drinks. See `the-lawn.example` first.\n\n- Best at 17:30\n\n"
    answer = (paragraph * 40)[:4096]
    assert seconds(partial(read_markdown, answer)) < 0.02
