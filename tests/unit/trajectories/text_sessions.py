"""Small sessions for the text formats, and an export of them into a folder."""

import json
from pathlib import Path
from typing import Any

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SampledCall, SamplePolicies, read_calls
from hermes.trajectories.export import ExportSummary, export
from hermes.trajectories.plan import ExportFormat, ExportSettings
from hermes.trajectories.source import ExportSession

ODD = '{"a":  1e3, "a": 2}'
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "required": ["a"]}}},
    {"type": "function", "function": {"name": "ask", "parameters": {"type": "object"}}},
]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def answer(content: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def call(name: str, arguments: str, of: str) -> dict[str, Any]:
    return {"id": of, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(of: str, content: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": of, "content": content, **fields}


def sampled(chat: MessageGraph, name: str, message: dict[str, Any], **fields: Any) -> None:
    chat.append(message, call=CallRecord(sample_id=name, **fields))


def tool_session() -> MessageGraph:
    """Two calls whose results come in the other order, odd argument bytes, an ephemeral prompt, and an answer with reasoning."""
    chat = MessageGraph([{"role": "system", "content": "Be brief."}, user("2+3?")], seed="tools")
    turn = chat.prepare(tools=TOOLS, ephemeral="Secretly.")
    chat.commit(
        turn,
        answer(None, tool_calls=[call("add", ODD, "c1"), call("ask", "{}", "c2")]),
        CallRecord(sample_id="calls", model="m", prompt_token_ids=[1, 2], token_ids=[3], logprobs=[-0.5], policy_version="w1"),
    )
    chat.extend([result("c2", "six"), result("c1", "5")])
    chat.commit(chat.prepare(tools=TOOLS), answer("5", reasoning="</think> or <tool_call>?"), CallRecord(sample_id="final"))
    return chat


NOTED = "<context>\nIt is Sunday.\n</context>"


def soul_session() -> MessageGraph:
    """Three turns as the router records them: the soul beside the list, a note before the user's words, a soul that changes, an image."""
    chat = MessageGraph(seed="soul")
    image = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    contents: list[Any] = [f"{NOTED}\n\nHi", f"{NOTED}\n\nMore?", [image, {"type": "text", "text": NOTED}]]
    for number, (content, soul) in enumerate(zip(contents, ("Be kind.", "Be kind.", "Be kinder."), strict=True)):
        chat.append({"role": "user", "content": content, "metadata": {"note": NOTED}})
        chat.commit(chat.prepare(system=soul), answer(f"a{number}"), CallRecord(sample_id=f"soul-{number}"))
    return chat


def forked_session() -> MessageGraph:
    """[U A* V B*], then V edited and C* sampled; and two samples of equal text, the second on a branch of its own."""
    chat = MessageGraph([user("Q")], seed="fork")
    sampled(chat, "A", answer("a"))
    chat.append(user("V"))
    turn = chat.prepare()
    chat.commit(turn, answer("b"), CallRecord(sample_id="B"))
    chat.commit(turn, answer("b"), CallRecord(sample_id="B-twin"))
    chat[2]["content"] = "W"
    chat[3:] = []
    sampled(chat, "C", answer("c"))
    return chat


def nested_session() -> MessageGraph:
    """A subagent of a subagent behind a tool's result, and a sampled summary."""
    deep = MessageGraph([user("deep?")], seed="deep")
    sampled(deep, "deep", answer("deep."))
    agent = MessageGraph([user("sub?")], seed="agent")
    sampled(agent, "sub-1", answer(None, tool_calls=[call("ask", '{"q": "deep?"}', "d1")]))
    agent.append(result("d1", "deep.", metadata={"chat": deep}))
    sampled(agent, "sub-2", answer("sub."))
    chat = MessageGraph([user("main?")], seed="main")
    sampled(chat, "main-1", answer(None, tool_calls=[call("ask", '{"q": "sub?"}', "s1")]))
    chat.append(result("s1", "sub.", metadata={"chat": agent}))
    sampled(chat, "main-2", answer("main."))
    chat.append(user("more?"))
    summary = MessageGraph([user("Summarise.")], seed="summary")
    sampled(summary, "summary", answer("(short)"))
    chat.compact(slice(0, 4), {**user("(short)"), "metadata": {"chat": summary}})
    sampled(chat, "main-3", answer("more."))
    return chat


def hard_session() -> MessageGraph:
    """Everything at which a reader stumbles that wants turns to alternate: an answer first, an answer after an answer, a late system
    message between two questions, results before a question, thoughts and words beside a call, and tools without parameters."""
    chat = MessageGraph([answer("Hello, I speak first.")], seed="hard")
    sampled(chat, "h1", answer("And I go on."))
    chat.extend([user("one"), {"role": "system", "content": "Late."}, user("two {{content}}")])
    turn = chat.prepare(tools=[{"type": "function", "function": {"name": "look"}}, {"name": "flat", "input_schema": {"type": "object"}}])
    chat.commit(
        turn,
        answer("I look.", reasoning="hm </tool_call>", tool_calls=[call("look", "", "c1"), call("look", '{"a":"</tool_call>"}', "c2")]),
    )
    chat.extend([result("c2", "second"), result("c1", "</tool_response>"), user("so?")])
    sampled(chat, "h3", answer("So <think> and <tool_call> are words."))
    sampled(chat, "h4", answer(""))
    chat.append(user("odd"))
    sampled(
        chat, "h5", answer("", tool_calls=[call("look", "not JSON", "c3"), {"type": "custom", "custom": {"name": "run", "input": "x"}}])
    )
    return chat


def calls_of(graph: MessageGraph, **policies: Any) -> list[SampledCall]:
    return read_calls(ExportSession("s", graph), SamplePolicies(**policies))


def write(folder: Path, format_of: ExportFormat, *graphs: MessageGraph, **settings: Any) -> ExportSummary:
    """Export graphs as sessions s0, s1 … with one format."""
    sessions = [ExportSession(f"s{place}", graph) for place, graph in enumerate(graphs)]
    return export(sessions, folder, ExportSettings(format="x", **settings), {"x": format_of})


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def ledger(folder: Path) -> dict[str, Any]:
    """Where each sample is trained, or why it is not."""
    found = {}
    for line in lines(folder / "ledger.jsonl")[1:]:
        trained = [{key: place[key] for key in ("row", "turn")} for place in line["trained"]]
        found[line["sample"]] = trained[0] if trained else [part["reason"] for part in line["excluded"]]
    return found
