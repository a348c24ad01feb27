"""Documents are tests: in README.md and docs/ every Python block runs, every command exists, every picture is what the code draws.

The blocks of one file share one namespace, in order. And signals mean to all tests what they mean in a terminal."""

import os
import shlex
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from typer.testing import CliRunner

from hermes.cli import build_app

ROOT = Path(__file__).parent


# With a deadline for each example, tests fail on a busy machine.
settings.register_profile("hermes", deadline=None)
settings.load_profile("hermes")


def pytest_configure() -> None:
    """Hear the signals that this process was started deaf to, so that every program that a test starts hears them too.

    A script's `&` starts programs with SIGINT and SIGQUIT ignored, and a supervisor may block some; that is handed down to every child,
    and Ctrl-C would end none of them. A handler is not handed down: a child begins with the default. SIGHUP stays ignored under nohup,
    so that closing the terminal ends neither the tests nor their programs."""
    heard = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL}
    for number, handler in heard.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)


def draws_this_picture(example: Example) -> None:
    """A Mermaid block shows what `chat.to_mermaid()` gives at this point of the document."""
    drawn = example.namespace["chat"].to_mermaid()
    assert example.parsed == drawn, f"the picture in the document is old; chat.to_mermaid() draws:\n{drawn}"


def commands_exist(example: Example) -> None:
    """Every line of a shell block starts a script of this repository, an installer, or a `hermes` command that has help."""
    for line in example.parsed.replace("\\\n", " ").splitlines():
        command, *arguments = shlex.split(line, comments=True) or [""]
        if command.startswith("scripts/"):
            assert (ROOT / command).is_file(), f"no such script: {command}"
        elif command == "hermes":
            words = [word for word in arguments[:1] if not word.startswith("-")]
            result = CliRunner().invoke(build_app(), [*words, "--help"])
            assert result.exit_code == 0, f"no such command: {line}\n{result.output}"
        else:
            assert command in {"", "git", "cd", "pip", "uv"}, f"the documents promise a command that nobody checks: {line}"


def start(namespace: dict[str, Any]) -> None:
    """Run a document in a folder of its own: what it writes is its own business."""
    namespace["_folder"] = TemporaryDirectory()
    namespace["_back"] = Path.cwd()
    os.chdir(namespace["_folder"].name)


def end(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_back"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser("mermaid", draws_this_picture),
        CodeBlockParser("sh", commands_exist),
    ],
    patterns=["*.md"],
    excludes=["CONTRIBUTING.md", "CHANGELOG.md"],
    setup=start,
    teardown=end,
).pytest()
