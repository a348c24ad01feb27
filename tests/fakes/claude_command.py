"""A stand-in for Anthropic's `claude`, version 2.1, in print mode with JSON lines. Run as a program; see command.py."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fakes.command import MENTION, USAGE, Told, demand, line, options

FLAGS = {"-p", "--verbose", "--include-partial-messages", "--no-session-persistence", "--strict-mcp-config", "--disable-slash-commands"}
VALUED = {"--output-format", "--tools", "--model", "--system-prompt-file"}


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write("2.1.197 (Claude Code)\n")
        sys.exit(0 if Told().fault != "crash" else 3)
    found, rest = options(sys.argv[1:], FLAGS, VALUED)
    demand("-p" in found and not rest, "only print mode, with the prompt on standard input")
    demand(found.get("--output-format") == ["stream-json"] and "--verbose" in found, "--output-format=stream-json requires --verbose")
    instructions = Path(found["--system-prompt-file"][0])
    demand(instructions.is_file(), f"System prompt file not found: {instructions}")
    prompt = sys.stdin.read()
    demand(prompt.strip(), "Input must be provided either through stdin or as a prompt argument when using --print")
    told = Told()
    read = {name: Path(name).read_text(encoding="utf-8") for name in MENTION.findall(prompt) if Path(name).is_file()}
    shown = oct(instructions.stat().st_mode & 0o777)
    told.saw(prompt=prompt, instructions=instructions.read_text(encoding="utf-8"), mode=shown, read=read, tools=found["--tools"])
    answer(told, prompt, found["--model"][0])


def answer(told: Told, prompt: str, model: str) -> None:
    line({"type": "system", "subtype": "init", "cwd": str(Path.cwd()), "tools": [], "model": model})
    line({"type": "system", "subtype": "status", "status": "requesting"})
    if prompt.startswith("/"):
        result(f"{prompt.split(maxsplit=1)[0]} isn't available in this environment.", is_error=False)
    told.before_a_word()
    if told.fault == "retry":
        line({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "error_status": told.status, "error": told.kind})
        told.hang()
    if told.fault == "refused":
        report(told.message, told.kind)
        result(told.message, is_error=True, status=told.status)
    speak(told, model)
    if told.fault == "length":
        line({"type": "system", "subtype": "status", "status": "requesting"})
        event("message_start", message={"id": "msg_2", "role": "assistant", "model": model, "content": [], "usage": USAGE})
        told.hang()
    if told.fault == "no_result":
        sys.exit(0)
    result("".join(told.say), is_error=False)


def speak(told: Told, model: str) -> None:
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None}
    event("message_start", message={**about, "usage": {**USAGE, "output_tokens": 1}})
    if told.reasoning:
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""})
        event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": told.reasoning})
        event("content_block_stop", index=0)
    at = 1 if told.reasoning else 0
    event("content_block_start", index=at, content_block={"type": "text", "text": ""})
    for number, piece in enumerate(told.say):
        told.after_a_word(number)
        if told.fault == "cut_reported" and number == told.cut_after:
            report("API Error: Connection to the API was lost (ECONNRESET).", "unknown")
            result("API Error: Connection to the API was lost (ECONNRESET).", is_error=True)
        time.sleep(told.drip_s)
        event("content_block_delta", index=at, delta={"type": "text_delta", "text": piece})
    event("content_block_stop", index=at)
    stop = {"length": "max_tokens", "refusal": "refusal"}.get(told.fault, "end_turn")
    event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": USAGE["output_tokens"]})
    event("message_stop")


def event(kind: str, **more: Any) -> None:
    line({"type": "stream_event", "event": {"type": kind, **more}, "parent_tool_use_id": None, "session_id": "s-1"})


def report(text: str, kind: str) -> None:
    """The made-up message by which the program reports an error."""
    line(
        {"type": "assistant", "message": {"model": "<synthetic>", "content": [{"type": "text", "text": text}]}, "error": kind or "unknown"}
    )


def result(text: str, *, is_error: bool, status: int | None = None) -> None:
    about = {"subtype": "success", "is_error": is_error, "api_error_status": status, "result": text, "total_cost_usd": 0.00005}
    line({"type": "result", **about, "usage": USAGE, "session_id": "s-1"})
    sys.exit(1 if is_error else 0)


if __name__ == "__main__":
    demand(os.environ.get("HOME"), "HOME is not set")
    main()
