"""Every setting: its name, its default, and below it what it means and why this is the default.

The declarations are the documentation: describe.py and the reference page read these texts. The tables that the operator names (backends,
models, tiers, MCP servers, destinations of alerts) are declared in models.py. load.py reads the values."""

from __future__ import annotations

from dataclasses import dataclass, field

from hermes.config.console import ConsoleSettings
from hermes.config.models import AlertSettings, BackendSettings, McpSettings, ModelSettings, TierSettings
from hermes.config.operations import (
    ErasureSettings,
    JournalSettings,
    LogSettings,
    LoopSettings,
    RetentionSettings,
    TraceSettings,
    WatchSettings,
    WorkSettings,
)
from hermes.config.values import (
    Address,
    Choice,
    Count,
    CountOrZero,
    Flag,
    HostName,
    LocalPath,
    MessagesPerMinute,
    NamedTables,
    Network,
    Port,
    Seconds,
    SecondsOrZero,
    Secret,
    Usd,
    WholeSeconds,
)


class Environment(Choice):
    """Whether Hermes creates what is missing, or refuses to start."""

    DEVELOPMENT = "development"
    PRODUCTION = "production"


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The HTTP server: webhooks, the API and the chat page."""

    host: str = "127.0.0.1"
    """The address to listen on. Only this machine by default; the operator opens Hermes to a network on purpose (`0.0.0.0` for all)."""

    port: Port = 8080
    """The port to listen on; 0 takes a free one."""

    processes: Count | None = None
    """Web processes that `hermes up` starts; they share the port. Left out: two, or one where the machine has one core. `hermes serve` is
    always one process."""

    public_url: Address | None = None
    """The address at which the platforms and the users reach this Hermes, such as `https://hermes.example.com`: what stands in front of it
    may have another name and port. `hermes channels add` gives it to the platforms, and printed examples show it."""

    chat: Flag | None = None
    """Whether the web chat page is served at `/`. Left out: in development yes, in production no, because every visitor of the page is a
    new user with credits of their own."""

    answer_timeout_s: SecondsOrZero = 60.0
    """Seconds that `POST /v1/messages` waits for the answer before it responds with 202, accepted, without one. Longer than a
    model's deadline of 45 s, so that a slow answer still arrives in the same request."""

    ping_s: Seconds = 15.0
    """Seconds between pings on open event streams. Well below the 60 s after which common proxies cut a silent connection."""

    max_body_bytes: Count = 1_000_000
    """The largest request body in bytes; a larger one is refused with 413. Messages are small: images are sent as addresses."""

    hosts: tuple[HostName, ...] = ()
    """Further names under which clients reach this server, without a port: `hermes.internal`, or `*.cluster.local` for all names below one.
    Names of this machine, the address that the client connected to, `host` and the host of `public_url` are allowed anyway. A request with
    another `Host` gets 421, so that a foreign page cannot give this server a name of its own and use it. Only `/health`, `/ready` and
    webhooks are answered under any name."""

    trusted_proxies: tuple[Network, ...] = ()
    """The addresses or networks of the proxies in front of Hermes, such as `10.0.0.7` or `172.16.0.0/12`. Only from them Hermes believes
    `X-Forwarded-For` and `X-Forwarded-Proto`: who the client is, and whether it came over TLS. Left out: no such header is believed."""

    max_connections: Count = 2_000
    """Open connections at most. Beyond that Hermes closes the one that has waited longest for its client, and refuses new ones if none
    waits. Less where the system allows fewer open files."""

    max_connections_per_address: Count = 200
    """The same for one address (for IPv6 its network). Not for this machine and for `trusted_proxies`, which speak for many clients."""

    head_timeout_s: Seconds = 10.0
    """Seconds in which a client must have sent the whole head of a request; then Hermes closes the connection."""

    body_timeout_s: Seconds = 30.0
    """Seconds in which a client must have sent the whole body of a request, and one second more for each 10 kB that came."""

    per_minute: Count = 120
    """Messages of the chat page that each process accepts from one address within a minute; it refuses the next ones with 429."""

    refused_per_minute: Count = 60
    """Unknown API keys and wrong webhook signatures that each process reports to one address within a minute; after that it answers 429,
    wait. Right keys and signatures from that address are accepted all the same."""

    metrics_token: Secret | None = None
    """The token that `/metrics`, `/docs` and `/openapi.json` ask for: Prometheus sends it as `Authorization: Bearer …`, a browser asks for
    it as a password. Left out: in development they are open for clients of this machine, in production they are closed."""

    metrics_port: Port | None = None
    """A port of its own on which `hermes serve` shows the same pages without a token; 0 takes a free one. For a network that only the
    operator reaches. A worker has the option `--metrics-port` instead, because several workers may run on one machine."""

    metrics_host: str = "127.0.0.1"
    """The address to listen on for `metrics_port`."""


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The connections of each process to PostgreSQL."""

    pool_min: CountOrZero = 2
    """Connections that stay open while no message comes, so that the first message after a pause does not wait for one."""

    pool_max: Count = 8
    """Connections at most. More connections than the server has processors slow each other down. This number times the number of
    processes must stay below the server's `max_connections`, which is 100 by default."""

    connect_timeout_s: Seconds = 5.0
    """Seconds to wait for a connection before the database counts as down; a webhook then answers 503, and the platform sends it again."""

    statement_timeout_s: Seconds = 30.0
    """Seconds after which the server cancels a statement, so that one bad query does not hold a connection for ever."""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The connections of each process to Redis or Valkey, which holds what can be rebuilt: caches, counters, hot history."""

    timeout_s: Seconds = 0.25
    """Seconds for one command, without a retry. Short, because Redis is there for speed: when it is slow, Hermes asks the database. Only
    the reservation of a budget is retried, for up to a second: without it the call is refused."""

    pool_max: Count = 64
    """Connections at most. Twice the default of `work.concurrency`, so that no turn waits for one."""


@dataclass(frozen=True, slots=True)
class InboxSettings:
    """Messages that have arrived and wait for an answer."""

    max_waiting: Count = 10_000
    """Waiting messages per account. Beyond that a webhook answers 503, so that one flooded account does not delay the others."""

    max_attempts: Count = 5
    """Attempts at one message before Hermes gives it up and apologises to the user. Counted before each attempt, so that a crash counts
    too."""

    max_age_s: WholeSeconds = 86_400
    """Seconds since a message was sent after which Hermes gives it up and apologises, instead of answering it. A day: a later answer
    confuses more than it helps."""

    album_s: SecondsOrZero = 1.0
    """Seconds that an item of an album waits for the others, so that one answer is about all. Platforms send each item by itself."""

    burst_s: SecondsOrZero = 0.0
    """Seconds that a message waits for the user's next ones. One answer is about all messages of that time, for one credit. 0: every
    message gets an answer of its own, at once. Telegram, WhatsApp and Instagram only."""

    per_minute: MessagesPerMinute = 30
    """Messages of one user in a conversation that Hermes answers within a minute. To further ones it replies that they are too many; these
    cost nothing. Programs with an API key have `api.per_minute` instead."""


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How Hermes sends answers to platforms, and what it does when a platform refuses them."""

    timeout_s: Seconds = 10.0
    """Seconds for one try. A try that times out may have arrived, so a longer time leaves fewer answers in doubt, but for longer."""

    cut_off_s: Seconds = 120.0
    """Seconds after which an unfinished send counts as cut off, because its worker died. It may have arrived, and another worker goes on
    with it. No worker begins a try that could take longer than this."""

    connections_per_host: Count = 32
    """Connections of each process to one platform at most. A slow platform takes none from the others."""

    queue_s: tuple[Seconds, ...] = (60.0, 300.0, 1_500.0)
    """Seconds that an answer waits in the queue after each failed round of tries. After the last round it is a dead letter."""

    receipt_s: Seconds = 60.0
    """Seconds that Hermes waits for a receipt of an answer of which two tries may have arrived; later answers of the conversation wait too.
    After that the answer is a dead letter, and refunded. Telegram sends no receipts, so nothing waits there."""

    max_queued: Count = 5_000
    """Answers of one account that may wait in the queue. The next one becomes a dead letter at once, with an alert."""

    dead_letter_ttl_s: WholeSeconds = 604_800
    """Seconds that dead letters are kept. A week: an operator who comes back from a long weekend can still send them again."""

    breaker_failures: Count = 10
    """Failures in a row after which the breaker of a channel account opens: Hermes sends nothing over it for a while."""

    breaker_within_s: Seconds = 300.0
    """Seconds within which these failures must have happened."""

    breaker_open_s: Seconds = 120.0
    """Seconds that a breaker stays open. Then one message tries whether the account works again."""

    breaker_unauthorized_s: Seconds = 300.0
    """Seconds that a breaker stays open after the platform refused our token: it was revoked, or the account was closed."""

    whatsapp_template: str | None = None
    """An approved WhatsApp template with one variable, for answers that are due more than a day after the user's last message. Left out:
    such an answer is a dead letter."""

    whatsapp_template_language: str = "en"
    """The language code under which that template was approved."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How much of a conversation a model sees."""

    idle_s: WholeSeconds = 43_200
    """Seconds of silence after which the next message starts a new session with an empty history. 12 hours: a night ends a conversation,
    a long lunch does not."""

    hot_ttl_s: WholeSeconds = 43_200
    """Seconds that the history of a silent conversation stays in Redis. As long as a session lives: after that it is not read any more."""

    max_tokens: Count = 24_000
    """Tokens of history that a model sees, estimated. A conversation that comes near to it is compacted before the next call: old tool
    output is cut, the middle is summarised, and the graph keeps the whole text. If half of what the tier's first model can take is less,
    that half counts."""

    asks_models: Flag = True
    """Whether a model writes these summaries, from the user's own tokens. If `false`, and without a model, Hermes picks the most telling
    sentences instead."""

    hot_messages: Count = 200
    """The last messages of a conversation that stay in Redis; Hermes reads older ones from the database."""


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """Credits, with which users pay: one for an answer."""

    signup_grant: CountOrZero = 100
    """Credits that a new user starts with."""

    charge_cached: Flag = False
    """Whether an answer from the cache costs a credit. It costs the operator nothing: no model was asked."""

    referral_reward: CountOrZero = 20
    """Credits for a user whose referral code brings a new user, and for the new user too; 0: none."""

    reserve_ttl_s: WholeSeconds = 900
    """Seconds after which a reserved credit that was neither posted nor voided goes back to the user. A quarter of an
    hour is more than any turn takes."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The pages that Hermes sends users to. It does not mention a page that is left out."""

    signup: Address | None = None
    """For a sender who is not a user yet."""

    activation: Address | None = None
    """For a user who signed up and is not activated yet."""

    upgrade: Address | None = None
    """For a user whose credits are used up."""


