"""`hermes chat`: talk to Hermes in the terminal; to one in this process, or to one that runs elsewhere.

The terminal has the main thread, so that a line can be edited while it is typed, and Ctrl-C is what it is everywhere. Everything else runs
on an event loop in another thread: also while somebody thinks about what to write, an answer under way comes to its end."""

from __future__ import annotations

import getpass
import io
import json
import os
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TextIO
from urllib.parse import urlsplit
from uuid import uuid4

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermes.app import StartRefused
from hermes.cli.chat_loop import Background
from hermes.cli.chat_talks import Talk, Trouble, here, there
from hermes.cli.commands import app
from hermes.cli.errors import complain, fail
from hermes.cli.running import CANNOT_RUN, Config, settings_from, start_log
from hermes.config import LogLevel, Settings
from hermes.ports.errors import NotFound, PortError
from hermes.turn import AgentResponse
from hermes.web.answers import as_json

with suppress(ModuleNotFoundError):  # Windows has none
    import readline  # noqa: F401  # with it, `input` lets a line be edited and has those before it

LONGEST_TEXT, LONGEST_NAME = 100_000, 128
DRAIN_S = 5.0
"""How long the end of a chat waits for answers under way. A worker takes them over then, as soon as one runs."""
INTERRUPTED = 130
PROMPT = "> "
COMMANDS = "/new begins a new conversation, /why says how the last answer came about, /quit or Ctrl-D ends."


@app.command()
def chat(
    question: Annotated[str | None, typer.Argument(help="One question; without it, as many as you like.", show_default=False)] = None,
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Who you are: each user has a memory.", show_default="your login name")
    ] = None,
    is_new: Annotated[bool, typer.Option("--new", help="Begin a new conversation, instead of going on with yours.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print each answer as a JSON object, on one line.")] = False,
    url: Annotated[str | None, typer.Option(help="Talk to the Hermes that answers here, instead of one in this process.")] = None,
    key: Annotated[str | None, typer.Option(help="The API key for --url, hk_…", show_default=False)] = None,
    config: Config = None,
) -> None:
    """Chat in the terminal. What is piped in is answered line by line:  echo "hello" | hermes chat

    Without --url a Hermes in this process answers you, and nobody else, on the stores of `hermes up`: your conversation and your memory are
    there the next time."""
    name = checked_name(user if user is not None else login_name())
    if question is not None:
        checked_text(question)
    opening = opened(url, key, name, config)
    is_watched = question is None and not is_json and is_terminal(sys.stdin) and is_terminal(sys.stdout)
    console = Console(stderr=not is_watched)
    with ended_well(), Background() as background, ExitStack() as stack:
        with console.status("Starting…"):
            talk = stack.enter_context(background.held(opening))
        chatting = Chatting(background, talk, console, name, channel=fresh(name) if is_new else name, is_json=is_json)
        if is_watched:
            chatting.converse()
        elif question is not None:
            chatting.answer(question)
        else:
            chatting.answer_lines()


@dataclass(slots=True)
class Chatting:
    """A chat, from the side of the terminal."""

    background: Background
    talk: Talk
    console: Console
    name: str
    channel: str
    is_json: bool
    last: tuple[AgentResponse, int] | None = None
    """The last answer, and how many milliseconds it took."""

    def answer(self, text: str) -> None:
        """Answer one message on standard output. A failure is the command's."""
        try:
            with self.console.status("Thinking…"):
                response = self._asked(text)
        except Trouble as trouble:
            complain(str(trouble))
            raise typer.Exit(trouble.code) from None
        typer.echo(json.dumps(as_json(response), ensure_ascii=False) if self.is_json else printable(response.text))

    def answer_lines(self) -> None:
        """Answer what comes on standard input, line by line."""
        for line in lines_of_input():
            match text := line.strip():
                case "":
                    continue
                case "/quit":
                    return
                case "/new":
                    self.channel = fresh(self.name)
                case "/why":
                    typer.echo(json.dumps(self._why(), ensure_ascii=False))
                case _:
                    checked_text(text)
                    self.answer(text)

    def converse(self) -> None:
        """Talk with somebody who sits there, until they end it."""
        self.console.print(Text(f"You are {self.name}. {COMMANDS}", style="dim"))
        was_interrupted = False
        while True:
            for text in self.background.do(self.talk.news(self.channel)):
                self._show(text)
            try:
                text = input(PROMPT).strip()
                was_interrupted = False
                if text == "/quit":
                    return
                if text:
                    self._respond(text)
            except EOFError:
                self.console.print()
                return
            except KeyboardInterrupt:
                if was_interrupted:
                    return
                was_interrupted = True
                self.console.print("\n[dim]Ctrl-C again ends. An answer that is under way comes into the conversation all the same.[/]")

    def _respond(self, text: str) -> None:
        try:
            if text == "/new":
                self.channel = fresh(self.name)
                self.console.print("[dim]A new conversation. What is known of you stays.[/]")
            elif text == "/why":
                self.console.print(table_of(self._why()) if self.last else "[dim]There is no answer yet.[/]")
            elif text.startswith("/") and " " not in text:
                self.console.print(f"[dim]{COMMANDS}[/]", highlight=False)
            elif fault := fault_in(text):
                complain(fault)
            else:
                with self.console.status("[dim]Ctrl-C stops waiting[/]"):
                    response = self._asked(text)
                self._show(response.text)
        except Trouble as trouble:
            complain(str(trouble))

    def _asked(self, text: str) -> AgentResponse:
        began = time.monotonic()
        response = self.background.do(self.talk.ask(text, self.channel))
        self.last = response, round((time.monotonic() - began) * 1000)
        return response

    def _why(self) -> Mapping[str, Any]:
        """The last answer's provenance; empty where there is none."""
        if self.last is None:
            return {}
        response, took_ms = self.last
        return {"turn_id": str(response.turn_id), "took_ms": took_ms, **self.background.do(self.talk.why(response))}

    def _show(self, text: str) -> None:
        self.console.print(Text(printable(text)), soft_wrap=True)
        self.console.print()


