"""`hermes setup` as a user runs it: in a terminal, from a pipe, and without questions; with strict vendors and a Telegram that checks."""

import asyncio
import json
import os
import pty
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes.channels.fakes import open_platforms
from hermes.stores.seal import new_master_key
from tests.fakes.vendors import vendors
from tests.flows.command import Ended
from tests.preloaded import preloaded_hermes

PATIENCE_S = 60
IN_TERMINAL = "import os, sys; os.login_tty(0); os.execv(sys.executable, [sys.executable, '-m', 'hermes', *sys.argv[1:]])"
"""Makes the standard input the terminal of the process, so that Ctrl-C reaches it, and becomes the command."""
TIERS = ("free", "starter", "pro", "venue-growth")


@dataclass(frozen=True)
class Screen:
    """A real terminal in which a command runs."""

    process: "subprocess.Popen[bytes]"
    side: int

    def type(self, text: str) -> None:
        os.write(self.side, text.encode())

    def until(self, text: str) -> str:
        seen, deadline = b"", time.monotonic() + PATIENCE_S
        while text not in (shown := seen.decode(errors="replace")):
            assert time.monotonic() < deadline, f"{text!r} does not come: {shown!r}"
            if select.select([self.side], [], [], 1)[0]:
                seen += os.read(self.side, 1)
        return shown

    def rest(self, press: str = "") -> str:
        """All that still comes until the command has ended; `press` is typed again after each silent second."""
        seen, deadline = b"", time.monotonic() + PATIENCE_S
        while True:
            if not select.select([self.side], [], [], 1)[0]:
                assert time.monotonic() < deadline, f"the command does not end: {seen.decode(errors='replace')!r}"
                self.type(press)
                continue
            try:
                piece = os.read(self.side, 4096)
            except OSError:  # Linux says so when the other side is closed
                return seen.decode(errors="replace")
            if not piece:
                return seen.decode(errors="replace")
            seen += piece

    def interrupt(self) -> str:
        """Press Ctrl-C as a user does, again if nothing happens. Return all that still comes.

        A signal between the prompt and the wait for input stays pending in CPython's readline until the next key."""
        self.type("\x03")
        return self.rest("\x03")


@dataclass(frozen=True)
class Place:
    """A folder in which a user runs commands, with variables of their own."""

    folder: Path
    environ: Mapping[str, str]

    def run(self, *words: str, typed: str = "", **variables: str) -> Ended:
        done = subprocess.run(
            [*preloaded_hermes(), *words],
            env={**self.environ, **variables},
            cwd=self.folder,
            input=typed.encode(),
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def setup(self, *words: str, typed: str = "", **variables: str) -> Ended:
        """Run `hermes setup` beside this loop, in which the fakes answer."""
        return await asyncio.to_thread(self.run, "setup", *words, typed=typed, **variables)

    @contextmanager
    def watched(self, *words: str) -> Iterator[Screen]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, "setup", *words],
            env={**self.environ, "TERM": "xterm", "COLUMNS": "200"},
            cwd=self.folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        try:
            yield Screen(process, ours)
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    @property
    def table(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "hermes.toml").read_text(encoding="utf-8"))

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name != "home")


