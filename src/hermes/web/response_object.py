"""The response object of OpenAI's Responses API: the items of an answer, its status and usage, and what is kept to show it again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from hermes.gateway.answer_parts import (
    AnswerPart,
    CallPart,
    RefusalPart,
    TextPart,
    ThinkingPart,
    answer_parts,
    call_arguments,
)
from hermes.gateway.response_items import CUSTOM_INPUT
from hermes.gateway.responses_request import ResponsesRequest, ToolName
from hermes.gateway.stored_responses import StoredResponse, response_id_of
from hermes.gateway.thinking_seal import ThinkingSeal
from hermes.graph.message import thaw
from hermes.ports.backends import ChatMessage, Usage

INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter", "refusal": "content_filter"}
STATUS_OF_FINISH = {"cut_short": "failed", "cancelled": "cancelled"}
"""How a stored answer ended that broke off."""

Item = dict[str, Any]


class ItemWriter:
    """Writes the parts of one answer as items."""

    def __init__(
        self, call_id: UUID, model: str, names: Mapping[str, ToolName], seal: ThinkingSeal | None, logprobs: Sequence[Any] | None = None
    ) -> None:
        """With `seal`, reasoning items have `encrypted_content`. `model` is the model that a vendor's own thinking belongs to."""
        self._owner, self._model, self._names, self._seal, self._logprobs = call_id.hex, model, names, seal, logprobs

    def name(self, part: CallPart) -> ToolName:
        return self._names.get(part.name) or ToolName(part.name)

    def item(self, index: int, part: AnswerPart, status: str = "completed") -> Item:
        """The item of a part; one that is in progress has no content yet."""
        is_done = status == "completed"
        match part:
            case ThinkingPart(text, block):
                item: Item = {"id": self._id("rs", index), "type": "reasoning", "summary": []}
                if text and is_done:
                    item["summary"] = [{"type": "summary_text", "text": text}]
                if self._seal is not None and is_done:
                    item["encrypted_content"] = self._seal.seal(self._model, block)
                return item | {"status": status}
            case CallPart(call_id, _, text):
                name = self.name(part)
                called = {"call_id": call_id, "name": name.name, **({"namespace": name.namespace} if name.namespace else {})}
                if name.is_custom:
                    given = {"input": custom_input(text) if is_done else ""}
                    return {"id": self._id("ctc", index), "type": "custom_tool_call", "status": status, **called, **given}
                given = {"arguments": text if is_done else ""}
                return {"id": self._id("fc", index), "type": "function_call", "status": status, **called, **given}
            case _:
                content = [self.content(part)] if is_done else []
                return {"id": self._id("msg", index), "type": "message", "status": status, "role": "assistant", "content": content}

    def content(self, part: AnswerPart) -> dict[str, Any]:
        """The content of a message's item."""
        if isinstance(part, RefusalPart):
            return {"type": "refusal", "refusal": part.text}
        return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": list(self._logprobs or ()) if part.text else []}

    def _id(self, kind: str, index: int) -> str:
        return f"{kind}_{self._owner}_{index}"


def custom_input(arguments: str) -> str:
    """The text that a model wrote for a custom tool; all of it, if it is not in the form that the model was told."""
    text = call_arguments(arguments).get(CUSTOM_INPUT)
    return text if isinstance(text, str) else arguments


def thinking_model(message: ChatMessage, model: str) -> str:
    """The model that a vendor's own thinking in a message belongs to."""
    thinking = message.get("thinking_blocks")
    return str(thinking["model"]) if isinstance(thinking, Mapping) else model


def output_items(writer: ItemWriter, message: ChatMessage) -> list[Item]:
    return [writer.item(at, part) for at, part in enumerate(answer_parts(message) or [TextPart("")])]


# --- the response object


def response_object(
    name: str, created_at: int, model: str, shown: Mapping[str, Any], *, status: str, output: Sequence[Item], **more: Any
) -> dict[str, Any]:
    """The response. `shown` are the fields that it repeats from the request."""
    return {
        "id": name,
        "object": "response",
        "created_at": created_at,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": list(output),
        "usage": None,
        **shown,
        **more,
    }


