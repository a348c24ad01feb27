"""Every setting: its name, its default, and below it what it means and why the default is what it is.

The declarations are the documentation: describe.py and the reference page read the words from here. The tables that somebody names
themselves (backends, models, tiers, MCP servers) are declared in models.py. How values get in is in load.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from hermes.config.models import BackendSettings, McpSettings, ModelSettings, TierSettings, backends_contradictions, price_contradictions
from hermes.config.named_tables import NamedTables
from hermes.config.secret import HIDDEN, Secret
from hermes.config.value_kinds import Address, Bounds, Count, CountOrZero, Port, Seconds, SecondsOrZero, Usd, WholeSeconds


class Environment(StrEnum):
    """How much Hermes may do by itself where something is missing."""

    DEVELOPMENT = "development"
    PRODUCTION = "production"


class LogFormat(StrEnum):
    """How a log line looks."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least serious event that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The HTTP server: webhooks, the API and the chat page."""

    host: str = "127.0.0.1"
    """The address to listen on. Only this machine by default: whoever opens Hermes to a network decides so (`0.0.0.0` for all)."""

    port: Port = 8080
    """The port to listen on; 0 takes a free one."""

    chat: bool | None = None
    """Whether the web chat page is served at `/`. Left out: in development yes, in production no, because everybody who opens the page is
    a new user with credits of their own."""

    answer_timeout_s: SecondsOrZero = 60.0
    """Seconds that `POST /v1/messages` waits for the answer before it says 202, accepted, without one. Longer than a
    model's deadline of 45 s, so that a slow answer still arrives in the same request."""

    ping_s: Seconds = 15.0
    """Seconds between pings on open event streams. Well below the 60 s after which common proxies cut a silent connection."""

    max_body_bytes: Count = 1_000_000
    """The largest request body in bytes; a larger one is refused with 413. Messages are small: media come as addresses."""

    per_minute: Count = 120
    """Messages of the chat page that are taken from one address within a minute, in each process; the next ones are refused with 429."""

    refused_per_minute: Count = 60
    """Unknown API keys and webhooks without a right signature that an address is told about within a minute, in each process; beyond that
    it is told to wait (429). Keys and signatures that are right are let in all the same."""


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The connections of each process to PostgreSQL."""

    pool_min: CountOrZero = 2
    """Connections that are kept open while nothing happens, so that the first message after a pause does not wait for one."""

    pool_max: Count = 8
    """Connections at most. More than the server has processors for stand in each other's way. Times the number of
    processes this must stay below the server's `max_connections`, which is 100 by default."""

    connect_timeout_s: Seconds = 5.0
    """Seconds to wait for a connection before the database counts as down; a webhook then answers 503 and is sent again."""

    statement_timeout_s: Seconds = 30.0
    """Seconds after which the server gives up on a statement, so that one bad query does not hold a connection for ever."""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The connections of each process to Redis or Valkey, which holds what can be rebuilt: caches, counters, hot history."""

    timeout_s: Seconds = 0.25
    """Seconds for one command, without a second try. Short, because Redis is there for speed: when it is slow, the database answers. Only
    reserving a budget is tried again, until a second has passed: without it the call is refused."""

    pool_max: Count = 64
    """Connections at most. Twice `work.concurrency`, so that no turn waits for one."""


@dataclass(frozen=True, slots=True)
class InboxSettings:
    """Messages that came in and wait for their turn."""

    max_waiting: Count = 10_000
    """Waiting messages per account; over it a webhook answers 503, so that one flooded account does not delay the others."""

    max_attempts: Count = 5
    """Attempts at one message before it goes to the dead letters with an apology. Counted before each attempt, so
    that a crash counts too."""

    max_age_s: WholeSeconds = 86_400
    """Seconds after which a message goes to the dead letters instead of being answered, from the moment at which it was sent. A day: a
    later answer confuses more than it helps."""

    album_s: SecondsOrZero = 1.0
    """Seconds that an item of an album waits for the others, so that they are answered together. Platforms send each by itself."""

    burst_s: SecondsOrZero = 0.0
    """Seconds that a message waits for more of it: what somebody writes meanwhile is answered together, for one credit. 0: every message
    has an answer of its own, at once. Telegram, WhatsApp and Instagram only."""

    per_minute: Annotated[int, Bounds(at_least=1, at_most=99)] = 30
    """Messages of one user in a conversation that are answered within a minute. To the next ones Hermes says that they are too many; they
    cost nothing. Programs with an API key have `api.per_minute` instead."""


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """The workers that run turns and deliveries."""

    concurrency: Count = 32
    """Turns at once in each worker process. They mostly wait for models, so this is more than the processor has cores."""

    processes: Count = 1
    """Worker processes that `hermes up` starts. One worker fills about one core with messages; models take none of it."""

    poll_s: Seconds = 1.0
    """Seconds between looks for work that has become due. New work is announced by the database at once; a retry is not."""

    heartbeat_s: Seconds = 2.0
    """Seconds between a worker's signs of life."""

    stalled_after_s: Seconds = 10.0
    """Seconds without a sign of life after which a worker's jobs are given to others. More than twice `heartbeat_s`, so that one late
    sign takes no work away from the living."""

    sweep_s: Seconds = 2.0
    """Seconds between searches for the jobs of dead workers."""

    drain_s: SecondsOrZero = 30.0
    """Seconds that a worker waits for its running turns after SIGTERM. What is not done by then is done again by another worker.
    Set the grace period of whoever stops it (Docker: 10 s) to more than this."""


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How answers are brought to platforms, and what is done when one does not take them."""

    timeout_s: Seconds = 10.0
    """Seconds for one try. A try that is cut off may have arrived, so a longer time makes fewer doubts, and slower ones."""

    cut_off_s: Seconds = 120.0
    """Seconds after which a send of which nothing is heard counts as cut off, because whoever sent it has died: it may have arrived, and
    another one goes on with it. Nobody begins a try that could take longer than that."""

    connections_per_host: Count = 32
    """Connections to one platform at most, in each process. One that is slow takes none from the others."""

    queue_s: tuple[Seconds, ...] = (60.0, 300.0, 1_500.0)
    """Seconds that an answer waits in the queue after each round of tries that failed. After the last it is a dead letter."""

    receipt_s: Seconds = 60.0
    """Seconds that a receipt may take for an answer of which two tries may have arrived; what is behind it in the conversation waits. After
    that it is a dead letter, and refunded. Telegram sends no receipts, so nothing waits there."""

    max_queued: Count = 5_000
    """Answers of one account that wait in the queue at most. The next one is a dead letter at once, with an alert."""

    dead_letter_ttl_s: WholeSeconds = 604_800
    """Seconds that dead letters are kept. A week: long enough for somebody to come back from a holiday weekend and send them again."""

    breaker_failures: Count = 10
    """Failures in a row after which an account's line is left alone for a while."""

    breaker_within_s: Seconds = 300.0
    """Seconds within which these failures must have happened."""

    breaker_open_s: Seconds = 120.0
    """Seconds that such a line is left alone, before one message finds out whether it works again."""

    breaker_unauthorized_s: Seconds = 300.0
    """Seconds that a line is left alone on which the platform does not know us: a token that was revoked, an account that was closed."""

    whatsapp_template: str | None = None
    """An approved WhatsApp template with one variable, for answers that are due more than a day after somebody's last message. Left out:
    such an answer is a dead letter."""

    whatsapp_template_language: str = "en"
    """The language code under which that template was approved."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """What a model is shown of the conversation so far."""

    idle_s: WholeSeconds = 43_200
    """Seconds of silence after which the next message starts a new session with an empty history. 12 hours: a night ends a conversation,
    a long lunch does not."""

    hot_ttl_s: WholeSeconds = 43_200
    """Seconds that a silent conversation's history stays in Redis. As long as a session lives: later it would not be read."""

    max_tokens: Count = 24_000
    """Tokens of history that a model is shown, estimated. A conversation that comes near to it is compacted before the next call: old tool
    output is cut, the middle is summarised, and the graph keeps what was there. Half of what a model can take, where that is less."""

    asks_models: bool = True
    """Whether a model writes these summaries, for the user's own tokens. `false`, and where there is no model: the most telling sentences
    are picked out."""

    hot_messages: Count = 200
    """The last messages of a conversation that are kept in Redis; older ones are read from the database."""


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """What users pay with: one credit for an answer."""

    signup_grant: CountOrZero = 100
    """Credits that a new user starts with."""

    charge_cached: bool = False
    """Whether an answer that came out of the cache costs a credit. No model was asked for it, and nobody was paid."""

    referral_reward: CountOrZero = 20
    """Credits for somebody whose referral code brings a new user, and for that user too; 0: none."""

    reserve_ttl_s: WholeSeconds = 900
    """Seconds after which a reserved credit that was neither posted nor voided goes back to the user. A quarter of an
    hour is more than any turn takes."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Where Hermes sends people. What is left out, it does not speak of."""

    signup: Address | None = None
    """For somebody who writes and whom nobody knows."""

    activation: Address | None = None
    """For somebody who signed up and is not activated yet."""

    upgrade: Address | None = None
    """For somebody whose credits are used up."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What Hermes remembers of its users, and how it finds it again."""

    asks_models: bool = True
    """Whether a model reads what users tell of themselves, after each turn, and thinks about it once a week. `false`: rules alone, which
    know the common things in the main languages and cost nothing."""

    embeddings_url: Address | None = None
    """Where an embeddings API is, as in `https://api.openai.com/v1`. Left out: a small model on this machine, which is part of Hermes."""

    embeddings_model: str = "text-embedding-3-small"
    """The model of that API."""

    embeddings_dimension: Count = 1_536
    """The length of that model's vectors."""

    embeddings_key: Secret | None = None
    """The key to that API. Better in its variable than in a file."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What a model may have done for the user."""

    timeout_s: Seconds = 5.0
    """Seconds that a tool may take. The user waits for it, and for the model before and after it."""

    sample: bool | None = None
    """Whether a database without places, goods and foods is given those that come with Hermes. Left out: in development yes, in
    production no."""


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Pictures that come with messages."""

    max_bytes: Count = 3_932_160
    """The largest picture in bytes; a larger one gets a clear reply. As base64 it is 5 MiB; some vendors refuse more."""

    max_side: Count = 8_000
    """The most pixels on a side; small files can hold huge pictures, and some vendors refuse them."""

    timeout_s: Seconds = 8.0
    """Seconds for fetching a picture, with every look-up and redirect."""


class StandIn(StrEnum):
    """Who answers for a model that cannot be asked."""

    SCRIPTED = "scripted"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Every call of a model, whoever asks. Which models there are is said in `[backends]`, `[models]` and `[tiers]`."""

    deadline_s: Seconds = 45.0
    """Seconds for an answer, over all models of a chain together. People give up on a chat after about so long."""

    slots: Count = 30
    """Calls in flight to models at once in each process; one backend gets two thirds of them at most, so that one that hangs leaves the
    others theirs. A call that comes later waits, fairly between users."""

    slot_wait_s: Seconds = 15.0
    """Seconds that a call waits for slots, over all models of a chain together and beside the deadline, before it is refused. A third of
    the deadline: a user who waits longer hears nothing for a minute."""

    global_daily_budget_usd: Usd | None = None
    """US dollars that all models together may cost in a day (UTC); when they are spent, every call is refused until the next. Left out:
    no limit. `LLM_GLOBAL_DAILY_BUDGET_USD` is read too."""

    cache_ttl_s: WholeSeconds = 3_600
    """Seconds that an answer is kept for the same question of the same user. An hour: what is true of today changes."""

    stand_in: StandIn = StandIn.SCRIPTED
    """Who answers in development for models that have no key. `scripted` is a concierge without a model, who uses the tools; `local` is a
    small real model on this machine (`hermes local install`), behind which `scripted` answers what needs tools. Each answers under its own
    name; what `scripted` says is not training data."""

    script: Path | None = None
    """The script that `scripted` answers from. Left out: the friendly concierge that comes with Hermes."""


