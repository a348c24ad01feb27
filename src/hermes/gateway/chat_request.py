"""Check a client's chat completions request and turn it, with its messages, into the form that Hermes sends on and records. Pure.

Other fields are sampling parameters of some server (`top_k`, `min_p`, `chat_template_kwargs` …): each backend sends those that its server
is known to take (`request_fields`). A field that would change who answers, or silently the meaning of the answer, is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hermes.gateway.request_fields import DROPPED_FIELDS, REFUSED_FIELDS, but_got, show_value
from hermes.graph import MessageError
from hermes.graph.call import freeze_tools
from hermes.graph.message import REASONING, FrozenDict, canonical, canonical_message, check_message, freeze_items
from hermes.ports.backends import ChatMessage, ModelRequest

MAX_MESSAGES = 100_000
MAX_FIELD_CHARS = 512
MAX_NAMED_TOOLS = 10
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
SESSION_LABEL = "hermes_session"
MAX_SESSION_CHARS = 255
UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
ROLES = ("system", "developer", "user", "assistant", "tool")

COMPARED_FIELDS = {
    "system": ("content", "name"),
    "user": ("content", "name"),
    "assistant": ("content", "tool_calls", "name", "refusal"),
    "tool": ("content", "tool_call_id", "is_error"),
}
"""Two messages of a role are the same if these fields are: they are all that a model is sent. Clients that send a message back add nulls
and fields of their own."""

REQUEST_FIELDS = frozenset(
    {"model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "user"}
    | {"response_format", "logprobs", "top_logprobs"}
)
"""Fields that ChatRequest has itself; all others are passed on as sampling parameters."""


class InvalidChatRequest(ValueError):
    """The client's request cannot be sent on. `param` is the field that is wrong."""

    def __init__(self, param: str, message: str, got: Any = None) -> None:
        """`got` is the wrong value; the error shows its start."""
        super().__init__(f"{param}: {message}{but_got(got)}")
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A client's request, checked."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    """As they are sent on and recorded: without nulls and unknown fields."""
    max_tokens: int | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    sampling: Mapping[str, Any]
    response_format: Mapping[str, Any] | None = None
    choices: int = 1
    stream: bool = False
    wants_usage: bool = False
    """Whether a stream ends with a chunk that has the usage."""
    wants_logprobs: bool = False
    user: str = ""
    metadata: Mapping[str, Any]
    """The client's own labels for the call, kept with it. `policy_version` names the weights that answer."""
    thinking: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Thinking in its vendor's own form, by the place of its message. It is sent to that vendor, and not recorded again."""
    kept: Mapping[str, Any] | None = None
    """What an API shows of this request when the client asks for the stored answer; None if the client may not ask for it."""

    @property
    def session_name(self) -> str | None:
        """The client's own name of the chat, if its labels have one."""
        return self.metadata.get(SESSION_LABEL) or None

    @property
    def cache_key(self) -> str | None:
        """`prompt_cache_key`, if it is a UUID: then it names this chat. Any other value may name the whole program."""
        key = self.sampling.get("prompt_cache_key")
        return key if isinstance(key, str) and UUID_TEXT.fullmatch(key) else None

    def ask(self, end_user: str) -> ModelRequest:
        """The request to a backend. It always asks for token ids: training later needs them, and they cannot be had afterwards."""
        messages = self.messages
        if self.thinking:
            messages = [
                {**message, "thinking_blocks": self.thinking[at]} if at in self.thinking else message for at, message in enumerate(messages)
            ]
        return ModelRequest(
            messages=messages,
            max_tokens=self.max_tokens or NO_TOKEN_LIMIT,
            tools=self.tools,
            tool_choice=self.tool_choice,
            sampling=self.sampling,
            response_format=self.response_format,
            wants_tokens=True,
            user=end_user,
        )


NO_TOKEN_LIMIT = 2**31 - 1
"""Stands for no limit: the model's own limit holds."""


