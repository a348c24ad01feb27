"""The settings of a running service: its workers, its log, and what is watched, kept and traced."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.config.values import Choice, Count, CountOrZero, Flag, Percent, Seconds, SecondsOrZero, WholeSeconds


class LogFormat(Choice):
    """How a log line looks."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(Choice):
    """The least serious event that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """The workers that run turns and deliveries."""

    concurrency: Count = 32
    """Turns that a worker process runs at the same time. They mostly wait for models, so this is more than the processor has cores."""

    processes: Count = 1
    """Worker processes that `hermes up` starts. One busy worker uses about one core; models do not use it."""

    poll_s: Seconds = 1.0
    """Seconds between a worker's searches for jobs that have become due. The database announces new jobs at once, but not retries."""

    heartbeat_s: Seconds = 2.0
    """Seconds between a worker's heartbeats."""

    stalled_after_s: Seconds = 10.0
    """Seconds without a heartbeat after which other workers take over a worker's jobs. More than twice `heartbeat_s`, so that one late
    heartbeat takes no jobs from a worker that is alive."""

    sweep_s: Seconds = 2.0
    """Seconds between searches for the jobs of dead workers."""

    replace_after_s: Seconds = 10.0
    """Seconds without a beat after which `hermes up` kills one of its processes and starts another. The beat comes from the event loop and
    needs no store, so an outage of PostgreSQL kills no process."""

    silent_after_s: Seconds = 60.0
    """Seconds for which turns wait and no turn ends, although the worker gives its beat; then it is silent, and `hermes up` replaces it. A
    worker that is full of turns which may still end is not silent."""

    late_after_s: Seconds = 60.0
    """Seconds that the oldest message may wait for a worker; after that `/ready` says `degraded`."""

    drain_s: SecondsOrZero = 30.0
    """Seconds that a worker waits for its running turns after SIGTERM. Another worker repeats the turns that have not ended by then.
    Set the grace period of the service manager (Docker: 10 s) to more than this."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The journal of turns: what each step did, what models were asked and answered, what tools brought."""

    keep_days: CountOrZero = 30
    """Days that the requests and results of a turn are kept after its end, sealed; then Hermes empties them, and keeps names, numbers and
    times. 0 keeps them for ever. A month covers the questions that users ask about an answer. The conversation itself is not touched."""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long content is kept. A chore deletes what is older; numbers, times and money stay. 0 keeps it for ever."""

    messages_days: CountOrZero = 0
    """Days that messages and answers are kept as they came in and went out, after their turn has ended. For ever by default: how long
    users may ask about their messages is the operator's decision. The raw requests to models and tools have `journal.keep_days`; Hermes
    stores no raw webhooks."""

    graphs_days: CountOrZero = 0
    """Days that the message graph of a session is kept after its last message: the history that models see and exports read. A session that
    may still go on (`history.idle_s`) is kept."""

    calls_days: CountOrZero = 0
    """Days that the row of each model call is kept: tokens, dollars, times, no text. Whole months are dropped, so a call stays up to a
    month longer. The sums of each hour stay, and so do the credits. Budgets of a month are counted from these rows, so less than 62 counts
    as 62."""


@dataclass(frozen=True, slots=True)
class ErasureSettings:
    """What happens after a user was erased."""

    grace_s: SecondsOrZero = 900.0
    """Seconds from an erasure until Hermes destroys the key of the vault that could still open what is left of the user. A quarter of an
    hour: if the database falls back to a replica that lacks the last commits, the key is still there."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The event loop, which all conversations of a process share."""

    blocked_after_s: Seconds = 1.0
    """Seconds after which Hermes reports a blocked event loop: the process serves no other conversation meanwhile."""


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """What Hermes watches by itself each minute, and when that is an alert. The destinations are set in `[alerts]`."""

    window_s: WholeSeconds = 3_600
    """Seconds in which a destination gets one message about an alert, however often it is repeated. An alert that is not repeated for so
    long has ended."""

    keep_days: Count = 30
    """Days that alerts are kept after they have ended."""

    queue_age_s: Seconds = 60.0
    """Seconds that the oldest waiting message may wait for a worker. Messages wait behind earlier ones of their conversation too, so a
    conversation with a slow model can reach it."""

    failed_percent: Percent = 10
    """Turns of the last `failed_within_s`, in per cent, that may end without an answer."""

    failed_within_s: WholeSeconds = 900
    """Seconds that are looked at for `failed_percent`."""

    failed_min: Count = 5
    """Failed turns below which `failed_percent` is no alert: of three turns, one is already a third."""

    dead_letters: Count = 20
    """Answers that may be given up within an hour."""

    disk_percent: Percent = 90
    """How full the disk of the data folder may be, in per cent."""

    spend_factor: Seconds = 6.0
    """How many times as much as in the median hour of its last seven days an agent may cost in an hour."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log of Hermes. It never holds message text or secrets."""

    format: LogFormat = LogFormat.AUTO
    """`json` is one object a line, `console` is for people to read; `auto` is `console` on a terminal and `json` elsewhere."""

    level: LogLevel = LogLevel.INFO
    """The least serious event that is logged."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Traces of messages, for a tool that reads OpenTelemetry."""

    enabled: Flag = False
    """Whether Hermes sends traces. The standard OTEL_* variables say where (`OTEL_EXPORTER_OTLP_ENDPOINT`), how many and under which name.
    Off, even if such a variable is set: a trace names users by a digest, and leaves this machine. Needs the extra `otel`."""
