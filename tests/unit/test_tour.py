"""The tour runs what it shows, and the picture that it draws leaves nothing out: every version, its successor, every chat inside."""

from collections.abc import Callable
from io import StringIO
from itertools import pairwise

import pytest
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from hermes import CallRecord, MessageGraph
from hermes.cli.tour import SCENES, play_tour
from hermes.terminal import graph_tree, one_line
from tests.unit.graph.sessions import rich_session


def toured(width: int = 100, pause: Callable[[], None] = lambda: None) -> tuple[MessageGraph, str]:
    """Play the tour on a console of this width; return its graph and what it showed."""
    output = StringIO()
    chat = play_tour(Console(file=output, width=width, color_system=None, force_terminal=False), pause)
    return chat, output.getvalue()


def drawn(graph: MessageGraph, **options: int) -> str:
    output = StringIO()
    Console(file=output, width=200, color_system=None, force_terminal=False).print(graph_tree(graph, "chat", **options))
    return output.getvalue()


# --- the tour


def test_the_tour_makes_the_graph_that_it_tells_about() -> None:
    chat, _ = toured()
    assert [[message["content"] for message in version] for version in chat.versions] == [
        ["Be brief.", "Capital of France?", "Paris."],
        ["Be brief.", "Capital of Italy?", "Paris.", "Rome."],
        ["Be brief.", "(We talked about capitals.)", "Rome.", "2.7 million", "Rome has 2.7 million people."],
        ["Be brief.", "(We talked about capitals.)", "Rome.", "2.7 million", "(typed while the model was thinking)"],
    ]
    assert [(version.kind, version.successor) for version in chat.versions] == [
        ("edit", 1),
        ("compaction", 3),
        ("alternative", 3),
        (None, None),
    ]
    assert [([message["content"] for message in response.context], response.message["content"]) for response in chat.responses()] == [
        (["Be brief.", "Capital of France?"], "Paris."),
        (["Be brief.", "Capital of Italy?", "Paris."], "Rome."),
        (
            ["Be brief.\n\nAnswer in one sentence.", "(We talked about capitals.)", "Rome.", "2.7 million"],
            "Rome has 2.7 million people.",
        ),
        (["How many people live in Rome?"], "About 2.7 million."),
    ]
    assert chat.verify().status == "ok"


def test_the_tour_shows_every_scene_with_the_code_that_runs() -> None:
    _, shown = toured(width=200)
    lines = [line.strip() for line in shown.splitlines()]
    for number, scene in enumerate(SCENES, start=1):
        assert any(line.startswith(f"{number}. {scene.title} ") for line in lines)
        for line in (*scene.why.splitlines(), *scene.code.splitlines()):
            assert line.strip() in lines


def test_the_tour_ends_with_every_sample_and_its_context() -> None:
    _, shown = toured()
    assert shown.endswith("""\
Every sample, once, with exactly the context it was sampled in:
  ● Paris.                         after: Be brief. / Capital of France?
  ● Rome.                          after: Be brief. / Capital of Italy? / Paris.
  ● Rome has 2.7 million people.   after: Be brief. Answer in one sentence. / (We talked about capitals.) / Rome. / 2.7 million
  ● About 2.7 million.             after: How many people live in Rome?

verify(): ok (4 responses, every id computed again)
""")


def test_the_tour_pauses_after_each_scene_and_tells_the_same_every_time() -> None:
    pauses: list[None] = []
    _, shown = toured(pause=lambda: pauses.append(None))
    assert len(pauses) == len(SCENES)
    assert toured()[1] == shown


def test_whoever_leaves_at_a_pause_leaves_the_tour() -> None:
    def leave() -> None:
        raise EOFError

    with pytest.raises(EOFError):
        toured(pause=leave)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_the_tour_fits_a_narrow_terminal(width: int) -> None:
    chat, shown = toured(width)
    last_rule = shown.splitlines().index(next(line for line in shown.splitlines() if line.startswith("6. ")))
    assert max(map(len, shown.splitlines()[:last_rule])) <= width
    assert chat.verify()


# --- the picture