@pytest.fixture
def place(tmp_path: Path, unused_port: int) -> Place:
    (folder := tmp_path / "work").mkdir()
    (folder / "hermes.toml").write_text(f"[web]\nport = {unused_port}\n", encoding="utf-8")
    return Place(folder, {**plain_environ(), "HERMES_HOME": str(tmp_path / "home")})


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def plain_environ() -> dict[str, str]:
    ours = ("HERMES_", "ANTHROPIC_", "OPENAI_", "TELEGRAM_", "LLM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


# --- without questions


def test_without_anything_it_writes_a_file_that_starts(tmp_path: Path) -> None:
    place = Place(tmp_path, {**plain_environ(), "HERMES_HOME": str(tmp_path / "home")})
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    done = place.run("setup", "--yes", "--json", "--port", str(port))
    said = json.loads(done.output)
    assert (done.code, said["provider"], said["port"], said["backup"], said["next"]) == (0, "none", port, None, ["hermes up"])
    assert place.table == {"web": {"port": port}}
    assert stat.S_IMODE((tmp_path / "hermes.toml").stat().st_mode) == 0o600
    again = place.run("setup", "--yes", "--json")
    assert (json.loads(again.output)["is_changed"], place.files) == (False, ["hermes.toml"])


async def test_the_key_of_a_vendor_is_tested_and_written_for_its_owner_alone(place: Place) -> None:
    before = (place.folder / "hermes.toml").read_text()
    async with vendors() as v:
        words = ("--yes", "--json", "--provider", "anthropic", "--base-url", v.anthropic.url)
        wrong = await place.setup(*words, "--model-key", "sk-ant-wrong")
        assert (wrong.code, wrong.output, place.files) == (2, "", ["hermes.toml"])
        assert wrong.complaints.splitlines()[-1].startswith("hermes: --model-key: anthropic: ")
        assert "sk-ant-wrong" not in wrong.complaints
        none = await place.setup(*words)
        assert (none.code, none.complaints) == (2, "hermes: --model-key: a key is needed; Ctrl-C stops the setup\n")
        right = await place.setup(*words, "--model-key", v.anthropic.key)
        assert v.anthropic.requests == [], "no model was called"
    assert (right.code, json.loads(right.output)["provider"]) == (0, "anthropic")
    assert place.table["backends"] == {"anthropic": {"base_url": v.anthropic.url, "api_key": v.anthropic.key}}
    assert "tiers" not in place.table
    assert v.anthropic.key not in right.output + right.complaints
    assert (place.folder / "hermes.toml.bak").read_text() == before


async def test_a_key_in_a_variable_stays_there(place: Place) -> None:
    async with vendors() as v:
        keys = {"ANTHROPIC_API_KEY": v.anthropic.key, "ANTHROPIC_BASE_URL": v.anthropic.url}
        done = await place.setup("--yes", "--provider", "anthropic", **keys)
        assert (done.code, "The key comes from ANTHROPIC_API_KEY; it is not written" in done.complaints) == (0, True)
        assert "backends" not in place.table
        own = {"HERMES_BACKENDS_ANTHROPIC_API_KEY": v.anthropic.key, "HERMES_BACKENDS_ANTHROPIC_BASE_URL": v.anthropic.url}
        both = await place.setup("--yes", "--provider", "anthropic", "--model-key", "x", **own)
        said = "hermes: HERMES_BACKENDS_ANTHROPIC_API_KEY is set, and wins over the file; remove it, or leave out --model-key\n"
        assert (both.code, both.complaints) == (2, said)
        wrong = await place.setup("--yes", "--provider", "anthropic", **{**keys, "ANTHROPIC_API_KEY": "sk-ant-no"})
        assert (wrong.code, "sk-ant-no" in wrong.complaints) == (2, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--provider", "anthropik"), "--provider: there is no provider 'anthropik'; expected one of keep, anthropic,"),
        (
            ("--provider", "server", "--base-url", "gpu:8000"),
            "--base-url: this is no address; expected one such as http://127.0.0.1:8000/v1",
        ),
        (("--provider", "server", "--base-url", "http://127.0.0.1:1"), "--base-url: plain: cannot connect (Connection refused);"),
        (("--provider", "openai", "--model-key", "ключ"), "--model-key: a key has no line breaks and no letters beyond ASCII"),
        (("--public-url", "h.example"), "--public-url: this is no address; expected one such as https://hermes.example.com"),
        (("--public-url", "https://no-such-name.invalid"), "--public-url: no-such-name.invalid has no address in the DNS;"),
        (("--telegram-token", "hello"), "--telegram-token: this is not the token of a bot"),
        (("--port", "70000"), "--port: '70000' is no port; expected a whole number from 0 to 65535"),
        (("--production",), "--model-key: a key is needed"),
        (("--production", "--provider", "none"), "--provider: production needs a model; choose one of"),
    ],
)
def test_a_wrong_answer_is_one_line_and_nothing_is_written(place: Place, words: tuple[str, ...], said: str) -> None:
    before = (place.folder / "hermes.toml").read_text()
    done = place.run("setup", "--yes", *words)
    assert (done.code, done.output) == (2, "")
    assert done.complaints.splitlines()[-1].startswith(f"hermes: {said}")
    assert (place.files, (place.folder / "hermes.toml").read_text()) == (["hermes.toml"], before)


