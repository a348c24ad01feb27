"""`hermes chat` as a user types it: a process of its own, a real terminal, real stores, and a server elsewhere."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from hermes.cli.chat import strip_control_characters
from hermes.ports.processes import ProcessBeat, ProcessRole
from hermes.stores.postgres.database import execute
from tests.flows.service import Service, running
from tests.preloaded import preloaded_hermes

PATIENCE_S = 60
SCRIPT = """
otherwise = "You said {user}"

[[rule]]
when = "^slow"
say = "At last."
delay_s = 2

[[rule]]
when = "^orders"
say = "Look: \\u001b]0;mine\\u0007here"
"""


class Ended(NamedTuple):
    """How the command ended, and what it said."""

    code: int
    output: str
    complaints: str


@dataclass(frozen=True)
class Terminal:
    """Where somebody types `hermes chat …`."""

    folder: Path
    environ: Mapping[str, str]

    def run(self, *words: str, typed: bytes | str = b"", **variables: str) -> Ended:
        """Run it to its end, with this on standard input."""
        given = typed.encode() if isinstance(typed, str) else typed
        done = subprocess.run(
            [*preloaded_hermes(), "chat", *words],
            env={**self.environ, **variables},
            cwd=self.folder,
            input=given,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def watched(self, *words: str) -> Iterator["Watched"]:
        """Run it in a terminal, as long as the block lasts."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(self.command(*words), env=self.environ, cwd=self.folder, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        os.set_blocking(ours, False)
        try:
            yield Watched(process, ours)
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    @staticmethod
    def command(*words: str) -> list[str]:
        return [sys.executable, "-m", "hermes", "chat", *words]


