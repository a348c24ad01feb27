"""Anthropic's `claude`: print mode, one JSON object a line. Inside `stream_event` it passes on the API's own events.

As observed in version 2.1: `system` (init, status, api_retry), `stream_event`, `assistant` (with `error`, for a message that the program
itself made to report an error), `result` (`is_error`, `api_error_status`, `result`, `total_cost_usd`). The subtype is `success` for errors
too, so it is not read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermes.backends.anthropic import AnthropicReader
from hermes.backends.processes.backend import ProcessBackend, ProgramRequest
from hermes.backends.vendor_answers import AnswerParts, ErrorInAnswer, MalformedAnswer, StreamEvent, parse_object, require_object
from hermes.backends.vendor_errors import VendorErrorDetails
from hermes.ports.backends import Delta, ModelRequest

ERROR_STATUS = {
    "invalid_request": 400,
    "authentication_failed": 401,
    "billing_error": 402,
    "oauth_org_not_allowed": 403,
    "model_not_found": 404,
    "rate_limit": 429,
    "overloaded": 529,
}
"""The status of each error that the program reports; any other error counts as a failure of the program (500)."""
FINAL_REASONS = ("length", "refusal")
"""After these the program would call its model again by itself, up to three times."""


class ClaudeLocal(ProcessBackend):
    """The port Backend over `claude -p`. The program's login pays, or a key in `environment` (`ANTHROPIC_API_KEY`).

    The program reads its settings and CLAUDE.md in `cwd`."""

    program = "claude"
    login = ("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "NODE_EXTRA_CA_CERTS")

    def _options(self, call: ProgramRequest, instructions: Path) -> Sequence[str]:
        return [
            *("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages", "--no-session-persistence"),
            *("--tools", "", "--strict-mcp-config", "--disable-slash-commands"),
            *("--model", call.model, "--system-prompt-file", str(instructions)),
        ]

    def _own_environment(self, ask: ModelRequest) -> Mapping[str, str]:
        return {
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(ask.max_tokens),
            "MAX_THINKING_TOKENS": "0",  # by default it uses nearly all tokens for thinking, and writes no answer
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def _reader(self, model: str) -> ClaudeReader:
        return ClaudeReader(model)

    def _error_details(self, body: Mapping[str, object]) -> VendorErrorDetails:
        result, kind = body.get("result"), body.get("error")
        return VendorErrorDetails(result if isinstance(result, str) else "", kind if isinstance(kind, str) else "")


class ClaudeReader:
    """The port StreamReader for the program's lines. The answer is whole with the message, and over with `result`, which has the cost."""

    def __init__(self, model: str) -> None:
        self._answer = AnthropicReader(model)
        self._error = ""
        self._cost: dict[str, Any] = {}
        self.is_over = False

    @property
    def is_whole(self) -> bool:
        return self._answer.is_whole

    def feed(self, event: StreamEvent) -> Iterator[Delta]:
        line = parse_object(event.data, "a line")
        match line.get("type"):
            case "stream_event" if not self._answer.is_whole:
                yield from self._answer.feed(StreamEvent("", json.dumps(require_object(line.get("event"), "event"))))
                self.is_over = self._is_final()
            case "assistant" if line.get("error"):
                self._error = str(line["error"])
            case "system" if line.get("subtype") == "api_retry":
                raise self._error_of_line(line.get("error_status"), {"error": line.get("error")})
            case "result":
                self._end(line)

    def parts(self) -> AnswerParts:
        parts = self._answer.parts()
        return replace(parts, extra={**parts.extra, **self._cost})

    def _is_final(self) -> bool:
        return self._answer.is_whole and self._answer.parts().finish_reason in FINAL_REASONS

    def _end(self, line: Mapping[str, Any]) -> None:
        self.is_over = True
        if isinstance(cost := line.get("total_cost_usd"), int | float):
            self._cost = {"cost_usd": cost}
        if self.is_whole:
            return
        if line.get("is_error"):
            raise self._error_of_line(line.get("api_error_status"), {"result": line.get("result"), "error": self._error})
        raise MalformedAnswer("the program answered without its model")

    def _error_of_line(self, status: Any, body: Mapping[str, Any]) -> ErrorInAnswer:
        return ErrorInAnswer(status if isinstance(status, int) else ERROR_STATUS.get(str(body.get("error")), 500), body)
