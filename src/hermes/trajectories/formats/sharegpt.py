"""ShareGPT, the founding format: `sharegpt.jsonl`, one conversation a line. Axolotl and hermes-agent's tools read it.

    {"conversations": [{"from", "value", "train"}], "tools": JSON text, "source", "id", "on_policy", "hermes": {…}}

`hermes` holds the origin of the row, how the row differs from what was sent (`off_policy`, empty if it does not), and, as JSON text, what
turns have no place for (`rest`, see `hermes.trajectories.sharegpt_turns`). Every row has the same keys with values of the same types,
because readers infer the types from the first rows. Every line is parsed again and compared before it is written. With `is_bare` the
line is divided: the founding row here, the rest beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import MsgspecError
from msgspec.json import Decoder

from hermes.graph.message import METADATA, canonical, canonical_message
from hermes.graph.node import Node
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.formats.bare_sharegpt import ROWS_FILE_NAME, bare_lines
from hermes.trajectories.formats.files import LineFile
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, SessionPlan
from hermes.trajectories.sharegpt_turns import SPEAKERS, ShareGptConversation, TurnError, are_plain_turns, to_messages, to_turns
from hermes.trajectories.text_rows import TextRow, replace_surrogates, text_placement, text_rows

FILE_NAME = "sharegpt.jsonl"
_DECODER = Decoder()
_escape = encode_basestring_ascii


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
            line = line_of(place, row, conversation, self._source)
            parsed = check_line(line.text, row)
            if self._rest is None:
                self._file.write(line.text + b"\n")
            else:
                bare, rest = bare_lines(parsed)
                self._file.write(bare)
                self._rest.write(rest)
            for index, call in row.trained.items():
                where = text_placement(self.rows, line.digests, conversation.places[index])
                yield Placement(call, where, differs=line.differs)
            self.rows += 1

    def close(self) -> None:
        for file in self.files:
            file.close()


def has_own_turn(message: Node) -> bool:
    """Whether a message has a turn of its own, so that marking the turn marks the message."""
    return SPEAKERS[message["role"]] != "tool"


class WrittenLine(NamedTuple):
    """One line of the file."""

    text: bytes
    """What `json.dumps` writes, without the line's end."""
    digests: list[str]
    """The `text_digest` of each turn."""
    differs: bool
    """Whether the row differs from what was sent."""


def line_of(place: int, row: TextRow, conversation: ShareGptConversation, source: str) -> WrittenLine:
    """Return one line; `place` is the row's index in its session.

    Each text is escaped once, for the line and for the digest of its turn: the encoder of objects would take three times as long."""
    trained = {conversation.places[index] for index in row.trained}
    differences = [*row.differences(has_reasoning=True), *conversation.differences]
    turns, digests = [], []
    for index, turn in enumerate(conversation.turns):
        speaker, value, mark = turn["from"], _escape(turn["value"]), "true" if index in trained else "false"
        turns.append(f'{{"from": "{speaker}", "value": {value}, "train": {mark}}}')
        digests.append(sha256(f'{{"from":"{speaker}","train":{mark},"value":{value}}}'.encode("ascii")).hexdigest())
    session, rollout = replace_surrogates(row.session), replace_surrogates(row.rollout)
    tools = _escape(json.dumps(row.tools)) if row.tools else '"[]"'
    rest = _escape(json.dumps(conversation.rest, separators=(",", ":"))) if any(conversation.rest) else '"[]"'
    responses = '", "'.join([call.response_id for call in row.trained.values()])
    left_out = row.left_out
    text = (
        f'{{"conversations": [{", ".join(turns)}], "tools": {tools}, "source": {_escape(replace_surrogates(source))}, '
        f'"id": {_escape(f"{session}#{place}")}, "on_policy": {"false" if differences else "true"}, '
        f'"hermes": {{"session": {_escape(session)}, "rollout": {_escape(rollout)}, "row": {place}, "responses": ["{responses}"], '
        f'"off_policy": {_escape("; ".join(differences))}, "left_out": {{"ephemeral": {left_out["ephemeral"]}, '
        f'"notes": {left_out["notes"]}}}, "rest": {rest}}}}}'
    )
    return WrittenLine(text.encode("ascii"), digests, bool(differences))


def check_line(text: bytes, row: TextRow) -> dict[str, Any]:
    """Parse a line again and return it; raise TrajectoryError if it does not hold exactly the row's messages."""
    try:
        line: dict[str, Any] = _DECODER.decode(text)
        if line["hermes"]["rest"] == "[]" and are_plain_turns(line["conversations"], row.messages):
            return line
        messages = read_messages(line)
    except (TurnError, MsgspecError, ValueError, KeyError, TypeError) as error:
        raise TrajectoryError(f"session {row.session}: a ShareGPT line could not be parsed again ({error}); please report this") from error
    if len(messages) != len(row.messages) or not all(map(_is_same, messages, row.messages)):
        raise TrajectoryError(f"session {row.session}: a ShareGPT line was parsed to other messages; please report this")
    return line


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
