"""What is fuzzed: every parser that reads what a stranger wrote, with seeds, and the errors by which it refuses.

A target takes bytes and returns what it made of them. Any other error is a crash, and so is an input that takes seconds."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hermes import GraphError, MessageGraph
from hermes.channels.instagram.channel import InstagramChannel, InstagramLogin
from hermes.channels.telegram.api import BotApi
from hermes.channels.telegram.channel import TelegramChannel
from hermes.channels.whatsapp.channel import WhatsAppChannel
from hermes.channels.whatsapp.providers import CloudApi
from hermes.config import SettingsError, load
from hermes.console.graph_svg import svg_of_graph
from hermes.gateway.chat_request import InvalidChatRequest, read_request
from hermes.gateway.embeddings_request import read_embeddings_request
from hermes.gateway.messages_request import read_messages_request
from hermes.gateway.response_items import ItemReader
from hermes.gateway.responses_request import read_responses_request
from hermes.gateway.thinking_seal import ThinkingSeal
from hermes.ports.channels import Webhook
from hermes.trajectories.compress.rows import read_row
from hermes.trajectories.errors import SourceError
from hermes.trajectories.imports import import_file
from hermes.trajectories.verify import NotAnExport, verify
from hermes.web.errors import ApiError
from hermes.web.messages import NewMessage
from hermes.web.request_json import parse_json
from hermes.web.runs import NewRun
from tests.hostile.inputs import TEMPLATES, hostile_updates, to_json
from tests.unit.test_cli_trajectories import run, save_graphs

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEAL = ThinkingSeal("hk_fuzz")


@dataclass(frozen=True)
class Target:
    """One parser."""

    name: str
    parse: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    refusals: tuple[type[Exception], ...] = ()
    is_json: bool = True
    """Whether mutations of the JSON value reach more than mutations of the bytes."""


def targets() -> list[Target]:
    return [
        Target("webhook telegram", parse_telegram, updates),
        Target("webhook whatsapp", parse_whatsapp, updates),
        Target("webhook instagram", parse_instagram, updates),
        Target("api chat completions", read_chat, lambda: bodies("/v1/chat/completions"), (InvalidChatRequest, ApiError)),
        Target("api responses", read_responses, lambda: bodies("/v1/responses"), (InvalidChatRequest, ApiError)),
        Target("api messages of Anthropic", read_anthropic, lambda: bodies("/anthropic/v1/messages"), (InvalidChatRequest, ApiError)),
        Target("api embeddings", read_embeddings, lambda: bodies("/v1/embeddings"), (InvalidChatRequest, ApiError)),
        Target("api messages", read_message, lambda: bodies("/v1/messages"), (ValidationError, ApiError)),
        Target("api runs", read_run, lambda: bodies("/v1/runs"), (ValidationError, ApiError)),
        Target("graph", read_graph, graphs, (GraphError,)),
        Target("import", read_import, foreign_rows),
        Target("compress", read_compress, foreign_rows, (ValueError,)),
        Target("export ledger", lambda data: verify_with("ledger.jsonl", data), lambda: [exported("ledger.jsonl")], (NotAnExport,)),
        Target("export rows", lambda data: verify_with("sharegpt.jsonl", data), lambda: [exported("sharegpt.jsonl")], (NotAnExport,)),
        Target("settings file", read_settings, settings_files, (SettingsError,), is_json=False),
    ]


# --- webhooks


def webhook(body: bytes) -> Webhook:
    return Webhook(headers={}, body=body, query={}, path_secret=None)


def parse_telegram(body: bytes) -> object:
    return TelegramChannel(account="fuzz", api=BotApi(token="123456:" + "A" * 35), secret="s", username="bot").parse(webhook(body), now=NOW)  # noqa: S106


def parse_whatsapp(body: bytes) -> object:
    cloud = CloudApi(access_token="t", phone_number_id="17", app_secrets=("s",))  # noqa: S106
    channel = WhatsAppChannel(account="fuzz", provider=cloud)
    return [channel.parse(webhook(body), now=NOW), channel.parse_shared(webhook(body), now=NOW)]


def parse_instagram(body: bytes) -> object:
    channel = InstagramChannel(account="fuzz", instagram_id="17", login=InstagramLogin.PAGE, access_token="t", app_secrets=("s",))  # noqa: S106
    return [channel.parse(webhook(body), now=NOW), channel.parse_shared(webhook(body), now=NOW)]


def updates() -> list[bytes]:
    return [body for body in hostile_updates() if 2 < len(body) < 2_000]


# --- bodies of the APIs


def bodies(path: str) -> list[bytes]:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {}},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "b"}]},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "thinking", "thinking": "hm", "signature": "x"},
    ]
    items = [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "https://x/y"}],
        },
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "b"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "item_reference", "id": "msg_1_2"},
        {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"},
    ]
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    rich: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {
            "tools": [tool],
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, image]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "b"},
            ],
        },
        "/v1/responses": {"input": items, "tools": [{"type": "function", "name": "look", "parameters": {}}]},
        "/anthropic/v1/messages": {
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "messages": [{"role": role, "content": blocks} for role in ("user", "assistant", "user")],
        },
        "/v1/embeddings": {"input": [[1, 2], [3]]},
    }
    template = TEMPLATES[path]
    return [to_json(template), to_json({**template, **rich.get(path, {})})]


def read_chat(body: bytes) -> object:
    return read_request(parse_json(body), max_choices=8)


def read_responses(body: bytes) -> object:
    asked = read_responses_request(parse_json(body))
    reader = ItemReader(SEAL)
    for at, item in enumerate(asked.items):
        reader.read(item, f"input[{at}]")
    return read_request({**asked.chat, "messages": reader.messages or [{"role": "user", "content": ""}]}, max_choices=1)


def read_anthropic(body: bytes) -> object:
    return read_request(read_messages_request(parse_json(body), SEAL).chat, max_choices=1)


def read_embeddings(body: bytes) -> object:
    return read_embeddings_request(parse_json(body))


def read_message(body: bytes) -> object:
    return NewMessage.model_validate(parse_json(body))


def read_run(body: bytes) -> object:
    return NewRun.model_validate(parse_json(body))


# --- files


@cache
def sample_folder() -> Path:
    """A folder with graphs and an export of them; it lives as long as the process."""
    path = Path(tempfile.mkdtemp(prefix="hermes-fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    graphs_folder = save_graphs(path / "graphs")
    code, _, errors = run("export", graphs_folder, "--out", path / "out", "--format", "sharegpt")
    assert code == 0, errors
    return path


def graphs() -> list[bytes]:
    return (sample_folder() / "graphs" / "chats.jsonl").read_bytes().splitlines()


def read_graph(data: bytes) -> object:
    graph = MessageGraph.from_json(data)
    report = graph.verify()
    return [report.status, graph.to_mermaid(), svg_of_graph(graph, "fuzz"), MessageGraph.from_json(graph.to_json()).head]


def foreign_rows() -> list[bytes]:
    turns = [
        {"from": "system", "value": "s"},
        {"from": "human", "value": "hi"},
        {"from": "gpt", "value": '<think>a</think>\n<tool_call>\n{"name": "look", "arguments": {"q": 1}}\n</tool_call>'},
        {"from": "tool", "value": '<tool_response>\n{"tool_call_id": "c", "name": "look", "content": "r"}\n</tool_response>'},
        {"from": "gpt", "value": "done"},
    ]
    chat = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "assistant", "content": "done"},
    ]
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    return [
        to_json({"conversations": turns, "tools": json.dumps(tools), "metadata": {"a": 1}, "completed": True}),
        to_json({"messages": chat, "tools": tools}),
    ]


@contextmanager
def temporary_file(name: str, data: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hermes-fuzz-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


def read_import(data: bytes) -> object:
    with temporary_file("rows.jsonl", data) as path:
        return [
            {str(each).partition(":")[2]: None} if isinstance(each, SourceError) else [dict.fromkeys(each.findings), each.graph.to_json()]
            for each in import_file(path)
        ]


def read_compress(data: bytes) -> object:
    try:
        value = json.loads(data)
    except RecursionError:  # `chunks` rejects such a row
        return None
    return read_row(data, value).messages if isinstance(value, dict) else None


def exported(name: str) -> bytes:
    return (sample_folder() / "out" / name).read_bytes()


def json_lines(data: bytes) -> list[Any] | None:
    """The values of a file: one that is only spaced in another way says the same."""
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None


def verify_with(name: str, data: bytes) -> object:
    """Verify the export with one of its files replaced. Other than the file itself, no bytes may pass for it."""
    source = sample_folder() / "out"
    with tempfile.TemporaryDirectory(prefix="hermes-fuzz-") as folder:
        for file in source.iterdir():
            (Path(folder) / file.name).write_bytes(data if file.name == name else file.read_bytes())
        report = verify(Path(folder))
    assert report.problems or json_lines(data) == json_lines(exported(name)), "a changed export passed for whole"
    return dict.fromkeys(report.problems)


def settings_files() -> list[bytes]:
    return [
        b'environment = "production"\n[web]\nhost = "0.0.0.0"\nport = 8080\nhosts = ["a.example"]\n[delivery]\nqueue_s = [1.0, 2.0]\n',
        b'[models.m]\nbackend = "anthropic"\nid = "x"\n[[models.m.prices]]\ninput = 1.5\noutput = 2\nsince = 2026-01-01\n',
        b'[tiers.t]\nmodels = ["m"]\n[memory]\nasks_models = false\n',
        b'[backends.own]\nkind = "vllm"\nbase_url = "http://gpu:8000/v1"\n[mcp.maps]\ncommand = ["maps"]\n[alerts.desk]\nkind = "slack"\n',
    ]


def read_settings(data: bytes) -> object:
    with temporary_file("hermes.toml", data) as path:
        return load({}, file=path, cwd=path.parent)
