"""OpenAI's chat completions, as strict as the vendor's; and what vLLM, SGLang and llama.cpp take and return beside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from aiohttp import web

from tests.fakes.script import Say, demand, only
from tests.fakes.vendor import NONE, Vendor


class Flavour(StrEnum):
    """Whose server it is."""

    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_CPP = "llama_cpp"


FIELDS = {
    *("model", "messages", "max_completion_tokens", "max_tokens", "temperature", "top_p", "n", "stream", "stream_options", "stop", "seed"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"),
    *("response_format", "user", "reasoning_effort", "service_tier", "store", "metadata", "verbosity", "prompt_cache_key"),
}
MORE = {
    Flavour.OPENAI: set(),
    Flavour.VLLM: {"top_k", "min_p", "repetition_penalty", "return_token_ids", "chat_template_kwargs"},
    Flavour.SGLANG: {"top_k", "min_p", "repetition_penalty", "return_token_ids", "return_prompt_token_ids", "chat_template_kwargs"},
    Flavour.LLAMA_CPP: {"top_k", "min_p", "repeat_penalty", "chat_template_kwargs"},
}
MESSAGE = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal", "audio"},
    "tool": {"role", "content", "tool_call_id"},
}
REASONING = {
    Flavour.OPENAI: None,
    Flavour.VLLM: "reasoning",
    Flavour.SGLANG: "reasoning_content",
    Flavour.LLAMA_CPP: "reasoning_content",
}
PARTS = {"text", "image_url", "input_audio", "file"}


class ChatCompletions(Vendor):
    """`POST /v1/chat/completions`, `GET /v1/models`."""

    key = "sk-fake-0987654321"
    media_type = "text/event-stream"

    def __init__(self, base: str, flavour: Flavour) -> None:
        super().__init__(base)
        self.flavour = flavour
        self.models = ["gpt-fake", "gpt-fake-mini"] if flavour is Flavour.OPENAI else ["fake-8b"]

    @property
    def url(self) -> str:
        return f"{self.base}/v1"

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/chat/completions", self.chat),
            web.get("/v1/models", self.get),
            web.get("/v1/models/{model}", self.get),
        ]

    def authorize(self, headers: Mapping[str, str]) -> None:
        given = headers.get("authorization", "").removeprefix("Bearer ")
        demand(given == self.key, f"Incorrect API key provided: {given}", 401, "invalid_api_key")

    def listed(self, model: str | None) -> dict[str, Any]:
        owner = self.flavour.replace("_", "")  # as these servers write it: llama.cpp writes llamacpp
        shown = [{"id": one, "object": "model", "created": 1, "owned_by": owner} for one in self.models]
        if model is None:
            return {"object": "list", "data": shown}
        demand(model in self.models, f"The model '{model}' does not exist", 404, "model_not_found")
        return next(one for one in shown if one["id"] == model)

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code or None}}

    # --- what it takes

    def check(self, body: dict[str, Any], headers: Mapping[str, str] = NONE) -> None:
        only(body, FIELDS | MORE[self.flavour], "")
        demand(body.get("model") in self.models, f"The model '{body.get('model')}' does not exist", 404, "model_not_found")
        demand(not ("max_tokens" in body and "max_completion_tokens" in body), "max_tokens and max_completion_tokens cannot both be set")
        demand("stream_options" not in body or body.get("stream"), "stream_options is only allowed when stream is enabled")
        demand(body.get("n", 1) == 1, "n: only one answer here")
        self._check_tools(body)
        messages = body.get("messages")
        demand(isinstance(messages, list) and messages, "[] is too short - 'messages'", code="empty_array")
        owed: set[str] = set()
        for at, message in enumerate(messages):
            where = f"messages[{at}]"
            role = message.get("role")
            demand(role in MESSAGE, f"Invalid value: '{role}' for '{where}.role'")
            demand(role != "developer" or self.flavour is Flavour.OPENAI, f"{where}: Unexpected message role.")
            also = {REASONING[self.flavour]} if role == "assistant" else set()
            only(message, MESSAGE[role] | also, f"{where}.")
            self._check_content(message, where)
            if role == "tool":
                said = message.get("tool_call_id")
                demand(said in owed, f"{where}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
                owed.discard(said)
                continue
            demand(not owed, "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.")
            owed = self._check_calls(message, where)
        demand(not owed, "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.")

    @staticmethod
    def _check_tools(body: dict[str, Any]) -> None:
        tools = body.get("tools")
        if tools is None:
            demand("tool_choice" not in body, "'tool_choice' is only allowed when 'tools' are specified.")
            demand("parallel_tool_calls" not in body, "'parallel_tool_calls' is only allowed when 'tools' are specified.")
            return
        demand(isinstance(tools, list) and tools, "[] is too short - 'tools'")
        for tool in tools:
            demand(
                tool.get("type") == "function" and isinstance(tool.get("function"), dict), "Missing required parameter: 'tools[0].function'"
            )
            only(tool["function"], {"name", "description", "parameters", "strict"}, "tools[].function.")

    @staticmethod
    def _check_content(message: dict[str, Any], where: str) -> None:
        content = message.get("content")
        if content is None:
            demand(
                message["role"] == "assistant" and (message.get("tool_calls") or message.get("refusal")),
                f"Invalid value for '{where}.content'",
            )
        elif isinstance(content, list):
            demand(content, f"{where}.content is too short")
            for part in content:
                demand(part.get("type") in PARTS, f"Invalid value: '{part.get('type')}'")
        else:
            demand(isinstance(content, str), f"Invalid type for '{where}.content'")

    @staticmethod
    def _check_calls(message: dict[str, Any], where: str) -> set[str]:
        if "tool_calls" not in message:
            return set()
        calls = message["tool_calls"]
        demand(calls, f"[] is too short - '{where}.tool_calls'")
        for call in calls:
            only(call, {"id", "type", "function"}, f"{where}.tool_calls.")
            demand(call.get("id") and call.get("type") == "function", f"Missing required parameter: '{where}.tool_calls[].id'")
            only(call["function"], {"name", "arguments"}, f"{where}.tool_calls.function.")
            demand(isinstance(call["function"].get("arguments"), str), f"Invalid type for '{where}.tool_calls[].function.arguments'")
        return {call["id"] for call in calls}

    # --- what it says

    def whole(self, say: Say, body: dict[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": say.text or None, "refusal": None}
        if field := REASONING[self.flavour]:
            message[field] = say.reasoning or None
        if say.tool_calls:
            message["tool_calls"] = [
                {"id": call.id or f"call_{at}", "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for at, call in enumerate(say.tool_calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": finish_of(say), "logprobs": None}
        choice |= self._sampled(say, body, 0, None)
        head = self._head("chat.completion", body)
        if usage := usage_of(say):
            head["usage"] = usage
        if self.flavour is Flavour.SGLANG:  # in streams it says nothing about its weights
            head["metadata"] = {"weight_version": say.weight_version}
        return self._with_prompt({**head, "choices": [choice]}, say, body)

    def _head(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"id": f"chatcmpl-{len(self.requests)}", "object": kind, "created": 1, "model": body["model"], "system_fingerprint": "fp"}

    def stream(self, say: Say, body: dict[str, Any]) -> Iterator[tuple[bool, bytes]]:
        head = self._head("chat.completion.chunk", body)

        def chunk(delta: dict[str, Any], **more: Any) -> bytes:
            return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None, **more}]})

        yield False, b": keep-alive\n\n"
        first = {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
        yield False, event(self._with_prompt(first, say, body))
        if say.reasoning and (field := REASONING[self.flavour]):
            half = len(say.reasoning) // 2
            yield True, chunk({field: say.reasoning[:half]})
            yield True, chunk({field: say.reasoning[half:]})
        for at, piece in enumerate(say.pieces):
            last = at == len(say.pieces) - 1
            yield True, chunk({"content": piece}, **self._sampled(say, body, at, None if last else at + 1))
        for at, call in enumerate(say.tool_calls):
            named = {"index": at, "id": call.id or f"call_{at}", "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield True, chunk({"tool_calls": [named]})
            for piece in filter(None, (call.text[: len(call.text) // 2], call.text[len(call.text) // 2 :])):
                yield True, chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
        sampled = {} if say.pieces else self._sampled(say, body, 0, None)
        yield False, chunk({}, finish_reason=finish_of(say), **sampled)
        if body.get("stream_options", {}).get("include_usage") and (usage := usage_of(say)):
            yield False, event({**head, "choices": [], "usage": usage})
        yield False, b"data: [DONE]\n\n"

    def _with_prompt(self, answer: dict[str, Any], say: Say, body: dict[str, Any]) -> dict[str, Any]:
        """Where the server says the prompt's ids, if it was asked for them."""
        if say.prompt_token_ids is None:
            return answer
        ids = list(say.prompt_token_ids)
        if self.flavour is Flavour.VLLM and body.get("return_token_ids"):
            return {**answer, "prompt_token_ids": ids}
        if self.flavour is Flavour.SGLANG and body.get("return_prompt_token_ids"):
            answer["choices"][0]["prompt_token_ids"] = ids
        return answer

    def _sampled(self, say: Say, body: dict[str, Any], start: int, end: int | None) -> dict[str, Any]:
        """The ids and logprobs of some of the tokens, where the server puts them and if it was asked."""
        ids, scores = list(say.token_ids or ())[start:end], list(say.logprobs or ())[start:end]
        out: dict[str, Any] = {}
        if body.get("logprobs") and say.logprobs is not None:
            entries = [{"token": "x", "bytes": None, "logprob": score, "top_logprobs": []} for score in scores]
            if self.flavour is Flavour.LLAMA_CPP:
                entries = [{**entry, "id": token} for entry, token in zip(entries, ids, strict=False)]
            out["logprobs"] = {"content": entries, "refusal": None}
        if body.get("return_token_ids") and say.token_ids is not None:
            out["response_token_ids" if self.flavour is Flavour.SGLANG else "token_ids"] = ids
        return out

    def wrong(self, say: Say) -> bytes:
        return event(self.error(500, "scripted", say.error))


def finish_of(say: Say) -> str:
    return say.finish or ("tool_calls" if say.tool_calls else "stop")


def usage_of(say: Say) -> dict[str, Any] | None:
    if say.tokens_in is None or say.tokens_out is None:
        return None
    return {
        "prompt_tokens": say.tokens_in,
        "completion_tokens": say.tokens_out,
        "total_tokens": say.tokens_in + say.tokens_out,
        "prompt_tokens_details": {"cached_tokens": say.cached},
    }


def event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()
