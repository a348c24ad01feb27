"""A model that obeys every text: it calls each tool that it is offered or that a message names, and then says all that it was shown."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.ports.backends import ModelRequest
from hermes.ports.models import Answer, Caller
from tests.fakes.concierge import ALL_TOOLS
from tests.flows.echo import said

TOOLS = tuple(recipe.name for recipe in ALL_TOOLS)
MOST_CALLS = 12
"""More of them in one answer are not run."""


class Obedient:
    """The port Models. `asked` has every request, in order."""

    def __init__(self) -> None:
        self.asked: list[ModelRequest] = []
        self.next_calls: list[dict[str, Any]] = []
        """What it calls the next time, in place of all that it is offered."""

    async def complete(self, ask: ModelRequest, _: Caller) -> Answer:
        self.asked.append(ask)
        calls = [] if ask.tool_choice == "none" else self.next_calls or list(self._calls(ask))
        self.next_calls = []
        if calls:
            return said(None, tool_calls=calls[:MOST_CALLS])
        return said(self._say(ask))

    def _say(self, ask: ModelRequest) -> str:
        return "\n".join(text_of(message) for message in ask.messages if message["role"] != "assistant")

    def _calls(self, ask: ModelRequest) -> list[dict[str, Any]]:
        newest = text_of(ask.messages[-1])
        offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in ask.tools}
        wanted = dict.fromkeys([*(name for name in TOOLS if name in newest), *offered])
        return [call(name, arguments_for(offered.get(name, {}))) for name in wanted]

    @property
    def prompts(self) -> list[ModelRequest]:
        """The first request of each turn."""
        return [ask for ask in self.asked if ask.tool_choice != "none"]


def call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def arguments_for(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Something for each parameter that a tool insists on."""
    properties = schema.get("properties", {})
    return {name: sample(properties[name]) for name in schema.get("required", ())} or {"query": "everything"}


def sample(shape: Mapping[str, Any]) -> Any:
    match shape.get("type"):
        case "integer" | "number":
            return 2
        case "array":
            return [{"food": "rice"}]
        case _:
            return (shape.get("enum") or ["Canggu"])[0]


def text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def words_in(asks: Sequence[ModelRequest]) -> str:
    """All that these requests say, tools included."""
    return json.dumps(
        [[dict(message) for message in ask.messages] + [dict(tool) for tool in ask.tools] for ask in asks], ensure_ascii=False
    )
