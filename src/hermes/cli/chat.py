"""`hermes chat`: talk to Hermes in the terminal: to one in this process, or to one that runs elsewhere.

The main thread belongs to the terminal, so that the user can edit a line and Ctrl-C works as usual. Everything else runs on an event loop
in another thread: an answer goes on while the user types."""

from __future__ import annotations

import asyncio
import getpass
import io
import os
import signal
import sys
import time
import unicodedata
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, Self, TextIO, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermes.cli.chat_clients import ChatError, HermesClient, open_remote_hermes, open_running_hermes
from hermes.cli.commands import LazyParts, app
from hermes.cli.options import Config
from hermes.cli.output import CANNOT_RUN, complain, fail, print_json, print_result
from hermes.cli.runtime import new_event_loop, settings_from, start_log, tools_opener, tracer_opener
from hermes.config import LogLevel, Settings
from hermes.ports.errors import NotFound, PortError, StartRefused
from hermes.turn import AgentResponse, response_json

T = TypeVar("T")


with suppress(ModuleNotFoundError):  # Windows has no readline
    import readline  # noqa: F401  # with it, the user can edit the line at `input` and call up earlier lines

MAX_TEXT_CHARS, MAX_NAME_CHARS = 100_000, 128
DRAIN_S = 5.0
"""How long the chat waits at its end for unfinished answers. Afterwards the next worker finishes them."""
INTERRUPTED = 130
PROMPT = "> "
COMMANDS = "/new begins a new conversation, /why shows how the last answer was made, /quit or Ctrl-D ends the chat."


@app.command()
def chat(
    context: typer.Context,
    question: Annotated[str | None, typer.Argument(help="One question. Without it, a chat begins.", show_default=False)] = None,
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="Your name: each user has a memory of their own.", show_default="your login name"),
    ] = None,
    is_new: Annotated[bool, typer.Option("--new", help="Begin a new conversation instead of continuing yours.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print each answer as a JSON object, on one line.")] = False,
    url: Annotated[str | None, typer.Option(help="Talk to the Hermes at this address.", show_default=False)] = None,
    key: Annotated[str | None, typer.Option(help="The API key for --url, hk_…", show_default=False)] = None,
    is_here: Annotated[bool, typer.Option("--here", help="Answer in this process, although a Hermes runs.")] = False,
    config: Config = None,
) -> None:
    """Chat in the terminal. Hermes answers piped input line by line:  echo "hello" | hermes chat

    If a Hermes of these settings runs on this machine, it answers. Else one in this process answers only you. It uses the stores of
    `hermes up`, so your conversation and your memory are there the next time."""
    name = check_name(user if user is not None else login_name())
    if question is not None:
        check_text(question)
    opening = choose_client(context, config, url, key, name, is_here=is_here)
    is_watched = question is None and not is_json and is_terminal(sys.stdin) and is_terminal(sys.stdout)
    console = Console(stderr=not is_watched)
    with exit_on_error(), BackgroundLoop() as background, ExitStack() as stack:
        with console.status("Starting…"):
            talk = stack.enter_context(background.hold_open(opening))
        chatting = TerminalChat(background, talk, console, name, channel=new_channel(name) if is_new else name, is_json=is_json)
        if is_watched:
            chatting.converse()
        elif question is not None:
            chatting.answer(question)
        else:
            chatting.answer_lines()


