"""`hermes chores`, `hermes dream`, `hermes fleet leader` and `processes`, and the probe, on the real stores."""

import asyncio
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import structlog
from click.testing import Result
from typer.testing import CliRunner

from hermes.app.root import open_hermes
from hermes.app.router import open_no_tools
from hermes.cli import build_app
from hermes.config import load
from hermes.ports.memories import FactOrigin
from hermes.ports.users import UserState
from hermes.soul.supersede import LearnedFact
from hermes.turn import Platform
from tests.fakes.vendors import vendors

Run = Callable[..., Result]
CHORES = ["reminders", "offers", "light_dreams", "deep_dreams", "re_embedding"]
SURFS = ("I surf at dawn every Monday", "My new surf board is blue", "I taught my cousin to surf", "I hurt my knee while I was surfing")


@pytest.fixture
def environ(database_url: str, redis_url: str, tmp_path: Path) -> dict[str, str]:
    return {"HERMES_HOME": str(tmp_path / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}


@pytest.fixture
def run(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command on stores of this test's own."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> Result:
        return CliRunner().invoke(build_app(list(words)), list(words), env=environ)

    handlers = logging.getLogger().handlers[:]
    yield command
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers  # the commands set up a log of their own


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# --- chores


def test_chores_are_listed_done_on_demand_and_show_who_did_them(run: Run) -> None:
    before = read(run("chores", "list", "--json"))
    assert [chore["chore"] for chore in before][: len(CHORES)] == CHORES
    assert {chore["done_at"] for chore in before} == {None}
    assert run("fleet", "leader").stdout == "No chore was done yet; a worker does them: hermes up\n"
    for _ in range(2):
        done = run("chores", "run", "reminders")
        assert done.exit_code == 0
        assert done.stdout.startswith("reminders is done: 0 messages, by this command, in ")
    [leader] = read(run("fleet", "leader", "--json"))
    assert (leader["chore"], leader["epoch"], leader["is_running"], leader["failed"]) == ("reminders", 2, False, None)
    assert (leader["role"], leader["pid"]) == ("command", os.getpid())
    assert leader["taken_at"] < leader["done_at"]
    assert "command" in run("fleet", "leader").stdout
    listed = next(chore for chore in read(run("chores", "list", "--json")) if chore["chore"] == "reminders")
    assert listed["done_at"] == leader["done_at"]
    assert {(process["role"], process["state"]) for process in read(run("fleet", "processes", "--json"))} == {("command", "stopped")}


def test_a_chore_that_there_is_not_is_one_line_and_code_2(run: Run) -> None:
    result = run("chores", "run", "laundry")
    # The last line: on a busy machine a log line may come before, of a store that answered too late.
    assert (result.exit_code, result.stderr.splitlines()[-1].split(";")[0]) == (2, "hermes: there is no chore 'laundry'")
    assert "deep_dreams" in result.stderr


def hold(database_url: str, name: str) -> None:
    """A worker on another host takes a chore."""
    with psycopg.connect(database_url) as connection:
        holder = uuid4()
        connection.execute(
            "insert into processes (id, role, host, pid, version) values (%s, 'worker', 'bali-1', 42, '1.0')",
            [holder],
        )
        connection.execute(
            "insert into chores (name, held_until, holder, taken_at) values (%s, now() + interval '1 hour', %s, now())", [name, holder]
        )


def test_a_chore_that_another_process_is_doing_is_left_to_it(run: Run, database_url: str) -> None:
    run("chores", "list")  # makes the tables
    hold(database_url, "light_dreams")
    result = run("chores", "run", "light_dreams", "--no-wait")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("hermes: light_dreams is being done by worker bali-1 (42), since 20")
    [leader] = read(run("fleet", "leader", "--json"))
    assert (leader["host"], leader["pid"], leader["role"], leader["is_running"]) == ("bali-1", 42, "worker", True)


def test_a_command_waits_for_the_process_that_is_doing_the_chore(run: Run, database_url: str) -> None:
    run("chores", "list")
    hold(database_url, "light_dreams")

    def end() -> None:
        with psycopg.connect(database_url) as connection:
            connection.execute(
                "update chores set done_at = now(), ended_at = now(), held_until = now(), done_slot = 1 where name = 'light_dreams'"
            )

    ending = threading.Timer(2.0, end)
    ending.start()
    result = run("chores", "run", "light_dreams")
    ending.join()
    assert result.exit_code == 0
    assert "is being done by worker bali-1 (42)" in result.stderr
    assert result.stdout.startswith("light_dreams is done, by worker bali-1 (42), in ")


# --- dreams


async def know(environ: dict[str, str], file: Path | None, *texts: str) -> str:
    """Let Hermes know these facts of a user; return the user's id."""
    async with open_hermes(load(environ, file=file), open_tools=open_no_tools) as hermes:
        async with hermes.database.begin() as tx:
            user, _ = await hermes.adapters.people.find_or_create(tx, "bali", Platform.TELEGRAM, "42", state=UserState.ACTIVE)
        learnt = [LearnedFact(text=text, origin=FactOrigin.SAID) for text in texts]
        await hermes.user_memory.writer.save(user.id, learnt, now=datetime.now(UTC))
    return str(user.id)


@pytest.mark.parametrize("depth", ["--deep", "--light"])
def test_without_a_model_no_dream_is_written(run: Run, environ: dict[str, str], database_url: str, depth: str) -> None:
    user = asyncio.run(know(environ, None, *SURFS))
    result = run("dream", "now", "--user", user, depth)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"hermes: there is no model that can dream for {user}")
    assert run("chores", "run", "deep_dreams").stdout.startswith("deep_dreams is done: 0 users")
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from dream_nights").fetchone() == (0,)


async def hermes(environ: dict[str, str], folder: Path, *words: str) -> tuple[int | None, str, str]:
    """Run a command in a process of its own: its code, and what it printed."""
    command = [sys.executable, "-m", "hermes", *words]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **environ}, cwd=folder, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_model_dreams_for_one_user_now(environ: dict[str, str], tmp_path: Path, database_url: str) -> None:
    file = tmp_path / "hermes.toml"
    async with vendors() as fakes:
        file.write_text(
            f'[backends.house]\nkind = "vllm"\nbase_url = "{fakes.vllm.url}"\napi_key = "{fakes.vllm.key}"\n'
            '[models.house]\nbackend = "house"\nid = "fake-8b"\nprices = [{input = 1.0, output = 1.0}]\n'
            '[tiers.free]\nchain = ["house"]\n'
        )
        user = await know(environ, file, *SURFS)
        insights = json.dumps({"insights": [{"text": "Surfing is what they do.", "evidence": [1, 2, 3]}]})
        fakes.vllm.say(insights)
        code, out, err = await hermes(environ, tmp_path, "dream", "now", "--user", "telegram:bali/42", "--dry-run", "--json")
        assert code == 0, err
        shown = json.loads(out)
        assert (shown["id"], shown["depth"], shown["is_stored"]) == (user, "light", False)
        lines = [(line["kind"], line["text"], line["review"]) for line in shown["lines"]]
        assert lines == [("insight", "Surfing is what they do.", "accepted")]
        with psycopg.connect(database_url) as connection:
            assert connection.execute("select count(*) from dream_nights").fetchone() == (0,)
        code, out, err = await hermes(environ, tmp_path, "dream", "now", "--user", user, "--deep")  # the same call: from the cache
        assert (code, "Surfing is what they do." in out) == (0, True), err
        code, out, err = await hermes(environ, tmp_path, "dream", "now", "--user", user, "--deep")
        assert (code, out.split(":")[0]) == (0, "No new line"), err


