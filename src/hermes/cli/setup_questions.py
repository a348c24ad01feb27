"""How `hermes setup` asks: at a terminal or from piped lines, with defaults, and again after an answer that its test refuses.

Questions and reports go to standard error, so that standard output has only the result."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn

from rich.console import Console
from rich.markup import escape

from hermes.app.doctor_basics import Health, HealthFinding
from hermes.cli.doctor import print_finding
from hermes.cli.output import complain, fail
from hermes.terminal import show_safely

with suppress(ModuleNotFoundError):  # Windows has no readline
    import readline  # noqa: F401  # with it, the user can edit the line at `input`


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the option that answers it without a question."""

    text: str
    option: str
    default: str = ""
    """What an empty answer means."""
    shown: str | None = None
    """What stands for the default on the screen, if that is a secret."""
    is_secret: bool = False


@dataclass(slots=True)
class Questions:
    """Asks the user, unless the user wants no questions (`--yes`): then every default counts."""

    is_asking: bool
    findings: list[HealthFinding] = field(default_factory=list)
    """What the tests found, for the result."""
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False, soft_wrap=True))

    def say(self, text: str, style: str = "") -> None:
        """Print a line. Names of models come from servers, so no text may control the terminal."""
        shown = escape(show_safely(text))
        self.console.print(f"[{style}]{shown}[/]" if style else shown)

    def report(self, finding: HealthFinding) -> None:
        self.findings.append(finding)
        print_finding(self.console, finding)

    def ask(self, question: Question) -> str:
        """Return the answer without white space around it; the default for an empty one, and without asking if there are no questions."""
        if not self.is_asking:
            return question.default
        shown = question.shown if question.shown is not None else question.default
        prompt = show_safely(f"{question.text}{f' [{shown}]' if shown else ''}: ")
        return read_answer(prompt, question) or question.default

    def ask_yes(self, text: str, option: str, *, default: bool) -> bool:
        """Ask for yes or no, until the answer is one of them."""
        while True:
            answer = self.ask(Question(text, option, "yes" if default else "no")).lower()
            if answer in {"y", "yes", "n", "no"}:
                return answer.startswith("y")
            complain(f"{answer!r} is neither yes nor no")

    def settle(self, question: Question, given: str | None, check: Callable[[str], HealthFinding | None]) -> str:
        """Ask until an answer passes its test, or the user keeps one that does not; `given` is the value of the option.

        `check` raises ValueError for an answer that cannot be kept. Without questions, a bad answer ends the command."""
        value = given.strip() if given is not None else self.ask(question)
        while True:
            try:
                finding = check(value)
            except ValueError as error:
                if not self.is_asking:
                    fail(f"{question.option}: {error}")
                complain(str(error))
                value = self.ask(question)
                continue
            if finding is None:
                return value
            self.report(finding)
            if finding.health is not Health.BAD:
                return value
            if not self.is_asking:
                fail(f"{question.option}: {finding.says}; {finding.advice}".rstrip("; "))
            again = self.ask(replace(question, text="Type another, or press Enter to keep it all the same", default="", shown=None))
            if not again:
                return value
            value = again


def read_answer(prompt: str, question: Question) -> str:
    """Read a line from the terminal, where a secret is not shown, or from a pipe. Ends the command if there is no further line."""
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    try:
        if is_terminal and question.is_secret:
            return getpass.getpass(prompt, stream=sys.stderr).strip()
        if is_terminal and sys.stdout.isatty():
            return input(prompt).strip()
        print(prompt, end="", file=sys.stderr, flush=True)  # noqa: T201  # a prompt, without a line break
        line = sys.stdin.readline() if sys.stdin is not None else ""
    except EOFError:
        end_of_answers(question)
    except UnicodeDecodeError:
        print(file=sys.stderr)  # noqa: T201
        fail(f"the answer for {question.option} is not UTF-8 text. Nothing was written")
    if not line:
        end_of_answers(question)
    if not is_terminal:
        print(file=sys.stderr)  # noqa: T201  # the user's own line break is not on the screen
    return line.strip()


def end_of_answers(question: Question) -> NoReturn:
    print(file=sys.stderr)  # noqa: T201
    fail(f"the input ended at a question; answer it with {question.option}, or take the defaults with --yes. Nothing was written")
