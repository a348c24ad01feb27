"""A chat completions request as a client sends it, checked and put into our own words. Pure.

Unknown fields are sampling parameters of some server (`top_k`, `min_p`, `chat_template_kwargs` …) and are passed on: each backend sends
what its server takes. What would change the meaning of an answer without anybody noticing is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hermes.gateway.matching import normal
from hermes.graph import MessageError
from hermes.graph.call import freeze_tools
from hermes.graph.message import FrozenDict, check_message, freeze_items
from hermes.ports.backends import ModelRequest

MOST_MESSAGES = 100_000
LONGEST_NAME = 512
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
ROLES = ("system", "developer", "user", "assistant", "tool")

OWN = frozenset(
    {"model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "user"}
    | {"response_format", "logprobs", "top_logprobs"}
)
"""What the request says itself; everything else is passed on as a parameter of sampling."""
NOT_PASSED_ON = frozenset({"metadata", "store", "safety_identifier", "prompt_cache_retention"})
"""What is about the account at OpenAI, and not about the answer."""
REFUSED = {
    "functions": "use tools instead",
    "function_call": "use tool_choice instead",
    "audio": "audio is not supported",
    "modalities": "only text is supported",
    "prediction": "predicted outputs are not supported",
    "web_search_options": "web search is not supported",
}


class Refused(ValueError):
    """A request that cannot be sent on. `param` is the field that is wrong."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorRequest:
    """What a client wants."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    """As they are sent on and recorded: what says nothing is left out of them."""
    max_tokens: int | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    sampling: Mapping[str, Any]
    response_format: Mapping[str, Any] | None = None
    choices: int = 1
    stream: bool = False
    wants_usage: bool = False
    """Whether a stream ends with a chunk of usage."""
    wants_logprobs: bool = False
    user: str = ""
    metadata: Mapping[str, Any]
    """The client's own words about the call, kept with it. `policy_version` names the weights that answer."""

    def ask(self, end_user: str) -> ModelRequest:
        """The same to a backend. Token ids are always asked for: whoever trains on it later cannot ask any more."""
        return ModelRequest(
            messages=self.messages,
            max_tokens=self.max_tokens or NO_LIMIT,
            tools=self.tools,
            tool_choice=self.tool_choice,
            sampling=self.sampling,
            response_format=self.response_format,
            wants_tokens=True,
            user=end_user,
        )


NO_LIMIT = 2**31 - 1
"""An answer as long as the model's own limit."""


def read_request(body: Any, *, most_choices: int) -> DoorRequest:
    """Check a body. Raises Refused with the first field that is wrong; values are not repeated, they may be private."""
    if not isinstance(body, dict):
        raise Refused("body", "expected a JSON object")
    for name, advice in REFUSED.items():
        if body.get(name) not in (None, ["text"]):
            raise Refused(name, advice)
    options = a(dict, body, "stream_options", {})
    choices = number(body, "n", 1, most_choices) or 1
    top = number(body, "top_logprobs", 0, 20)
    wants_logprobs = a(bool, body, "logprobs", default=False)
    given = {name: value for name, value in body.items() if name not in OWN and name not in NOT_PASSED_ON and value is not None}
    sampling = given if top is None else {**given, "top_logprobs": top}
    if wants_logprobs:
        sampling = {**sampling, "logprobs": True}
    form = a(dict, body, "response_format", None)
    with refusing():
        frozen = FrozenDict(freeze_items({**sampling, "response_format": form}, "body"))
    return DoorRequest(
        model=text(body, "model"),
        messages=messages_of(body.get("messages")),
        max_tokens=number(body, "max_completion_tokens", 1) or number(body, "max_tokens", 1),
        tools=tools_of(body),
        tool_choice=choice_of(body),
        sampling=FrozenDict({name: value for name, value in frozen.items() if name != "response_format"}),
        response_format=frozen["response_format"],
        choices=choices,
        stream=a(bool, body, "stream", default=False),
        wants_usage=a(bool, options, "include_usage", default=False),
        wants_logprobs=wants_logprobs,
        user=text(body, "user", default=""),
        metadata=metadata_of(body),
    )


def messages_of(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not given:
        raise Refused("messages", "expected a list with at least one message")
    if len(given) > MOST_MESSAGES:
        raise Refused("messages", f"expected at most {MOST_MESSAGES} messages")
    messages = []
    for at, message in enumerate(given):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise Refused(f"messages[{at}]{'.role' if isinstance(message, dict) else ''}", f"expected a role, one of {', '.join(ROLES)}")
        with refusing():
            messages.append(check_message(normal(message), f"messages[{at}]", no_side))
    return messages


@contextmanager
def refusing() -> Iterator[None]:
    """Refuse what no message graph can hold: it would be paid for, and could not be recorded."""
    try:
        yield
    except MessageError as error:
        raise Refused(error.path, error.reason) from None
    except RecursionError:
        raise Refused("body", "nested too deeply") from None


def no_side(*_: object) -> None:
    """A client's metadata is not among the fields that are kept."""


def metadata_of(body: Mapping[str, Any]) -> dict[str, str]:
    metadata = a(dict, body, "metadata", {})
    if len(metadata) > 16 or not all(isinstance(value, str) and len(name) <= 64 and len(value) <= 512 for name, value in metadata.items()):
        raise Refused("metadata", "expected at most 16 texts of at most 512 characters, under names of at most 64")
    return dict(metadata)


def tools_of(body: Mapping[str, Any]) -> list[Any]:
    tools = a(list, body, "tools", [])
    for at, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function" or not isinstance(function.get("name"), str):
            raise Refused(f"tools[{at}]", 'expected {"type": "function", "function": {"name": …}}')
    with refusing():
        return list(freeze_tools(tools, "tools") or ())


def choice_of(body: Mapping[str, Any]) -> str | Mapping[str, Any] | None:
    choice = body.get("tool_choice")
    if choice is None or choice in ("none", "auto", "required"):
        return choice
    if isinstance(choice, dict):
        with refusing():
            return FrozenDict(freeze_items(choice, "tool_choice"))
    raise Refused("tool_choice", "expected none, auto, required or a function")


def text(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value and default is None) or len(value) > LONGEST_NAME or CONTROL.search(value):
        raise Refused(name, "missing" if value is None else f"expected text of at most {LONGEST_NAME} characters, none of them for control")
    return value


def number(body: Mapping[str, Any], name: str, least: int, most: int = 2**31 - 1) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Refused(name, f"expected a whole number from {least} to {most}")
    return value


WORDS = {dict: "an object", list: "a list", bool: "true or false"}


def a(kind: type, body: Mapping[str, Any], name: str, default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise Refused(name, f"expected {WORDS[kind]}")
    return value