def read_request(body: Any, *, max_choices: int) -> ChatRequest:
    """Check a body. Raises InvalidChatRequest for the first field that is wrong, with the start of a value that is no message."""
    if not isinstance(body, dict):
        raise InvalidChatRequest("body", "expected a JSON object", body)
    for name, advice in REFUSED_FIELDS.items():
        if body.get(name) not in (None, ["text"]):
            raise InvalidChatRequest(name, advice)
    options = typed_field(dict, body, "stream_options", {})
    choices = integer_field(body, "n", 1, max_choices) or 1
    top = integer_field(body, "top_logprobs", 0, 20)
    wants_logprobs = typed_field(bool, body, "logprobs", default=False)
    given = {name: value for name, value in body.items() if name not in REQUEST_FIELDS and name not in DROPPED_FIELDS and value is not None}
    sampling = given if top is None else {**given, "top_logprobs": top}
    if wants_logprobs:
        sampling = {**sampling, "logprobs": True}
    form = typed_field(dict, body, "response_format", None)
    tools = tools_of(body)
    with refuse_unrecordable():
        frozen = FrozenDict(freeze_items({**sampling, "response_format": form}, "body"))
    return ChatRequest(
        model=text_field(body, "model"),
        messages=messages_of(body.get("messages")),
        max_tokens=integer_field(body, "max_completion_tokens", 1) or integer_field(body, "max_tokens", 1),
        tools=tools,
        tool_choice=tool_choice_of(body, tools),
        sampling=FrozenDict({name: value for name, value in frozen.items() if name != "response_format"}),
        response_format=frozen["response_format"],
        choices=choices,
        stream=typed_field(bool, body, "stream", default=False),
        wants_usage=typed_field(bool, options, "include_usage", default=False),
        wants_logprobs=wants_logprobs,
        user=text_field(body, "user", default=""),
        metadata=metadata_of(body),
    )


