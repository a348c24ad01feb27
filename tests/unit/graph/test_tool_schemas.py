"""Tool schemas that go with many calls: what is computed from them is computed once, and changes no byte of what is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes.graph import CallRecord, FrozenError, MessageGraph, Overlay
from hermes.graph.call import freeze_tools
from hermes.graph.message import canonical, compact_json, digest
from hermes.graph.tool_schemas import ToolSchemas, once

TOOLS = [{"type": "function", "function": {"name": name, "description": "Sucht Bärs", "parameters": {}}} for name in ("b", "a")]


def count(tools: Any) -> int:
    seen.append(tools)
    return len(tools)


seen: list[Any] = []


def test_what_is_computed_from_schemas_is_computed_once() -> None:
    tools = freeze_tools(TOOLS, "tools")
    assert isinstance(tools, ToolSchemas)
    seen.clear()
    assert (once(tools, count), once(tools, count), len(seen)) == (2, 2, 1)
    assert (once(TOOLS, count), once(TOOLS, count), len(seen)) == (2, 2, 3), "a list that may change is read each time"


def test_schemas_refuse_changes_and_copies_are_plain_lists() -> None:
    tools = ToolSchemas(freeze_tools(TOOLS, "tools") or ())
    with pytest.raises(FrozenError):
        tools.append({})
    assert type(tools.copy()) is list
    assert tools == TOOLS
    assert json.loads(json.dumps(tools)) == TOOLS


def test_frozen_schemas_are_taken_as_they_are() -> None:
    tools = freeze_tools(TOOLS, "tools")
    assert freeze_tools(tools, "tools") is tools
    assert Overlay(tools=tools).tools is tools
    assert CallRecord(tools=tools).tools is tools
    assert freeze_tools(ToolSchemas(), "tools") is None


OVERLAYS = (
    {},
    {"tools": TOOLS},
    {"system": "Be kind."},
    {"tools": TOOLS, "system": "Be kind.", "ephemeral": "Be brief.", "keep_reasoning": "all", "template_id": "t"},
)


@pytest.mark.parametrize("fields", OVERLAYS)
def test_an_overlay_with_schemas_is_written_as_any_object_is(fields: dict[str, Any]) -> None:
    overlay = Overlay(**fields)
    assert overlay.to_json() == compact_json(overlay.to_dict()).encode()
    assert overlay.digest == digest(canonical(overlay.to_dict()))


def test_a_call_with_schemas_has_the_digest_of_one_with_a_list() -> None:
    call = CallRecord(model="m", tools=TOOLS, usage={"prompt_tokens": 1}, sample_id="s")
    assert CallRecord.from_dict(json.loads(json.dumps(call.to_dict()))).digest == call.digest
    chat = MessageGraph([{"role": "user", "content": "Hi"}])
    chat.commit(chat.prepare(tools=TOOLS), {"role": "assistant", "content": "Yes"}, call=CallRecord(sample_id="s"))
    assert MessageGraph.from_json(chat.to_json()).verify() == chat.verify()
