"""The settings of backends, models, tiers, MCP servers and destinations of alerts: the keys of the tables that the operator names.

Does not know the models that come with Hermes: app/catalogue.py fills in the values that the operator leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hermes.config.values import Address, Choice, Command, Count, CountOrZero, Day, Flag, LocalPath, Seconds, Secret, Usd


class BackendKind(Choice):
    """The API that a backend speaks."""

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
"""Kinds of servers that the operator runs: they have no default address."""
SERVERS = SELF_HOSTED_SERVERS | {BackendKind.ANTHROPIC, BackendKind.OPENAI, BackendKind.OLLAMA}
"""Kinds that Hermes calls over HTTP."""
PROGRAMS = frozenset({BackendKind.CLAUDE_LOCAL, BackendKind.CODEX_LOCAL})
"""Kinds that Hermes runs as programs on this machine."""

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
    """A server or program that runs models, by the name that `[models]` uses. These need no table: `anthropic`, `openai`, `ollama`,
    `scripted`, `local`, `claude_local` and `codex_local`; the first two as soon as they have a key."""

    kind: BackendKind | None = None
    """The API of the backend; `plain` is any other server with OpenAI's chat completions. Left out: the backend's name is its kind."""

    base_url: Address | None = None
    """The address of the server, as in its vendor's client. Left out: the vendor's own address, or Ollama's on this machine."""

    api_key: Secret | None = None
    """The key of the server. Better in its variable than in a file."""

    slots: Count | None = None
    """Calls that each process makes at the same time, of the two thirds of `llm.slots` that a backend gets at most. A call that gets no
    slot in time goes to the next model of its chain."""

    first_token_s: Seconds | None = None
    """Seconds until the first token of an answer, before the next model of the chain is asked. Left out: `llm.first_token_s`; 30 for
    `ollama`, `local` and programs, which may have to load a model first."""

    command: Command | None = None
    """The program of `claude_local` or `codex_local`, searched for on the `PATH`. Left out: `claude` or `codex`."""

    cwd: LocalPath | None = None
    """The folder in which the program runs."""

    model_path: LocalPath | None = None
    """The weights of `local`, a GGUF file. Left out: those that `hermes local install` has installed."""

    threads: Count | None = None
    """Processor cores that `local` uses. Left out: `local` decides."""


@dataclass(frozen=True, slots=True)
class LongPromptSettings:
    """What a model costs when its prompt is long. The price counts for all tokens of the call, not only for those above the limit."""

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
    """What a model costs, in US dollars for a million tokens. These prices replace all list prices of the model."""

    input: Usd
    """For tokens of the prompt that are neither read from a cache nor written into one."""

    output: Usd
    """For tokens of the answer, thinking included."""

    cache_read: Usd | None = None
    """For tokens of the prompt from the vendor's cache. Left out: as `input`."""

    cache_write: Usd | None = None
    """For tokens of the prompt that go into the vendor's cache for 5 minutes. Left out: as `input`."""

    cache_write_1h: Usd | None = None
    """For tokens of the prompt that go into the vendor's cache for an hour. Left out: as `input`."""

    since: Day | None = None
    """The first day (UTC) of this price; it ends when a later price begins. Left out: from the beginning."""

    over: LongPromptSettings | None = None
    """The price of long prompts, `{tokens = 100_000, input = …, output = …}`, if they cost more."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A model, by the name that tiers use. A model that Hermes knows needs only the values that differ; another one needs at least a
    `backend`, and `prices` if its backend charges for tokens."""

    backend: str | None = None
    """The backend that runs it."""

    id: str | None = None
    """The backend's own name of the model. Left out: its name here."""

    max_tokens: Count | None = None
    """The longest answer in tokens; thinking counts. Left out, for a model that Hermes does not know: 2,048."""

    tools: Flag | None = None
    """Whether it can call tools; if not, Hermes sends requests with tools to the next model of the chain."""

    vision: Flag | None = None
    """Whether it can see images; if not, Hermes sends requests with images to the next model of the chain."""

    sampling: Flag | None = None
    """Whether it takes `temperature`, `top_p` and `top_k`; if not, Hermes does not send them."""

    prefill: Flag | None = None
    """Whether a request may hold the beginning of its answer."""

    thinking: Flag | None = None
    """Whether it thinks before it answers, unless a request turns that off."""

    context: Count | None = None
    """Tokens of prompt and answer together."""

    cache_floor: Count | None = None
    """The shortest prompt that its vendor caches, in tokens."""

    prices: tuple[PriceSettings, ...] = ()
    """Its prices, each with its first day, as `[[models.NAME.prices]]`. A model without a price for today cannot be in a chain."""