@dataclass(slots=True)
class TerminalChat:
    """A chat in the terminal: reads what the user types, prints what Hermes answers."""

    background: BackgroundLoop
    talk: HermesClient
    console: Console
    name: str
    channel: str
    is_json: bool
    last: tuple[AgentResponse, int] | None = None
    """The last answer, and how many milliseconds it took."""

    def answer(self, text: str) -> None:
        """Print the answer to one message on standard output. If it fails, the command exits with an error."""
        try:
            with self.console.status("Thinking…"):
                response = self._ask(text)
        except ChatError as trouble:
            complain(str(trouble))
            raise typer.Exit(trouble.code) from None
        print_result(response_json(response), strip_control_characters(response.text), is_json=self.is_json)

    def answer_lines(self) -> None:
        """Answer each line of standard input."""
        for line in lines_of_input():
            match text := line.strip():
                case "":
                    continue
                case "/quit":
                    return
                case "/new":
                    self.channel = new_channel(self.name)
                case "/why":
                    print_json(self._why())
                case _:
                    check_text(text)
                    self.answer(text)

    def converse(self) -> None:
        """Chat with the user at the terminal until the user ends it."""
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
                self.console.print("\n[dim]Ctrl-C again ends the chat. An unfinished answer still comes into the conversation.[/]")

    def _respond(self, text: str) -> None:
        try:
            if text == "/new":
                self.channel = new_channel(self.name)
                self.console.print("[dim]A new conversation. Hermes keeps what it knows about you.[/]")
            elif text == "/why":
                self.console.print(provenance_table(self._why()) if self.last else "[dim]There is no answer yet.[/]")
            elif text.startswith("/") and " " not in text:
                self.console.print(f"[dim]{COMMANDS}[/]", highlight=False)
            elif fault := message_fault(text):
                complain(fault)
            else:
                with self.console.status("[dim]Ctrl-C stops waiting[/]"):
                    response = self._ask(text)
                self._show(response.text)
        except ChatError as trouble:
            complain(str(trouble))

    def _ask(self, text: str) -> AgentResponse:
        began = time.monotonic()
        response = self.background.do(self.talk.ask(text, self.channel))
        self.last = response, round((time.monotonic() - began) * 1000)
        return response

    def _why(self) -> Mapping[str, Any]:
        """Return how the last answer was made; empty if there is no answer yet."""
        if self.last is None:
            return {}
        response, took_ms = self.last
        return {"turn_id": str(response.turn_id), "took_ms": took_ms, **self.background.do(self.talk.why(response))}

    def _show(self, text: str) -> None:
        self.console.print(Text(strip_control_characters(text)), soft_wrap=True)
        self.console.print()


def provenance_table(why: Mapping[str, Any]) -> Table:
    """Return a table that shows how an answer was made."""
    tools = [f"{tool['name']} ({tool['ms']} ms{', failed' if tool['is_error'] else ''})" for tool in why.get("tools", ())]
    rows = {
        "backend": " ".join(str(why[name]) for name in ("llm_backend", "llm_model") if why.get(name)) or "none",
        "tokens": f"{why.get('tokens_in', 0):,} in, {why.get('tokens_out', 0):,} out",
        "cost": f"{why.get('cost_usd', 0.0):.6f} USD"
        + (f", from the cache; saved {why.get('saved_usd', 0.0):.6f} USD" if why.get("llm_cache_hit") else ""),
        "tools": ", ".join(tools) or str(why.get("tool_calls_made") or "none"),
        "took": f"{why['took_ms']:,} ms",
        "turn": str(why["turn_id"]),
    }
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), Text(strip_control_characters(value)))
    return table


def choose_client(
    context: typer.Context, config: Path | None, url: str | None, key: str | None, name: str, *, is_here: bool
) -> AbstractAsyncContextManager[HermesClient]:
    """Return the client for the options: the Hermes at --url, the one that runs on this machine, or one in this process."""
    if url is None and key is None:
        settings = chat_settings(config)
        return open_local_hermes(context, settings, name) if is_here else open_nearest_hermes(context, settings, name)
    if is_here:
        fail("--here and --url exclude each other; give one of them")
    if url is None or key is None:
        fail("--url and --key go together; `hermes keys create` makes a key on the server's machine")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        fail(f"--url {url!r} is not an address; expected one such as https://hermes.example.com")
    if not key.isascii() or not key.isprintable():
        fail("--key is not an API key; expected hk_…")
    return open_remote_hermes(url.rstrip("/"), key, name)