class VectorStorage(Choice):
    """How the vectors of facts are stored."""

    SEALED = "sealed"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What Hermes remembers about its users, and how it finds it again."""

    asks_models: Flag = True
    """Whether a model reads what users tell about themselves, after each turn, and thinks about it once a week. `false`: only rules do,
    which know the common facts in the main languages and cost nothing."""

    vectors: VectorStorage = VectorStorage.SEALED
    """How the vectors of facts are stored. `sealed`: with the user's key. `plain`: readable in the database; reading a user's facts for the
    first time takes less. From a plain vector much of its text can be guessed, and after an erasure it stays in old bytes of the database,
    which no key seals. A change converts the stored vectors within an hour."""

    embeddings_url: Address | None = None
    """The address of an embeddings API, such as `https://api.openai.com/v1`. Left out: the small model of Hermes on this machine."""

    embeddings_model: str = "text-embedding-3-small"
    """The model of that API."""

    embeddings_dimension: Count = 1_536
    """The length of that model's vectors."""

    embeddings_key: Secret | None = None
    """The key of that API. Better in its variable than in a file."""

    embeddings_price: Usd | None = None
    """What a million tokens of that API cost, in dollars. Without it, clients of `/v1/embeddings` are refused while an API is set: a call
    without a price cannot be budgeted. The model on this machine costs nothing."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """The tools that a model may use for a user."""

    timeout_s: Seconds = 5.0
    """Seconds that a tool may take. The user waits for it, and for the model before and after it."""

    sample: Flag | None = None
    """Whether Hermes fills the empty tables of its packs with their sample data. Left out: in development yes, in production no."""


DEVELOPMENT_PACKS = ("concierge",)
"""The packs in development, if the settings name none."""
NO_PACK = "none"
"""In place of a name: no pack. A variable cannot be an empty list, because an empty variable counts as not set."""


@dataclass(frozen=True, slots=True)
class PackSettings:
    """Packs: everything that Hermes knows about one trade, such as the tools of a concierge."""

    enabled: tuple[str, ...] | None = None
    """The packs that are on: by name (`concierge`, or the name of an installed pack), or as `module:attribute`. Left out: in development
    `concierge`, so that the first message can be answered with tools; in production none, so that the operator chooses. `none` in place of
    a name switches all packs off. A pack that is switched off leaves its tables as they are."""


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Images that come with messages."""

    max_bytes: Count = 3_932_160
    """The largest image in bytes; to a larger one Hermes replies that it is too large. As base64 it is 5 MiB; some vendors refuse more."""

    max_side: Count = 8_000
    """The most pixels on a side; small files can hold huge images, and some vendors refuse them."""

    timeout_s: Seconds = 8.0
    """Seconds for fetching an image, with every look-up and redirect."""


