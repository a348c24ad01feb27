"""Draw a graph as Mermaid text, in the style of the founding diagram.

A message is a box. A sampled message is a box of two boxes: its call and its text. A message with a chat attached shows the chat inside.
Beside the list stand the messages in which each kept version differs, joined by a dotted edge to the version that followed it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hermes.graph.history import GraphHistory, Sample
from hermes.graph.node import AttachedChat, Node, is_same_content

ROLE_ICONS = {"system": "📋", "developer": "📋", "user": "👤", "assistant": "🤖", "tool": "🔧", "function": "🔧"}
MAX_LEVELS = 8
"""How deep chats inside chats are drawn."""
CLASSES = (
    "classDef messageNode fill:#eef2ff,stroke:#6366f1,color:#1e1b4b",
    "classDef responseNode fill:#ecfdf5,stroke:#10b981,color:#064e3b",
    "classDef metadataNode fill:#f8fafc,stroke:#94a3b8,color:#334155",
    "classDef previousNode fill:#fff7ed,stroke:#f59e0b,color:#7c2d12,stroke-dasharray: 4 3",
)


def draw_mermaid(history: GraphHistory, width: int | None = 60) -> str:
    """Return the Mermaid source; texts are cut at `width` characters, and whole with None."""
    drawing = _MermaidDrawing(width)
    drawing.graph(history, "")
    lines = ["graph TD", *(f"    {line}" for line in drawing.lines), *(f"    {line}" for line in CLASSES)]
    for name, members in drawing.classes.items():
        lines.append(f"    class {','.join(members)} {name}")
    return "\n".join(lines) + "\n"


class _MermaidDrawing:
    def __init__(self, width: int | None) -> None:
        self.width = width
        self.lines: list[str] = []
        self.indent = ""
        self.level = 0
        self.drawn: set[int] = set()
        self.classes: dict[str, list[str]] = {}

    def write(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def open(self, name: str, title: str, kind: str) -> None:
        self.write(f'subgraph {name}["{title}"]')
        self.indent += "    "
        self.classes.setdefault(kind, []).append(name)

    def close(self) -> None:
        self.indent = self.indent[:-4]
        self.write("end")

    def box(self, name: str, rows: Sequence[str], kind: str) -> None:
        self.write(f'{name}["{"<br/>".join(rows)}"]')
        self.classes.setdefault(kind, []).append(name)

    def graph(self, history: GraphHistory, prefix: str) -> list[str]:
        """Draw the current list and its kept versions; return the names of the list's boxes."""
        samples = history.slots()
        names = [self.message(f"{prefix}M{index}", node, samples.get(index, ())) for index, node in enumerate(history.nodes)]
        self.chain(names)
        depths = {place: _shared_length(history.nodes_at(place), history.nodes) for place in range(len(history.kept))}
        # A version whose messages all begin the current list is not drawn: it has no message of its own.
        drawn = {place: f"{prefix}V{place}" for place in depths if depths[place] < len(history.nodes_at(place))}
        for place, name in drawn.items():
            self.version(history, place, depths[place], name, names)
        for place, name in drawn.items():
            successor = history.place_of(history.edges[place][1])
            while successor < len(history.kept) and successor not in drawn:
                successor = history.place_of(history.edges[successor][1])
            target = drawn.get(successor) or next(iter(names[depths[place] :]), None)
            if target is not None:
                self.write(f'{name} -. "{_escape_label(history.edges[place][2]) or " "}" .-> {target}')
        return names

    def version(self, history: GraphHistory, place: int, depth: int, name: str, current: Sequence[str]) -> None:
        """Draw the messages of a kept version that the current list does not have."""
        nodes = history.nodes_at(place)
        self.open(name, f"Previous Messages (version {place + 1})", "previousNode")
        samples = history.slots_at(place)
        names = [self.message(f"{name}M{index}", nodes[index], samples.get(index, ())) for index in range(depth, len(nodes))]
        self.chain(names)
        self.close()
        if depth:
            self.write(f"{current[depth - 1]} --> {names[0]}")

    def message(self, name: str, node: Node, samples: Sequence[Sample]) -> str:
        chat = node.chat
        role = str(node["role"])
        if chat is not None:
            title = "🔧 Tool Response" if role in ("tool", "function") else f"{ROLE_ICONS[role]} {role.title()} Message"
            self.open(name, title, "responseNode")
            self.attached_chat(name, chat)
            self.box(f"{name}C", [role_row(role), f"Content: {self.text(node)}"], "metadataNode")
            self.close()
        elif samples:
            times = f" (sampled {len(samples)} times)" if len(samples) > 1 else ""
            self.open(name, f"💬 Chat Response{times}", "responseNode")
            self.box(f"{name}D", ["📊 Metadata", *_call_rows(samples[0])], "metadataNode")
            self.box(f"{name}C", ["📝 Response", role_row(role), f"Content: {self.text(node)}"], "metadataNode")
            self.close()
        else:
            icon = "✂️" if node.redacted else ROLE_ICONS[role]
            self.box(name, [f"{icon} {role.title()} Message", role_row(role), f"Content: {self.text(node)}"], "messageNode")
        return name

    def attached_chat(self, name: str, chat: AttachedChat) -> None:
        self.open(f"{name}D", "📊 Metadata", "metadataNode")
        self.box(f"{name}L", [f"Length: {len(chat)}"], "metadataNode")
        if id(chat.history) in self.drawn:
            # Versions share their chats, and so do the chats inside: drawn each time, the source would double with every level.
            self.box(f"{name}S", ["💭 Subagent Chat", "as drawn elsewhere"], "metadataNode")
        elif self.level < MAX_LEVELS:
            self.drawn.add(id(chat.history))
            self.open(f"{name}S", "💭 Subagent Chat", "metadataNode")
            self.level += 1
            self.graph(chat.history, f"{name}S")
            self.level -= 1
            self.close()
        self.close()

    def chain(self, names: Sequence[str]) -> None:
        for one, other in pairwise(names):
            self.write(f"{one} --> {other}")

    def text(self, node: Node) -> str:
        """Return the message's text, parts and tool calls: on one line, or, if texts are not cut, with their own lines."""
        if self.width is None:
            whole = "\n".join(_words(node)).strip() or "(empty)"
            return "<br/>".join(_escape_label(line) for line in whole.splitlines())
        text = " ".join(" ".join(_words(node)).split()) or "(empty)"
        return _escape_label(text if len(text) <= self.width else text[: self.width - 1] + "…")