@asynccontextmanager
async def open_nearest_hermes(context: typer.Context, settings: Settings, name: str) -> AsyncIterator[HermesClient]:
    """Open a client for the Hermes that runs on this machine; if none does, open one in this process."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(open_running_hermes(settings, name))
        yield running if running is not None else await stack.enter_async_context(open_local_hermes(context, settings, name))


def open_local_hermes(context: typer.Context, settings: Settings, name: str) -> AbstractAsyncContextManager[HermesClient]:
    """Open a Hermes in this process. To load it takes a second or two."""
    parts: LazyParts = context.obj
    opened: AbstractAsyncContextManager[HermesClient] = parts.load_local_chat().open_local_hermes(
        settings, name, tools_opener(context, settings), tracer_opener(context, settings)
    )
    return opened


def chat_settings(config: Path | None) -> Settings:
    """Return the settings with a short wait at the end. The log shows only errors, so that it does not disturb the chat."""
    settings = settings_from(config)
    start_log(replace(settings, log=replace(settings.log, level=LogLevel.ERROR)))
    return replace(settings, work=replace(settings.work, drain_s=min(DRAIN_S, settings.work.drain_s)))


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn errors into one line and an exit code, as every command does. Ctrl-C prints nothing."""
    try:
        yield
    except (NotFound, StartRefused) as error:
        fail(str(error))
    except BrokenPipeError:  # the program that read the answers has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python writes again when it exits, and prints an error
        raise typer.Exit from None
    except (PortError, OSError) as error:
        complain(str(error))
        raise typer.Exit(CANNOT_RUN) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


# --- what the user typed


def login_name() -> str:
    """Return the login name of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container the user may have a number and no name
        return "me"


def check_name(name: str) -> str:
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        fail(f"--user {name[:MAX_NAME_CHARS]!r} is not a name; expected up to {MAX_NAME_CHARS} characters, no control characters")
    return name


def check_text(text: str) -> None:
    if not text.strip():
        fail('there is no question; try: hermes chat "What can you do?"')
    if fault := message_fault(text):
        fail(fault)


def message_fault(text: str) -> str:
    """Return why Hermes cannot take a message; an empty text if it can."""
    if len(text) > MAX_TEXT_CHARS:
        return f"a message has at most {MAX_TEXT_CHARS:,} characters"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "the message is not UTF-8 text"
    return ""


def new_channel(name: str) -> str:
    """Return the name of a new, empty channel."""
    return f"{name[: MAX_NAME_CHARS - 9]}/{uuid4().hex[:8]}"


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def lines_of_input() -> Iterator[str]:
    """Yield the lines of standard input as they come. Bytes that are not UTF-8 stay in their line, and such a message is refused."""
    if sys.stdin is None:
        fail("standard input is closed; ask with: hermes chat QUESTION")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    yield from sys.stdin


def strip_control_characters(text: str) -> str:
    """Remove control characters: a model may write anything, and the terminal would obey."""
    return "".join(character for character in text if character in "\n\t" or unicodedata.category(character) != "Cc")


# --- the event loop beside the terminal


class BackgroundLoop:
    """An event loop in a thread. It runs as long as the `with` block lasts."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="hermes-chat", daemon=True)

    def __enter__(self) -> Self:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # if the server disconnects, the connection fails, and the process goes on
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it. If the caller is interrupted, the coroutine is cancelled."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    @contextmanager
    def hold_open(self, opening: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Keep a context manager open on the loop. One task opens and closes it: some libraries require that."""
        is_over, is_open = asyncio.Event(), Future[T]()

        async def hold() -> None:
            async with opening as opened:
                is_open.set_result(opened)
                await is_over.wait()

        holding = asyncio.run_coroutine_threadsafe(hold(), self._loop)
        try:
            either: list[Future[Any]] = [is_open, holding]
            wait(either, return_when=FIRST_COMPLETED)
            if not is_open.done():
                holding.result()  # raises the error of the opening
            yield is_open.result()
        finally:
            self._loop.call_soon_threadsafe(is_over.set)
            holding.result()
