"""How a log line looks, for the events of Hermes and of the libraries that it uses.

Every line has a UTC time, a level, an event and the fields bound to the context (the turn's id). Message text and secrets are never
logged, so a traceback shows files and lines, and never the values of variables."""

from __future__ import annotations

import logging
from typing import Literal, TextIO

import structlog
from structlog.typing import Processor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

LIBRARY_LEVELS = {
    "uvicorn": "warning",  # Hermes itself logs that the server started and stopped
    "uvicorn.error": "warning",
    "uvicorn.access": "error",  # a line for each request tells the operator nothing that the metrics do not show
    "procrastinate": "warning",  # at info it writes five lines for each job
    "psycopg.pool": "warning",
    "asyncio": "warning",
}
"""The lowest level of each library's logger that is written. Loggers that are not listed are written from warning on."""


def configure(format: Literal["json", "console"], level: Literal["debug", "info", "warning", "error"], stream: TextIO) -> None:  # noqa: A002
    """Send all log lines of this process to a stream; the last call counts.

    Uses the standard library's handler, because it ignores the errors of a broken stream: a failing log must not cost the user an
    answer."""
    own: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*own, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=own,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *choose_renderers(format, stream)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("hermes").setLevel(LEVELS[level])
    for name, least in LIBRARY_LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(LEVELS[least], LEVELS[level]))


def choose_renderers(format: str, stream: TextIO) -> list[Processor]:  # noqa: A002
    if format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # The default is Rich's traceback, which prints the values of local variables.
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)]
