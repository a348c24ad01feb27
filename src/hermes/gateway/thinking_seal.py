"""Thinking on its way through a client: what a vendor wants back unchanged, sealed so that it comes back only with the same API key.

Clients hold it opaque: as the `signature` of a thinking block in Anthropic's API, as `encrypted_content` in OpenAI's. A seal that another
key, another server or nobody made opens as None, and the thinking is left out of the request. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

PREFIX = "hermes1."
MAC_BYTES = 16


class SealedThinking(NamedTuple):
    """The model that thought, and its own form of the thinking; None if it has none."""

    model: str
    block: Mapping[str, Any] | None


class ThinkingSeal:
    """Seals and opens for one API key. Anyone can read a seal; only this key's requests can bring it back."""

    def __init__(self, secret: str) -> None:
        self._key = hashlib.sha256(b"hermes thinking\0" + secret.encode("utf-8", "surrogatepass")).digest()

    def seal(self, model: str, block: Mapping[str, Any] | None) -> str:
        """Return the seal, in letters, digits, `-`, `_` and dots."""
        payload = json.dumps([model, block], separators=(",", ":")).encode()
        return f"{PREFIX}{encode_part(payload)}.{encode_part(self._mac(payload))}"

    def open(self, sealed: Any) -> SealedThinking | None:
        """Return what was sealed; None for anything else."""
        if not isinstance(sealed, str) or not sealed.startswith(PREFIX) or not sealed.isascii():
            return None
        payload_text, _, mac_text = sealed.removeprefix(PREFIX).partition(".")
        try:
            payload, mac = decode_part(payload_text), decode_part(mac_text)
        except binascii.Error:
            return None
        if not hmac.compare_digest(mac, self._mac(payload)):
            return None
        model, block = json.loads(payload)
        return SealedThinking(model, block)

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")[:MAC_BYTES]


def encode_part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def add_thinking(thinking: dict[int, dict[str, Any]], at: int, model: str, block: Mapping[str, Any], place: list[int]) -> None:
    """Add a block to the thinking of the message at a place; `place` says how much of the message came before it."""
    found = thinking.setdefault(at, {"model": model, "blocks": [], "places": []})
    if found["model"] == model:
        found["blocks"].append(dict(block))
        found["places"].append(place)