def role_row(role: str) -> str:
    return f"Role: {role.title()}"


def _words(node: Node) -> Iterator[str]:
    content = node.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        yield str(part["text"]) if isinstance(part.get("text"), str) else f"[{part['type']}]"
    for call in node.get("tool_calls") or ():
        function: Any = call.get("function") or call
        yield f"→ {function.get('name', '?')}({function.get('arguments', '')})" if isinstance(function, dict) else "→ ?"


def _call_rows(sample: Sample) -> list[str]:
    call = sample.call
    if call is None:
        return ["sampled"]
    rows = [_escape_label(call.model)] if call.model else []
    rows += [f"{_escape_label(key)}: {_escape_label(str(value))}" for key, value in (call.sampling or {}).items()]
    if call.policy_version:
        rows.append(f"policy: {_escape_label(call.policy_version)}")
    if call.token_ids is not None:
        rows.append(f"tokens: {len(call.token_ids)}")
    return rows or ["sampled"]


def _shared_length(one: Sequence[Node], other: Sequence[Node]) -> int:
    """Return how many leading nodes are the same, their chats included: a version may differ in a message's old chat alone."""
    pairs = zip(one, other, strict=False)
    alike = (is_same_content(left, right) and _chat_key(left) == _chat_key(right) for left, right in pairs)
    return next((index for index, is_alike in enumerate(alike) if not is_alike), min(len(one), len(other)))


def _chat_key(node: Node) -> int | None:
    return id(node.chat.history) if node.chat is not None else None


SPECIAL = {letter: f"#{ord(letter)};" for letter in "#%&*:\\_`"} | {'"': "#quot;", "<": "#lt;", ">": "#gt;"}
"""Characters that Mermaid interprets inside labels: quotes, markup, `%%{init…}%%`, and `style…:…#…;`, which loses its last semicolon."""
TRAPS = re.compile(r"(?<=\$)(?=\$)|(?<=:)(?=fa-)|(?<=\\)(?=n)")
"""What Mermaid interprets after it has decoded entities: formulas, icons, line breaks. A zero-width space in between prevents that."""


def _escape_label(text: str) -> str:
    """Return a text that Mermaid shows in a label unchanged, on one line."""
    shown = TRAPS.sub("\u200b", "".join(letter if letter.isprintable() or letter == "\u200d" else " " for letter in text))
    # Mermaid takes a line that contains `direction LR` for that statement, even inside a label.
    return "".join(SPECIAL.get(letter, letter) for letter in shown).replace("direction ", "direction#32;")
