"""A compact prefix tree over token sequences: a node is a run of tokens that all its sequences share.

Built once for each rollout and tokenizer. Sequences are bytes of int32, compared by memcmp; the usual case, a call that extends the
call before, costs one comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

TOKEN_BYTES = 4


class HasTokens(Protocol):
    """An item of a trie: it has tokens."""

    @property
    def tokens(self) -> bytes: ...


Item = TypeVar("Item", bound=HasTokens)


@dataclass(slots=True, eq=False)
class TrieNode(Generic[Item]):
    """The tokens [start, end) of `source`, which follow those of its parent; the items that end exactly here; the nodes that follow."""

    source: bytes
    start: int
    end: int
    items: list[Item] = field(default_factory=list)
    children: dict[bytes, TrieNode[Item]] = field(default_factory=dict)
    """By their first token, in the order of insertion."""


class Trie(Generic[Item]):
    """Sequences by prefix. Offsets are in bytes."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.root: TrieNode[Item] = TrieNode(b"", 0, 0)
        last, last_tokens = self.root, b""
        for item in items:
            tokens = item.tokens
            # An agent's next call usually extends its last one: then insert from its node instead of from the root.
            start = last if tokens.startswith(last_tokens) else self.root
            last, last_tokens = self._insert(start, tokens), tokens
            last.items.append(item)

    def _insert(self, node: TrieNode[Item], tokens: bytes) -> TrieNode[Item]:
        while node.end < len(tokens):
            key = tokens[node.end : node.end + TOKEN_BYTES]
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = TrieNode(tokens, node.end, len(tokens))
                return child
            shared = _shared_end(child.source, tokens, child.start, min(child.end, len(tokens)))
            if shared < child.end:
                # The sequence leaves the child, or ends, in its middle: split the child there.
                upper: TrieNode[Item] = TrieNode(child.source, child.start, shared)
                upper.children[child.source[shared : shared + TOKEN_BYTES]] = child
                child.start = shared
                node.children[key] = upper
                child = upper
            node = child
        return node

    def leaves(self) -> Iterator[tuple[list[TrieNode[Item]], int]]:
        """Yield the path to each leaf, depth first, and how many of its nodes were on the path to the leaf before.

        The same list is yielded each time and changes with the next leaf: copy what you need."""
        path: list[TrieNode[Item]] = []
        stack = [iter(self.root.children.values())]
        shared = 0
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                if path:
                    path.pop()
                shared = min(shared, len(path))
                continue
            path.append(node)
            if node.children:
                stack.append(iter(node.children.values()))
            else:
                yield path, shared
                path.pop()
                shared = len(path)


def _shared_end(one: bytes, other: bytes, start: int, end: int) -> int:
    """Return where two sequences that agree before `start` first differ, at most `end`. Bisects, so that memcmp does the comparing."""
    if one[start:end] == other[start:end]:
        return end
    low, high = start, end  # they agree before low and not before high
    while high - low > TOKEN_BYTES:
        middle = low + (high - low) // (2 * TOKEN_BYTES) * TOKEN_BYTES
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