def test_a_taken_port_is_named_with_the_next_free_one(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = place.run("setup", "--yes", "--port", str(port))
        elsewhere = place.run("setup", "--yes", "--port", "1", HERMES_WEB_PORT=str(port))
    assert done.code == 2
    assert f"--port: 127.0.0.1:{port}: another program listens there; port " in done.complaints
    assert (elsewhere.code, "HERMES_WEB_PORT is set, and wins over the file" in elsewhere.complaints) == (2, True)


def test_a_broken_file_is_named_and_stays(place: Place) -> None:
    (place.folder / "hermes.toml").write_text("[web]\nprot = 1\n", encoding="utf-8")
    done = place.run("setup", "--yes")
    assert (done.code, done.complaints) == (2, "hermes: hermes.toml: unknown setting web.prot; did you mean web.port?\n")
    assert place.files == ["hermes.toml"]


# --- servers


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama_cpp", "openai", "ollama"])
async def test_a_server_is_found_out_with_its_model(place: Place, name: str) -> None:
    async with vendors() as v:
        vendor = getattr(v, name)
        words = ("--provider", name if name in {"openai", "ollama"} else "server", "--base-url", vendor.url, "--model-key", vendor.key)
        more = ("--model", vendor.models[-1], "--prices", "0.25,2") if name in {"openai", "ollama"} else ()
        done = await place.setup("--yes", "--json", *words, *more)
        assert done.code == 0, done.complaints
        assert place.table["backends"] == {name: {"base_url": vendor.url, "api_key": vendor.key}}
        again = await place.setup("--yes", "--json")
        assert (again.code, json.loads(again.output)["is_changed"]) == (0, False)
    model = "ollama" if name == "ollama" else vendor.models[-1]
    chains = {tier: ["claude-haiku", "ollama"] if (name, tier) == ("ollama", "starter") else [model] for tier in TIERS}
    assert {tier: place.table["tiers"].get(tier, {}).get("chain", ["claude-haiku", "ollama"]) for tier in TIERS} == chains
    price = {"input": 0.25, "output": 2.0} if more else {"input": 0.0, "output": 0.0}
    assert place.table["models"][model]["prices"] == [price]


async def test_a_wrong_model_is_refused_with_those_that_there_are(place: Place) -> None:
    async with vendors() as v:
        words = ("--provider", "vllm", "--base-url", v.vllm.url, "--model-key", v.vllm.key)
        done = await place.setup("--yes", *words, "--model", "fake-9b")
    assert (done.code, done.complaints.splitlines()[-1]) == (2, "hermes: --model: the server has no model fake-9b; it has fake-8b")


async def test_the_name_of_a_model_cannot_control_the_terminal(place: Place) -> None:
    async with vendors() as v:
        v.vllm.models = ["a\x1b]0;mine\x07", "[bold]b"]
        words = ("--provider", "vllm", "--base-url", v.vllm.url, "--model-key", v.vllm.key)
        done = await place.setup(*words, typed="[bold]b\n\n\n\n\n")
    assert (done.code, "\x1b" in done.complaints, "[bold]b" in done.complaints) == (0, False, True)
    assert list(place.table["models"]) == ["[bold]b"]


def test_an_answer_that_is_no_text_is_one_line(place: Place) -> None:
    command = [*preloaded_hermes(), "setup"]
    done = subprocess.run(
        command, env=place.environ, cwd=place.folder, input=b"\xff\xfe\n", capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr.decode().splitlines()[-1][:7], place.files) == (2, "hermes:", ["hermes.toml"])


async def test_another_choice_later_replaces_the_chains_and_keeps_the_rest(place: Place) -> None:
    own = '[web]\nport = 0\n\n[log]\nlevel = "debug"\n\n[tiers.guests]\nchain = ["claude-haiku"]\nday_tokens = 5\n'
    (place.folder / "hermes.toml").write_text(own, encoding="utf-8")
    async with vendors() as v:
        first = await place.setup("--yes", "--provider", "vllm", "--base-url", v.vllm.url, "--model-key", v.vllm.key)
        assert (first.code, place.table["tiers"]["guests"]) == (0, {"chain": ["fake-8b"], "day_tokens": 5})
        keys = {"ANTHROPIC_API_KEY": v.anthropic.key, "ANTHROPIC_BASE_URL": v.anthropic.url}
        second = await place.setup("--yes", "--provider", "anthropic", **keys)
        assert second.code == 0, second.complaints
        assert place.table["tiers"] == {"guests": {"chain": ["claude-haiku"], "day_tokens": 5}}
        third = await place.setup("--yes", "--provider", "none", **keys)
    assert third.code == 0, third.complaints
    assert {name: tier["chain"] for name, tier in place.table["tiers"].items()} == {name: ["scripted"] for name in (*TIERS, "guests")}
    assert place.table["log"] == {"level": "debug"}
    assert place.run("doctor", "--json", ANTHROPIC_API_KEY="").code == 0


# --- production


async def test_production_has_a_cap_tested_stores_and_a_master_key_that_is_shown_once(
    place: Place, database_url: str, redis_url: str
) -> None:
    async with vendors() as v:
        keys = {"ANTHROPIC_API_KEY": v.anthropic.key, "ANTHROPIC_BASE_URL": v.anthropic.url}
        words = ("--yes", "--json", "--production", "--provider", "anthropic", "--public-url", "none")
        away = await place.setup(*words, "--database-url", "postgresql://u:s3cret@127.0.0.1:1/x", **keys)
        assert (away.code, "s3cret" in away.complaints, place.files) == (2, False, ["hermes.toml"])
        malformed = await place.setup(*words, "--redis-url", "localhost:6379", **keys)
        assert (malformed.code, "--redis-url: HERMES_REDIS_URL is no Redis address" in malformed.complaints) == (2, True)
        done = await place.setup(*words, "--database-url", database_url, "--redis-url", redis_url, **keys)
        said = json.loads(done.output)
        assert (done.code, said["environment"], len(said["master_key"])) == (0, "production", 44)
        table = place.table
        assert (table["environment"], table["database_url"], table["llm"]) == (
            "production",
            database_url,
            {"global_daily_budget_usd": 20.0},
        )
        assert said["master_key"] not in (place.folder / "hermes.toml").read_text()
        assert said["next"][0].startswith("export HERMES_MASTER_KEYS=")
        kept = await place.setup("--yes", "--json", HERMES_MASTER_KEYS=new_master_key(), **keys)
        assert (kept.code, json.loads(kept.output)["master_key"]) == (0, None)


# --- the channel


async def test_a_bot_is_tested_and_stored_and_a_wrong_token_is_not(place: Place, database_url: str, redis_url: str) -> None:
    stores = {"HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url, "HERMES_MASTER_KEYS": new_master_key()}
    async with open_platforms() as platforms:
        variables = {**stores, "TELEGRAM_BASE_URL": platforms.url}
        wrong = await place.setup("--yes", "--telegram-token", f"{'1' * 9}:{'A' * 35}", **variables)
        assert (wrong.code, wrong.complaints.splitlines()[-1]) == (
            2,
            "hermes: --telegram-token: Telegram does not know this token; copy it again from @BotFather",
        )
        done = await place.setup("--yes", "--json", TELEGRAM_TOKEN=platforms.telegram.token, **variables)
        assert (done.code, json.loads(done.output)["has_bot"]) == (0, True), done.complaints
    listed = json.loads((await asyncio.to_thread(place.run, "channels", "list", "--json", **stores)).output)
    assert listed == [{"platform": "telegram", "account": "telegram", "is_polled": True, "newcomers": "active"}]
    assert platforms.telegram.token not in (place.folder / "hermes.toml").read_text() + done.output + done.complaints


# --- questions


def test_piped_lines_answer_and_an_early_end_writes_nothing(place: Place) -> None:
    before = (place.folder / "hermes.toml").read_text()
    early = place.run("setup", typed="none\n")
    assert (early.code, early.complaints.splitlines()[-1]) == (
        2,
        "hermes: the input ended at a question; answer it with --port, or take the defaults with --yes. Nothing was written",
    )
    refused = place.run("setup", typed="none\n0\n\nwhatsapp\nno\n")
    assert (refused.code, refused.complaints.splitlines()[-1]) == (1, "hermes: nothing was written")
    assert (place.folder / "hermes.toml").read_text() == before
    done = place.run("setup", "--json", typed="what?\nnone\neighty\n0\n\npigeon\nwhatsapp\nperhaps\ny\n")
    assert (done.code, json.loads(done.output)["next"]) == (0, ["hermes channels add whatsapp --help", "hermes up"])
    assert "there is no provider 'what?'" in done.complaints
    assert "'eighty' is no port" in done.complaints
    assert place.table == {"web": {"port": 0}}


async def test_in_a_terminal_a_wrong_key_is_corrected_and_never_shown(place: Place) -> None:
    async with vendors() as v:

        def converse() -> str:
            with place.watched("--base-url", v.anthropic.url, "--public-url", "none") as screen:
                seen = screen.until("Model [none]: ")
                screen.type("anthropic\n")
                seen += screen.until("API key of Anthropic: ")
                screen.type("sk-ant-wrong\n")
                seen += screen.until("Enter to keep it all the same: ")
                screen.type(f"{v.anthropic.key}\n")
                seen += screen.until("Port of Hermes on this machine ")
                screen.type("\n")
                seen += screen.until("Channel: telegram, whatsapp, instagram, none [none]: ")
                screen.type("\n")
                seen += screen.until("Write it [yes]: ")
                screen.type("\n")
                seen += screen.rest()
                assert screen.process.wait(PATIENCE_S) == 0
                return seen

        seen = await asyncio.to_thread(converse)
    assert ("sk-ant-wrong" in seen, v.anthropic.key in seen) == (False, False)
    assert "backends.anthropic.api_key = ***" in seen
    assert "hermes.toml is written" in seen
    assert place.table["backends"]["anthropic"]["api_key"] == v.anthropic.key


def test_ctrl_c_in_the_middle_leaves_everything_as_it_was(place: Place) -> None:
    before = (place.folder / "hermes.toml").read_text()
    with place.watched() as screen:
        screen.until("Model [none]: ")
        screen.type("none\n")
        screen.until("Port of Hermes on this machine ")
        assert "hermes: stopped; nothing was written" in screen.interrupt()
        assert screen.process.wait(PATIENCE_S) == 130
    with place.watched() as screen:
        screen.until("Model [none]: ")
        screen.type("anthropic\n")
        screen.until("API key of Anthropic: ")
        assert "hermes: stopped; nothing was written" in screen.interrupt()
        assert screen.process.wait(PATIENCE_S) == 130
    assert (place.files, (place.folder / "hermes.toml").read_text()) == (["hermes.toml"], before)


# --- a fresh user


def start_hermes(place: Place) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "hermes", "up"]
    return subprocess.Popen(command, env=place.environ, cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def test_a_fresh_user_sets_up_starts_and_is_answered() -> None:
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:  # short, because a socket's path must be short
        place = Place(Path(folder), {**plain_environ(), "HERMES_HOME": f"{folder}/home"})
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = str(listening.getsockname()[1])
        async with vendors() as v:
            v.vllm.models = hostile = ["org/модель \"8b\" = 'x'"]
            url = v.vllm.url.removesuffix("/v1")
            done = await place.setup(typed=f"server\n{url}\n{v.vllm.key}\n\n{port}\n\n\ny\n")
            assert done.code == 0, done.complaints
            assert f"{v.vllm.url} wants a key" in done.complaints
            assert (list(place.table["models"]), place.table["backends"]["vllm"]["base_url"]) == (hostile, v.vllm.url)
            up = start_hermes(place)
            assert up.stdout is not None
            try:
                ready = await asyncio.to_thread(up.stdout.readline)
                assert ready.startswith(f"Hermes is ready: http://127.0.0.1:{port}/")
                answer = await asyncio.to_thread(place.run, "chat", "hello there")
                assert (answer.code, answer.output) == (0, "ok\n"), answer.complaints
                checked = json.loads((await asyncio.to_thread(place.run, "doctor", "--json")).output)
                assert {"part": "web", "health": "good", "says": f"this Hermes runs at http://127.0.0.1:{port}/", "advice": ""} in checked
                again = await place.setup("--yes", "--json")
                assert (again.code, json.loads(again.output)["is_changed"]) == (0, False), again.complaints
            finally:
                up.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(up.wait, PATIENCE_S) == 0
                up.stdout.close()