@dataclass
class Watched:
    """A chat in a terminal: what is on its screen since one last looked, and hands to type with."""

    process: "subprocess.Popen[bytes]"
    screen: int

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def until(self, text: str) -> str:
        """What appears, up to and with this text."""
        seen, deadline = b"", time.monotonic() + PATIENCE_S
        while text not in (shown := seen.decode(errors="replace")):
            assert time.monotonic() < deadline, f"{text!r} does not come: {shown!r}"
            try:
                seen += os.read(self.screen, 1)
            except BlockingIOError:
                time.sleep(0.01)
        return shown

    def has_ended(self) -> bool:
        """Whether the chat ends within five seconds."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        return self.process.returncode is not None

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def terminal(database_url: str, redis_url: str, tmp_path: Path) -> Terminal:
    """A terminal on stores of this test's own, where a short script answers."""
    (tmp_path / "short.toml").write_text(SCRIPT, encoding="utf-8")
    stores = {"HERMES_HOME": str(tmp_path / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    return Terminal(tmp_path, {**plain, **stores, "HERMES_LLM_SCRIPT": str(tmp_path / "short.toml"), "TERM": "xterm", "COLUMNS": "120"})


def rows(database_url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database_url) as connection:
        return connection.execute(query.encode()).fetchall()


# --- without anybody watching


def test_one_question_is_answered_on_stores_that_start_by_themselves() -> None:
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:  # short, because a socket's path must be short
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        done = Terminal(Path(folder), {**plain, "HERMES_HOME": f"{folder}/home"}).run("What can you do?")
    assert (done.code, done.complaints) == (0, "")
    assert done.output.strip()


def test_piped_lines_are_answered_one_by_one_and_nothing_else_is_said(terminal: Terminal) -> None:
    done = terminal.run(typed="one\n\n  two \n")
    assert done == Ended(0, "You said one\nYou said two\n", "")


def test_json_is_one_object_for_each_answer(terminal: Terminal) -> None:
    done = terminal.run("--json", typed="one\ntwo\n")
    first, second = (json.loads(line) for line in done.output.splitlines())
    assert (done.code, done.complaints, first["text"], second["text"]) == (0, "", "You said one", "You said two")
    assert set(first) == {"turn_id", "text", "tokens_in", "tokens_out", "cost_usd", "tool_calls_made", "backend", "cache_hit", "saved_usd"}
    assert (first["backend"], first["tokens_in"] > 0, first["turn_id"] != second["turn_id"]) == ("scripted", True, True)


def test_a_person_stays_themselves_and_a_new_conversation_begins_where_it_is_asked_for(terminal: Terminal, database_url: str) -> None:
    terminal.run("one", "--user", "ada")
    terminal.run("--user", "ada", typed="two\n/new\nthree\n")
    terminal.run("four", "--user", "ada", "--new")
    terminal.run("five", "--user", "bob")
    assert rows(database_url, "select account_id, platform, sender_id from user_channels order by sender_id") == [
        ("terminal", "rest", "ada"),
        ("terminal", "rest", "bob"),
    ]
    channels = [(channel.partition("/")[0], count) for channel, count in rows(database_url, CHANNELS)]
    assert channels == [("ada", 2), ("ada", 1), ("ada", 1), ("bob", 1)]


CHANNELS = """
select c.channel_id, count(*) from inbox i join conversations c on c.id = i.conversation_id
group by c.id, c.channel_id, c.created_at order by c.created_at
"""


def test_the_process_of_a_chat_is_known_as_the_worker_of_its_turns(terminal: Terminal, database_url: str) -> None:
    assert terminal.run("hello").code == 0
    with psycopg.connect(database_url) as connection:
        found = connection.execute("select role, stopped_at is not null from runs left join processes on processes.id = worker").fetchall()
    assert found == [("command", True)]


def test_why_says_how_the_last_answer_came_about(terminal: Terminal) -> None:
    done = terminal.run(typed="/why\none\n/why\n")
    nothing, _, why = done.output.splitlines()
    told = json.loads(why)
    assert (done.code, json.loads(nothing)) == (0, {})
    assert (told["llm_backend"], told["outcome"], told["tools"], told["took_ms"] > 0) == ("scripted", "answered", [], True)


def test_whoever_reads_no_more_ends_it_without_a_complaint(terminal: Terminal) -> None:
    command = subprocess.list2cmdline(terminal.command())
    done = subprocess.run(
        ["/bin/sh", "-c", f"printf 'one\\ntwo\\nthree\\n' | {command} | head -1"],
        env=terminal.environ,
        cwd=terminal.folder,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"You said one\n", b"")


@pytest.mark.parametrize(
    ("words", "typed", "complaint"),
    [
        (["--user", ""], b"", "--user '' is not a name; expected up to 128 characters, no control characters"),
        (["--user", "a\x1bb"], b"", "--user 'a\\x1bb' is not a name; expected up to 128 characters, no control characters"),
        (["  "], b"", 'there is no question; try: hermes chat "What can you do?"'),
        (["--url", "http://x"], b"", "--url and --key go together; `hermes keys create` makes a key on the server's machine"),
        (["--url", "x", "--key", "hk_x"], b"", "--url 'x' is not an address; expected one such as https://hermes.example.com"),
        ([], b"x" * 100_001, "a message has at most 100,000 characters"),
        ([], b"\xff\n", "the message is not UTF-8 text"),
    ],
    ids=["no_name", "strange_name", "no_question", "no_key", "no_address", "too_long", "no_text"],
)
def test_bad_input_is_one_line_and_code_2(terminal: Terminal, words: list[str], typed: bytes, complaint: str) -> None:
    assert terminal.run(*words, typed=typed) == Ended(2, "", f"hermes: {complaint}\n")


def test_without_a_database_it_is_one_line_and_code_1(terminal: Terminal) -> None:
    done = terminal.run("hi", HERMES_DATABASE_URL="postgresql:///x?host=/nowhere", HERMES_DATABASE_CONNECT_TIMEOUT_S="1")
    assert (done.code, done.output, done.complaints.count("\n")) == (1, "", 1)
    assert done.complaints.startswith("hermes: ")


# --- with somebody in front of it


def test_a_chat_in_a_terminal(terminal: Terminal, database_url: str) -> None:
    with terminal.watched("--user", "ada") as chat:
        assert "You are ada. /new begins" in chat.until("> ")
        chat.type("hello\n")
        assert "You said hello" in chat.until("> ")
        chat.type("/why\n")
        why = chat.until("> ")
        assert [name for name in ("backend", "tokens", "cost", "tools", "took", "turn") if name not in why] == []
        assert "scripted" in why
        chat.type("/new\n")
        assert "A new conversation." in chat.until("> ")
        chat.type("/what\n")
        assert "/quit or Ctrl-D ends the chat." in chat.until("> ")
        chat.type("orders\n")
        shown = chat.until("> ")
        assert "Look: ]0;minehere" in shown
        chat.type("\x04")
        assert chat.ended() == 0
    assert rows(database_url, "select count(*) from conversations") == [(2,)]


def test_ctrl_c_stops_waiting_and_not_the_answer_and_twice_it_ends(terminal: Terminal, database_url: str) -> None:
    with terminal.watched() as chat:
        chat.until("> ")
        chat.type("slow\n")
        chat.until("Ctrl-C stops waiting")
        eventually(lambda: rows(database_url, "select count(*) from inbox") == [(1,)])
        chat.interrupt()
        assert "Ctrl-C again ends the chat." in chat.until("> ")
        eventually(lambda: rows(database_url, "select count(*) from outbox") == [(1,)])
        chat.type("still there?\n")
        assert "You said still there?" in chat.until("> ")
        time.sleep(0.5)  # a signal between the prompt and the wait for input stays pending in CPython's readline until the next one
        chat.interrupt()
        assert "Ctrl-C again ends the chat." in chat.until("> ")
        eventually(lambda: chat.interrupt() or chat.has_ended())
        assert chat.ended() == 0


def eventually(is_so: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_quit_ends(terminal: Terminal) -> None:
    with terminal.watched() as chat:
        chat.until("> ")
        chat.type("/quit\n")
        assert chat.ended() == 0


# --- among others


async def test_a_chat_answers_what_was_asked_in_it_and_leaves_others_messages_to_others(
    database_url: str, redis_url: str, terminal: Terminal
) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        waiting = await service.post("/v1/messages", {"text": "find me a bar"}, {**await service.key(), "Prefer": "respond-async"})
        master = (service.hermes.settings.home or Path()) / "master.key"
        keys = {"HERMES_MASTER_KEYS": master.read_text(encoding="ascii")}
        done = await asyncio.to_thread(terminal.run, "--user", "ada", typed="I am vegan\nslow\n", **keys)
    assert (waiting.status, done) == (202, Ended(0, "You said I am vegan\nAt last.\n", ""))
    states = rows(database_url, "select account_id, state, attempts from inbox order by received_at")
    assert states == [("shop", "waiting", 0), ("terminal", "done", 1), ("terminal", "done", 1)]
    jobs = rows(database_url, "select queue_name, args ->> 'id' from procrastinate_jobs where status = 'todo'")
    assert jobs == [("turns", waiting.body["turn_id"])], "what was asked in the chat is nobody else's to do"
    assert rows(database_url, "select key, u.sender_id from user_memory join user_channels u using (user_id)") == [("diet", "ada")]


async def test_beside_a_worker_each_answers_its_own(database_url: str, redis_url: str, terminal: Terminal) -> None:
    async with running(database_url, redis_url) as service:
        master = (service.hermes.settings.home or Path()) / "master.key"
        keys = {"HERMES_MASTER_KEYS": master.read_text(encoding="ascii")}
        done = await asyncio.to_thread(terminal.run, "hello", **keys)
        theirs = await service.post("/v1/messages", {"text": "hello"}, await service.key())
        asked = list(service.thinker.asked)
    assert (done.output, theirs.body["text"], asked) == ("You said hello\n", "hello", ["hello"])


# --- with the Hermes that runs on this machine


def at(service: Service, home: Path) -> dict[str, str]:
    """The variables under which `hermes chat` finds a service: its port, its home and its master key."""
    master = (service.hermes.settings.home or Path()) / "master.key"
    port = str(urlsplit(service.url).port)
    return {"HERMES_WEB_PORT": port, "HERMES_HOME": str(home), "HERMES_MASTER_KEYS": master.read_text(encoding="ascii")}


async def note_web_process(service: Service) -> None:
    """Write the row of a web process, as `hermes serve` does; it counts as live for as long as the test takes."""
    beat = ProcessBeat(process_id=uuid4(), role=ProcessRole.SERVE, host="here", pid=1, version="1")
    async with service.database.begin() as tx:
        await service.hermes.adapters.processes.beat(tx, beat)
        await execute(tx, b"update processes set beat_at = now() + interval '1 hour' where role = 'serve'")


async def wait_until_refused(service: Service, secret: str) -> None:
    """A server notices within a few seconds that a key is revoked."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if (await service.get("/v1/news", {"Authorization": f"Bearer {secret}"})).status == 401:
                return
            await asyncio.sleep(0.05)


@contextmanager
def stranger(status: int | None) -> Iterator[str]:
    """A program at a port that is no Hermes of ours: it answers everything with this status, or with None never. Yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status is None:
                is_over.wait(PATIENCE_S)
            else:
                self.send_error(status)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its signature
            pass

    is_over = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield str(server.server_port)
        finally:
            is_over.set()
            server.shutdown()


async def test_no_key_is_made_for_another_program_at_our_port(
    database_url: str, redis_url: str, terminal: Terminal, tmp_path: Path
) -> None:
    """Neither while no web process of ours runs, nor while ours is too slow to say whether it takes the key that we have."""
    (home := tmp_path / "home").mkdir()
    async with running(database_url, redis_url) as service:
        there = at(service, home)
        with stranger(401) as port:
            first = await asyncio.to_thread(terminal.run, "one", "--user", "ada", **{**there, "HERMES_WEB_PORT": port})
        assert ((home / "chat.key").exists(), rows(database_url, "select count(*) from api_keys")) == (False, [(0,)])
        await note_web_process(service)
        (home / "chat.key").write_text("hk_mine", encoding="ascii")
        with stranger(None) as port:
            second = await asyncio.to_thread(terminal.run, "two", "--user", "ada", **{**there, "HERMES_WEB_PORT": port})
    assert ((home / "chat.key").read_text(encoding="ascii"), rows(database_url, "select count(*) from api_keys")) == ("hk_mine", [(0,)])
    assert [(ended.code, ended.output) for ended in (first, second)] == [(0, "You said one\n"), (0, "You said two\n")]


async def test_a_hermes_that_runs_here_answers_with_a_key_that_only_the_owner_reads(
    database_url: str, redis_url: str, terminal: Terminal, tmp_path: Path
) -> None:
    (home := tmp_path / "home").mkdir()
    keys = "select name, account_id, scopes, revoked_at is null from api_keys"
    async with running(database_url, redis_url, answer_timeout_s=20.0) as service:
        there = at(service, home)
        await note_web_process(service)
        first = await asyncio.to_thread(terminal.run, "one", "--user", "ada", **there)
        secret = (home / "chat.key").read_text(encoding="ascii")
        again = await asyncio.to_thread(terminal.run, "two", "--user", "ada", **there)
        assert (rows(database_url, keys), (home / "chat.key").stat().st_mode & 0o777) == (
            [("hermes chat", "terminal", ["messages"], True)],
            0o600,
        )
        rows(database_url, "update api_keys set revoked_at = now() returning 1")
        await wait_until_refused(service, secret)
        revoked = await asyncio.to_thread(terminal.run, "three", "--user", "ada", **there)
        here = await asyncio.to_thread(terminal.run, "four", "--user", "ada", "--here", **there)
        asked = list(service.thinker.asked)
    assert [ended.code for ended in (first, again, revoked, here)] == [0, 0, 0, 0]
    assert (asked, here.output) == (["one", "two", "three"], "You said four\n"), "only --here answers in the chat's own process"
    assert (home / "chat.key").read_text(encoding="ascii") != secret, "a revoked key is replaced"
    assert rows(database_url, "select distinct account_id, sender_id from user_channels") == [("terminal", "ada")]
    assert rows(database_url, "select count(*) from conversations") == [(1,)], "it is one conversation, whichever process answers"


async def test_another_hermes_at_our_port_is_not_talked_to(database_url: str, redis_url: str, terminal: Terminal, tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    (home / "chat.key").write_text("hk_of-another-hermes", encoding="ascii")
    async with running(database_url, redis_url) as service:
        elsewhere = {**at(service, home), "HERMES_DATABASE_URL": ""}  # its own embedded stores
        done = await asyncio.to_thread(terminal.run, "hello", **elsewhere)
        assert service.thinker.asked == []
    assert (done.code, done.output) == (0, "You said hello\n")


# --- with a Hermes elsewhere


async def test_a_server_is_talked_to_over_http(database_url: str, redis_url: str, terminal: Terminal) -> None:
    async with running(database_url, redis_url, answer_timeout_s=20.0) as service:
        _, _, key = (await service.key("shop"))["Authorization"].partition(" ")
        there = ("--url", service.url + "/", "--key", key, "--user", "ada")
        one = await asyncio.to_thread(terminal.run, "hello", *there)
        two = await asyncio.to_thread(terminal.run, *there, "--json", typed="one\n/new\ntwo\n")
        wrong = await asyncio.to_thread(terminal.run, "hello", "--url", service.url, "--key", "hk_nobody-has-this-one")
        assert await service.turns() == 3
    assert (one.code, one.output != "\n", one.complaints) == (0, True, "")
    assert [set(json.loads(line)) >= {"turn_id", "text", "backend"} for line in two.output.splitlines()] == [True, True]
    assert (wrong.code, wrong.output, wrong.complaints.count("\n")) == (2, "", 1)
    assert wrong.complaints.startswith(f"hermes: {service.url} refuses: ")
    assert not (terminal.folder / "home").exists(), "no Hermes was started here"
    assert rows(database_url, "select account_id, sender_id from user_channels") == [("shop", "ada")]
    assert rows(database_url, "select count(*) from conversations") == [(2,)]


async def test_an_answer_that_takes_longer_than_the_server_waits_is_fetched_later(
    database_url: str, redis_url: str, terminal: Terminal
) -> None:
    async with running(database_url, redis_url, answer_timeout_s=0.1) as service:
        service.thinker.may_answer.clear()
        _, _, key = (await service.key())["Authorization"].partition(" ")
        asking = asyncio.create_task(asyncio.to_thread(terminal.run, "hello", "--url", service.url, "--key", key))
        while not service.thinker.asked:  # noqa: ASYNC110  # it is asked in another process
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        service.thinker.may_answer.set()
        done = await asking
    assert (done.code, done.output != "\n", done.complaints) == (0, True, "")


def test_a_server_that_is_not_there_is_one_line_and_code_1(terminal: Terminal) -> None:
    done = terminal.run("hello", "--url", "http://127.0.0.1:1", "--key", "hk_x")
    assert done == Ended(1, "", "hermes: cannot reach http://127.0.0.1:1: Connection refused\n")


# --- what is shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("two\nlines\tand a tab", "two\nlines\tand a tab"), ("\x1b[2Jgone\x07\x9b", "[2Jgone"), ("👩\u200d🍳 שלום", "👩\u200d🍳 שלום")],
)
def test_an_answer_gives_the_terminal_no_orders(text: str, shown: str) -> None:
    assert strip_control_characters(text) == shown
