"""A model small enough to know by heart: its tokenizer, its chat template, and what it answers. For a fake vLLM to speak with.

    vendors.vllm.otherwise = ToyModel()

The prompt of a chat that goes on begins with the prompt and the completion before it, as with a real template; so what a trainer is fed
can be compared token by token with what was sent and what came back. Stands on nothing of Hermes."""

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.script import Say, ToolCall

Message = Mapping[str, Any]
Sample = tuple[tuple[int, ...], tuple[int, ...]]
"""Prompt ids and completion ids."""


@dataclass
class ToyModel:
    """Answers a request's body, the same to the same, and keeps what it has returned."""

    returned: list[Sample] = field(default_factory=list)

    def __call__(self, body: Mapping[str, Any]) -> Say:
        message = answer(body["messages"], has_tools=bool(body.get("tools")))
        prompt, completion = prompt_ids(body["messages"], body.get("tools")), completion_ids(message)
        self.returned.append((prompt, completion))
        return Say(
            text=message.get("content") or "",
            tool_calls=[ToolCall(call["function"]["name"], call["function"]["arguments"], call["id"]) for call in message["tool_calls"]],
            tokens_in=len(prompt),
            tokens_out=len(completion),
            prompt_token_ids=prompt,
            token_ids=completion,
            logprobs=[-(1 + token % 64) / 64 for token in completion],  # as float32 and as float64 the same
        )


def answer(messages: Sequence[Message], *, has_tools: bool) -> dict[str, Any]:
    """What the model says: it looks up what it is asked to, it asks a helper where it may, it sums up, and else it repeats."""
    last = messages[-1]
    said = str(last.get("content") or "")
    wanted = re.match(r"(look up|delegate) (.+)", said)
    if last["role"] == "user" and wanted and has_tools:
        names = wanted[2].split(" and ")
        calls = [
            {"id": f"call_{len(messages)}_{at}", "function": {"name": wanted[1].replace(" ", "_"), "arguments": json.dumps({"what": name})}}
            for at, name in enumerate(names)
        ]
        return {"role": "assistant", "content": f"I will {said}." if len(names) > 1 else None, "tool_calls": calls}
    if last["role"] == "tool":
        found = [str(message["content"]) for message in messages if message["role"] == "tool"]
        return {"role": "assistant", "content": f"So it is: {'; '.join(found[-2:])}", "tool_calls": []}
    if said.startswith("Sum up"):
        return {"role": "assistant", "content": f"Summary of {len(messages) - 1} messages.", "tool_calls": []}
    return {"role": "assistant", "content": f"You said: {said}", "tool_calls": []}


def prompt_ids(messages: Sequence[Message], tools: Any = None) -> tuple[int, ...]:
    """The template: the tools, every message, and the beginning of the answer."""
    pieces = [json.dumps(tools, sort_keys=True)] if tools else []
    for message in messages:
        pieces += [f"<|{message['role']}|>", *body_of(message)]
    return tuple(map(token, [*pieces, "<|assistant|>"]))


def completion_ids(message: Message) -> tuple[int, ...]:
    """What the model sampled to say this."""
    return tuple(map(token, body_of(message)))


def body_of(message: Message) -> Iterator[str]:
    yield from re.findall(r"\s*\S+|\s+$", str(message.get("content") or ""))
    for call in message.get("tool_calls") or ():
        yield from ("<|call|>", call["function"]["name"], *re.findall(r"\w+|\W", call["function"]["arguments"]))
    yield "<|end|>"


def token(piece: str) -> int:
    return zlib.crc32(piece.encode()) >> 2
