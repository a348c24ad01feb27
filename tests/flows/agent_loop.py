"""An agent as other people write them: a loop around an OpenAI client, with tools, a window, a summary and subagents. Knows no Hermes.

What it is for: the agent keeps its own record of every call, and the export of a Hermes that it was pointed at must come to the same."""

import asyncio
import copy
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.flows.toy_model import Sample, completion_ids, prompt_ids

Complete = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None], Awaitable[dict[str, Any]]]
"""Messages and tools in, the assistant's message out: what any client library boils down to."""

WINDOW = 9


def tool(name: str, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


LOOK_UP = tool("look_up", "Look something up.")
DELEGATE = tool("delegate", "Hand a question to a helper.")


class Agent:
    """Works through tasks in one chat, which it trims and sums up as it grows."""

    def __init__(self, complete: Complete) -> None:
        self.complete = complete
        self.record: list[Sample] = []
        """Prompt ids and completion ids of every call, by its own count."""

    async def ask(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        sent = copy.deepcopy(messages)
        message = await self.complete(messages, tools)
        self.record.append((prompt_ids(sent, tools), completion_ids(message)))
        return message

    async def work(self, tasks: list[str]) -> str:
        """Do all tasks; return the last answer."""
        messages = [{"role": "system", "content": "You run the errands."}]
        for task in tasks:
            messages.append({"role": "user", "content": task})
            await self.turn(messages, [LOOK_UP, DELEGATE])
            self.trim(messages)
            if len(messages) > WINDOW:
                messages = await self.summarised(messages)
        return str(messages[-1]["content"])

    async def turn(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> None:
        """Answer the last message, with as many rounds of tools as it takes."""
        while True:
            message = await self.ask(messages, tools)
            messages.append(message)
            calls = message.get("tool_calls") or []
            if not calls:
                return
            results = await asyncio.gather(
                *(self.run(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls)
            )
            for call, result in zip(calls, results, strict=True):
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def run(self, name: str, arguments: dict[str, Any]) -> str:
        if name == "look_up":
            return f"{arguments['what']} is at number {len(arguments['what'])} " + "with all details " * 4
        return await self.helper(arguments["what"])

    async def helper(self, what: str) -> str:
        """A subagent: a chat of its own, several turns, beside others that run at the same time."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": f"You help with {what}."}]
        for step in (f"look up {what}", f"be brief about {what}"):
            messages.append({"role": "user", "content": step})
            await self.turn(messages, [LOOK_UP])
        return str(messages[-1]["content"])

    @staticmethod
    def trim(messages: list[dict[str, Any]]) -> None:
        """Shorten the results of tools that are no longer in sight."""
        for message in messages[:-3]:
            if message["role"] == "tool" and len(message["content"]) > 40:
                message["content"] = message["content"][:20] + "…"

    async def summarised(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Ask for a summary, and go on with it and with what was said last."""
        summary = await self.ask([*messages, {"role": "user", "content": "Sum up what we have so far."}])
        last = max(at for at, message in enumerate(messages) if message["role"] == "user")
        return [messages[0], {"role": "user", "content": f"Before this: {summary['content']}"}, *messages[last:]]


TASKS = [
    "good morning",
    "look up the harbour",
    "delegate the market and the beach",
    "what now?",
    "look up the temple and the bridge",
    "thank you",
    "look up the ferry",
    "and then?",
    "good night",
]


def trained(folder: Path) -> Counter[Sample]:
    """Every sample that an export trains, each as often as its ledger says, as the rows themselves have it."""
    rows = pq.read_table(folder / "rows.parquet", columns=["input_ids", "loss_mask"]).to_pylist()
    found: Counter[Sample] = Counter()
    _, *samples = map(json.loads, (folder / "ledger.jsonl").read_text(encoding="utf-8").splitlines())
    for sample in samples:
        for place in sample["trained"]:
            row, start, end = rows[place["row"]], place["start"], place["end"]
            assert all(row["loss_mask"][start:end])
            found[tuple(row["input_ids"][:start]), tuple(row["input_ids"][start:end])] += 1
    return found
