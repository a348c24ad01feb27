"""What every backend over a program does around its codec: run it once, read its lines, and raise the right error.

Such a program is a whole agent; here it is only a model. Its own tools are off, no process of it outlives the call, and it gets only the
environment variables that it needs to run and to find its login.

The programs take instructions and one prompt, no roles. So the system messages at the beginning are the instructions, and everything after
them is the prompt: a sentence, then one JSON object a line, `{"role": …, "content": …}`. JSON, because then no text in a message can look
like the next message. The character `@` is written as `\\u0040`: `claude` puts the file behind an `@name` into the prompt, also when all
its tools are off, so any user who writes a message could read files of this machine. The sentence comes first, so that no prompt is taken
for a command (`/clear`)."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

from hermes.backends.http_backend import FINAL_LINE_BREAKS, deltas, next_piece
from hermes.backends.processes.process import run_program
from hermes.backends.vendor_answers import AnswerParts, CannotEncode, ErrorInAnswer, JsonLines, MalformedAnswer, StreamReader, billed_usage
from hermes.backends.vendor_errors import FailedRequest, VendorErrorDetails, classify_error
from hermes.http_client import TransportError
from hermes.ports.backends import (
    BackendError,
    BackendFinding,
    BadRequest,
    Capabilities,
    ChatMessage,
    Completion,
    CutShort,
    Delta,
    FindingLevel,
    Garbled,
    ModelRequest,
    Overloaded,
    Unreachable,
    Unsupported,
)

DEFAULT_CAPABILITIES = Capabilities(tools=False, vision=False, sampling=False)
"""Of a request, the programs take only a prompt and a model."""
INHERITED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""The environment variables that every program gets. None is a key or a password; those of a program's own login are in its `login`."""
MAX_QUOTE_CHARS = 200


class ProgramFailed(Exception):
    """The program ended before its answer was whole, and its lines did not say why."""

    def __init__(self, code: int | None, error_line: str) -> None:
        quote = f": {error_line[:MAX_QUOTE_CHARS]}" if error_line else ""
        super().__init__(f"the program ended with code {code}{quote}" if code else f"the program ended before its answer did{quote}")
        self.is_failure = bool(code)


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """One request as the program gets it."""

    ask: ModelRequest
    model: str
    prompt: ProgramPrompt

    @property
    def digest(self) -> str:
        return sha256(json.dumps([self.model, *self.prompt, self.ask.max_tokens]).encode("ascii")).hexdigest()


