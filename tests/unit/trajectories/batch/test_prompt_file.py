"""Prompts out of a file: names that stay, and lines that are refused with their number."""

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.batch.prompt_file import PromptFile
from hermes.trajectories.errors import SourceError
from tests.unit.trajectories.batch.stage import write_rows


def items(tmp_path: Path, *rows: dict[str, Any]) -> list[Any]:
    return list(PromptFile(write_rows(tmp_path / "prompts.jsonl", *rows)))


def test_the_same_prompt_twice_is_two_items(tmp_path: Path) -> None:
    one, two, other = items(tmp_path, {"prompt": "x"}, {"prompt": "x"}, {"prompt": "y"})
    assert two.id == f"{one.id}-2"
    assert len({one.id, two.id, other.id}) == 3
    assert one.digest == two.digest != other.digest


def test_an_item_keeps_its_name_when_lines_around_it_come_and_go(tmp_path: Path) -> None:
    [before] = items(tmp_path, {"prompt": "x", "answer": 4})
    *_, after = items(tmp_path, {"prompt": "new"}, {"prompt": "y"}, {"answer": 4, "prompt": "x"})
    assert after.id == before.id


def test_reads_texts_messages_and_everything_else(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    text, chat = items(tmp_path, {"id": 7, "prompt": "hi", "system": "S", "cwd": "/w", "gold": [1]}, {"prompt": messages})
    assert (text.id, text.messages, text.system, text.cwd, text.rest, text.line) == (
        "7",
        [{"role": "user", "content": "hi"}],
        "S",
        "/w",
        {"gold": [1]},
        1,
    )
    assert text.row == {"id": 7, "prompt": "hi", "system": "S", "cwd": "/w", "gold": [1]}
    assert chat.messages == messages


def test_another_field_can_be_the_prompt(tmp_path: Path) -> None:
    [item] = PromptFile(write_rows(tmp_path / "q.jsonl", {"question": "why?", "prompt": "short"}), prompt="question")
    assert item.messages == [{"role": "user", "content": "why?"}]
    assert item.rest == {"prompt": "short"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ('{"prompt": NaN}', "NaN is not JSON"),
        ('{"question": "why?"}', "expected an object with 'prompt'; it has question. Another field: prompt_field = NAME"),
        ('["a"]', "expected an object with 'prompt'"),
        ('{"prompt": 5}', "its prompt is neither a text nor a list of messages"),
        ('{"prompt": []}', "its prompt is neither a text nor a list of messages"),
        ('{"prompt": [{"role": "wizard", "content": ""}]}', "its prompt is not a list of messages"),
        ('{"prompt": [{"role": "assistant", "content": "x"}]}', "its last message is an assistant's"),
        ('{"prompt": [{"role": "system", "content": "x"}, {"role": "user", "content": "x"}], "system": "y"}', "leave out one of them"),
        ('{"prompt": "x", "id": true}', "its id is neither a text nor a whole number"),
        ('{"prompt": "x", "system": 5}', "its system is not a text"),
        ('{"prompt": "x", "id": "first"}', "the id 'first' is also the id of line 1"),
    ],
)
def test_a_line_that_is_no_item_is_named(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": "fine", "id": "first"}) + "\n\n" + line + "\n", encoding="utf-8")
    with pytest.raises(SourceError) as refused:
        PromptFile(file).index()
    assert refused.value.where == f"{file}, line 3"
    assert reason in refused.value.reason


def test_a_file_without_prompts_and_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(SourceError, match="there is no prompt in it"):
        PromptFile(tmp_path / "empty.jsonl").index()
    with pytest.raises(SourceError, match="No such file"):
        PromptFile(tmp_path / "none.jsonl").index()