def ending_of(completion_message: ChatMessage, finish_reason: str | None) -> dict[str, Any]:
    """The status of an answer, and why it is not complete."""
    reason = INCOMPLETE_REASONS.get(finish_reason or "")
    if reason is None or (finish_reason == "refusal" and completion_message.get("refusal")):
        return {"status": STATUS_OF_FINISH.get(finish_reason or "", "completed")}
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def usage_fields(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.tokens_in,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write + usage.cache_write_1h},
        "output_tokens": usage.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.tokens_in + usage.tokens_out,
    }


def stored_usage(usage: Mapping[str, Any]) -> Usage:
    """The usage as a call's record has it."""
    return Usage(
        tokens_in=usage.get("prompt_tokens", usage.get("estimated_prompt_tokens", 0)),
        tokens_out=usage.get("completion_tokens", usage.get("estimated_completion_tokens", 0)),
        cache_read=usage.get("cache_read", 0),
        cache_write=usage.get("cache_write", 0),
        cache_write_1h=usage.get("cache_write_1h", 0),
    )


def stored_body(stored: StoredResponse) -> dict[str, Any]:
    """A stored response, as it was answered."""
    call, message, kept = stored.sample.call, stored.sample.message, thaw(stored.kept)
    model = (call.model if call is not None else None) or ""
    shown = dict(kept["shown"])
    if kept.get("has_instructions") and stored.sample.prefix:
        shown["instructions"] = stored.sample.prefix[0].get("content")
    if "tools" not in shown:
        shown["tools"] = [{"type": "function", **thaw(tool["function"])} for tool in stored.sample.overlay.tools or ()]
    output = output_items(ItemWriter(stored.call_id, model, tool_names(kept), None), message)
    usage = usage_fields(stored_usage((call.usage if call is not None else None) or {}))
    ending = ending_of(message, call.finish_reason if call is not None else None)
    return response_object(response_id_of(stored.call_id), kept["created_at"], model, shown, output=output, usage=usage, **ending)


def tool_names(kept: Mapping[str, Any]) -> dict[str, ToolName]:
    return {flat: ToolName(*name) for flat, name in (kept.get("names") or {}).items()}


def kept_fields(request: ResponsesRequest, created_at: int) -> dict[str, Any] | None:
    """What is recorded beside the answer so that it can be shown again; None with `store: false`. What the graph has is left out."""
    if not request.store:
        return None
    left_out = {"instructions", *(() if request.tools.names else ("tools",))}
    kept = {"created_at": created_at, "shown": {name: value for name, value in request.shown.items() if name not in left_out}}
    names = {flat: name.to_json() for flat, name in request.tools.names.items()}
    return {**kept, **({"names": names} if names else {}), **({"has_instructions": True} if request.instructions else {})}


def input_items(stored: StoredResponse) -> list[Item]:
    """The items that a stored response answered, oldest first. Their ids name their place."""
    names, owner = tool_names(stored.kept), stored.call_id.hex
    items: list[Item] = []
    for message in stored.messages[:-1]:
        items += message_items(thaw(message), names)
    return [{"id": f"{ITEM_KINDS.get(item['type'], 'item')}_{owner}_in{at}", **item} for at, item in enumerate(items)]


ITEM_KINDS = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}


def message_items(message: Mapping[str, Any], names: Mapping[str, ToolName]) -> Iterator[Item]:
    if message["role"] == "assistant":
        writer = ItemWriter(UUID(int=0), "", names, None)
        yield from ({key: value for key, value in item.items() if key != "id"} for item in output_items(writer, message))
        return
    content = message.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else [input_part(part) for part in content or ()]
    if message["role"] == "tool":
        output = content if isinstance(content, str) else parts
        yield {"type": "function_call_output", "status": "completed", "call_id": message.get("tool_call_id"), "output": output}
        return
    yield {"type": "message", "status": "completed", "role": message["role"], "content": parts}


def input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "image_url":
            image = part["image_url"]
            return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
        case "file":
            return {"type": "input_file", **part["file"]}
        case _:
            return {"type": "input_text", "text": part.get("text", "")}
