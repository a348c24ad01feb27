"""Backends, models, tiers and MCP servers as somebody writes them down: what the tables are made of, and what cannot stand side by side.

Knows none of the models that Hermes knows: what is left out here is filled in where Hermes is put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path

from hermes.config.faults import one_line
from hermes.config.secret import Secret
from hermes.config.value_kinds import Address, Command, Count, CountOrZero, Usd


class BackendKind(StrEnum):
    """What is spoken to where models are."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_CPP = "llama_cpp"
    PLAIN = "plain"
    OLLAMA = "ollama"
    SCRIPTED = "scripted"
    LOCAL = "local"
    CLAUDE_LOCAL = "claude_local"
    CODEX_LOCAL = "codex_local"


SELF_HOSTED_SERVERS = frozenset({BackendKind.VLLM, BackendKind.SGLANG, BackendKind.LLAMA_CPP, BackendKind.PLAIN})
"""Kinds that are wherever somebody started them: they have no usual address."""
SERVERS = SELF_HOSTED_SERVERS | {BackendKind.ANTHROPIC, BackendKind.OPENAI, BackendKind.OLLAMA}
"""Kinds that are spoken to over HTTP."""
PROGRAMS = frozenset({BackendKind.CLAUDE_LOCAL, BackendKind.CODEX_LOCAL})
"""Kinds that are programs on this machine."""

KINDS_WITH: Mapping[str, frozenset[BackendKind]] = {
    "base_url": SERVERS,
    "api_key": SERVERS,
    "command": PROGRAMS,
    "cwd": PROGRAMS,
    "model_path": frozenset({BackendKind.LOCAL}),
    "threads": frozenset({BackendKind.LOCAL}),
}
"""The settings of a backend that only some kinds read."""


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """A place where models are, by the name that models use. Without a table of their own there are `anthropic`, `openai`, `ollama`,
    `scripted`, `local`, `claude_local` and `codex_local`; the first two as soon as they have a key."""

    kind: BackendKind | None = None
    """What is spoken there; `plain` is any other server with OpenAI's chat completions. Left out: what the name says."""

    base_url: Address | None = None
    """Where the server is, as in its vendor's client. Left out: the vendor's own address, or Ollama's on this machine."""

    api_key: Secret | None = None
    """The key to the server. Better in its variable than in a file."""

    slots: Count | None = None
    """Calls at once in each process, of the two thirds of `llm.slots` that a backend gets at most. A call that gets none in time goes to
    the next model of its chain."""

    command: Command | None = None
    """The program of `claude_local` or `codex_local`, found like every other program. Left out: `claude` or `codex`."""

    cwd: Path | None = None
    """The folder that the program works in."""

    model_path: Path | None = None
    """The weights of `local`, a GGUF file. Left out: those that were installed for it."""

    threads: Count | None = None
    """Processor cores that `local` uses. Left out: it decides."""


@dataclass(frozen=True, slots=True)
class LongPromptSettings:
    """What a model costs when its prompt is long: for all tokens of the call, and not only for those beyond."""

    tokens: Count
    """A prompt of more tokens than this is long."""

    input: Usd
    """As in the price itself."""

    output: Usd
    """As in the price itself."""

    cache_read: Usd | None = None
    """As in the price itself."""

    cache_write: Usd | None = None
    """As in the price itself."""

    cache_write_1h: Usd | None = None
    """As in the price itself."""


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """What a model costs, in US dollars for a million tokens. What is written here replaces every price that Hermes knows of it."""

    input: Usd
    """Of the prompt, where neither a cache was read nor one written."""

    output: Usd
    """Of the answer, thinking included."""

    cache_read: Usd | None = None
    """Of the prompt, out of the vendor's cache. Left out: as `input`."""

    cache_write: Usd | None = None
    """Of the prompt, into the vendor's cache for 5 minutes. Left out: as `input`."""

    cache_write_1h: Usd | None = None
    """Of the prompt, into the vendor's cache for an hour. Left out: as `input`."""

    since: date | None = None
    """The first day (UTC) of this price; it ends where a later one begins. Left out: always."""

    over: LongPromptSettings | None = None
    """The price of long prompts, `{tokens = 100_000, input = …, output = …}`, where they cost more."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A model, by the name that tiers use. A model that Hermes knows needs only what is different; another one at least a `backend`, and
    `prices` where its backend sends a bill."""

    backend: str | None = None
    """The backend that has it."""

    id: str | None = None
    """What its backend calls it. Left out: its name here."""

    max_tokens: Count | None = None
    """The longest answer in tokens; thinking counts. Left out, of a model that Hermes does not know: 2,048."""

    tools: bool | None = None
    """Whether it can call tools; if not, requests with tools go to the next model of the chain."""

    vision: bool | None = None
    """Whether it can see images; if not, requests with images go to the next model of the chain."""

    sampling: bool | None = None
    """Whether it takes `temperature`, `top_p` and `top_k`; if not, they are not sent."""

    prefill: bool | None = None
    """Whether it may be given the beginning of its answer."""

    thinking: bool | None = None
    """Whether it thinks before it answers, unless told not to."""

    context: Count | None = None
    """Tokens of prompt and answer together."""

    cache_floor: Count | None = None
    """The shortest prompt that its vendor caches, in tokens."""

    prices: tuple[PriceSettings, ...] = ()
    """A price from a day on, each as `[[models.NAME.prices]]`. A model without a price of today cannot be in a chain."""


