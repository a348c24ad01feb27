"""Write answers as OpenAI's Responses API does: the response object with its items, whole or as a stream of events. Pure.

created, in_progress, then for each item: added, its pieces, done; then completed, incomplete or failed"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from hermes.gateway.answer_parts import (
    AnswerPart,
    CallPart,
    PartEnded,
    PartEvent,
    PartGrown,
    PartStarted,
    PartStream,
    RefusalPart,
    TextPart,
    ThinkingPart,
)
from hermes.gateway.completions import ChoicePiece
from hermes.gateway.responses_request import ResponsesRequest
from hermes.gateway.stored_responses import response_id_of
from hermes.gateway.thinking_seal import ThinkingSeal
from hermes.ports.backends import Completion
from hermes.ports.models import Answer, AnswerStarted
from hermes.web.completion_errors import openai_error
from hermes.web.completions import hermes_fields, logprobs_of
from hermes.web.response_object import (
    Item,
    ItemWriter,
    custom_input,
    ending_of,
    output_items,
    response_object,
    thinking_model,
    usage_fields,
)


class ResponsesWriter:
    """Writes the answer to one request, whole or piece by piece."""

    def __init__(self, request: ResponsesRequest, seal: ThinkingSeal) -> None:
        self._request = request
        self._seal = seal if request.wants_encrypted else None
        self.created_at = int(time.time())
        self._sequence = 0
        self._parts = PartStream()
        self._output: list[Item] = []
        self._call_id, self._model = UUID(int=0), request.chat["model"]
        self._answer: Answer | None = None
        self._open: AnswerPart = TextPart("")
        self._item_id, self._is_plain_call, self._has_summary = "", False, False

    def body(self, answers: Sequence[Answer]) -> dict[str, Any]:
        answer = answers[0]
        completion = answer.completion
        writer = self._items(answer.call_id, thinking_model(completion.message, completion.model), completion)
        return self._object(answer, output_items(writer, completion.message))

    def chunks(self, choice_piece: ChoicePiece) -> Iterator[bytes]:
        match choice_piece.piece:
            case AnswerStarted(call_id, model):
                self._call_id, self._model = call_id, model
                begun = self._shown(status="in_progress", output=[])
                yield self._event("response.created", response=begun)
                yield self._event("response.in_progress", response=begun)
            case Answer() as answer:
                self._answer = answer
                for event in self._parts.finish(answer.completion.message):
                    yield from self._part(event, answer.completion)
                if not self._output:
                    for event in (PartStarted(0, TextPart("")), PartEnded(0, TextPart(""))):
                        yield from self._part(event, answer.completion)
            case delta:
                for event in self._parts.feed(delta):
                    yield from self._part(event)

    def end(self) -> Iterator[bytes]:
        if self._answer is not None:
            body = self._object(self._answer, self._output)
            yield self._event(f"response.{body['status']}", response=body)

    def failure(self, error: Exception) -> bytes:
        """The last event of a stream that breaks off."""
        told = openai_error(error)["error"]
        problem = {"code": told["code"] or "server_error", "message": told["message"]}
        return self._event("response.failed", response=self._shown(status="failed", output=self._output, error=problem))

    def _items(self, call_id: UUID, model: str, completion: Completion | None = None) -> ItemWriter:
        logprobs = logprobs_of(completion) if completion is not None and self._request.chat.get("logprobs") else None
        return ItemWriter(call_id, model, self._request.tools.names, self._seal, logprobs["content"] if logprobs else None)

    def _object(self, answer: Answer, output: Sequence[Item]) -> dict[str, Any]:
        self._call_id, self._model = answer.call_id, answer.completion.model
        message = answer.completion.message
        hermes = {**hermes_fields([answer]), **({"ignored": self._request.ignored} if self._request.ignored else {})}
        usage = usage_fields(answer.completion.usage)
        return self._shown(output=output, usage=usage, hermes=hermes, **ending_of(message, answer.completion.finish_reason))

    def _shown(self, *, status: str, output: Sequence[Item], **more: Any) -> dict[str, Any]:
        name = response_id_of(self._call_id)
        return response_object(name, self.created_at, self._model, self._request.shown, status=status, output=output, **more)

    def _part(self, event: PartEvent, completion: Completion | None = None) -> Iterator[bytes]:
        """The events of a part that begins, grows or ends."""
        if isinstance(event, PartGrown):
            yield from self._grown(event.index, event.text)
            return
        model = self._model if completion is None else thinking_model(completion.message, self._model)
        writer = self._items(self._call_id, model, completion)
        at = {"output_index": event.index}
        match event:
            case PartStarted(index, part):
                item = writer.item(index, part, "in_progress")
                self._open, self._item_id, self._is_plain_call, self._has_summary = part, item["id"], item["type"] == "function_call", False
                yield self._event("response.output_item.added", **at, item=item)
                if isinstance(part, TextPart | RefusalPart):
                    yield self._event("response.content_part.added", **self._place(index), part=writer.content(part))
            case PartEnded(index, part):
                yield from self._ended(index, part, writer)
                item = writer.item(index, part)
                self._output.append(item)
                yield self._event("response.output_item.done", **at, item=item)

    def _grown(self, index: int, text: str) -> Iterator[bytes]:
        match self._open:
            case TextPart():
                yield self._event("response.output_text.delta", **self._place(index), delta=text, logprobs=[])
            case RefusalPart():
                yield self._event("response.refusal.delta", **self._place(index), delta=text)
            case ThinkingPart():
                summary = self._summary_place(index)
                if not self._has_summary:
                    self._has_summary = True
                    empty = {"type": "summary_text", "text": ""}
                    yield self._event("response.reasoning_summary_part.added", **summary, part=empty)
                yield self._event("response.reasoning_summary_text.delta", **summary, delta=text)
            case CallPart() if self._is_plain_call:
                yield self._event("response.function_call_arguments.delta", item_id=self._item_id, output_index=index, delta=text)

    def _ended(self, index: int, part: AnswerPart, writer: ItemWriter) -> Iterator[bytes]:
        call = {"item_id": self._item_id, "output_index": index}
        match part:
            case TextPart(text):
                content = writer.content(part)
                yield self._event("response.output_text.done", **self._place(index), text=text, logprobs=content["logprobs"])
                yield self._event("response.content_part.done", **self._place(index), part=content)
            case RefusalPart(text):
                yield self._event("response.refusal.done", **self._place(index), refusal=text)
                yield self._event("response.content_part.done", **self._place(index), part=writer.content(part))
            case ThinkingPart(text) if self._has_summary:
                summary = self._summary_place(index)
                yield self._event("response.reasoning_summary_text.done", **summary, text=text)
                yield self._event("response.reasoning_summary_part.done", **summary, part={"type": "summary_text", "text": text})
            case CallPart(_, _, text) if self._is_plain_call:
                name = writer.name(part).name
                yield self._event("response.function_call_arguments.done", **call, name=name, arguments=text)
            case CallPart(_, _, text):
                written = custom_input(text)
                yield self._event("response.custom_tool_call_input.delta", **call, delta=written)
                yield self._event("response.custom_tool_call_input.done", **call, input=written)

    def _place(self, index: int) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": index, "content_index": 0}

    def _summary_place(self, index: int) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": index, "summary_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return named_event(kind, event)


def named_event(name: str, data: Mapping[str, Any]) -> bytes:
    """A server-sent event with a name."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
