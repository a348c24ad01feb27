"""The drawing: the founding diagram's parts, valid Mermaid whatever the texts hold."""

import re

from hypothesis import given
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from tests.unit.graph.sessions import rich_session


def test_draws_the_parts_of_the_founding_diagram() -> None:
    agent = MessageGraph([{"role": "system", "content": "Subagent call received"}, {"role": "user", "content": "Process this request"}])
    agent.append({"role": "assistant", "content": "Processing..."})
    chat = MessageGraph([{"role": "system", "content": "Messages are nodes in a graph"}, {"role": "user", "content": "old"}])
    chat.append({"role": "assistant", "content": "Hello"}, call=CallRecord(model="m", sampling={"temperature": 1.0}))
    chat.append({"role": "tool", "content": "Subagent call output", "metadata": {"chat": agent}})
    chat[1]["content"] = "new"
    source = chat.to_mermaid()
    for part in (
        "graph TD\n",
        'M0["📋 System Message<br/>Content: Messages are nodes in a graph"]',
        'M1["👤 User Message<br/>Content: new"]',
        'subgraph M3["🔧 Tool Response"]',
        'M3L["Length: 3"]',
        'subgraph M3S["💭 Subagent Chat"]',
        'M3C["Content: Subagent call output"]',
        'subgraph V0["Previous Messages (version 1)"]',
        'subgraph V0M2["💬 Chat Response"]',
        'V0M2D["📊 Metadata<br/>m<br/>temperature: 1.0"]',
        "M0 --> M1",
        "M0 --> V0M1",
        'V0 -. "edit" .-> M1',
    ):
        assert part in source


def test_every_box_is_declared_once_and_every_edge_joins_declared_boxes() -> None:
    source = rich_session().to_mermaid()
    declared = re.findall(r"^\s*(?:subgraph )?(\w+)\[", source, re.MULTILINE)
    assert len(declared) == len(set(declared))
    edges = re.findall(r"^\s*(\w+) (?:-->|-\. \".*\" \.->) (\w+)$", source, re.MULTILINE)
    assert edges
    assert {name for edge in edges for name in edge} <= set(declared)
    assert source.count("subgraph") == len(re.findall(r"^\s*end$", source, re.MULTILINE))


@given(st.text(max_size=80))
def test_no_text_breaks_out_of_its_label(text: str) -> None:
    chat = MessageGraph([{"role": "user", "content": text}])
    lines = chat.to_mermaid().splitlines()
    assert re.fullmatch(r'    M0\["👤 User Message<br/>Content: [^"<>`\n]*"\]', lines[1])


def test_long_texts_are_cut() -> None:
    chat = MessageGraph([{"role": "user", "content": "word " * 100}])
    assert "word…" in chat.to_mermaid(width=30)
