"""What a log line holds, whichever library wrote it, and what it must never hold."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog

from hermes.ops import logs

UTC_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    names = ["", "hermes", *logs.LIBRARY_LEVELS]
    before = [(logging.getLogger(name), logging.getLogger(name).level, logging.getLogger(name).propagate) for name in names]
    handlers = root.handlers[:]
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    for logger, level, propagate in before:
        logger.setLevel(level)
        logger.propagate = propagate


def written(style: Literal["json", "console"] = "json", level: Literal["debug", "info", "warning", "error"] = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(style, level, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The lines without their times, which are looked at on the way."""
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert all(UTC_ISO.fullmatch(line.pop("timestamp")) for line in found)
    return found


def fail() -> None:
    password = "hunter2"  # noqa: S105
    raise ValueError(f"a password of {len(password)} letters")


def test_a_line_is_one_json_object_with_time_level_event_and_the_turn() -> None:
    stream = written()
    structlog.contextvars.bind_contextvars(turn_id="7e1d")
    structlog.get_logger("hermes.router.turns").info("turn_ended", outcome="answered", attempt=1)
    assert lines(stream) == [
        {
            "event": "turn_ended",
            "level": "info",
            "logger": "hermes.router.turns",
            "turn_id": "7e1d",
            "outcome": "answered",
            "attempt": 1,
        }
    ]


def test_the_standard_library_speaks_through_the_same_formatter() -> None:
    stream = written()
    structlog.contextvars.bind_contextvars(turn_id="7e1d")
    logging.getLogger("psycopg.pool").warning("error connecting in %r", "pool-1")
    assert lines(stream) == [{"event": "error connecting in 'pool-1'", "level": "warning", "logger": "psycopg.pool", "turn_id": "7e1d"}]


@pytest.mark.parametrize(
    ("name", "level", "is_heard"),
    [
        ("uvicorn.error", logging.INFO, False),
        ("uvicorn.error", logging.WARNING, True),
        ("uvicorn.access", logging.INFO, False),
        ("procrastinate.worker", logging.INFO, False),
        ("procrastinate.worker", logging.WARNING, True),
        ("psycopg.pool", logging.INFO, False),
        ("anybody.else", logging.INFO, False),
        ("anybody.else", logging.WARNING, True),
    ],
)
def test_libraries_are_heard_when_it_matters(name: str, level: int, is_heard: bool) -> None:
    stream = written()
    logging.getLogger(name).log(level, "something happened")
    assert bool(stream.getvalue()) is is_heard


def test_uvicorn_does_not_write_a_second_time_through_handlers_of_its_own() -> None:
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(io.StringIO()))
    logging.getLogger("uvicorn").propagate = False
    stream = written()
    logging.getLogger("uvicorn.error").warning("stumbled")
    assert lines(stream) == [{"event": "stumbled", "level": "warning", "logger": "uvicorn.error"}]
    assert logging.getLogger("uvicorn").handlers == []


def test_less_serious_events_than_the_level_are_left_out() -> None:
    stream = written(level="warning")
    log = structlog.get_logger("hermes.app")
    log.info("started")
    log.warning("store_slow")
    logging.getLogger("uvicorn.error").info("started")
    assert [line["event"] for line in lines(stream)] == ["store_slow"]


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("speak", ["structlog", "logging"])
def test_a_traceback_shows_lines_and_no_values(style: Literal["json", "console"], speak: str) -> None:
    stream = written(style)
    try:
        fail()
    except ValueError:
        if speak == "structlog":
            structlog.get_logger("hermes.app").exception("step_failed")
        else:
            logging.getLogger("uvicorn.error").exception("step_failed")
    text = stream.getvalue()
    assert ("step_failed" in text, "test_logs.py" in text, "ValueError: a password of 7 letters" in text) == (True, True, True)
    assert "hunter2" not in text


def test_the_console_format_is_for_people() -> None:
    stream = written("console")
    structlog.get_logger("hermes.app").info("started", port=8080)
    [line] = stream.getvalue().splitlines()
    assert re.fullmatch(r"\S+Z \[info     \] started +\[hermes\.app\] port=8080", line)


def test_the_last_configuration_counts() -> None:
    log = structlog.get_logger("hermes.app")
    first = written()
    log.info("one")
    second = written()
    log.info("two")
    assert ([line["event"] for line in lines(first)], [line["event"] for line in lines(second)]) == (["one"], ["two"])


def test_a_broken_stream_does_not_break_whoever_logs(capsys: pytest.CaptureFixture[str]) -> None:
    stream = written()
    stream.close()
    structlog.get_logger("hermes.app").info("answer_sent")
    assert "ValueError: I/O operation on closed file" in capsys.readouterr().err
