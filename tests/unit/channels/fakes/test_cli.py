"""`hermes platforms fake`, as a process of its own."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.testing import CliRunner

from hermes.cli import build_app

PATIENCE_S = 30


@contextmanager
def running(*options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "hermes", "platforms", "fake", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def told(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310  # our own server
        return json.load(answer)


def test_says_what_hermes_must_know_and_serves_until_it_is_told_to_stop() -> None:
    with running("--json", "--hermes", "http://127.0.0.1:1/", "--account", "bali", "--seed", "7") as process:
        facts = told(process)
        telegram = facts["platforms"]["telegram"]
        assert list(facts["platforms"]) == ["telegram", "whatsapp", "whatsapp_cloud", "instagram", "instagram_page"]
        assert telegram["webhooks are posted to"] == "http://127.0.0.1:1/webhooks/telegram/bali"
        assert facts["platforms"]["whatsapp_cloud"]["webhooks are posted to"] == "http://127.0.0.1:1/webhooks/whatsapp/bali-cloud"
        assert fetched(f"{telegram['API base URL']}/bot{telegram['bot token']}/getMe")["result"]["is_bot"] is True
        shown = fetched(f"{facts['url']}/_control/state")["platforms"]
        assert [[person["name"] for person in platform["people"]] for platform in shown] == [["Ada"]] * 5
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_for_people_it_is_a_list_with_the_page_first() -> None:
    with running() as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip() for _ in range(4)]
        assert lines[0].startswith("Write as any person, and trigger failures: http://127.0.0.1:")
        assert lines[2] == "Telegram"
        assert lines[3].split("  ")[1] == "API base URL"


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(build_app(["platforms"]), ["platforms", "fake", "--port", str(port)])
    assert result.exit_code == 2
    assert result.stderr == f"hermes: cannot listen on 127.0.0.1:{port}: Address already in use; choose another port with --port\n"
