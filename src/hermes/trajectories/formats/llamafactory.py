"""LLaMA-Factory: `llamafactory.jsonl`, a conversation for each sample, and `dataset_info.json`, which LLaMA-Factory reads first.

    {"conversations": [{"from", "value"}], "tools": JSON text, "source", "id", "on_policy", "hermes": {…}}

LLaMA-Factory has no mark for a turn: it trains every turn of a model, or, with `mask_history: true`, the last one alone. So each sample
has a row that ends with it and holds exactly its own context, the reasoning of earlier turns included only if it was sent. Train with
`mask_history: true`: then every sample is trained once, and no other turn is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes.graph import Overlay
from hermes.trajectories.formats.files import FixedFile, LineFile, spaced_json
from hermes.trajectories.ledger import Placement
from hermes.trajectories.llamafactory_turns import TOOLS_COMPLETED, complete_tools, to_llamafactory
from hermes.trajectories.plan import ExportSettings, SessionPlan
from hermes.trajectories.text_rows import (
    REASONING_BACK,
    REPLACED,
    TextRow,
    is_assistant,
    replace_surrogates,
    text_digest,
    text_placement,
    text_rows,
)

FILE_NAME = "llamafactory.jsonl"
INFO_FILE_NAME = "dataset_info.json"
DATASET = "hermes"
"""The value of LLaMA-Factory's setting `dataset`."""

# All tags are named: LLaMA-Factory gives a tag that is left out no default if another one is there.
DATASET_INFO = {
    DATASET: {
        "file_name": FILE_NAME,
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "tools": "tools"},
        "tags": {
            "role_tag": "from",
            "content_tag": "value",
            "user_tag": "human",
            "assistant_tag": "gpt",
            "observation_tag": "observation",
            "function_tag": "function_call",
            "system_tag": "system",
        },
    }
}


class LlamaFactoryWriter:
    """Streams conversations into one file."""

    untrained = "only an assistant's messages are trained in this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:
        self._file = LineFile(folder, FILE_NAME)
        self.files = (self._file, FixedFile(folder, INFO_FILE_NAME, (json.dumps(DATASET_INFO, indent=2) + "\n").encode("ascii")))
        self._source = settings.source
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        place = 0
        for call in plan.calls:
            for row in text_rows([call], is_assistant):  # one row, which ends with the call's own message; none if it cannot be trained
                line = record(place, row, self._source)
                self._file.write(spaced_json(line).encode("ascii") + b"\n")
                digests = [text_digest(turn) for turn in line["conversations"]]
                yield Placement(call, text_placement(self.rows, digests, len(digests) - 1), differs=not line["on_policy"])
                place += 1
                self.rows += 1

    def close(self) -> None:
        self._file.close()


def record(place: int, row: TextRow, source: str) -> dict[str, Any]:
    """Return one line of the file; `row` ends with its one trained message; `place` counts the lines of its session."""
    [call] = row.calls
    context = Overlay(keep_reasoning=call.response.overlay.keep_reasoning).render(row.messages[:-1])
    conversation = to_llamafactory([*context, row.messages[-1]])
    tools = complete_tools(row.tools or ())
    differences = [difference for difference in row.differences(has_reasoning=True) if difference != REASONING_BACK]
    differences += [*conversation.differences, *([TOOLS_COMPLETED] if tools != list(row.tools or ()) else [])]
    turns = replace_surrogates(conversation.turns)
    if turns != conversation.turns:
        differences.append(REPLACED)
    return {
        "conversations": turns,
        "tools": json.dumps(tools),
        "source": replace_surrogates(source),
        "id": replace_surrogates(f"{row.session}#{place}"),
        "on_policy": not differences,
        "hermes": {
            "session": replace_surrogates(row.session),
            "rollout": replace_surrogates(row.rollout),
            "row": place,
            "response": call.response_id,
            "off_policy": "; ".join(differences),
            "left_out": row.left_out,
        },
    }