class StandIn(Choice):
    """The backend that answers for models without a key."""

    SCRIPTED = "scripted"
    LOCAL = "local"


class PriceList(Choice):
    """The prices of models for which the settings have none."""

    VENDOR = "vendor"
    FOUNDING = "founding"


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """All calls of models, of users, programs and Hermes itself. The models are set in `[backends]`, `[models]` and `[tiers]`."""

    deadline_s: Seconds = 45.0
    """Seconds for an answer, over all models of a chain together. After about that time users give up on a chat."""

    first_token_s: Seconds = 10.0
    """Seconds until the first token of an answer, before the next model of the chain is asked. The last model of a chain has the whole
    deadline."""

    slots: Count = 30
    """Calls of models that each process makes at the same time. One backend gets two thirds of them at most, so that a backend that hangs
    does not stop the others. Further calls wait, fairly between users."""

    slot_wait_s: Seconds = 15.0
    """Seconds that a call waits for slots, over all models of a chain together and beside the deadline, before it is refused. A third of
    the deadline: together they are a minute in which the user hears nothing."""

    global_daily_budget_usd: Usd | None = None
    """US dollars that all models together may cost in a day (UTC). When they are spent, Hermes refuses every call until the next day. Left
    out: no limit. Hermes also reads `LLM_GLOBAL_DAILY_BUDGET_USD`."""

    prices: PriceList = PriceList.VENDOR
    """The prices of models that have none in `[models]`. `vendor`: as their vendors print them. `founding`: the same, but Claude Haiku
    costs 0.80 and 4.00 US dollars for a million tokens, as in the documents from which Hermes grew."""

    cache_ttl_s: WholeSeconds = 3_600
    """Seconds that an answer is cached for the same question of the same user. An hour: some answers are only true today."""

    stand_in: StandIn = StandIn.SCRIPTED
    """The backend that answers in development for models without a key. `scripted` answers from rules without a model, and uses the tools;
    `local` is a small real model on this machine (`hermes local install`), and `scripted` answers requests with tools for it. Answers are
    recorded under the stand-in's own name; those of `scripted` are not training data."""

    script: LocalPath | None = None
    """The script that `scripted` answers from. Left out: the rules of Hermes and its packs."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """All agents together. Agents are added and changed with `hermes fleet`."""

    daily_usd: Usd | None = None
    """US dollars that the calls for all agents together may cost in a day (UTC). When they are spent, no agent answers until the next day;
    calls of programs and batches go on. Left out: no limit. `hermes fleet cap` sets the limit of one agent."""


@dataclass(frozen=True, slots=True)
class CompletionsSettings:
    """The APIs for clients of OpenAI and Anthropic: chat completions, responses, messages, embeddings."""

    tier: str = "pro"
    """The tier of an API key that has none of its own."""

    deadline_s: Seconds = 600.0
    """Seconds for an answer, over all models of a chain together. More than `llm.deadline_s`: an agent's long answer takes minutes, and
    no user waits in front of a screen."""

    max_choices: Count = 8
    """The most answers to one request (`n`). Each is a call of its own, and costs money."""

    max_body_bytes: Count = 20_000_000
    """The largest request body in bytes; a larger one is refused with 413. More than `web.max_body_bytes`, because a client sends
    the whole chat each time, with its images."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The HTTP API under `/v1`."""

    per_minute: Count = 600
    """Messages that each process accepts from one API key within a minute; it refuses the next ones with 429. Chat completions are limited
    by slots and budgets instead."""

    max_streams: Count = 100
    """Streams of events that one API key, operator or visitor may have open at each process, and requests of it that wait for an answer. A
    further stream gets 429; a further request is accepted with 202 and does not wait."""

    key_usd_per_day: Usd = 5.0
    """US dollars that the calls of a new API key may cost in a day (UTC), if the operator who creates it names no other limit.
    `hermes keys create --usd-per-day none` creates a key without this limit."""

    idempotency_ttl_s: WholeSeconds = 86_400
    """Seconds that Hermes remembers an `Idempotency-Key` with its turn. A day covers the retries of every common client."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process: first those of the whole process, then a section for each of its parts."""

    environment: Environment = Environment.DEVELOPMENT
    """In `development` Hermes makes what is missing, such as a master key; in `production` it refuses to start without it."""

    home: LocalPath | None = None
    """The data folder. Left out: the usual folder of the operating system, `~/.local/share/hermes` (or below `XDG_DATA_HOME`), on macOS
    `~/Library/Application Support/hermes`."""

    database_url: Secret | None = None
    """The address of PostgreSQL, `postgresql://user:password@host/name`. Without it an embedded one runs in the data folder."""

    redis_url: Secret | None = None
    """The address of Redis or Valkey, `redis://:password@host:6379/0`. Without it an embedded one runs in the data folder."""

    vault: LocalPath | None = None
    """The folder of the vault, whose keys are destroyed when a user is erased. Every process on every machine needs the same folder, and it
    must outlive them. Left out: with an embedded PostgreSQL the data folder; with a server there is no vault, and what an erased user wrote
    can be opened with the master key as long as that server keeps old bytes."""

    master_keys: tuple[Secret, ...] = ()
    """The keys that protect the users' data keys: the first one seals, the others can still open, so that keys can be rotated. Without one,
    Hermes makes one in the data folder in `development`, and refuses to start in `production`."""

    web: WebSettings = WebSettings()
    database: DatabaseSettings = DatabaseSettings()
    redis: RedisSettings = RedisSettings()
    inbox: InboxSettings = InboxSettings()
    work: WorkSettings = field(default_factory=WorkSettings)
    delivery: DeliverySettings = DeliverySettings()
    history: HistorySettings = HistorySettings()
    journal: JournalSettings = field(default_factory=JournalSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    erasure: ErasureSettings = field(default_factory=ErasureSettings)
    credits: CreditSettings = CreditSettings()
    links: LinkSettings = LinkSettings()
    memory: MemorySettings = MemorySettings()
    packs: PackSettings = PackSettings()
    tools: ToolSettings = ToolSettings()
    images: ImageSettings = ImageSettings()
    llm: LlmSettings = LlmSettings()
    fleet: FleetSettings = FleetSettings()
    completions: CompletionsSettings = CompletionsSettings()
    api: ApiSettings = ApiSettings()
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    log: LogSettings = field(default_factory=LogSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)
    backends: NamedTables[BackendSettings] = field(default_factory=NamedTables)
    models: NamedTables[ModelSettings] = field(default_factory=NamedTables)
    tiers: NamedTables[TierSettings] = field(default_factory=NamedTables)
    mcp: NamedTables[McpSettings] = field(default_factory=NamedTables)
    alerts: NamedTables[AlertSettings] = field(default_factory=NamedTables)

    @property
    def pack_names(self) -> tuple[str, ...]:
        """The packs that are on."""
        if self.packs.enabled is not None:
            return tuple(name for name in self.packs.enabled if name != NO_PACK)
        return DEVELOPMENT_PACKS if self.environment is Environment.DEVELOPMENT else ()
