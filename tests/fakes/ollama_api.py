"""Ollama's `/api/chat`, stricter than Ollama: what it would ignore is refused, and so is a prompt whose head it would cut off."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

from tests.fakes.script import Say, demand, only
from tests.fakes.vendor import NONE, Vendor

FIELDS = {
    "model",
    "messages",
    "tools",
    "stream",
    "format",
    "options",
    "keep_alive",
    "think",
    "truncate",
    "shift",
    "logprobs",
    "top_logprobs",
}
OPTIONS = {
    *("num_predict", "num_ctx", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty"),
    *("repeat_penalty", "repeat_last_n"),
}
MESSAGE = {"role", "content", "images", "tool_calls", "tool_name", "thinking"}


class OllamaApi(Vendor):
    """`POST /api/chat`, `GET /api/tags`."""

    key = "ollama-fake-5566"
    media_type = "application/x-ndjson"

    def __init__(self, base: str) -> None:
        super().__init__(base)
        self.models = ["llama3.2:latest", "qwen3:8b"]

    @property
    def url(self) -> str:
        return self.base

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/api/chat", self.chat), web.get("/api/tags", self.get)]

    def authorize(self, headers: Mapping[str, str]) -> None:
        given = headers.get("authorization", f"Bearer {self.key}").removeprefix("Bearer ")
        demand(given == self.key, f"unauthorized: {given}", 401)

    def listed(self, model: str | None) -> dict[str, Any]:
        return {"models": [{"name": one, "model": one, "size": 1, "digest": "0" * 64} for one in self.models]}

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        return {"error": message}

    def wants_stream(self, body: dict[str, Any]) -> bool:
        return bool(body.get("stream", True))

    # --- what it takes

    def check(self, body: dict[str, Any], headers: Mapping[str, str] = NONE) -> None:
        only(body, FIELDS, "")
        name = body.get("model", "")
        tagged = name if ":" in name else f"{name}:latest"
        demand(tagged in self.models, f"model '{name}' not found", 404)
        options = body.get("options", {})
        only(options, OPTIONS, "options.")
        messages = body.get("messages")
        demand(isinstance(messages, list) and messages, "messages is required")
        for message in messages:
            only(message, MESSAGE, "messages.")
            demand(
                message.get("role") in ("system", "user", "assistant", "tool"),
                'invalid role, must be one of ["system", "user", "assistant", "tool"]',
            )
            demand(isinstance(message.get("content"), str), "json: cannot unmarshal into Go struct field Message.content of type string")
            for image in message.get("images", []):
                demand(is_base64(image), "illegal base64 data at input byte 4")
            for call in message.get("tool_calls", []):
                arguments = call.get("function", {}).get("arguments")
                demand(isinstance(arguments, dict), "json: cannot unmarshal string into Go struct field .tool_calls.function.arguments")
        words = sum(len(message["content"].split()) for message in messages)
        demand(words <= options.get("num_ctx", 4096), "the input length exceeds the context length")

    # --- what it says

    def whole(self, say: Say, body: dict[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": say.text}
        if say.reasoning:
            message["thinking"] = say.reasoning
        if say.tool_calls:
            message["tool_calls"] = [calls_of(call) for call in say.tool_calls]
        return {**self._line(body, message), **self._end(say)}

    def stream(self, say: Say, body: dict[str, Any]) -> Iterator[tuple[bool, bytes]]:
        if say.reasoning:
            half = len(say.reasoning) // 2
            for piece in (say.reasoning[:half], say.reasoning[half:]):
                yield True, line(self._line(body, {"role": "assistant", "content": "", "thinking": piece}))
        for piece in say.pieces:
            yield True, line(self._line(body, {"role": "assistant", "content": piece}))
        for call in say.tool_calls:
            yield True, line(self._line(body, {"role": "assistant", "content": "", "tool_calls": [calls_of(call)]}))
        yield False, line({**self._line(body, {"role": "assistant", "content": ""}), **self._end(say)})

    def wrong(self, say: Say) -> bytes:
        return line({"error": say.error or "scripted"})

    @staticmethod
    def _line(body: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
        return {"model": body["model"], "created_at": "2026-01-01T00:00:00Z", "message": message, "done": False}

    @staticmethod
    def _end(say: Say) -> dict[str, Any]:
        end: dict[str, Any] = {"done": True, "done_reason": say.finish or "stop", "total_duration": 5, "load_duration": 1}
        counts = {"prompt_eval_count": say.tokens_in, "eval_count": say.tokens_out, "prompt_eval_cached_count": say.cached or None}
        return end | {key: value for key, value in counts.items() if value is not None}


def calls_of(call: Any) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": json.loads(call.text)}}


def is_base64(text: Any) -> bool:
    try:
        return isinstance(text, str) and bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False


def line(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"
