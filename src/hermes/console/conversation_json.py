"""A message graph as JSON values, for the API and for `--json`."""

from __future__ import annotations

from typing import Any

from hermes.console.conversation_views import GLYPH_NAMES, NOW, GraphView, RowFold, RowView, SampleView
from hermes.console.lane_rows import MAX_LANES, LaneSegment
from hermes.console.masking import show_identifier
from hermes.console.message_text import message_text
from hermes.ports.conversations import MAX_COUNTED, ConversationRow, SessionFacts
from hermes.ports.operators import Operator


def conversation_json(row: ConversationRow, operator: Operator) -> dict[str, Any]:
    """A session in the list. A number that was not counted to its end comes with `is_more`."""
    return {
        "session_id": str(row.session_id),
        "conversation_id": str(row.conversation_id),
        "account": row.account,
        "platform": row.platform,
        "channel": show_identifier(row.channel_id, operator),
        "user_id": str(row.user_id),
        "agent": row.agent,
        "messages": row.messages,
        "turns": min(row.turns, MAX_COUNTED),
        "versions": min(row.versions, MAX_COUNTED),
        "is_more": max(row.turns, row.versions) > MAX_COUNTED,
        "is_erased": row.is_erased,
        "started_at": row.started_at.isoformat(),
        "last_at": row.last_at.isoformat(),
    }


def facts_json(facts: SessionFacts, operator: Operator) -> dict[str, Any]:
    """What is known of a session without its messages."""
    return {
        "session_id": str(facts.session_id),
        "conversation_id": str(facts.conversation_id),
        "account": facts.account,
        "platform": facts.platform,
        "channel": show_identifier(facts.channel_id, operator),
        "user_id": str(facts.user_id),
        "messages": facts.messages,
        "chats": facts.chats,
        "is_erased": facts.is_erased,
        "calls": facts.calls,
        "tokens": facts.tokens,
        "micro_usd": facts.micro_usd,
        "started_at": facts.started_at.isoformat(),
        "last_at": facts.last_at.isoformat(),
        "previous_id": None if facts.previous_id is None else str(facts.previous_id),
        "next_id": None if facts.next_id is None else str(facts.next_id),
    }


def versions_json(view: GraphView) -> list[dict[str, Any]]:
    return [
        {
            "name": version.name,
            "kind": version.kind,
            "successor": version.successor,
            "messages": version.messages,
            "own": version.own,
            "samples": version.samples,
            "leaves_at": version.leaves_at,
        }
        for version in view.versions
    ]


def item_json(item: RowView | RowFold, view: GraphView) -> dict[str, Any]:
    """A row or a fold. What a message says is there only if the graph was opened."""
    if isinstance(item, RowFold):
        return {"fold": {"first": item.first, "last": item.last, "sampled": item.sampled}}
    row, message = item.row, item.message
    found: dict[str, Any] = {
        "row": row.number,
        "lane": None if row.lane == MAX_LANES else row.lane,
        "version": NOW if row.segment is None else f"version {row.owner + 1}" if row.owner >= 0 else "replay",
        "is": GLYPH_NAMES[item.glyph],
        "leaves": [segment_json(segment, view) for segment in row.leaves],
        "joins": [segment_json(segment, view) for segment in row.joins],
        "sampled_in": [f"version {place + 1}" for place in row.copied],
        "turn_id": None if item.turn is None else str(item.turn.turn_id),
        "samples": [sample_json(sample) for sample in item.samples],
    }
    if item.replay is not None:
        found["replay_id"] = str(item.replay.replay_id)
    if message is None:
        found["bytes"] = item.size
        return found
    return found | {"role": message.role, "text": message_text(message), "is_erased": message.is_erased, "chat": message.chat}


def segment_json(segment: LaneSegment, view: GraphView) -> dict[str, Any]:
    return {
        "version": f"version {segment.version + 1}" if segment.version >= 0 else "replay",
        "kind": segment.kind,
        "lane": None if segment.lane == MAX_LANES else segment.lane,
        "messages": len(segment.rows),
        "joins": None if segment.joins is None else view.layout.place_of_row[segment.joins],
    }


def sample_json(sample: SampleView) -> dict[str, Any]:
    found: dict[str, Any] = {"response": sample.response}
    if sample.call is not None:
        found |= {"sample_id": sample.call.sample_id, "model": sample.call.model, "finish_reason": sample.call.finish_reason}
        found |= {"usage": dict(sample.call.usage), "annotations": [dict(note) for note in sample.notes]}
    if sample.cost is not None:
        found |= {"micro_usd": sample.cost.micro_usd, "latency_ms": sample.cost.latency_ms}
    return found