@dataclass(frozen=True, slots=True)
class TierSettings:
    """What a group of users gets. A tier that Hermes knows (`free`, `starter`, `pro`, `venue-growth`) needs only the values that differ."""

    chain: tuple[str, ...] | None = None
    """Models in the order in which Hermes asks them, until one answers."""

    day_tokens: CountOrZero | None = None
    """Tokens a day (UTC) for each user, prompts and answers together."""

    month_tokens: CountOrZero | None = None
    """Tokens a month for each user. Left out: 30 times `day_tokens`."""


@dataclass(frozen=True, slots=True)
class McpSettings:
    """An MCP server whose tools a model may use, by a name of your own: either a program on this machine or an address."""

    command: Command | None = None
    """The program and its arguments; Hermes speaks to it over its standard input and output."""

    environment: tuple[str, ...] = ()
    """Names of variables that Hermes passes to the program with its own values, besides the few that every program gets."""

    url: Address | None = None
    """The address of a server over streamable HTTP."""

    api_key: Secret | None = None
    """Sent to the address as `Authorization: Bearer …`."""

    confirm: tuple[str, ...] = ()
    """Tools, by the server's own names, that run only after their user approved them with a button or a code; `*` for all but those in
    `reads`. Tools that the server itself calls destructive are among them, unless `reads` names them."""

    reads: tuple[str, ...] = ()
    """Tools, by the server's own names, that change nothing, so that a cut-off call may be repeated; `*` for all of which the server does
    not say otherwise. A server's own hint that a tool only reads counts for nothing."""

    shared: tuple[str, ...] = ()
    """Tools, by the server's own names, that only read and concern no single user, so that groups get them too; `*` for all in
    `reads`. The other tools are not offered in groups, except those that only make an offer, which its user gets in private."""


class AlertKindSetting(Choice):
    """What a destination of alerts is."""

    SLACK = "slack"
    DISCORD = "discord"
    TELEGRAM = "telegram"
    WEBHOOK = "webhook"


class AlertLevelSetting(Choice):
    """The least urgent alert that a destination gets."""

    WARNING = "warning"
    CRITICAL = "critical"


ALERT_KEYS: Mapping[AlertKindSetting, tuple[frozenset[str], frozenset[str]]] = {
    AlertKindSetting.SLACK: (frozenset({"url"}), frozenset()),
    AlertKindSetting.DISCORD: (frozenset({"url"}), frozenset()),
    AlertKindSetting.TELEGRAM: (frozenset({"token", "chat"}), frozenset({"url"})),
    AlertKindSetting.WEBHOOK: (frozenset({"url", "secret"}), frozenset()),
}
"""The keys that each kind needs, and those that it may have."""


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """A destination of alerts, by a name of your own. A destination that is named after its kind, such as `slack`, needs no `kind`: its
    variable `HERMES_ALERTS_SLACK_URL` is enough."""

    kind: AlertKindSetting | None = None
    """What the destination is; `webhook` is any server that takes signed Standard Webhooks. Left out: the name is the kind."""

    url: Secret | None = None
    """The address of the webhook, which Slack and Discord keep secret. For `telegram`, the address of your own Bot API server."""

    token: Secret | None = None
    """The token of the bot that writes, for `telegram`."""

    chat: str | None = None
    """The chat that the bot writes into, for `telegram`: its number, or `@name`. The bot must be a member."""

    secret: Secret | None = None
    """The secret that signs the requests, for `webhook`: `whsec_` and base64, or any text."""

    min_level: AlertLevelSetting = AlertLevelSetting.WARNING
    """The least urgent alert that goes there: `critical` for those that need a person now."""

    events: tuple[str, ...] = ()
    """Only these alerts go there. Left out: all; `hermes alerts events` lists them."""

    per_minute: Count = 10
    """Messages a minute at most, from all processes together. Further alerts are summed up in one message."""

    resolved: Flag = False
    """Whether the destination is also told that an alert has ended."""


def kind_of_destination(name: str, destination: AlertSettings) -> AlertKindSetting | None:
    """Return the kind of a destination: the one that is set, or else its name if that is a kind, or else None."""
    if destination.kind is not None or name not in set(AlertKindSetting):
        return destination.kind
    return AlertKindSetting(name)


def kind_of_backend(name: str, backend: BackendSettings) -> BackendKind | None:
    """Return the kind of a backend: the one that is set, or else its name if that is a kind, or else None."""
    if backend.kind is not None or name not in set(BackendKind):
        return backend.kind
    return BackendKind(name)


def variable_name(name: str) -> str:
    """Return a name as it stands in an environment variable: `my-server` is MY_SERVER."""
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in name.upper())