def table_of(why: Mapping[str, Any]) -> Table:
    """How an answer came about, for somebody who reads it."""
    tools = [f"{tool['name']} ({tool['ms']} ms{', failed' if tool['is_error'] else ''})" for tool in why.get("tools", ())]
    rows = {
        "backend": " ".join(str(why[name]) for name in ("llm_backend", "llm_model") if why.get(name)) or "none",
        "tokens": f"{why.get('tokens_in', 0):,} in, {why.get('tokens_out', 0):,} out",
        "cost": f"{why.get('cost_usd', 0.0):.6f} USD" + (", out of the cache" if why.get("llm_cache_hit") else ""),
        "tools": ", ".join(tools) or str(why.get("tool_calls_made") or "none"),
        "took": f"{why['took_ms']:,} ms",
        "turn": str(why["turn_id"]),
    }
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), Text(printable(value)))
    return table


def opened(url: str | None, key: str | None, name: str, config: Path | None) -> AbstractAsyncContextManager[Talk]:
    """Whom the options mean."""
    if url is None and key is None:
        return here(quiet_settings(config), name)
    if url is None or key is None:
        fail("--url and --key go together; `hermes keys create` makes a key on the server's machine")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        fail(f"--url {url!r} is no address; expected one such as http://127.0.0.1:8080")
    if not key.isascii() or not key.isprintable():
        fail("--key is no API key; expected hk_…")
    return there(url.rstrip("/"), key, name)


def quiet_settings(config: Path | None) -> Settings:
    """The settings, for somebody who does not wait long at the end, and for a log that does not speak into their chat."""
    settings = settings_from(config)
    start_log(replace(settings, log=replace(settings.log, level=LogLevel.ERROR)))
    return replace(settings, work=replace(settings.work, drain_s=min(DRAIN_S, settings.work.drain_s)))


@contextmanager
def ended_well() -> Iterator[None]:
    """Failures are one line and an exit code, as with every command; Ctrl-C ends without a word."""
    try:
        yield
    except (NotFound, StartRefused) as error:
        fail(str(error))
    except BrokenPipeError:  # whoever read our answers has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries once more at its end, and complains
        raise typer.Exit from None
    except (PortError, OSError) as error:
        complain(str(error))
        raise typer.Exit(CANNOT_RUN) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


# --- what somebody typed


def login_name() -> str:
    """The name of whoever is logged in here."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may know its user by number only
        return "me"


def checked_name(name: str) -> str:
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        fail(f"--user {name[:LONGEST_NAME]!r} is no name; expected up to {LONGEST_NAME} characters, none of them a control character")
    return name


def checked_text(text: str) -> None:
    if not text.strip():
        fail('there is no question; try: hermes chat "What can you do?"')
    if fault := fault_in(text):
        fail(fault)


def fault_in(text: str) -> str:
    """Why a message cannot be sent; nothing if it can."""
    if len(text) > LONGEST_TEXT:
        return f"a message has at most {LONGEST_TEXT:,} characters"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "the message is not UTF-8 text"
    return ""


def fresh(name: str) -> str:
    """A channel in which nothing was said yet."""
    return f"{name[: LONGEST_NAME - 9]}/{uuid4().hex[:8]}"


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def lines_of_input() -> Iterator[str]:
    """What is piped in, as it comes. Bytes that are no text stay in their line, whatever the locale; a message with them is refused."""
    if sys.stdin is None:
        fail("standard input is closed; ask with: hermes chat QUESTION")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    yield from sys.stdin


def printable(text: str) -> str:
    """A text without what would give the terminal orders; a model may write anything."""
    return "".join(character for character in text if character in "\n\t" or unicodedata.category(character) != "Cc")
