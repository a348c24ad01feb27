"""Check a request for embeddings, and write the answer: vectors as numbers or as base64, as OpenAI's API does. Pure."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermes.gateway.chat_request import InvalidChatRequest, integer_field, text_field
from hermes.ports.backends import EmbeddingInput, EmbeddingRequest

MAX_INPUTS = 2_048
MAX_TOKENS_PER_INPUT = 8_192
MAX_TOKEN_ID = 2**31 - 1
ENCODINGS = ("float", "base64")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsRequest:
    """A request, checked."""

    model: str
    inputs: Sequence[EmbeddingInput]
    encoding: str
    dimensions: int | None
    user: str

    def ask(self, end_user: str) -> EmbeddingRequest:
        """The request to a backend. Its messages stand for the inputs, so that it is priced as any other."""
        texts = [text if isinstance(text, str) else "".join(f"{token:8d}" for token in text) for text in self.inputs]
        return EmbeddingRequest(
            messages=[{"role": "user", "content": text} for text in texts], max_tokens=1, inputs=self.inputs, user=end_user
        )


def read_embeddings_request(body: Any) -> EmbeddingsRequest:
    """Check a body. Raises InvalidChatRequest for the first field that is wrong. Fields of other servers are ignored."""
    if not isinstance(body, dict):
        raise InvalidChatRequest("body", "expected a JSON object", body)
    encoding = body.get("encoding_format") or "float"
    if encoding not in ENCODINGS:
        raise InvalidChatRequest("encoding_format", "expected float or base64", encoding)
    return EmbeddingsRequest(
        model=text_field(body, "model"),
        inputs=inputs_of(body.get("input")),
        encoding=encoding,
        dimensions=integer_field(body, "dimensions", 1),
        user=text_field(body, "user", default=""),
    )


def inputs_of(given: Any) -> list[EmbeddingInput]:
    """A text, a list of texts, the token ids of a text, or a list of those."""
    several = [given] if isinstance(given, str) or is_token_list(given) else given
    if not isinstance(several, list) or not several:
        raise InvalidChatRequest("input", "expected text, a list of texts, token ids or a list of those", given)
    if len(several) > MAX_INPUTS:
        raise InvalidChatRequest("input", f"expected at most {MAX_INPUTS} texts")
    for at, one in enumerate(several):
        if not (isinstance(one, str) and one) and not is_token_list(one):
            raise InvalidChatRequest(f"input[{at}]", f"expected text, or 1 to {MAX_TOKENS_PER_INPUT} token ids", one)
    return several


def is_token_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= MAX_TOKENS_PER_INPUT
        and all(isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= MAX_TOKEN_ID for token in value)
    )


def encode_vector(vector: Sequence[float], encoding: str) -> list[float] | str:
    """A vector as the client wants it: base64 of little-endian 32-bit floats, or numbers of the same precision."""
    packed = struct.pack(f"<{len(vector)}f", *vector)
    return base64.b64encode(packed).decode() if encoding == "base64" else list(struct.unpack(f"<{len(vector)}f", packed))
