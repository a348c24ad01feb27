"""OpenAI's `codex`: `codex exec --json`, one JSON object a line. Each message comes in one piece, when it is finished.

As observed in version 0.166: `thread.started`, `turn.started`, `item.completed` (`agent_message`, `reasoning`, `error` for a warning),
`error` (also for each of its own retries), `turn.completed` with the usage, `turn.failed`. Errors have no code, only a text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes.backends.openai_answer import read_error_details
from hermes.backends.processes.backend import ProcessBackend, ProgramRequest
from hermes.backends.vendor_answers import (
    AnswerParts,
    ErrorInAnswer,
    StreamEvent,
    TokenCounts,
    count_or_none,
    parse_object,
    require_object,
    text_or_empty,
    usage_fields,
)
from hermes.backends.vendor_errors import CONTEXT_TOO_LONG, VendorErrorDetails
from hermes.ports.backends import Delta, ModelRequest, ReasoningDelta, TextDelta

DISABLED_FEATURES = ("shell_tool", "unified_exec", "view_image", "apps", "plugins", "multi_agent", "goals", "image_generation", "hooks")
"""Features by which the model could read this machine, or do more than answer. The program ignores those that its version does not know."""
MESSAGE_SEPARATOR = "\n\n"
"""Put between two messages of one turn."""
LENGTH_ERROR = re.compile(r"max_output_tokens")
_STATUS_IN_TEXT = re.compile(r"\bstatus:? (\d{3})\b")
_STATUS_BY_TEXT = (
    (CONTEXT_TOO_LONG, 400),
    (re.compile(r"not logged in|log ?in again|codex login|refresh token|unauthorized|api key", re.IGNORECASE), 401),
    (re.compile(r"usage limit|rate limit|too many requests|quota", re.IGNORECASE), 429),
    (re.compile(r"not supported when using|does not exist|model.{0,40}not found", re.IGNORECASE), 404),
)
"""The status of errors that name none, by their text; any other error counts as a failure of the program (500)."""
PERMANENT_STATUSES = (401, 402, 403, 429)
"""Errors that the program's own retries cannot mend."""


class CodexLocal(ProcessBackend):
    """The port Backend over `codex exec`. The program's login pays, or a key in `environment` (`CODEX_API_KEY`).

    The program reads AGENTS.md in `cwd`, and cannot write. It has no option for the length of an answer, so `max_tokens` does not limit it;
    the usage is what was really used."""

    program = "codex"
    login = ("CODEX_HOME", "CODEX_CA_CERTIFICATE")

    def _options(self, call: ProgramRequest, instructions: Path) -> Sequence[str]:
        switched = [option for feature in DISABLED_FEATURES for option in ("-c", f"features.{feature}=false")]
        return [
            *("exec", "--json", "--skip-git-repo-check", "--ephemeral", "--color", "never", "--sandbox", "read-only"),
            *switched,
            *("-c", 'web_search="disabled"', "-c", "skills.include_instructions=false", "-c", "mcp_servers={}"),
            *("-c", f"model_instructions_file={json.dumps(str(instructions))}"),
            *("--model", call.model, "-"),
        ]

    def _own_environment(self, ask: ModelRequest) -> Mapping[str, str]:  # noqa: ARG002 - all its options are in the command
        return {}

    def _reader(self, model: str) -> CodexReader:  # noqa: ARG002 - its lines name no model
        return CodexReader()

    def _error_details(self, body: Mapping[str, object]) -> VendorErrorDetails:
        return read_error_details(body)


class CodexReader:
    """The port StreamReader for the program's lines, which do not say what model answered."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._usage: dict[str, Any] = {}
        self._extra: dict[str, Any] = {}
        self._finish = "stop"
        self.is_whole = self.is_over = False

    def feed(self, event: StreamEvent) -> Iterator[Delta]:
        line = parse_object(event.data, "a line")
        match line.get("type"):
            case "thread.started":
                self._extra["id"] = text_or_empty(line.get("thread_id"), "thread_id")
            case "item.completed":
                yield from self._item(require_object(line.get("item"), "item"))
            case "turn.completed":
                self._usage = usage_fields(line.get("usage"))
                self.is_whole = self.is_over = True
            case "error":
                self._retry(text_or_empty(line.get("message"), "message"))
            case "turn.failed":
                self._fail(text_or_empty(require_object(line.get("error"), "error").get("message"), "message"))

    def parts(self) -> AnswerParts:
        message: dict[str, Any] = {"role": "assistant", "content": MESSAGE_SEPARATOR.join(self._texts)}
        return AnswerParts(
            message=message | ({"reasoning": MESSAGE_SEPARATOR.join(self._thoughts)} if self._thoughts else {}),
            finish_reason=self._finish,
            counts=TokenCounts(
                tokens_in=count_or_none(self._usage.get("input_tokens")),
                tokens_out=count_or_none(self._usage.get("output_tokens")),
                cache_read=count_or_none(self._usage.get("cached_input_tokens")) or 0,
                cache_write=count_or_none(self._usage.get("cache_write_input_tokens")) or 0,
            ),
            extra=self._extra,
        )

    def _item(self, item: Mapping[str, Any]) -> Iterator[Delta]:
        text = text_or_empty(item.get("text"), "text")
        match item.get("type"):
            case "agent_message" if text:
                yield TextDelta((MESSAGE_SEPARATOR if self._texts else "") + text)
                self._texts.append(text)
            case "reasoning" if text:
                yield ReasoningDelta((MESSAGE_SEPARATOR if self._thoughts else "") + text)
                self._thoughts.append(text)

    def _retry(self, text: str) -> None:
        """Ignore an error after which the program retries by itself, within the deadline. Raise one that no retry can mend."""
        if text.startswith("Reconnecting") and error_status(text) in PERMANENT_STATUSES:
            raise error_from_text(text)

    def _fail(self, text: str) -> None:
        if self._texts and LENGTH_ERROR.search(text):
            self._finish, self.is_whole, self.is_over = "length", True, True
            return
        raise error_from_text(text)


def error_from_text(text: str) -> ErrorInAnswer:
    """The error that a text describes; some texts are the vendor's own JSON."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return ErrorInAnswer(error_status(text), body if isinstance(body, dict) else {"error": text})


def error_status(text: str) -> int:
    """The status that a text names or means."""
    if named := _STATUS_IN_TEXT.search(text):
        return int(named[1])
    return next((status for words, status in _STATUS_BY_TEXT if words.search(text)), 500)