def test_the_picture_shows_the_list_its_versions_and_who_succeeded_whom() -> None:
    chat = MessageGraph([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1"}])
    chat.append({"role": "assistant", "content": "one"})
    chat[1]["content"] = "2"
    chat.append({"role": "assistant", "content": "two"})
    chat.compact(slice(1, None), "(summary)")
    turn = chat.prepare()
    chat.append({"role": "user", "content": "typed meanwhile"})
    chat.commit(turn, {"role": "assistant", "content": "late"})
    assert (
        drawn(chat)
        == """\
chat  3 messages, 4 versions, 3 responses
├── now
│   ├── 📋 system    Be brief.
│   ├── 👤 user      (summary)
│   └── 👤 user      typed meanwhile
├── version 3 ┄ alternative ┄▶ now
│   ├── 2 messages as above
│   └── 🤖 assistant late  ● sampled
├── version 2 ┄ compaction ┄▶ now
│   ├── 1 message as above
│   ├── 👤 user      2
│   ├── 🤖 assistant one  ○ context only
│   └── 🤖 assistant two  ● sampled
└── version 1 ┄ edit ┄▶ version 2
    ├── 1 message as above
    ├── 👤 user      1
    └── 🤖 assistant one  ● sampled
"""
    )


def test_the_picture_shows_chats_inside_chats_each_where_it_is_met_first() -> None:
    deepest = MessageGraph([{"role": "user", "content": "deepest"}])
    deepest.append({"role": "assistant", "content": "found"})
    agent = MessageGraph([{"role": "user", "content": "ask"}])
    agent.append({"role": "tool", "content": "found", "metadata": {"chat": deepest}})
    agent.append({"role": "assistant", "content": "told"})
    agent[0]["content"] = "ask again"
    chat = MessageGraph([{"role": "user", "content": "go"}])
    chat.append({"role": "tool", "content": "told", "metadata": {"chat": agent}})
    chat.append({"role": "assistant", "content": "done"})
    chat[0]["content"] = "go on"
    expected = """\
chat  3 messages, 2 versions, 3 responses
├── now
│   ├── 👤 user      go on
│   ├── 🔧 tool      told
│   │   └── the chat that made it  3 messages, 2 versions, 2 responses
│   │       ├── now
│   │       │   ├── 👤 user      ask again
│   │       │   ├── 🔧 tool      found
│   │       │   │   └── the chat that made it  2 messages, 1 version, 1 response
│   │       │   │       └── now
│   │       │   │           ├── 👤 user      deepest
│   │       │   │           └── 🤖 assistant found  ● sampled
│   │       │   └── 🤖 assistant told  ○ context only
│   │       └── version 1 ┄ edit ┄▶ now
│   │           ├── 👤 user      ask
│   │           ├── 🔧 tool      found
│   │           │   └── the chat that made it, as above
│   │           └── 🤖 assistant told  ● sampled
│   └── 🤖 assistant done  ○ context only
└── version 1 ┄ edit ┄▶ now
    ├── 👤 user      go
    ├── 🔧 tool      told
    │   └── the chat that made it, as above
    └── 🤖 assistant done  ● sampled
"""
    assert drawn(chat) == expected
    assert drawn(MessageGraph.from_json(chat.to_json())) == expected


def test_a_version_that_differs_only_in_the_chat_of_a_message_shows_that_chat() -> None:
    chat = MessageGraph([{"role": "user", "content": "go"}])
    for answer in ("first try", "second try"):
        agent = MessageGraph([{"role": "user", "content": "ask"}])
        agent.append({"role": "assistant", "content": answer})
        chat[1:] = [{"role": "tool", "content": "told", "metadata": {"chat": agent}}]
    del chat[1]["metadata"]
    assert (
        drawn(chat)
        == """\
chat  2 messages, 3 versions, 2 responses
├── now
│   ├── 👤 user      go
│   └── 🔧 tool      told
├── version 2 ┄ edit ┄▶ now
│   ├── 1 message as above
│   └── 🔧 tool      told
│       └── the chat that made it  2 messages, 1 version, 1 response
│           └── now
│               ├── 👤 user      ask
│               └── 🤖 assistant second try  ● sampled
└── version 1 ┄ edit ┄▶ version 2
    ├── 1 message as above
    └── 🔧 tool      told
        └── the chat that made it  2 messages, 1 version, 1 response
            └── now
                ├── 👤 user      ask
                └── 🤖 assistant first try  ● sampled
"""
    )


def nested(levels: int) -> MessageGraph:
    """Chats inside chats, each with three versions that all hold the chat inside."""
    chat = MessageGraph([{"role": "user", "content": f"level {levels}"}])
    if levels:
        chat.append({"role": "tool", "content": "r", "metadata": {"chat": nested(levels - 1)}})
    for question in ("second", "third"):
        chat.append({"role": "assistant", "content": "a"})
        chat[0]["content"] = f"{question} {levels}"
    return chat


def test_the_picture_is_as_deep_as_it_is_told_and_grows_with_the_levels_and_no_faster() -> None:
    sizes = [drawn(nested(9), levels=levels).count("\n") for levels in range(10)]
    steps = {later - earlier for earlier, later in pairwise(sizes[:-1])}
    assert len(steps) == 1
    assert "level 7" in drawn(nested(9), levels=2)
    assert "level 6" not in drawn(nested(9), levels=2)
    assert drawn(nested(1), levels=0).count("└── …\n") == 3


def test_the_picture_says_what_a_message_holds_when_it_is_not_text() -> None:
    chat = MessageGraph(
        [
            {"role": "developer", "content": ""},
            {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "u"}}]},
            {"role": "function", "name": "f", "content": None},
        ]
    )
    calls = [{"id": "c", "function": {"name": "ask", "arguments": '{"q": 1}'}}, {"id": "d", "function": {}}, {"id": "e"}]
    chat.append({"role": "assistant", "content": "Wait.", "tool_calls": calls})
    assert (
        drawn(chat)
        == """\
chat  4 messages, 1 version, 1 response
└── now
    ├── 📋 developer (empty)
    ├── 👤 user      Look [image_url]
    ├── 🔧 function  (empty)
    └── 🤖 assistant Wait. → ask({"q": 1}) → ?() → a tool  ● sampled
"""
    )


