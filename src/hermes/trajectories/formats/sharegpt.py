"""ShareGPT, the founding format: `sharegpt.jsonl`, one conversation a line. Axolotl and hermes-agent's tools read it.

    {"conversations": [{"from", "value", "train"}], "tools": JSON text, "source", "id", "on_policy", "hermes": {…}}

`hermes` holds the origin of the row, how the row differs from what was sent (`off_policy`, empty if it does not), and, as JSON text, what
turns have no place for (`rest`, see `hermes.trajectories.sharegpt_turns`). Every row has the same keys with values of the same types,
because readers infer the types from the first rows. Every line is parsed again and compared before it is written. With `is_bare` the
line is divided: the founding row here, the rest beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes.graph.message import METADATA, canonical, canonical_message
from hermes.graph.node import Node
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.formats.bare_sharegpt import ROWS_FILE_NAME, bare_lines
from hermes.trajectories.formats.files import LineFile, spaced_json
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, SessionPlan
from hermes.trajectories.sharegpt_turns import SPEAKERS, ShareGptConversation, TurnError, to_messages, to_turns
from hermes.trajectories.text_rows import TextRow, replace_surrogates, text_placement, text_rows, trained_turn_digest

FILE_NAME = "sharegpt.jsonl"
_DECODER = json.JSONDecoder()


class ShareGptWriter:
    """Streams conversations into one file."""

    untrained = "a sampled tool result shares its turn with others in this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:
        self._file = LineFile(folder, FILE_NAME)
        self._rest = LineFile(folder, ROWS_FILE_NAME) if settings.is_bare else None
        self.files = (self._file,) if self._rest is None else (self._file, self._rest)
        self._source = settings.source
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for place, row in enumerate(text_rows(plan.calls, has_own_turn)):
            conversation = to_turns(row.messages)
            line = record(place, row, conversation, self._source)
            text = spaced_json(line)
            check_line(text, row)
            self._write_line(line, text)
            digests = [trained_turn_digest(turn["from"], turn["value"], is_trained=turn["train"]) for turn in line["conversations"]]
            for index, call in row.trained.items():
                where = text_placement(self.rows, digests, conversation.places[index])
                yield Placement(call, where, differs=not line["on_policy"])
            self.rows += 1

    def close(self) -> None:
        for file in self.files:
            file.close()

    def _write_line(self, line: Mapping[str, Any], text: str) -> None:
        if self._rest is None:
            self._file.write(text.encode("ascii") + b"\n")
            return
        bare, rest = bare_lines(line)
        self._file.write(bare)
        self._rest.write(rest)


def has_own_turn(message: Node) -> bool:
    """Whether a message has a turn of its own, so that marking the turn marks the message."""
    return SPEAKERS[message["role"]] != "tool"


def record(place: int, row: TextRow, conversation: ShareGptConversation, source: str) -> dict[str, Any]:
    """Return one line of the file; `place` is the row's index in its session."""
    trained = {conversation.places[index]: call for index, call in row.trained.items()}
    differences = [*row.differences(has_reasoning=True), *conversation.differences]
    return {
        "conversations": [
            {"from": turn["from"], "value": turn["value"], "train": index in trained} for index, turn in enumerate(conversation.turns)
        ],
        "tools": json.dumps(row.tools) if row.tools else "[]",
        "source": replace_surrogates(source),
        "id": replace_surrogates(f"{row.session}#{place}"),
        "on_policy": not differences,
        "hermes": {
            "session": replace_surrogates(row.session),
            "rollout": replace_surrogates(row.rollout),
            "row": place,
            "responses": [call.response_id for call in row.calls],
            "off_policy": "; ".join(differences),
            "left_out": row.left_out,
            "rest": json.dumps(conversation.rest, separators=(",", ":")) if any(conversation.rest) else "[]",
        },
    }


def check_line(text: str, row: TextRow) -> None:
    """Raise TrajectoryError if the line does not hold exactly the row's messages."""
    line, end = _DECODER.raw_decode(text)
    try:
        messages = read_messages(line)
    except (TurnError, ValueError, KeyError, TypeError) as error:
        raise TrajectoryError(f"session {row.session}: a ShareGPT line could not be parsed again ({error}); please report this") from error
    if end != len(text) or len(messages) != len(row.messages) or not all(map(_is_same, messages, row.messages)):
        raise TrajectoryError(f"session {row.session}: a ShareGPT line was parsed to other messages; please report this")


def _is_same(parsed: dict[str, Any], message: Node) -> bool:
    """Whether two messages are equal in canonical form. Most hold nothing but texts, and these need no canonical form to be compared."""
    if len(parsed) == len(message) == 2 and type(message.get("content")) is str:
        return parsed == message
    is_whole = len(parsed) == len(message) - (METADATA in message)
    if is_whole and all(type(value) is str and message.get(name) == value for name, value in parsed.items()):
        return True
    return canonical(parsed) == canonical_message(message)


def read_messages(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of one line that this format wrote."""
    conversations: Sequence[Mapping[str, Any]] = line["conversations"]
    rest = line["hermes"]["rest"]
    return to_messages(conversations, json.loads(rest) if rest != "[]" else [])