def messages_of(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not given:
        raise InvalidChatRequest("messages", "expected a list with at least one message", given)
    if len(given) > MAX_MESSAGES:
        raise InvalidChatRequest("messages", f"expected at most {MAX_MESSAGES} messages")
    messages = []
    for at, message in enumerate(given):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            where, shown = (f"messages[{at}].role", message.get("role")) if isinstance(message, dict) else (f"messages[{at}]", message)
            raise InvalidChatRequest(where, f"expected a role, one of {', '.join(ROLES)}", shown)
        with refuse_unrecordable():
            messages.append(check_message(clean_message(message), f"messages[{at}]", ignore_metadata))
    return messages


@contextmanager
def refuse_unrecordable() -> Iterator[None]:
    """Refuse values that no message graph can hold: their answer would be paid for and could not be recorded."""
    try:
        yield
    except MessageError as error:
        raise InvalidChatRequest(error.path, error.reason) from None
    except RecursionError:
        raise InvalidChatRequest("body", "nested too deeply") from None


def ignore_metadata(*_: object) -> None:
    """Do nothing: the metadata of a client's messages is not kept."""


def metadata_of(body: Mapping[str, Any]) -> dict[str, str]:
    metadata = typed_field(dict, body, "metadata", {})
    if len(metadata) > 16 or not all(isinstance(value, str) and len(name) <= 64 and len(value) <= 512 for name, value in metadata.items()):
        raise InvalidChatRequest("metadata", "expected at most 16 texts of at most 512 characters, under names of at most 64", metadata)
    if len(metadata.get(SESSION_LABEL, "")) > MAX_SESSION_CHARS:
        raise InvalidChatRequest(f"metadata.{SESSION_LABEL}", f"expected at most {MAX_SESSION_CHARS} characters")
    return dict(metadata)


def tools_of(body: Mapping[str, Any]) -> list[Any]:
    tools = typed_field(list, body, "tools", [])
    for at, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function" or not isinstance(function.get("name"), str):
            raise InvalidChatRequest(f"tools[{at}]", 'expected {"type": "function", "function": {"name": …}}', tool)
    with refuse_unrecordable():
        return list(freeze_tools(tools, "tools") or ())


def tool_choice_of(body: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> str | Mapping[str, Any] | None:
    """The choice of a tool. Raises InvalidChatRequest for a tool that the request does not offer: some servers would invent a call."""
    choice, offered = body.get("tool_choice"), [tool["function"]["name"] for tool in tools]
    if choice is None or choice in ("none", "auto"):
        return choice
    if choice == "required":
        if not offered:
            raise InvalidChatRequest("tool_choice", "expected tools with `required`")
        return "required"
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise InvalidChatRequest("tool_choice", "expected none, auto, required or a function", choice)
    if name not in offered:
        known = ", ".join(map(show_value, offered[:MAX_NAMED_TOOLS])) or "none"
        raise InvalidChatRequest("tool_choice", f"there is no tool {show_value(name)} among the tools of this request ({known})")
    with refuse_unrecordable():
        return FrozenDict(freeze_items(choice, "tool_choice"))


def text_field(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value and default is None) or len(value) > MAX_FIELD_CHARS or CONTROL_CHARACTER.search(value):
        raise InvalidChatRequest(
            name,
            "missing" if value is None else f"expected text of at most {MAX_FIELD_CHARS} characters without control characters",
            value,
        )
    return value


def integer_field(body: Mapping[str, Any], name: str, minimum: int, maximum: int = 2**31 - 1) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise InvalidChatRequest(name, f"expected a whole number from {minimum} to {maximum}", value)
    return value


TYPE_NAMES = {dict: "an object", list: "a list", bool: "true or false"}


def typed_field(kind: type, body: Mapping[str, Any], name: str, default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise InvalidChatRequest(name, f"expected {TYPE_NAMES[kind]}", value)
    return value


# --- messages


def clean_message(message: ChatMessage) -> dict[str, Any]:
    """A client's message as Hermes sends it on and records it: the fields of its role without nulls, and its reasoning."""
    fields = role_fields(message)
    if fields["role"] == "assistant":
        reasoning = next((message[name] for name in REASONING if isinstance(message.get(name), str) and message[name]), None)
        if reasoning is not None:
            fields["reasoning"] = reasoning
    return fields


def message_key(message: ChatMessage) -> bytes:
    """The bytes by which a message is recognised, whatever fields the client added or nulls it left out."""
    if len(message) == 2 and message["role"] != "developer" and isinstance(message.get("content"), str):
        return canonical_message(message)  # the usual case: it has nothing to leave out
    return canonical(role_fields(message))


def echo_key(message: ChatMessage) -> bytes:
    """The bytes by which an answer of ours is recognised, also if the client reads arguments as objects and writes them anew."""
    fields = role_fields(message)
    if fields.get("tool_calls"):
        fields["tool_calls"] = [with_sorted_arguments(call) for call in fields["tool_calls"]]
    return canonical(fields)


def with_sorted_arguments(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        return {**call, "function": {**function, "arguments": canonical(value).decode()}} if isinstance(function, dict) else call
    except (ValueError, RecursionError):  # no JSON, or an infinite number
        return call


def role_fields(message: ChatMessage) -> dict[str, Any]:
    """The fields of a message's role without nulls, at any depth. One text part equals plain text; `developer` equals `system`."""
    role = "system" if message["role"] == "developer" else message["role"]
    fields = {name: without_nulls(message[name]) for name in COMPARED_FIELDS[role] if message.get(name) is not None}
    content = fields.get("content")
    if isinstance(content, list) and len(content) == 1 and is_plain_text(content[0]):
        fields["content"] = content[0]["text"]
    if fields.get("content") == "" and fields.get("tool_calls"):
        del fields["content"]  # some clients write "", some null, beside a tool call
    if isinstance(fields.get("tool_calls"), list):
        fields["tool_calls"] = [call_without_index(call) for call in fields["tool_calls"]]
        if not fields["tool_calls"]:
            del fields["tool_calls"]
    return {"role": role, **fields}


def is_plain_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str)


def call_without_index(call: Any) -> Any:
    """A tool call without its index, which only streams need."""
    return {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call


def without_nulls(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(inner) for inner in value]
    return value
