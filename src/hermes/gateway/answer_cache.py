"""Which requests may be answered from the cache, and under which key. Only requests without tools, images and files, only whole answers.

Pure: requests and completions in, keys and bytes out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from hermes.gateway.chain import ChainLink
from hermes.graph.message import canonical, thaw
from hermes.ports.backends import Completion, ModelRequest, Usage

SCHEMA_VERSION = 2
"""Increased when the stored form or the fields of the key change."""


def may_cache(ask: ModelRequest) -> bool:
    """Whether an earlier answer to this request will do. A caller that needs independent samples says so itself, with `may_use_cache`; a
    turn asks for token ids too, but a copy of an answer is recorded as a copy and trains nothing."""
    return not ask.needs_tools and all(is_plain(message.get("content")) for message in ask.messages)


def is_plain(content: Any) -> bool:
    return (
        content is None
        or isinstance(content, str)
        or (isinstance(content, list | tuple) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content))
    )


def may_keep(completion: Completion) -> bool:
    """Whether an answer may be given again: it ended by itself, has text, and has no tool call."""
    message = completion.message
    return completion.finish_reason == "stop" and bool(message.get("content")) and not message.get("tool_calls")


def cache_key(ask: ModelRequest, link: ChainLink) -> str:
    """The key of a request to one model. Everything that is sent is in it, so another request has another key."""
    fields = {
        "schema": SCHEMA_VERSION,
        "backend": link.backend.name,
        "model": link.model,
        "messages": [{key: value for key, value in message.items() if key != "metadata"} for message in ask.messages],
        "max_tokens": min(ask.max_tokens, link.max_tokens),
        "tool_choice": ask.tool_choice,
        "sampling": dict(ask.sampling),
        "response_format": ask.response_format,
        "user": ask.user,
        "cwd": None if ask.cwd is None else str(ask.cwd),  # a program reads its instructions there
    }
    return hashlib.sha256(canonical(fields)).hexdigest()


def encode(completion: Completion, call_id: UUID) -> bytes:
    """Write an answer with the id of the call that sampled it."""
    fields = {
        "message": thaw(dict(completion.message)),
        "finish_reason": completion.finish_reason,
        "usage": asdict(completion.usage),
        "model": completion.model,
        "request_digest": completion.request_digest,
        "call_id": str(call_id),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> tuple[Completion, UUID]:
    """Read what `encode` wrote."""
    fields = json.loads(data)
    call_id = UUID(fields.pop("call_id"))
    return Completion(**{**fields, "usage": Usage(**fields["usage"])}), call_id
