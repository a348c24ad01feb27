"""What the stand-ins for `claude` and `codex` share: what they are told to do, and what they have seen.

Told by the variable FAKE, an object as JSON: `say` in pieces, `reasoning`, `fault`, `message`, `status`, and `seen`, a file to write to.
They are programs that run: options that the real one does not know are refused, and what it would do with a prompt is done here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

USAGE = {"input_tokens": 12, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 7}
MENTION = re.compile(r"@([^\s\"\\]+)")


class Told:
    """What the test wants."""

    def __init__(self) -> None:
        told: dict[str, Any] = json.loads(os.environ.get("FAKE", "{}"))
        self.say: list[str] = told.get("say", ["Hello", " there."])
        self.reasoning: str = told.get("reasoning", "")
        self.fault: str = told.get("fault", "")
        self.message: str = told.get("message", "scripted")
        self.status: int | None = told.get("status")
        self.kind: str = told.get("kind", "")
        self.cut_after: int = told.get("cut_after", 1)
        self.drip_s: float = told.get("drip_s", 0.0)
        self._seen: str = told.get("seen", "")

    def saw(self, **more: Any) -> None:
        """Write down what the program was given, all at once: whoever looks meanwhile sees what was there before."""
        if self._seen:
            about = {"arguments": sys.argv[1:], "environment": dict(os.environ), "cwd": str(Path.cwd()), "pid": os.getpid()}
            written = Path(f"{self._seen}.{os.getpid()}")
            written.write_text(json.dumps({**about, **more}), encoding="utf-8")
            written.replace(self._seen)

    def before_a_word(self) -> None:
        """The faults that come before anything is said."""
        match self.fault:
            case "hang":
                self.hang()
            case "garbage":
                sys.stdout.write("<html>not JSON</html>\n")
                sys.exit(0)
            case "silence":
                sys.exit(0)
            case "crash":
                sys.stderr.write("warning: first\nfatal: out of luck, token=" + os.environ.get("SECRET", "") + "\n")
                sys.exit(3)

    def after_a_word(self, at: int) -> None:
        """The faults that come in the middle."""
        if at != self.cut_after:
            return
        match self.fault:
            case "cut":
                sys.exit(1)
            case "cut_garbage":
                line({"type": 7})
                sys.stdout.write("{broken\n")
                sys.exit(0)
            case "cut_hang":
                self.hang()
            case "cut_killed":
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> NoReturn:
        """Never end, deaf to every word but the last, with a child that is the same."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        self.saw(child=child.pid)
        sys.stdout.flush()
        time.sleep(600)
        sys.exit(9)


def line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def demand(condition: object, message: str) -> None:
    """End as the real program does for options that it does not take."""
    if not condition:
        sys.stderr.write(f"error: {message}\n")
        sys.exit(1)


def options(arguments: list[str], flags: set[str], valued: set[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options with their values, and what stands beside them. Anything unknown ends the program."""
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    while arguments:
        word = arguments.pop(0)
        if word in flags:
            found[word] = []
        elif word in valued:
            demand(arguments, f"option '{word}' argument missing")
            found.setdefault(word, []).append(arguments.pop(0))
        else:
            demand(word == "-" or not word.startswith("-"), f"unknown option '{word}'")
            rest.append(word)
    return found, rest
