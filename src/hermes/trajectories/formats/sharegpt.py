"""ShareGPT, the founding format: `sharegpt.jsonl`, one conversation a line. Axolotl, LLaMA-Factory and hermes-agent's tools read it.

    {"conversations": [{"from", "value", "train"}], "tools": JSON text, "source", "id", "on_policy", "hermes": {…}}

`hermes` holds the origin of the row, how the row differs from what was sent (`off_policy`, empty if it does not), and, as JSON text, what
turns have no place for (`rest`, see `hermes.trajectories.sharegpt_turns`). Every row has the same keys with values of the same types,
because readers infer the types from the first rows. Every line is parsed again and compared before it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes.graph.message import canonical, canonical_message
from hermes.graph.node import Node
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.formats.files import LineFile
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, SessionPlan
from hermes.trajectories.sharegpt_turns import SPEAKERS, ShareGptConversation, TurnError, to_messages, to_turns
from hermes.trajectories.text_rows import TextRow, replace_surrogates, text_digest, text_placement, text_rows

FILE_NAME = "sharegpt.jsonl"


class ShareGptWriter:
    """Streams conversations into one file."""

    untrained = "a sampled tool result shares its turn with others in this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:
        self._file = LineFile(folder, FILE_NAME)
        self.files = (self._file,)
        self._source = settings.source
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for place, row in enumerate(text_rows(plan.calls, has_own_turn)):
            conversation = to_turns(row.messages)
            line = record(place, row, conversation, self._source)
            text = json.dumps(line).encode("ascii")
            check_line(text, row)
            self._file.write(text + b"\n")
            digests = [text_digest(turn) for turn in line["conversations"]]
            for index, call in row.trained.items():
                yield Placement(call, text_placement(self.rows, digests, conversation.places[index]))
            self.rows += 1

    def close(self) -> None:
        self._file.close()


def has_own_turn(message: Node) -> bool:
    """Whether a message has a turn of its own, so that marking the turn marks the message."""
    return SPEAKERS[message["role"]] != "tool"


def record(place: int, row: TextRow, conversation: ShareGptConversation, source: str) -> dict[str, Any]:
    """Return one line of the file; `place` is the row's index in its session."""
    trained = {conversation.places[index]: call for index, call in row.trained.items()}
    differences = [*row.differences(has_reasoning=True), *conversation.differences]
    return {
        "conversations": [{**turn, "train": index in trained} for index, turn in enumerate(conversation.turns)],
        "tools": json.dumps(row.tools or []),
        "source": replace_surrogates(source),
        "id": replace_surrogates(f"{row.session}#{place}"),
        "on_policy": not differences,
        "hermes": {
            "session": replace_surrogates(row.session),
            "rollout": replace_surrogates(row.rollout),
            "row": place,
            "responses": [call.response_id for call in row.calls],
            "off_policy": "; ".join(differences),
            "rest": json.dumps(conversation.rest, separators=(",", ":")) if any(conversation.rest) else "[]",
        },
    }


def check_line(text: bytes, row: TextRow) -> None:
    """Raise TrajectoryError if the line does not hold exactly the row's messages."""
    line = json.loads(text)
    try:
        messages = read_messages(line)
    except (TurnError, ValueError, KeyError, TypeError) as error:
        raise TrajectoryError(f"session {row.session}: a ShareGPT line could not be parsed again ({error}); please report this") from error
    if [canonical(message) for message in messages] != [canonical_message(message) for message in row.messages]:
        raise TrajectoryError(f"session {row.session}: a ShareGPT line was parsed to other messages; please report this")


def read_messages(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of one line that this format wrote."""
    conversations: Sequence[Mapping[str, Any]] = line["conversations"]
    return to_messages(conversations, json.loads(line["hermes"]["rest"]))
