"""Anthropic's Messages API, as strict as the vendor's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from aiohttp import web

from tests.fakes.script import Say, demand, only
from tests.fakes.vendor import NONE, Vendor

VERSIONS = ("2023-06-01", "2026-10-21")
"""The second one takes no sampling parameters for any model."""
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
FIELDS = {
    *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stop_sequences", "stream", "temperature", "top_p", "top_k"),
    *("metadata", "thinking", "output_config", "cache_control", "service_tier", "container", "inference_geo", "speed"),
}
BLOCKS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "cache_control", "title", "context", "citations"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
STOPS = {"tool_calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}


class MessagesApi(Vendor):
    """`POST /v1/messages`, `GET /v1/models`."""

    key = "sk-ant-fake-1234567890"
    media_type = "text/event-stream"

    def __init__(self, base: str) -> None:
        super().__init__(base)
        self.models = ["claude-haiku-4-5", "claude-haiku-4-5-20251001", "claude-sonnet-4-6", "claude-haiku-5-5"]
        self.no_sampling = {"claude-haiku-5-5"}

    @property
    def url(self) -> str:
        return self.base

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/messages", self.chat),
            web.get("/v1/models", self.get),
            web.get("/v1/models/{model}", self.get),
        ]

    def authorize(self, headers: Mapping[str, str]) -> None:
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        demand(given == self.key, "invalid x-api-key", 401)
        demand(headers.get("anthropic-version") in VERSIONS, f"anthropic-version: one of {', '.join(VERSIONS)} is required")

    def listed(self, model: str | None) -> dict[str, Any]:
        shown = [{"type": "model", "id": one, "display_name": one, "created_at": "2025-10-01T00:00:00Z"} for one in self.models]
        if model is None:
            return {"data": shown, "has_more": False, "first_id": shown[0]["id"], "last_id": shown[-1]["id"]}
        demand(model in self.models, f"model: {model}", 404)
        return next(one for one in shown if one["id"] == model)

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        kind = code if code in TYPES.values() else TYPES.get(status, "api_error")
        error: dict[str, Any] = {"type": kind, "message": message}
        if code and code not in TYPES.values():
            error["details"] = {"error_code": code}
        return {"type": "error", "error": error, "request_id": "req_fake"}

    # --- what it takes

    def check(self, body: dict[str, Any], headers: Mapping[str, str] = NONE) -> None:
        only(body, FIELDS, "")
        for key in ("model", "max_tokens", "messages"):
            demand(key in body, f"{key}: Field required")
        demand(isinstance(body["max_tokens"], int) and body["max_tokens"] >= 1, "max_tokens: must be at least 1")
        demand(body["model"] in self.models, f"model: {body['model']}", 404)
        sampling = [key for key in ("temperature", "top_p", "top_k") if key in body]
        demand(not sampling or body["model"] not in self.no_sampling, f"{sampling}: not supported by this model")
        demand(not sampling or headers.get("anthropic-version") != VERSIONS[1], f"{sampling}: Extra inputs are not permitted")
        self._check_system(body.get("system", "x"))
        self._check_tools(body)
        self._check_messages(body)

    @staticmethod
    def _check_system(system: Any) -> None:
        blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
        demand(isinstance(blocks, list) and blocks, "system: must be text or a list of text blocks")
        for block in blocks:
            only(block, BLOCKS["text"], "system.")
            demand(block.get("type") == "text" and block.get("text", "").strip(), "system: text content blocks must be non-empty")

    @staticmethod
    def _check_tools(body: dict[str, Any]) -> None:
        tools = body.get("tools", [])
        for tool in tools:
            only(tool, {"type", "name", "description", "input_schema", "cache_control", "strict"}, "tools.")
            demand(NAME.fullmatch(tool.get("name", "")), "tools.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")
            schema = tool.get("input_schema")
            demand(isinstance(schema, dict) and schema.get("type") == "object", "tools.input_schema.type: Field required")
        demand(len({tool["name"] for tool in tools}) == len(tools), "tools: Tool names must be unique.")
        choice = body.get("tool_choice")
        if choice is not None:
            demand(tools, "tool_choice: may only be specified while providing tools")
            only(choice, {"type", "name", "disable_parallel_tool_use"}, "tool_choice.")
            demand(choice.get("type") in ("auto", "any", "tool", "none"), "tool_choice.type: Input tag not found")
            demand(choice["type"] != "tool" or choice.get("name") in {tool["name"] for tool in tools}, "tool_choice.name: not found")

    def _check_messages(self, body: dict[str, Any]) -> None:
        messages = body["messages"]
        demand(isinstance(messages, list) and messages, "messages: at least one message is required")
        demand(messages[0].get("role") == "user", 'messages: first message must use the "user" role')
        used: set[str] = set()
        owed: list[str] = []
        marks = json.dumps(body).count('"cache_control"')
        demand(marks <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
        for at, message in enumerate(messages):
            where = f"messages.{at}."
            only(message, {"role", "content"}, where)
            expected = ("user", "assistant")[at % 2]
            demand(message.get("role") == expected, f'{where}role: roles must alternate between "user" and "assistant"')
            content = message.get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            demand(isinstance(blocks, list) and blocks, f"{where}content: must be non-empty")
            for block in blocks:
                self._check_block(block, where, body)
            if expected == "user":
                self._check_results(blocks, owed, where)
            ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
            demand(not used & set(ids) and len(set(ids)) == len(ids), f"{where}content: `tool_use` ids must be unique")
            used |= set(ids)
            owed = ids
        demand(not owed, "messages: `tool_use` ids were found without `tool_result` blocks immediately after")
        last = messages[-1]
        if last["role"] == "assistant":
            text = last["content"] if isinstance(last["content"], str) else last["content"][-1].get("text", "")
            demand(text == text.rstrip(), "messages: final assistant content cannot end with trailing whitespace")

    def _check_block(self, block: Any, where: str, body: dict[str, Any]) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        demand(kind in BLOCKS, f"{where}content: Input tag '{kind}' found")
        only(block, BLOCKS[kind], f"{where}content.{kind}.")
        match kind:
            case "text":
                demand(block.get("text", "").strip(), f"{where}content: text content blocks must contain non-whitespace text")
            case "image" | "document":
                source = block.get("source", {})
                keys = {"base64": {"type", "media_type", "data"}, "url": {"type", "url"}}.get(source.get("type"))
                demand(keys == set(source), f"{where}content.{kind}.source: wrong fields")
            case "tool_use":
                demand(body.get("tools"), "Requests which have `tool_use` or `tool_result` blocks in history must define tools")
                demand(
                    TOOL_ID.fullmatch(block.get("id", "")), f"{where}content.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                )
                demand(isinstance(block.get("input"), dict), f"{where}content.tool_use.input: Input should be a valid dictionary")
            case "thinking":
                signature = sign(body["model"], block.get("thinking", ""))
                demand(block.get("signature") == signature, f"{where}content.thinking: Invalid `signature` in `thinking` block")

    @staticmethod
    def _check_results(blocks: list[dict[str, Any]], owed: list[str], where: str) -> None:
        kinds = [block["type"] == "tool_result" for block in blocks]
        demand(kinds == sorted(kinds, reverse=True), f"{where}content: tool_result blocks must come first")
        given = [block.get("tool_use_id") for block in blocks if block["type"] == "tool_result"]
        demand(len(given) == len(set(given)), f"{where}content: each tool_use must have a single result")
        demand(not set(owed) - set(given), f"{where}`tool_use` ids were found without `tool_result` blocks immediately after")
        demand(not set(given) - set(owed), f"{where}content: unexpected `tool_use_id` found in `tool_result` blocks")

    # --- what it says

    def whole(self, say: Say, body: dict[str, Any]) -> dict[str, Any]:
        return {**self._head(say, body), "content": list(blocks(say, body["model"])), **stop_of(say), "usage": usage_of(say)}

    def _head(self, say: Say, body: dict[str, Any]) -> dict[str, Any]:
        return {"id": f"msg_{len(self.requests)}", "type": "message", "role": "assistant", "model": body["model"]}

    def stream(self, say: Say, body: dict[str, Any]) -> Iterator[tuple[bool, bytes]]:
        start = {**self._head(say, body), "content": [], "stop_reason": None, "stop_sequence": None}
        if usage := usage_of(say):
            start["usage"] = {**usage, "output_tokens": 1}
        yield False, event("message_start", message=start)
        yield False, event("ping")
        for at, block in enumerate(blocks(say, body["model"])):
            kind = block["type"]
            empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}[kind]
            yield False, event("content_block_start", index=at, content_block={**block, **empty})
            for is_piece, delta in deltas(block, say):
                yield is_piece, event("content_block_delta", index=at, delta=delta)
            yield False, event("content_block_stop", index=at)
        counts = {key: value for key, value in (usage_of(say) or {}).items() if key != "cache_creation"}
        if counts:  # cumulative, and said twice
            yield False, event("message_delta", delta={"stop_reason": None, "stop_sequence": None}, usage={**counts, "output_tokens": 1})
        yield False, event("message_delta", delta=stop_of(say), usage=counts)
        yield False, event("message_stop")

    def wrong(self, say: Say) -> bytes:
        return event("error", **{key: value for key, value in self.error(500, "scripted", say.error).items() if key != "type"})


def blocks(say: Say, model: str) -> Iterator[dict[str, Any]]:
    """The content: thinking, text, calls."""
    if say.reasoning:
        yield {"type": "thinking", "thinking": say.reasoning, "signature": sign(model, say.reasoning)}
    if say.text:
        yield {"type": "text", "text": say.text}
    for at, call in enumerate(say.tool_calls):
        yield {"type": "tool_use", "id": call.id or f"toolu_{at}", "name": call.name, "input": json.loads(call.text)}


def deltas(block: dict[str, Any], say: Say) -> Iterator[tuple[bool, dict[str, Any]]]:
    """A block in pieces."""
    match block["type"]:
        case "text":
            for piece in say.pieces:
                yield True, {"type": "text_delta", "text": piece}
        case "thinking":
            half = len(say.reasoning) // 2
            yield True, {"type": "thinking_delta", "thinking": say.reasoning[:half]}
            yield True, {"type": "thinking_delta", "thinking": say.reasoning[half:]}
            yield False, {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            written = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            yield False, {"type": "input_json_delta", "partial_json": ""}
            for piece in filter(None, (written[: len(written) // 2], written[len(written) // 2 :])):
                yield True, {"type": "input_json_delta", "partial_json": piece}


def sign(model: str, thinking: str) -> str:
    """A signature that another model's, or a changed thought, does not have."""
    return sha256(f"{model}\0{thinking}".encode()).hexdigest()[:32]


def stop_of(say: Say) -> dict[str, Any]:
    usual = "tool_calls" if say.tool_calls else "stop"
    return {"stop_reason": say.finish or STOPS[usual], "stop_sequence": None}


def usage_of(say: Say) -> dict[str, Any]:
    if say.tokens_in is None or say.tokens_out is None:
        return {}
    return {
        "input_tokens": say.tokens_in - say.cached - say.cache_written,
        "output_tokens": say.tokens_out,
        "cache_read_input_tokens": say.cached,
        "cache_creation_input_tokens": say.cache_written,
        "cache_creation": {"ephemeral_5m_input_tokens": say.cache_written, "ephemeral_1h_input_tokens": 0},
        "service_tier": "standard",
    }


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
