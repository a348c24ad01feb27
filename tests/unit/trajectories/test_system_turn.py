"""Live conversations as text: the system prompt is there as it was sent, Hermes' notes are not, and the row says so."""

import json
from pathlib import Path

import pytest

from hermes.trajectories.formats.sharegpt import ShareGptWriter
from hermes.trajectories.verify import verify
from tests.unit.trajectories.forgery import make
from tests.unit.trajectories.text_sessions import NOTED, lines, soul_session, write


def test_a_live_conversation_as_sharegpt_begins_with_the_soul_and_has_the_users_words_alone(tmp_path: Path) -> None:
    write(tmp_path / "out", ShareGptWriter, soul_session())
    first, second = lines(tmp_path / "out" / "sharegpt.jsonl")
    assert [(turn["from"], turn["value"], turn["train"]) for turn in first["conversations"]] == [
        ("system", "Be kind.", False),
        ("human", "Hi", False),
        ("gpt", "a0", True),
        ("human", "More?", False),
        ("gpt", "a1", True),
    ]
    assert [(turn["from"], turn["train"]) for turn in second["conversations"]][-1] == ("gpt", True)
    assert second["conversations"][0] == {"from": "system", "value": "Be kinder.", "train": False}
    assert (first["on_policy"], first["hermes"]["off_policy"]) == (False, "no token ids; notes of user messages left out")
    assert first["hermes"]["left_out"] == {"ephemeral": 0, "notes": 2}


@pytest.mark.parametrize("name", ["atif", "llamafactory", "openai", "sharegpt"])
def test_a_row_with_a_soul_agrees_with_its_source_and_holds_no_note(name: str, tmp_path: Path) -> None:
    out, source = make(tmp_path, name, [soul_session()])
    assert verify(out, [source]).problems == ()
    written = "".join(file.read_text() for file in out.iterdir())
    assert (json.dumps(NOTED)[1:-1] in written, "Be kind." in written, "Be kinder." in written) == (False, True, True)
