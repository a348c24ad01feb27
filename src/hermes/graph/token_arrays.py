"""Token ids and logprobs as arrays (4 bytes a value, not Python integers), their form in JSON, and the digest of prompts.

In JSON an array is base64 of its little-endian values: {"int32": "BQAAAA=="} or {"float32": …}. Knows nothing about calls."""

from __future__ import annotations

import struct
import sys
from array import array
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from math import isnan
from typing import Any, Literal, TypeVar

from hermes.graph.errors import CallError

_IS_LITTLE_ENDIAN = sys.byteorder == "little"
JSON_NAMES = {"i": "int32", "f": "float32"}

_Number = TypeVar("_Number", int, float)


def to_array(typecode: Literal["i", "f"], values: Iterable[_Number] | None, path: str) -> array[Any] | None:
    """Return the values as an array; raise CallError with the path if one of them is no token id or no logprob."""
    if values is None:
        return None
    if isinstance(values, bytes | bytearray):  # array() would read them as memory
        raise CallError(path, f"expected a list of {JSON_NAMES[typecode]} values, got {type(values).__name__}")
    try:
        compact = _pack_values(typecode, values)
    except (TypeError, OverflowError, ValueError) as error:
        raise CallError(path, f"expected a list of {JSON_NAMES[typecode]} values ({error})") from None
    # A sum with NaN in it is NaN, and takes a third of the time.
    check_array(compact, path)
    return compact


def check_array(compact: array[Any], path: str) -> None:
    """Raise CallError with the path if one of these values is no token id or no logprob."""
    typecode = compact.typecode
    if typecode == "f" and not are_negative(compact) and isnan(sum(compact)) and any(map(isnan, compact)):
        raise CallError(path, "NaN is not a logprob")
    # The sign is the top bit of each value's last byte: `isascii` checks all of them at memory speed.
    if typecode == "i" and not (compact if _IS_LITTLE_ENDIAN else _little_endian(compact)).tobytes()[3::4].isascii():
        raise CallError(path, "a token id must not be negative")


def are_negative(logprobs: array[float]) -> bool:
    """Whether all these values are negative and finite, as logprobs usually are: the top byte of each tells, without a Python float for
    each. False also for 0 and for the largest magnitudes, so the caller then looks at the values themselves."""
    return not _little_endian(logprobs).tobytes()[3::4].translate(None, _NEGATIVE_TOP_BYTES)


_NEGATIVE_TOP_BYTES = bytes(range(0x80, 0xFF))
"""0xFF is left out: infinity, NaN and magnitudes over 1.7e38 begin with it."""


def _pack_values(typecode: Literal["i", "f"], values: Iterable[_Number]) -> array[Any]:
    """Return array(typecode, values): a list a third faster, an array of another library at memory speed where it has 4-byte values."""
    if isinstance(values, array) and values.typecode == typecode:
        return values[:]
    known: Iterable[_Number] = values
    if not isinstance(known, list | tuple):
        try:
            view = memoryview(values)  # type: ignore[arg-type]  # any buffer: numpy's arrays and the like
            if view.ndim == 1 and view.contiguous and view.format == typecode:
                out: array[Any] = array(typecode)
                out.frombytes(view)
                return out
            known = view.tolist()
        except (TypeError, NotImplementedError):  # no buffer, or one of values that Python does not know
            return array(typecode, values)
    try:
        packed: array[Any] = array(typecode)
        packed.frombytes(struct.pack(f"{len(known)}{typecode}", *known))
    except (struct.error, OverflowError):
        return array(typecode, known)  # it decides what is refused, and with which words
    return packed


def as_array(tokens: Sequence[int]) -> array[int]:
    """Return a call record's tokens as the array that they are."""
    return tokens if isinstance(tokens, array) else array("i", tokens)


def array_as_json(values: array[Any]) -> dict[str, str]:
    """Return an array as it stands in JSON."""
    data = _little_endian(values).tobytes()
    return {JSON_NAMES[values.typecode]: b2a_base64(data, newline=False).decode("ascii")}


def array_as_canonical(values: array[Any]) -> bytes:
    """Return the canonical bytes of `array_as_json`."""
    name = b"float32" if values.typecode == "f" else b"int32"
    return b'{"%b":"%b"}' % (name, b2a_base64(_little_endian(values), newline=False))


def array_from_json(typecode: Literal["i", "f"], value: Any, path: str) -> array[Any]:
    """Read what `array_as_json` wrote; raise CallError with the path to the fault. The values themselves are not checked."""
    name = JSON_NAMES[typecode]
    encoded = value.get(name) if (type(value) is dict or isinstance(value, Mapping)) and len(value) == 1 else None
    if not isinstance(encoded, str):
        raise CallError(path, f'expected {{"{name}": base64}}')
    try:
        out: array[Any] = array(typecode, a2b_base64(encoded, strict_mode=True))
    except (Base64Error, ValueError) as error:
        raise CallError(path, str(error)) from None
    return out if _IS_LITTLE_ENDIAN else _little_endian(out)


class PromptDigests:
    """Computes the digests of prompts, one after the other: one that continues the prompt before costs only what it adds.

    The digest is that of the canonical bytes of {"prompt_token_ids": {"int32": base64}}, and of {} if there is no prompt. Every
    12 bytes of tokens are 16 characters of base64, so the hash of a longer prompt goes on where the hash of the shorter one was.
    One thread at a time."""

    __slots__ = ("_hash", "_hashed")

    def __init__(self) -> None:
        self._hashed = b""
        self._hash: Any = None
        """The hash of the start and of `_hashed`; made with the first prompt."""

    def digest(self, prompt: Sequence[int] | None) -> bytes:
        """Return the digest of this prompt as it is now."""
        if prompt is None:
            return _NO_PROMPT
        return self.digest_bytes(_little_endian(as_array(prompt)).tobytes())

    def digest_bytes(self, data: bytes) -> bytes:
        """Return the digest of the prompt with these little-endian values."""
        if not self._hashed or not data.startswith(self._hashed):
            self._hashed, self._hash = b"", sha256(_PROMPT_START)
        start, whole = len(self._hashed), len(data) - len(data) % 12
        self._hash.update(b2a_base64(memoryview(data)[start:whole], newline=False))
        self._hashed = data[:whole]
        end = self._hash.copy()
        end.update(b2a_base64(data[whole:], newline=False) + b'"}}')
        known: bytes = end.digest()
        return known


_PROMPT_START = b'{"prompt_token_ids":{"int32":"'
_NO_PROMPT = sha256(b"{}").digest()


def _little_endian(values: array[Any]) -> array[Any]:
    if _IS_LITTLE_ENDIAN:
        return values
    swapped = values[:]
    swapped.byteswap()
    return swapped