def test_an_empty_graph_has_a_picture() -> None:
    assert drawn(MessageGraph()) == "chat  0 messages, 1 version, 0 responses\n└── now\n"


def test_sampled_messages_are_green_and_others_plain() -> None:
    chat = MessageGraph([{"role": "user", "content": "q"}])
    chat.append({"role": "assistant", "content": "a"}, call=CallRecord(model="m"))
    chat[0]["content"] = "p"
    colours = [[label(line).style for line in version.children] for version in graph_tree(chat).children]
    assert colours == [["", ""], ["", "green"]]


def label(tree: Tree) -> Text:
    assert isinstance(tree.label, Text)
    return tree.label


def test_drawing_changes_nothing() -> None:
    chat = rich_session()
    before = chat.to_json()
    assert drawn(chat) == drawn(chat)
    assert (chat.to_json(), chat.verify()) == (before, rich_session().verify())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("  two\n\nlines,\ttabs\r\n", "two lines, tabs"),
        ("\x1b[2J\x1b]0;title\x07\x9b31m", "�[2J�]0;title��31m"),
        ("\x00\x08\x7f", "���"),
        ("half \ud83d and whole 😀", "half � and whole 😀"),
        ("abc\u202edcba\u2066x\u200f", "abc�dcba�x�"),
        ("👩\u200d👩\u200d👧 ❤\ufe0f \u65e5\u672c é", "👩\u200d👩\u200d👧 ❤\ufe0f \u65e5\u672c é"),
        ("[bold]x[/] :smile: \\[", "[bold]x[/] :smile: \\["),
        ("", ""),
    ],
)
def test_one_line_is_safe_to_show_and_keeps_every_letter(text: str, line: str) -> None:
    assert one_line(text) == line
    assert one_line(line) == line


def test_texts_that_look_like_markup_are_drawn_as_they_are() -> None:
    chat = MessageGraph([{"role": "user", "content": "[bold]x[/] [/nope] [link=u]y[/] :smile: \\"}])
    chat.append({"role": "assistant", "content": "[red]z\\[/]"})
    chat.replace(0, {"role": "user", "content": "[/]"}, kind="[blink]")
    assert (
        drawn(chat)
        == """\
chat  2 messages, 2 versions, 1 response
├── now
│   ├── 👤 user      [/]
│   └── 🤖 assistant [red]z\\[/]  ○ context only
└── version 1 ┄ [blink] ┄▶ now
    ├── 👤 user      [bold]x[/] [/nope] [link=u]y[/] :smile: \\
    └── 🤖 assistant [red]z\\[/]  ● sampled
"""
    )
