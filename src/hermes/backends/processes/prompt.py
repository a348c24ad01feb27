"""A conversation as one text. Pure.

The programs take instructions and one prompt, no roles. So the system messages at the beginning are the instructions, and everything after
them is the prompt: a sentence, then one JSON object a line, `{"role": …, "content": …}`. JSON, because then no text in a message can look
like the next message. The character `@` is written as `\\u0040`: `claude` puts the file behind an `@name` into the prompt, also when all
its tools are off, so any user who writes a message could read files of this machine. The sentence comes first, so that no prompt is taken
for a command (`/clear`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes.backends.answer_parts import CannotEncode
from hermes.ports.backends import ChatMessage, ModelRequest

TASK = (
    "Below is a conversation, one message on each line, as JSON. Write the assistant's next message: "
    "only its text, not as JSON, and nothing about this task."
)
NO_INSTRUCTIONS = "You are a helpful assistant."
"""The instructions for a conversation without a system message; the programs' own instructions are for coding."""
INSTRUCTION_ROLES = ("system", "developer")
TEXT_ROLES = ("system", "developer", "user", "assistant")


class ProgramPrompt(NamedTuple):
    """The input of a program."""

    instructions: str
    text: str


def encode(ask: ModelRequest) -> ProgramPrompt:
    """The conversation of a request. Raises CannotEncode for parts that are not text, KeyError or TypeError for malformed messages."""
    if ask.needs_tools:
        raise CannotEncode("the program takes no tools, and the request has some")
    if ask.response_format is not None and ask.response_format.get("type") != "text":
        raise CannotEncode("the program takes no response format, and the request has one")
    messages = [(message["role"], text_of(message)) for message in ask.messages]
    begin = next((at for at, (role, _) in enumerate(messages) if role not in INSTRUCTION_ROLES), len(messages))
    instructions = "\n\n".join(text for _, text in messages[:begin])
    lines = [message_line(role, text) for role, text in messages[begin:]]
    return ProgramPrompt(instructions or NO_INSTRUCTIONS, "\n".join([TASK, "", *lines, ""]))


def message_line(role: str, text: str) -> str:
    line = json.dumps({"role": role, "content": text}, ensure_ascii=False)
    return line.encode("utf-8", "replace").decode("utf-8").replace("@", "\\u0040")


def text_of(message: ChatMessage) -> str:
    """The text of a message, whether its content is a text or a list of parts."""
    if message["role"] not in TEXT_ROLES:
        raise CannotEncode(f"the program takes no messages of the role {message['role']}")
    content = message.get("content")
    return content if isinstance(content, str) else "".join(text_of_part(part) for part in content_parts(content))


def content_parts(content: Any) -> Sequence[Any]:
    if content is None:
        return ()
    if not isinstance(content, list | tuple):
        raise TypeError("a content must be a text or a list of parts")
    return content


def text_of_part(part: Any) -> str:
    if part["type"] != "text":
        raise CannotEncode(f"the program takes no {part['type']}")
    text = part["text"]
    if not isinstance(text, str):
        raise TypeError("the text of a part is not a string")
    return text
