"""What is sent: no metadata, reasoning as asked for, the ephemeral text joined to the system message."""

from typing import Any

import pytest

from hermes import MessageError, MessageGraph, Overlay

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "S", "metadata": {"x": 1}},
    {"role": "user", "content": "q1"},
    {"role": "assistant", "content": "a1", "reasoning": "r1"},
    {"role": "user", "content": "q2"},
    {"role": "assistant", "content": None, "reasoning_content": "r2", "tool_calls": [{"id": "1"}]},
    {"role": "tool", "tool_call_id": "1", "content": "t"},
]


def reasoning(messages: list[dict[str, Any]]) -> list[str]:
    return [message[key] for message in messages for key in ("reasoning", "reasoning_content") if key in message]


@pytest.mark.parametrize(("keep", "kept"), [("none", []), ("current_turn", ["r2"]), ("all", ["r1", "r2"])])
def test_reasoning_is_sent_as_asked_for(keep: Any, kept: list[str]) -> None:
    sent = MessageGraph(CHAT).context(keep_reasoning=keep)
    assert reasoning(sent) == kept
    assert all("metadata" not in message for message in sent)
    assert [message.get("content") for message in sent] == [message.get("content") for message in CHAT]


def test_ephemeral_text_joins_the_system_message_and_never_enters_the_list() -> None:
    chat = MessageGraph(CHAT)
    assert chat.context(ephemeral="E")[0] == {"role": "system", "content": "S\n\nE"}
    assert chat == CHAT
    assert MessageGraph(CHAT[1:2]).context(ephemeral="E") == [{"role": "system", "content": "E"}, CHAT[1]]
    assert MessageGraph().context(ephemeral="E") == [{"role": "system", "content": "E"}]
    assert MessageGraph([{"role": "system", "content": None}]).context(ephemeral="E") == [{"role": "system", "content": "E"}]
    parts = [{"role": "developer", "content": [{"type": "text", "text": "S"}]}]
    joined = [{"role": "developer", "content": [{"type": "text", "text": "S"}, {"type": "text", "text": "\n\nE"}]}]
    assert MessageGraph(parts).context(ephemeral="E") == joined


def test_an_overlay_makes_no_version() -> None:
    chat = MessageGraph(CHAT)
    for settings in ({"ephemeral": "E"}, {"tools": [{"name": "t"}]}, {"keep_reasoning": "all"}):
        chat.commit(chat.prepare(**settings), {"role": "assistant", "content": "x"})  # type: ignore[arg-type]
    assert len(chat.versions) == 1


def test_what_a_turn_pins_stays_whatever_happens_to_the_list() -> None:
    chat = MessageGraph(CHAT)
    turn = chat.prepare(ephemeral="E", keep_reasoning="all")
    before = turn.messages, turn.context_id
    chat.reverse()
    chat.clear()
    assert (turn.messages, turn.context_id) == before


def test_no_tools_and_an_empty_list_of_tools_are_the_same() -> None:
    chat = MessageGraph(CHAT)
    assert chat.prepare(tools=[]).context_id == chat.prepare().context_id == chat.head


@pytest.mark.parametrize("settings", [{"keep_reasoning": "some"}, {"ephemeral": 5}, {"tools": "f"}, {"tools": [5]}])
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        MessageGraph(CHAT).prepare(**settings)
    with pytest.raises(MessageError):
        Overlay(**settings)


def test_a_vendors_own_form_of_thinking_goes_with_the_reasoning() -> None:
    thought = {"role": "assistant", "content": "4", "reasoning": "2 and 2", "thinking_blocks": {"model": "m", "blocks": []}}
    chat = MessageGraph([{"role": "user", "content": "2 + 2?"}, thought])
    assert chat.context()[1] == {"role": "assistant", "content": "4"}
    assert chat.context(keep_reasoning="all")[1] == chat.context(keep_reasoning="current_turn")[1] == thought
