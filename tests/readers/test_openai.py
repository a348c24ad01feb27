"""OpenAI's own types take every message, a strict schema every row, and their client sends the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.formats.openai import OpenAiWriter
from tests.readers.pages import run_page
from tests.unit.trajectories.samples import sessions
from tests.unit.trajectories.text_sessions import forked_session, lines, nested_session, tool_session, write

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs
REASON = "needs openai: pip install openai"
KEYS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "tool_calls", "refusal", "name", "weight"},
    "tool": {"role", "content", "tool_call_id"},
}
"""What the service takes; it refuses more, which the types do not."""


def rows_of(folder: Path) -> list[Any]:
    write(folder, OpenAiWriter, tool_session(), forked_session(), nested_session(), *(session.graph for session in sessions()))
    return lines(folder / "openai.jsonl")


def test_their_types_take_every_message_and_tool(tmp_path: Path) -> None:
    chat = pytest.importorskip("openai.types.chat", reason=REASON)
    pydantic = pytest.importorskip("pydantic")
    messages = pydantic.TypeAdapter(list[chat.ChatCompletionMessageParam])
    tools = pydantic.TypeAdapter(list[chat.ChatCompletionFunctionToolParam])
    for row in rows_of(tmp_path / "out"):
        assert row.keys() <= {"messages", "tools", "parallel_tool_calls"}
        tools.validate_python(row.get("tools", []))
        for message, read in zip(row["messages"], messages.validate_python(row["messages"]), strict=True):
            # Lists are typed as iterables: nothing inside is checked until someone walks them.
            walked = {key: list(value) if key in ("tool_calls", "content") and not isinstance(value, str | None) else value
                      for key, value in read.items()}  # fmt: skip
            assert walked == {key: value for key, value in message.items() if key != "weight"}
            assert message.keys() <= KEYS[message["role"]]
            assert message.get("weight") in ((0, 1) if message["role"] == "assistant" else (None,))


def test_the_how_to_sends_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openai = pytest.importorskip("openai", reason=REASON)
    httpx = pytest.importorskip("httpx")
    rows_of(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    sent: list[tuple[str, bytes]] = []

    def answer(request: Any) -> Any:
        sent.append((request.url.path, request.read()))
        return httpx.Response(200, json={"id": "file-1" if request.url.path == "/v1/files" else "job-1"})

    client = openai.OpenAI(api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(answer)))
    names = run_page("openai", client=client)
    assert names["job"].id == "job-1"
    assert [path for path, _ in sent] == ["/v1/files", "/v1/fine_tuning/jobs"]
    assert (tmp_path / "out" / "openai.jsonl").read_bytes() in sent[0][1]
    assert json.loads(sent[1][1])["training_file"] == "file-1"