class ProcessBackend(ABC):
    """The port Backend, over a program that runs once for every call. A program's subclass adds its options and its lines.

    Holds nothing between calls."""

    program: ClassVar[str]
    """The command, and the start of the backend's name: `claude`, `claude_local`."""
    login: ClassVar[Collection[str]] = ()
    """Variables by which the program finds its own login."""

    def __init__(
        self,
        command: Sequence[str] = (),
        *,
        name: str = "",
        cwd: Path | None = None,
        models: Mapping[str, Capabilities] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`command` is by default the program's name. `cwd` is where the program runs unless a request says otherwise.

        `environment` is added to the program's environment variables: a key, a proxy, another provider."""
        self.name = name or f"{self.program}_local"
        self._command, self._cwd = tuple(command) or (self.program,), cwd
        self._models, self._environment = dict(models or {}), dict(environment or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def capabilities(self, model: str) -> Capabilities:
        return self._models.get(model, DEFAULT_CAPABILITIES)

    def supports_tools(self, model: str) -> bool:
        return self.capabilities(model).tools

    def answers_as(self, model: str) -> str:
        return model

    async def complete(self, ask: ModelRequest, model: str, *, timeout_s: float) -> Completion:
        call = self._call(ask, model)
        reader = self._reader(model)
        try:
            async with aclosing(self._run(call, reader, timeout_s)) as pieces:
                async for _ in pieces:
                    pass
        except (ProgramFailed, TransportError, ErrorInAnswer, MalformedAnswer) as error:
            raise self._call_error(error, call, None) from None
        return self._completion(reader.parts(), call)

    async def stream(self, ask: ModelRequest, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion, None]:
        call = self._call(ask, model)
        reader = self._reader(model)
        has_begun = False
        try:
            async with aclosing(self._run(call, reader, timeout_s)) as pieces:
                async for delta in pieces:
                    has_begun = True
                    yield delta
        except (ProgramFailed, TransportError, ErrorInAnswer, MalformedAnswer) as error:
            raise self._call_error(error, call, reader.parts() if has_begun else None) from None
        yield self._completion(reader.parts(), call)

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:
        started = time.perf_counter()
        output = b""
        try:
            with private_folder() as private:
                command = [*self._command, "--version"]
                environment = self._program_environment()
                async with run_program(command, text=b"", cwd=private, environment=environment, timeout_s=timeout_s) as program:
                    while piece := await program.read_piece():
                        output += piece
                    code = await program.exit_code()
                    error_line = program.last_error_line
        except TransportError as lost:
            return [
                BackendFinding("unreachable", FindingLevel.ERROR, f"{self.name}: {lost}", f"Install {self._command[0]}, or give its path.")
            ]
        if code != 0:
            return [
                BackendFinding(
                    "failing",
                    FindingLevel.ERROR,
                    f"{self.name}: {ProgramFailed(code, error_line)}",
                    f"Try it by hand: {self._command[0]} --version",
                )
            ]
        version = " ".join(output.decode("utf-8", "replace").split())[:MAX_QUOTE_CHARS]
        took_ms = (time.perf_counter() - started) * 1000
        return [BackendFinding("ok", FindingLevel.INFO, f"{self.name} is {version or 'there'}, and answered in {took_ms:.0f} ms")]

    async def aclose(self) -> None:  # noqa: B027 - there is nothing for a program to add
        """Nothing to close: every call ends its own program."""

    # --- the program's part

    @abstractmethod
    def _options(self, call: ProgramRequest, instructions: Path) -> Sequence[str]:
        """The options after the command. The file `instructions` holds the instructions, and is deleted after the call."""

    @abstractmethod
    def _own_environment(self, ask: ModelRequest) -> Mapping[str, str]:
        """Environment variables that set the program's options."""

    @abstractmethod
    def _reader(self, model: str) -> StreamReader: ...

    @abstractmethod
    def _error_details(self, body: Mapping[str, object]) -> VendorErrorDetails:
        """The details of an error in its lines."""

    # --- the same for all programs

    def _call(self, ask: ModelRequest, model: str) -> ProgramRequest:
        try:
            return ProgramRequest(ask, model, encode(ask))
        except CannotEncode as unfit:
            raise Unsupported(str(unfit), backend=self.name, model=model) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"the request is not made of chat messages ({type(error).__name__})"
            raise BadRequest(what, backend=self.name, model=model) from error

    async def _run(self, call: ProgramRequest, reader: StreamReader, timeout_s: float) -> AsyncGenerator[Delta, None]:
        """Run the program and yield its deltas. Raises ProgramFailed, TransportError, ErrorInAnswer or MalformedAnswer unless the answer
        came whole.

        Without a working folder the program gets an empty one, so that it reads nothing from the folder in which Hermes was started."""
        with private_folder() as private:
            instructions = private / "instructions"
            write_private(instructions, call.prompt.instructions)
            (empty := private / "empty").mkdir()
            command = [*self._command, *self._options(call, instructions)]
            cwd = call.ask.cwd or self._cwd or empty
            environment = self._program_environment() | dict(self._own_environment(call.ask))
            text = call.prompt.text.encode("utf-8")
            async with run_program(command, text=text, cwd=cwd, environment=environment, timeout_s=timeout_s) as program:
                framing = JsonLines()
                while not reader.is_over:
                    piece = await next_piece(program.read_piece, reader)
                    for delta in deltas(framing, reader, piece or FINAL_LINE_BREAKS):
                        yield delta
                    if not piece:
                        break
                if reader.is_whole and reader.parts().finish_reason != "stop":
                    return  # the program may be about to call its model again by itself
                code = await program.exit_code()
                if not reader.is_whole:
                    raise ProgramFailed(code, self._without_secrets(program.last_error_line))

    def _program_environment(self) -> dict[str, str]:
        return {name: os.environ[name] for name in (*INHERITED_VARIABLES, *self.login) if name in os.environ} | self._environment

    def _without_secrets(self, text: str) -> str:
        """A text of the program without the values of its own environment variables: they may be secrets."""
        for name, value in self._program_environment().items():
            if name not in INHERITED_VARIABLES and value:
                text = text.replace(value, "***")
        return text

    def _completion(self, parts: AnswerParts, call: ProgramRequest) -> Completion:
        return Completion(
            message=parts.message,
            finish_reason=parts.finish_reason,
            usage=billed_usage(parts.counts, call.ask, parts.message),
            model=parts.model or call.model,
            derived=() if parts.model else ("model",),
            sampling={},
            request_digest=call.digest,
            extra=parts.extra,
        )

    def _call_error(
        self, error: ProgramFailed | TransportError | ErrorInAnswer | MalformedAnswer, call: ProgramRequest, partial: AnswerParts | None
    ) -> BackendError:
        """The error of a call that broke off: before its first delta the error itself, after it CutShort with the partial answer."""
        if partial is not None:
            why = self._error_in_answer(error, call.model) if isinstance(error, ErrorInAnswer) else error
            usage = billed_usage(partial.counts, call.ask, partial.message)
            return CutShort(f"the answer broke off: {why}", backend=self.name, model=call.model, partial=partial.message, usage=usage)
        match error:
            case ErrorInAnswer():
                return self._error_in_answer(error, call.model)
            case TransportError():
                return Unreachable(str(error), backend=self.name, model=call.model)
            case ProgramFailed() if error.is_failure:
                return Overloaded(str(error), backend=self.name, model=call.model)
        return Garbled(str(error), backend=self.name, model=call.model)

    def _error_in_answer(self, refused: ErrorInAnswer, model: str) -> BackendError:
        secrets = [value for name, value in self._program_environment().items() if name not in INHERITED_VARIABLES and value]
        return classify_error(refused.status, {}, self._error_details(refused.body), FailedRequest(self.name, model, secrets))


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that no other user can read; it is deleted with its content when the block ends."""
    with TemporaryDirectory(prefix="hermes-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text.encode("utf-8", "replace").decode("utf-8"), encoding="utf-8")


# --- the prompt: a pure function from a ModelRequest to one text

TASK = (
    "Below is a conversation, one message on each line, as JSON. Write the assistant's next message: "
    "only its text, not as JSON, and nothing about this task."
)
NO_INSTRUCTIONS = "You are a helpful assistant."
"""The instructions for a conversation without a system message; the programs' own instructions are for coding."""
INSTRUCTION_ROLES = ("system", "developer")
TEXT_ROLES = ("system", "developer", "user", "assistant")


class ProgramPrompt(NamedTuple):
    """The input of a program."""

    instructions: str
    text: str


def encode(ask: ModelRequest) -> ProgramPrompt:
    """The conversation of a request. Raises CannotEncode for parts that are not text, KeyError or TypeError for malformed messages."""
    if ask.needs_tools:
        raise CannotEncode("the program takes no tools, and the request has some")
    if ask.response_format is not None and ask.response_format.get("type") != "text":
        raise CannotEncode("the program takes no response format, and the request has one")
    messages = [(message["role"], text_of(message)) for message in ask.messages]
    begin = next((at for at, (role, _) in enumerate(messages) if role not in INSTRUCTION_ROLES), len(messages))
    instructions = "\n\n".join(text for _, text in messages[:begin])
    lines = [message_line(role, text) for role, text in messages[begin:]]
    return ProgramPrompt(instructions or NO_INSTRUCTIONS, "\n".join([TASK, "", *lines, ""]))


def message_line(role: str, text: str) -> str:
    line = json.dumps({"role": role, "content": text}, ensure_ascii=False)
    return line.encode("utf-8", "replace").decode("utf-8").replace("@", "\\u0040")


def text_of(message: ChatMessage) -> str:
    """The text of a message, whether its content is a text or a list of parts."""
    if message["role"] not in TEXT_ROLES:
        raise CannotEncode(f"the program takes no messages of the role {message['role']}")
    content = message.get("content")
    return content if isinstance(content, str) else "".join(text_of_part(part) for part in content_parts(content))


def content_parts(content: Any) -> Sequence[Any]:
    if content is None:
        return ()
    if not isinstance(content, list | tuple):
        raise TypeError("a content must be a text or a list of parts")
    return content


def text_of_part(part: Any) -> str:
    if part["type"] != "text":
        raise CannotEncode(f"the program takes no {part['type']}")
    text = part["text"]
    if not isinstance(text, str):
        raise TypeError("the text of a part is not a string")
    return text
