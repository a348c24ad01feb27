"""A message graph as one SVG image: well-formed whatever the texts hold, with every row, lane and version."""

import xml.etree.ElementTree as ET
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from hermes.console.graph_svg import LANE_COLOURS, LINE_CHARS, draw_styles, svg_of_graph
from hermes.console.gutter import ROW_PX
from hermes.console.lane_rows import MAX_LANES

SVG = "{http://www.w3.org/2000/svg}"


def read(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  # written by this test


def texts(image: ET.Element) -> list[str]:
    """What a reader sees: texts without what shows only under the pointer."""
    found = []
    for text in image.iter(f"{SVG}text"):
        hover = "".join("".join(title.itertext()) for title in text.iter(f"{SVG}title"))
        found.append("".join(text.itertext()).removeprefix(hover))
    return found


def edited() -> MessageGraph:
    chat = MessageGraph([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital of France?"}], seed="svg")
    chat.append({"role": "assistant", "content": "Paris."}, call=CallRecord(model="small"))
    chat[1]["content"] = "Capital of Italy?"
    chat[2:] = []
    chat.append({"role": "assistant", "content": "Rome."}, call=CallRecord(model="large"))
    return chat


def test_rows_lanes_versions_and_models_are_drawn() -> None:
    image = read(svg_of_graph(edited(), "chat.json"))
    assert texts(image) == [
        "chat.json",
        "3 messages · 2 versions",
        "now: 3 messages, 1 sampled",
        "version 1 · edit → now: 3 messages, 2 of its own, 1 sampled",
        *("0", "system", "Be brief.", ""),
        *("1", "user", "version 1 · edit  Capital of France?", ""),
        *("2", "assistant", "Paris.", "small"),
        *("3", "user", "Capital of Italy?", ""),
        *("4", "assistant", "Rome.", "large"),
        *("sampled", "context", "tool result", "erased", "made by a nested chat"),
        "Drawn by Hermes 0.1.0. verify: ok.",
    ]
    gutters = [each for each in image.iter(f"{SVG}svg") if each.get("role") == "img" and each is not image]
    marks = [[use.get("href") for use in gutter.iter(f"{SVG}use")][-1] for gutter in gutters]
    assert marks == ["#h0", "#h1", "#f1", "#h0", "#f0"], "context, then the version with its sample on its own lane, then the list"
    shapes = {each.get("id") for each in image.iter() if each.get("id")}
    assert {each.get("href", "").removeprefix("#") for each in image.iter(f"{SVG}use")} <= shapes
    assert int(image.get("height", 0)) > 5 * ROW_PX


def test_it_loads_nothing_and_runs_nothing() -> None:
    text = svg_of_graph(edited(), '"><script>alert(1)</script>')
    assert {each.tag.removeprefix(SVG) for each in read(text).iter()} == {
        *("svg", "title", "style", "defs", "path", "circle", "rect", "text", "tspan", "g", "use"),
    }
    assert text.count("http") == 1, "the name of SVG itself"


@given(st.text(st.characters(), max_size=60), st.text(max_size=20))
@settings(deadline=None, max_examples=60)
def test_no_text_breaks_the_image(content: str, name: str) -> None:
    chat = MessageGraph([{"role": "user", "content": content}, {"role": "user", "content": "half \ud83d, nul \0, \uffff, \u202e"}])
    image = read(svg_of_graph(chat, name))
    assert "half ⟨U+D83D⟩, nul ⟨U+0000⟩, �, ⟨U+202E⟩" in texts(image)
    svg_of_graph(chat, name).encode("utf-8")


def test_a_long_text_is_cut_and_whole_under_the_pointer() -> None:
    chat = MessageGraph([{"role": "user", "content": "word " * 100 + "\nend"}])
    image = read(svg_of_graph(chat, "x"))
    [words] = [text for text in image.iter(f"{SVG}text") if text.find(f"{SVG}title") is not None]
    assert words.findtext(f"{SVG}title") == "word " * 100 + "\nend"
    assert len(words.find(f"{SVG}title").tail or "") == LINE_CHARS  # type: ignore[union-attr]


def test_a_message_made_by_a_chat_has_its_own_mark_and_a_result_too() -> None:
    agent = MessageGraph([{"role": "user", "content": "sub"}])
    chat = MessageGraph([{"role": "tool", "content": "made", "metadata": {"chat": agent}}, {"role": "tool", "content": "plain"}])
    image = read(svg_of_graph(chat, "x"))
    titles = [each.findtext(f"{SVG}title") for each in image.iter(f"{SVG}svg") if each.get("role") == "img" and each is not image]
    assert titles == ["made by a nested chat", "tool result"]


def test_an_empty_graph_is_an_image_too(tmp_path: Path) -> None:
    (tmp_path / "empty.svg").write_text(svg_of_graph(MessageGraph(), "empty"), encoding="utf-8")
    assert texts(read((tmp_path / "empty.svg").read_text("utf-8")))[1] == "0 messages · 1 version"


def test_every_lane_has_a_colour_for_light_and_for_dark() -> None:
    assert {len(colours) for colours in LANE_COLOURS.values()} == {MAX_LANES + 1}
    assert all(f".c{lane}{{color:var(--c{lane})}}" in draw_styles() for lane in range(MAX_LANES + 1))


def test_a_thousand_versions_of_a_long_list_are_drawn() -> None:
    chat = MessageGraph([{"role": "system", "content": "s"}])
    for number in range(300):
        chat.append({"role": "user", "content": f"q{number}"})
        chat.append({"role": "assistant", "content": f"a{number}"}, call=CallRecord(model="m"))
        if number % 3 == 0:
            chat[number]["content"] = f"edit {number}"
    assert len(texts(read(svg_of_graph(chat, "long")))) > 2_400