@dataclass(frozen=True, slots=True)
class CompletionsSettings:
    """The door for other people's programs, `POST /v1/chat/completions`."""

    tier: str = "pro"
    """The tier of an API key that has none of its own."""

    deadline_s: Seconds = 600.0
    """Seconds for an answer, over all models of a chain together. More than `llm.deadline_s`: an agent's long answer takes minutes, and
    nobody sits in front of it."""

    max_choices: Count = 8
    """The most answers to one request (`n`). Each is a call, and is paid for."""

    max_body_bytes: Count = 20_000_000
    """The largest request body in bytes; a larger one is refused with 413. More than `web.max_body_bytes`, because chats come whole
    and with their images in them."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The HTTP API under `/v1`."""

    per_minute: Count = 600
    """Messages that are taken from one API key within a minute, in each process; the next ones are refused with 429. The OpenAI door
    has slots and budgets instead."""

    idempotency_ttl_s: WholeSeconds = 86_400
    """Seconds that an `Idempotency-Key` is remembered with its answer. A day covers the retries of every usual client."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The event loop, which every conversation of a process shares."""

    blocked_after_s: Seconds = 1.0
    """Seconds without a breath after which a blocked event loop is reported: nobody else is served meanwhile."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What Hermes says about itself. Message text and secrets are never in it."""

    format: LogFormat = LogFormat.AUTO
    """`json` is one object a line, `console` is for people; `auto` is `console` on a terminal and `json` elsewhere."""

    level: LogLevel = LogLevel.INFO
    """The least serious event that is logged."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process: first those of the process as a whole, then a section for each of its parts."""

    environment: Environment = Environment.DEVELOPMENT
    """`development` makes what is missing, such as a master key; `production` refuses to start without it."""

    home: Path | None = None
    """The data folder. Without it, where the platform keeps its users' data: `~/.local/share/hermes` (or below `XDG_DATA_HOME`), on macOS
    `~/Library/Application Support/hermes`."""

    database_url: Secret | None = None
    """The address of PostgreSQL, `postgresql://user:password@host/name`. Without it an embedded one runs in the data folder."""

    redis_url: Secret | None = None
    """The address of Redis or Valkey, `redis://:password@host:6379/0`. Without it an embedded one runs in the data folder."""

    master_keys: tuple[Secret, ...] = ()
    """The keys that protect the users' keys: the first one seals, the others still open, so that keys can be rotated. Without one,
    `development` makes one in the data folder and `production` refuses to start."""

    web: WebSettings = WebSettings()
    database: DatabaseSettings = DatabaseSettings()
    redis: RedisSettings = RedisSettings()
    inbox: InboxSettings = InboxSettings()
    work: WorkSettings = WorkSettings()
    delivery: DeliverySettings = DeliverySettings()
    history: HistorySettings = HistorySettings()
    credits: CreditSettings = CreditSettings()
    links: LinkSettings = LinkSettings()
    memory: MemorySettings = MemorySettings()
    tools: ToolSettings = ToolSettings()
    images: ImageSettings = ImageSettings()
    llm: LlmSettings = LlmSettings()
    completions: CompletionsSettings = CompletionsSettings()
    api: ApiSettings = ApiSettings()
    loop: LoopSettings = LoopSettings()
    log: LogSettings = LogSettings()
    backends: NamedTables[BackendSettings] = field(default_factory=NamedTables)
    models: NamedTables[ModelSettings] = field(default_factory=NamedTables)
    tiers: NamedTables[TierSettings] = field(default_factory=NamedTables)
    mcp: NamedTables[McpSettings] = field(default_factory=NamedTables)

    def public(self) -> dict[str, Any]:
        """Every value, section by section, as JSON can hold it; a secret is shown as `***`."""
        shown: dict[str, Any] = to_json_value(self)
        return shown


