"""Prompts of one document as what each adds to an earlier call: an agent sends its whole history with every call.

A call's prompt usually begins with the prompt and the completion of an earlier call. The document names that call and how many of its
tokens the prompt shares, and holds only the rest:

    {"int32": base64}                                   the whole prompt
    {"from": 7, "shared": 31204, "int32": base64}       the first 31,204 tokens of response 7 (prompt, then completion), then these

The earlier call is found by the trie's paths: the hash of every block of tokens, chained with the hash of the blocks before it, names
the last sequence that goes through that block. Knows nothing about graphs."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hermes.graph.errors import CallError
from hermes.graph.token_arrays import array_as_json, array_from_json, as_array

TOKEN_BYTES = 4
BLOCK_BYTES = 64 * TOKEN_BYTES
"""Blocks this long are compared by hash; a prompt that shares less than a block more with another call than with the named one does
not find it."""
MAX_PROMPT_BYTES = 1 << 34
"""All prompts of a document together may take this much memory: a small file must not fill the machine."""


class TokenSequence(NamedTuple):
    """A call's prompt followed by its completion."""

    prompt: array[int]
    completion: array[int] | None

    @classmethod
    def of(cls, prompt: Sequence[int], completion: Sequence[int] | None) -> TokenSequence:
        return cls(as_array(prompt), None if completion is None else as_array(completion))

    def to_bytes(self) -> bytes:
        return self.prompt.tobytes() + (self.completion.tobytes() if self.completion is not None else b"")


class _LastSequence(NamedTuple):
    """The sequence written last, and the chained hash of its whole blocks."""

    number: int
    data: bytes
    chain: int


class PromptWriter:
    """Writes the prompts of one document, in the order of its responses."""

    def __init__(self) -> None:
        self._sequences: dict[int, TokenSequence] = {}
        self._blocks: dict[int, int] = {}
        """The chained hash of a block to the number of the last sequence that goes through it."""
        self._last: _LastSequence | None = None

    def write(self, number: int, prompt: Sequence[int], completion: Sequence[int] | None) -> dict[str, Any]:
        """Return the prompt of response `number` as JSON values."""
        sequence = self._sequences[number] = TokenSequence.of(prompt, completion)
        base, size = self._longest(sequence.prompt.tobytes())
        self._remember(number, sequence.to_bytes(), base, size)
        shared = size // TOKEN_BYTES
        if not shared:
            return array_as_json(sequence.prompt)
        return {"from": base, "shared": shared, **array_as_json(sequence.prompt[shared:])}

    def _longest(self, data: bytes) -> tuple[int, int]:
        """Return the earlier sequence that shares the most with `data`, and how many bytes these are."""
        last = self._last
        if last is None:
            return 0, 0
        if data.startswith(last.data):
            return last.number, len(last.data)
        best = last.number, _whole_tokens(_shared_bytes(last.data, data))
        chain, found, depth = 0, None, 0
        for at in range(0, len(data) - BLOCK_BYTES + 1, BLOCK_BYTES):
            chain = hash((chain, data[at : at + BLOCK_BYTES]))
            through = self._blocks.get(chain)
            if through is None:
                break
            found, depth = through, at + BLOCK_BYTES
        if found is None or depth <= best[1]:
            return best
        return found, _whole_tokens(_shared_bytes(self._sequences[found].to_bytes(), data))

    def _remember(self, number: int, data: bytes, base: int, shared: int) -> None:
        last = self._last
        is_continued = last is not None and last.number == base and shared == len(last.data)
        start = shared - shared % BLOCK_BYTES if is_continued else 0
        chain = last.chain if last is not None and is_continued else 0
        for at in range(start, len(data) - BLOCK_BYTES + 1, BLOCK_BYTES):
            chain = hash((chain, data[at : at + BLOCK_BYTES]))
            self._blocks[chain] = number
        self._last = _LastSequence(number, data, chain)


class PromptReader:
    """Reads what a `PromptWriter` wrote; the responses are given in the same order."""

    def __init__(self) -> None:
        self._sequences: dict[int, TokenSequence] = {}
        self._bytes = 0

    def read(self, value: Any, path: str) -> array[int]:
        """Return the prompt; raise CallError with the path to the fault."""
        if not isinstance(value, Mapping) or set(value) != {"from", "shared", "int32"}:
            prompt: array[int] = array_from_json("i", value, path)
        else:
            base = value["from"]
            sequence = self._sequences.get(base) if type(base) is int else None
            if sequence is None:
                raise CallError(f"{path}.from", f"expected the number of an earlier response with a prompt, got {base!r:.40}")
            count, shared = len(sequence.prompt), value["shared"]
            length = count + len(sequence.completion or ())
            if type(shared) is not int or not 0 < shared <= length:
                raise CallError(f"{path}.shared", f"expected a whole number from 1 to {length}, got {shared!r:.40}")
            self._count(shared * TOKEN_BYTES, path)
            prompt = sequence.prompt[:shared]
            if shared > count and sequence.completion is not None:
                prompt += sequence.completion[: shared - count]
            prompt += array_from_json("i", {"int32": value["int32"]}, path)
        return prompt

    def note(self, number: int, prompt: Sequence[int] | None, completion: Sequence[int] | None) -> None:
        """Note the tokens of response `number`; later prompts may refer to them."""
        if prompt is not None:
            self._sequences[number] = TokenSequence.of(prompt, completion)

    def _count(self, size: int, path: str) -> None:
        self._bytes += size
        if self._bytes > MAX_PROMPT_BYTES:
            raise CallError(path, f"the prompts of this document take more than {MAX_PROMPT_BYTES >> 30} GiB")


def _whole_tokens(size: int) -> int:
    return size - size % TOKEN_BYTES


def _shared_bytes(one: bytes, other: bytes) -> int:
    """Return how many leading bytes are the same, by halving: each step compares at memory speed."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
