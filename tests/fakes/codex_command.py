"""A stand-in for OpenAI's `codex exec --json`, version 0.166. Run as a program; see command.py."""

from __future__ import annotations

import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fakes.command import Told, demand, line, options

FLAGS = {"--json", "--skip-git-repo-check", "--ephemeral"}
VALUED = {"-c", "--color", "--sandbox", "--model"}
USAGE = {"input_tokens": 20, "cached_input_tokens": 8, "cache_write_input_tokens": 0, "output_tokens": 7, "reasoning_output_tokens": 2}


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write("codex-cli 0.166.0\n")
        sys.exit(0 if Told().fault != "crash" else 3)
    demand(sys.argv[1:2] == ["exec"], "only exec")
    found, rest = options(sys.argv[2:], FLAGS, VALUED)
    demand(rest == ["-"] and "--json" in found, "only a prompt on standard input, and only JSON lines")
    settings = tomllib.loads("\n".join(found.get("-c", [])))
    instructions = Path(settings["model_instructions_file"])
    demand(instructions.is_file(), f"failed to read model instructions file {instructions}")
    prompt = sys.stdin.read()
    demand(prompt.strip(), "No prompt provided via stdin.")
    told = Told()
    shown = oct(instructions.stat().st_mode & 0o777)
    told.saw(
        prompt=prompt, instructions=instructions.read_text(encoding="utf-8"), mode=shown, settings=settings, sandbox=found["--sandbox"]
    )
    answer(told)


def answer(told: Told) -> None:
    sys.stderr.write("WARNING: something that does not matter\n")
    line({"type": "thread.started", "thread_id": "t-1"})
    line({"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "Codex is ignoring a setting."}})
    line({"type": "turn.started"})
    told.before_a_word()
    if told.fault == "retry":
        line({"type": "error", "message": f"Reconnecting... 1/5 ({told.message})"})
        told.hang()
    if told.fault == "refused":
        fail(told.message)
    if told.fault == "mended":
        line({"type": "error", "message": "Reconnecting... 2/5 (unexpected status 404 Not Found: {}, url: wss://example.com/v1/responses)"})
    if told.reasoning:
        line({"type": "item.completed", "item": {"id": "item_1", "type": "reasoning", "text": told.reasoning}})
    for number, text in enumerate(told.say):
        told.after_a_word(number)
        time.sleep(told.drip_s)
        line({"type": "item.started", "item": {"id": f"item_{number + 2}", "type": "agent_message", "text": ""}})
        line({"type": "item.completed", "item": {"id": f"item_{number + 2}", "type": "agent_message", "text": text}})
    if told.fault == "length":
        fail("Incomplete response returned, reason: max_output_tokens")
    line({"type": "turn.completed", "usage": USAGE})


def fail(message: str) -> None:
    line({"type": "error", "message": message})
    line({"type": "turn.failed", "error": {"message": message}})
    sys.exit(1)


if __name__ == "__main__":
    main()
