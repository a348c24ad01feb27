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
        'M0["📋 System Message<br/>Role: System<br/>Content: Messages are nodes in a graph"]',
        'M1["👤 User Message<br/>Role: User<br/>Content: new"]',
        'subgraph M3["🔧 Tool Response"]',
        'M3L["Length: 3"]',
        'subgraph M3S["💭 Subagent Chat"]',
        'M3C["Role: Tool<br/>Content: Subagent call output"]',
        'subgraph V0["Previous Messages (version 1)"]',
        'subgraph V0M2["💬 Chat Response"]',
        'V0M2D["📊 Metadata<br/>m<br/>temperature: 1.0"]',
        'V0M2C["📝 Response<br/>Role: Assistant<br/>Content: Hello"]',
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
    assert re.fullmatch(r'    M0\["👤 User Message<br/>Role: User<br/>Content: [^"<>`\n]*"\]', lines[1])


def test_whole_texts_keep_their_lines() -> None:
    chat = MessageGraph([{"role": "user", "content": "one\n\n<two>\r\n  three"}])
    assert 'Content: one<br/><br/>#lt;two#gt;<br/>  three"]' in chat.to_mermaid(width=None)
    assert 'Content: one #lt;two#gt; three"]' in chat.to_mermaid()


def test_long_texts_are_cut() -> None:
    chat = MessageGraph([{"role": "user", "content": "word " * 100}])
    assert "word…" in chat.to_mermaid(width=30)
    assert ("word " * 100).strip() in chat.to_mermaid(width=None)


def test_what_mermaid_reads_inside_labels_is_written_so_that_it_does_not() -> None:
    traps = ["a direction LR b", "%%{init: {}}%%", "$$x$$", "fa:fa-car", "a\\n b", "style x:y #z;", "👨‍👩‍👧"]
    chat = MessageGraph({"role": "user", "content": trap} for trap in traps)
    lines = chat.to_mermaid().splitlines()
    assert [line.split("Content: ")[1] for line in lines[1:8]] == [
        'a direction#32;LR b"]',
        '#37;#37;{init#58; {}}#37;#37;"]',
        '$\u200b$x$\u200b$"]',
        'fa#58;\u200bfa-car"]',
        'a#92;\u200bn b"]',
        'style x#58;y #35;z;"]',
        '👨‍👩‍👧"]',
    ]


def test_a_versions_edge_leads_to_its_successor() -> None:
    chat = MessageGraph([{"role": "user", "content": "1"}])
    for text in ("2", "3"):
        chat.append({"role": "assistant", "content": "a"})
        chat[0]["content"] = text
    source = chat.to_mermaid()
    assert 'V0 -. "edit" .-> V1' in source
    assert 'V1 -. "edit" .-> M0' in source


def test_a_version_kept_for_its_chat_alone_is_drawn() -> None:
    inner = MessageGraph()
    inner.append({"role": "assistant", "content": "inner answer"})
    chat = MessageGraph([{"role": "tool", "content": "t", "metadata": {"chat": inner}}])
    del chat[0]["metadata"]
    assert "inner answer" in chat.to_mermaid()


def test_a_shared_chat_is_drawn_once() -> None:
    chat = MessageGraph([{"role": "user", "content": "seed"}])
    for _ in range(6):
        tool = {"role": "tool", "content": "t", "metadata": {"chat": chat}}
        chat = MessageGraph([tool] * 4)
    assert len(chat.to_mermaid()) < 100_000  # drawn each time it would be megabytes
