"""Draw a message graph in the terminal: the current list, each kept version as far as it differs, chats inside their messages."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from hermes.graph import MessageGraph, Version
from hermes.graph.node import Node

FACES = {"system": "📋", "developer": "📋", "user": "👤", "assistant": "🤖", "tool": "🔧", "function": "🔧"}


def picture(graph: MessageGraph, title: str = "conversation", levels: int = 8) -> Tree:
    """Return a Rich tree; sampled messages are green, copies and authored ones plain, what an older version shares is left out.

    Chats inside chats are drawn `levels` deep."""
    versions = list(graph.versions)
    count = sum(1 for _ in graph.responses())
    counts = ", ".join((_plural(len(graph), "message"), _plural(len(versions), "version"), _plural(count, "response")))
    tree = Tree(f"[bold]{escape(title)}[/]  [dim]{counts}[/]", guide_style="dim")
    current = versions[-1]
    _add_messages(tree.add("[bold]now[/]"), current, 0, levels)
    for version in reversed(versions[:-1]):
        shared = _shared(version, current)
        target = "now" if version.successor == current.place else f"version {(version.successor or 0) + 1}"
        branch = tree.add(f"[yellow]version {version.place + 1}[/] [dim]┄ {escape(version.kind or '')} ┄▶ {target}[/]")
        if shared:
            branch.add(f"[dim]{_plural(shared, 'message')} as above[/]")
        _add_messages(branch, version, shared, levels)
    return tree


def _add_messages(tree: Tree, version: Version, start: int, levels: int) -> None:
    sampled = version.sampled
    for index in range(start, len(version)):
        node = version[index]
        branch = tree.add(_line(node, is_sampled=index in sampled))
        if node.chat is not None:
            branch.add(picture(node.chat.graph, "the chat that made it", levels - 1) if levels else "…")


def _line(node: Node, *, is_sampled: bool) -> Text:
    role = node["role"]
    line = Text(f"{FACES[role]} {role:<9} ", style="green" if is_sampled else "")
    line.append(" ".join(" ".join(_words(node)).split()) or "(empty)")
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
        yield f"→ {function.get('name')}({function.get('arguments', '')})" if isinstance(function, dict) else "→ a tool"


def _shared(one: Version, other: Version) -> int:
    """How many leading messages two versions have in common."""
    places = range(min(len(one), len(other)))
    return next((index for index in places if one[index].digest != other[index].digest), len(places))


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