@dataclass(frozen=True, slots=True)
class TierSettings:
    """What a group of users gets. Of the tiers that Hermes knows (`free`, `starter`, `pro`, `venue-growth`) only what is different."""

    chain: tuple[str, ...] | None = None
    """Models in the order in which they are tried: the first that answers, answers."""

    day_tokens: CountOrZero | None = None
    """Tokens a day (UTC) for each user, prompts and answers together."""

    month_tokens: CountOrZero | None = None
    """Tokens a month for each user. Left out: 30 days' worth."""


@dataclass(frozen=True, slots=True)
class McpSettings:
    """An MCP server whose tools a model may use, by a name of your own: either a program on this machine or an address."""

    command: Command | None = None
    """The program and its arguments; it is spoken to over its standard input and output."""

    environment: tuple[str, ...] = ()
    """Names of variables that the program is given, beyond the few that every program gets; their values are those of this process."""

    url: Address | None = None
    """The address of a server over streamable HTTP."""

    api_key: Secret | None = None
    """Sent to the address as `Authorization: Bearer …`."""

    confirm: tuple[str, ...] = ()
    """Tools of it, by the server's own names, that the user must agree to before they are run; `*` for all that change something."""

    shared: tuple[str, ...] = ()
    """Tools of it, by the server's own names, that read and do nothing for one person, so that groups get them too; `*` for all that only
    read. The others are not offered in groups."""


def backends_contradictions(backends: Mapping[str, BackendSettings]) -> Iterator[str]:
    """What is wrong between values of backends that are each right, one line for each."""
    for name, backend in backends.items():
        yield from backend_contradictions(name, backend)
    for variable, count in Counter(map(variable_name, backends)).items():
        if count > 1:
            names = ", ".join(f"backends.{one_line(name)}" for name in backends if variable_name(name) == variable)
            yield f"{names} would share the variable HERMES_BACKENDS_{variable}_API_KEY; expected names that differ in other signs"


def backend_contradictions(name: str, backend: BackendSettings) -> Iterator[str]:
    place = f"backends.{one_line(name)}"
    kind = kind_of_backend(name, backend)
    if kind is None:
        *others, last = BackendKind
        yield f"{place}.kind is missing; expected {', '.join(others)} or {last}"
        return
    if name in set(BackendKind) and kind != name:
        # Whoever reads "anthropic" in a chain of attempts, or sets its key, means Anthropic.
        yield f"{place}.kind is {kind}; expected {name}, or another name for the backend"
    if kind in SELF_HOSTED_SERVERS and backend.base_url is None:
        yield f"{place}.base_url is missing; expected the address of the server, such as http://host:8000/v1"
    for key, kinds in KINDS_WITH.items():
        if getattr(backend, key) is not None and kind not in kinds:
            yield f"{place}.{key} is set; a backend of kind {kind} has none"


def kind_of_backend(name: str, backend: BackendSettings) -> BackendKind | None:
    """What is spoken at a backend: what it says, or else what its name says, or else nobody knows."""
    if backend.kind is not None or name not in set(BackendKind):
        return backend.kind
    return BackendKind(name)


def variable_name(name: str) -> str:
    """A name as a part of a variable: `my-server` is MY_SERVER."""
    return "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in name.upper())


def price_contradictions(models: Mapping[str, ModelSettings]) -> Iterator[str]:
    for name, model in models.items():
        for since, count in Counter(price.since for price in model.prices).items():
            if count > 1:
                yield f"models.{one_line(name)}.prices has {count} prices since {since or 'always'}; expected one"