def to_json_value(value: object) -> Any:
    match value:
        case Secret():
            return HIDDEN
        case Path() | StrEnum() | Address() | date():
            return str(value)
        case tuple():
            return [to_json_value(item) for item in value]
        case NamedTables():
            return {name: to_json_value(item) for name, item in value.items()}
        case _ if is_dataclass(value):
            return {field.name: to_json_value(getattr(value, field.name)) for field in fields(value)}
    return value


def contradictions(settings: Settings) -> Iterator[str]:
    """What is wrong between values that are each right, one line for each."""
    database, work = settings.database, settings.work
    if database.pool_max < database.pool_min:
        yield f"database.pool_max is {database.pool_max}; expected at least database.pool_min, which is {database.pool_min}"
    if settings.delivery.cut_off_s < 3 * settings.delivery.timeout_s:
        least = f"three times delivery.timeout_s, which is {settings.delivery.timeout_s}"
        yield f"delivery.cut_off_s is {settings.delivery.cut_off_s}; expected at least {least}"
    if not settings.delivery.queue_s:
        yield "delivery.queue_s is empty; expected at least one number, because what may have arrived is tried once more from the queue"
    if work.stalled_after_s <= 2 * work.heartbeat_s:
        yield f"work.stalled_after_s is {work.stalled_after_s}; expected more than twice work.heartbeat_s, which is {work.heartbeat_s}"
    for name, server in settings.mcp.items():
        if (server.command is None) == (server.url is None):
            yield f"mcp.{name} has {'neither' if server.command is None else 'both'} a command and a url; expected one of them"
    yield from backends_contradictions(settings.backends)
    yield from price_contradictions(settings.models)
