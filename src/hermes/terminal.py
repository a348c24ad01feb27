"""Draw a message graph in the terminal: the current list, the messages in which each kept version differs, chats inside their messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

if TYPE_CHECKING:  # every command uses `one_line`, and few of them a graph
    from hermes.graph import MessageGraph, Version
    from hermes.graph.node import Node

ROLE_ICONS = {"system": "📋", "developer": "📋", "user": "👤", "assistant": "🤖", "tool": "🔧", "function": "🔧"}
UNSAFE_CHARS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that must not reach a terminal: control characters, marks that change the writing direction, half surrogate pairs."""


def graph_tree(graph: MessageGraph, title: str = "conversation", levels: int = 8) -> Tree:
    """Return a Rich tree. Sampled messages are green, copies and authored ones plain. Of an older version only its own messages are drawn.

    Chats inside chats are drawn `levels` deep, each one once."""
    return _draw(graph, title, levels, set())


def one_line(text: str) -> str:
    """Return a text as one line that is safe to show: a message may hold line breaks and the escape codes of a terminal."""
    return show_safely(" ".join(text.split()))


def show_safely(text: str) -> str:
    """Return a text that cannot control the terminal, with its spaces and line breaks."""
    return UNSAFE_CHARS.sub(lambda found: "\n" if found[0] == "\n" else "\N{REPLACEMENT CHARACTER}", text)


def _draw(graph: MessageGraph, title: str, levels: int, drawn: set[int]) -> Tree:
    """Draw a graph; `drawn` collects the chats that are already in the tree."""
    versions = list(graph.versions)
    count = sum(1 for _ in graph.responses())
    counts = ", ".join((_plural(len(graph), "message"), _plural(len(versions), "version"), _plural(count, "response")))
    tree = Tree(Text.assemble((one_line(title), "bold"), "  ", (counts, "dim")), guide_style="dim")
    current = versions[-1]
    _add_messages(tree.add(Text("now", "bold")), current, 0, levels, drawn)
    for version in reversed(versions[:-1]):
        shared = _shared_length(version, current)
        target = "now" if version.successor == current.place else f"version {(version.successor or 0) + 1}"
        arrow = f"┄ {one_line(version.kind or '')} ┄▶ {target}"
        branch = tree.add(Text.assemble((f"version {version.place + 1}", "yellow"), " ", (arrow, "dim")))
        if shared:
            branch.add(Text(f"{_plural(shared, 'message')} as above", "dim"))
        _add_messages(branch, version, shared, levels, drawn)
    return tree


def _add_messages(tree: Tree, version: Version, start: int, levels: int, drawn: set[int]) -> None:
    sampled = version.sampled
    for index in range(start, len(version)):
        node = version[index]
        branch = tree.add(_line(node, is_sampled=index in sampled))
        chat = node.chat
        if chat is None:
            continue
        if id(chat.history) in drawn:
            # Versions share their chats, and so do the chats inside: drawn each time, the tree would double with every level.
            branch.add(Text("the chat that made it, as above", "dim"))
        elif levels:
            drawn.add(id(chat.history))
            branch.add(_draw(chat.graph, "the chat that made it", levels - 1, drawn))
        else:
            branch.add(Text("…"))


def _line(node: Node, *, is_sampled: bool) -> Text:
    role = node["role"]
    line = Text(f"{ROLE_ICONS[role]} {role:<9} ", style="green" if is_sampled else "")
    line.append(one_line(" ".join(_words(node))) or "(empty)")
    if is_sampled:
        line.append("  ● sampled", style="bold green")
    elif role == "assistant":
        line.append("  ○ context only", style="dim")
    return line


def _words(node: Node) -> Iterable[str]:
    content = node.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        yield part["text"] if isinstance(part.get("text"), str) else f"[{part['type']}]"
    for call in node.get("tool_calls") or ():
        function = call.get("function")
        yield f"→ {function.get('name', '?')}({function.get('arguments', '')})" if isinstance(function, dict) else "→ a tool"


def _shared_length(one: Version, other: Version) -> int:
    """Return how many leading messages two versions have in common, the chats attached to them included.

    An edit that only replaces an attached chat keeps a version too, because the old chat's samples would be lost without it."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if not _is_same(left, right)), min(len(one), len(other)))


def _is_same(left: Node, right: Node) -> bool:
    chats = [node.chat and id(node.chat.history) for node in (left, right)]
    return left.digest == right.digest and chats[0] == chats[1]


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
