"""`hermes chat`: talk to Hermes in the terminal; to one in this process, or to one that runs elsewhere.

The terminal has the main thread, so that a line can be edited while it is typed and Ctrl-C is what it is everywhere. Everything else runs on
an event loop in another thread: also while somebody thinks about what to write, the worker in there works."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
import sys
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, NoReturn, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import aiohttp
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermes.app import Hermes, StartRefused, open_hermes
from hermes.cli.commands import app
from hermes.cli.errors import BAD_INPUT, complain, fail
from hermes.cli.running import CANNOT_RUN, Config, new_event_loop, settings_from, start_log
from hermes.config import LogLevel, Settings
from hermes.ports.errors import NotThere, PortError
from hermes.ports.people import UserState
from hermes.turn import AgentResponse, Envelope, MessageEvent, Platform
from hermes.web.answers import Answers, as_json

try:
    import readline  # noqa: F401  # `input` lets a line be edited, and remembers earlier ones, once this is there
except ModuleNotFoundError:  # Windows has none
    pass

T = TypeVar("T")

ACCOUNT = "terminal"
"""Terminals are a channel of their own: whom somebody is here, they are on no other account."""
PATIENCE_S = 600.0
LONGEST_TEXT, LONGEST_NAME = 100_000, 128
WORKERS = 4
DRAIN_S = 5.0
"""How long the end of a chat waits for turns under way; others take them over then, or the next chat does."""
PROMPT = "› "
HELP = "/new begins a new conversation, /why says how the last answer came about, /quit or Ctrl-D ends."


@app.command()
def chat(
    question: Annotated[str | None, typer.Argument(help="One question; without it, as many as you like.", show_default=False)] = None,
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Who you are; each user has a memory.", show_default="your login name")
    ] = None,
    is_new: Annotated[bool, typer.Option("--new", help="Begin a new conversation, instead of going on with yours.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print each answer as a JSON object on a line of its own.")] = False,
    url: Annotated[str | None, typer.Option(help="Talk to the Hermes that answers here, instead of one in this process.")] = None,
    key: Annotated[str | None, typer.Option(help="The API key for --url, hk_…", show_default=False)] = None,
    config: Config = None,
) -> None:
    """Chat in the terminal. What is piped in is answered line by line: echo "hello" | hermes chat

    Without --url a Hermes runs in this process, on the same stores as `hermes up`: your conversation and your memory are there next time."""
    who = checked_name(user if user is not None else login_name())
    if (url is None) != (key is None):
        fail("--url and --key go together; `hermes keys create` makes a key, on the machine of the server")
    if question is not None:
        checked_text(question, fail)
    opening = here(quiet_settings(config), who) if url is None or key is None else there(checked_url(url), key, who)
    is_watched = question is None and not is_json and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    with one_line_for_errors(), Background() as background:
        console = Console(stderr=not is_watched)
        with console.status("Starting…") if console.is_terminal else suppress(), background.held(opening) as talk:
            chatting = Chatting(background, talk, who, is_json=is_json, channel=fresh(who) if is_new else who)
        # The status above is over, and what is held is not: it ends with the background.
        if is_watched:
            chatting.converse(console)
        elif question is not None:
            chatting.answer(question)
        else:
            chatting.answer_all()