# --- the probe


def test_the_probe_knows_a_fresh_beat_from_an_old_one_and_from_none(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "beat"
    missing = run("health", "--beat-file", str(file))
    assert (missing.exit_code, len(missing.stderr.splitlines())) == (1, 1)
    file.touch()
    assert (run("health", "--beat-file", str(file)).exit_code, run("health", "--beat-file", str(file)).output) == (0, "")
    os.utime(file, (time.time() - 20, time.time() - 20))
    old = run("health", "--beat-file", str(file))
    assert old.exit_code == 1
    assert re.fullmatch(r"hermes: the last beat is 2\d s old: the process is blocked, stopped or silent\n", old.stderr)
    assert run("health", "--beat-file", str(file), "--max-age-s", "30").exit_code == 0


def test_the_probe_asks_a_web_process(run: Run) -> None:
    class Web(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/ready" else 503)
            self.end_headers()
            self.wfile.write(b'{"status": "x"}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        assert run("health", "--url", f"{base}/ready").exit_code == 0
        refused = run("health", "--url", f"{base}/sick")
        server.shutdown()
    assert (refused.exit_code, refused.stderr) == (1, f'hermes: {base}/sick answered 503: {{"status": "x"}}\n')
    assert run("health", "--url", f"{base}/ready").exit_code == 1


@pytest.mark.parametrize("words", [(), ("--url", "file:///etc/passwd"), ("--url", "http://h/ready", "--beat-file", "f")])
def test_a_probe_of_nothing_is_one_line_and_code_2(run: Run, words: tuple[str, ...]) -> None:
    result = run("health", *words)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
