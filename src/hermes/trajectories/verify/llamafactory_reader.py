"""Read rows of LLaMA-Factory: the last turn of each is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes.trajectories.verify.expected_text import turn_digest
from hermes.trajectories.verify.exported_rows import ExportedConversation, UnreadableFile, json_lines
from hermes.trajectories.verify.ledger import strict_json

FILE, INFO_FILE = "llamafactory.jsonl", "dataset_info.json"
TAGS = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt", "observation_tag": "observation"}
INFO = {
    "hermes": {
        "file_name": FILE,
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "tools": "tools"},
        "tags": {**TAGS, "function_tag": "function_call", "system_tag": "system"},
    }
}
MODEL = ("gpt", "function_call")
SPEAKERS = {"system", "human", "observation", *MODEL}
ROW_KEYS = {"conversations", "tools", "source", "id", "on_policy", "hermes"}
ABOUT_KEYS = {"session", "rollout", "row", "response", "off_policy", "left_out"}


def read_llamafactory(folder: Path) -> Iterator[ExportedConversation]:
    """Read `llamafactory.jsonl`: the last turn of a row is trained, with LLaMA-Factory's setting `mask_history`."""
    try:
        info = strict_json((folder / INFO_FILE).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(INFO_FILE, f"cannot be read ({error})") from None
    if info != INFO:
        raise UnreadableFile(INFO_FILE, "does not tell LLaMA-Factory how to read the rows")
    before: tuple[str, int] | None = None
    for row, line in json_lines(folder / FILE):
        try:
            turns, about = line["conversations"], line["hermes"]
            texts = [turn["value"] for turn in turns]
            if not turns or not all(isinstance(text, str) for text in (*texts, line["tools"], line["source"], line["id"])):
                raise TypeError("a turn, tools, source or id that is not text")  # noqa: TRY301  # one place names the line
            place = (about["session"], about["row"])
            faults = list(_row_faults(line))
            if place[1] != 0 and (before is None or place != (before[0], before[1] + 1)):
                faults.append(f"says that it is row {place[1]} of its session")
            before = place
            yield ExportedConversation(
                FILE,
                row,
                [turn_digest(turn) for turn in turns],
                [at == len(turns) - 1 for at in range(len(turns))],
                on_policy=line["on_policy"] is True,
                session=about["session"],
                rollout=about["rollout"],
                responses=[about["response"]],
                faults=faults,
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise UnreadableFile(FILE, f"line {row + 1} is not a conversation ({error!r})") from None


def _row_faults(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield what LLaMA-Factory would stumble over, and what the row says twice and not in the same way."""
    turns, about = line["conversations"], line["hermes"]
    if line.keys() != ROW_KEYS or about.keys() != ABOUT_KEYS or any(turn.keys() != {"from", "value"} for turn in turns):
        yield "has other keys than rows of this format have"
    spoken = [turn["from"] for turn in turns]
    sides = spoken[1:] if spoken[0] == "system" else spoken
    if (
        not SPEAKERS.issuperset(spoken)
        or "system" in sides
        or len(sides) % 2
        or any((who in MODEL) is not bool(at % 2) for at, who in enumerate(sides))
    ):
        yield "LLaMA-Factory would skip it: its turns do not alternate"
    if type(about["row"]) is not int or line["id"] != f"{about['session']}#{about['row']}":
        yield "its id is not its session and row"
    if not isinstance(about["off_policy"], str) or line["on_policy"] is not (not about["off_policy"]):
        yield "on_policy is not stated, or contradicts off_policy"
    if not isinstance(strict_json(line["tools"]), list):
        yield "its tools are not a list"
