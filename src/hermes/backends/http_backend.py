"""What every backend over HTTP does around its codec: send once, read the answer, and raise the right error.

    ask ─ encode ─▶ bytes ─▶ client ─▶ bytes ─ decode ─▶ Completion
                                         └─ framing ─ reader ─▶ deltas … Completion

Knows neither aiohttp nor any vendor's fields."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

from hermes.backends.vendor_answers import (
    AnswerParts,
    CannotEncode,
    ErrorInAnswer,
    Framing,
    MalformedAnswer,
    ServerSentEvents,
    StreamReader,
    billed_usage,
    consistent_tokens,
    parse_object,
)
from hermes.backends.vendor_errors import FailedRequest, VendorErrorDetails, classify_error
from hermes.graph.call import LogprobMode
from hermes.graph.message import json_encoder
from hermes.http_client import HttpClient, HttpReply, TransportError
from hermes.ports.backends import (
    LOGPROBS,
    UNREACHABLE,
    BackendError,
    BackendFinding,
    BadRequest,
    Capabilities,
    Completion,
    CutShort,
    Delta,
    FindingLevel,
    Garbled,
    ModelRequest,
    Unreachable,
    Unsupported,
)

encode_body = json_encoder(sort_keys=False)
FINAL_LINE_BREAKS = b"\n\n"
"""Line breaks that some servers leave out at the end of a stream."""


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """One request as it goes over the wire."""

    ask: ModelRequest
    model: str
    body: bytes
    sampling: Mapping[str, Any]
    """The sampling parameters that are in the body, under the names of the request."""

    @property
    def digest(self) -> str:
        return sha256(self.body).hexdigest()

    @property
    def call_prefix(self) -> str:
        """The start of tool call ids where the server gives none; another one in every round, because every round is another request."""
        return f"call_{self.digest[:12]}"


class HttpBackend(ABC):
    """The port Backend, over HTTP. A vendor's subclass adds its codec and its addresses.

    The client is shared and stays open; a backend holds nothing else, so that the operator can swap it at any time."""

    def __init__(
        self,
        client: HttpClient,
        *,
        name: str,
        base_url: str,
        api_key: str | None,
        models: Mapping[str, Capabilities] | None,
        default_capabilities: Capabilities,
        needs: Collection[str],
    ) -> None:
        self.name = name
        self._client, self._base_url, self._api_key = client, base_url.rstrip("/"), api_key
        self._models, self._default_capabilities, self._needs = dict(models or {}), default_capabilities, tuple(needs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def capabilities(self, model: str) -> Capabilities:
        return self._models.get(model, self._default_capabilities)

    def supports_tools(self, model: str) -> bool:
        return self.capabilities(model).tools

    def answers_as(self, model: str) -> str:
        return model

    async def complete(self, ask: ModelRequest, model: str, *, timeout_s: float) -> Completion:
        request = self._encode_request(ask, model, stream=False)
        try:
            async with self._client.send("POST", self._url, headers=self._headers(), body=request.body, timeout_s=timeout_s) as reply:
                body = await reply.read()
            if reply.status != 200:
                raise self._error_of_reply(reply, body, model)
            return self._completion(self._decode(parse_object(body, "the answer"), request), request, reply)
        except TransportError as lost:
            raise Unreachable(str(lost), backend=self.name, model=model) from None
        except ErrorInAnswer as refused:
            raise self._error(refused.status, {}, self._error_details(refused.body), model) from None
        except MalformedAnswer as malformed:
            raise Garbled(malformed.what, backend=self.name, model=model, status=200) from None

    async def stream(self, ask: ModelRequest, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion, None]:
        request = self._encode_request(ask, model, stream=True)
        reader = self._reader(request)
        has_begun = False
        try:
            async with self._client.send("POST", self._url, headers=self._headers(), body=request.body, timeout_s=timeout_s) as reply:
                if reply.status != 200:
                    raise self._error_of_reply(reply, await reply.read(), model)
                framing = self._framing()
                while not reader.is_over:
                    piece = await next_piece(reply.read_piece, reader)
                    for delta in deltas(framing, reader, piece or FINAL_LINE_BREAKS):
                        has_begun = True
                        yield delta
                    if not piece:
                        break
                else:
                    await reply.wait_for_end()
                completion = self._completion(finished_answer(reader), request, reply)
        except (TransportError, ErrorInAnswer, MalformedAnswer) as error:
            raise self._stream_error(error, request, reader.parts() if has_begun else None) from None
        yield completion

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:
        deadline = time.monotonic() + timeout_s
        started = time.perf_counter()
        findings: list[BackendFinding] = []
        for path in self._health_paths():
            try:
                left_s = max(0.001, deadline - time.monotonic())
                async with self._client.send("GET", self._base_url + path, headers=self._headers(), timeout_s=left_s) as reply:
                    findings += self._finding(reply, await reply.read())
            except TransportError as lost:
                findings.append(
                    BackendFinding(UNREACHABLE, FindingLevel.ERROR, f"{self.name}: {lost}", "Is it running, and is its address right?")
                )
            except MalformedAnswer as malformed:
                findings.append(
                    BackendFinding("garbled", FindingLevel.ERROR, f"{self.name}: {malformed.what}", "Is that the address of its API?")
                )
            if findings:
                return findings
        took_ms = (time.perf_counter() - started) * 1000
        return [BackendFinding("ok", FindingLevel.INFO, f"{self.name} answered in {took_ms:.0f} ms")]

    async def aclose(self) -> None:  # noqa: B027 - there is nothing for a vendor to add
        """Nothing to close: the creator of the client closes it."""

    # --- the vendor's part

    _framing: ClassVar[type[Framing]] = ServerSentEvents
    """How the vendor cuts its stream into events."""

    @property
    @abstractmethod
    def _url(self) -> str:
        """Where requests go."""

    @abstractmethod
    def _headers(self) -> dict[str, str]:
        """Made for every request, so that no dict with an API key stays in memory."""

    @abstractmethod
    def _encode(self, ask: ModelRequest, model: str, *, stream: bool) -> dict[str, Any]:
        """The request's body. Raises CannotEncode for a part that this vendor cannot take."""

    @abstractmethod
    def _decode(self, body: dict[str, Any], request: EncodedRequest) -> AnswerParts:
        """A whole answer. Raises MalformedAnswer, or ErrorInAnswer for an error inside it."""

    @abstractmethod
    def _reader(self, request: EncodedRequest) -> StreamReader: ...

    @abstractmethod
    def _error_details(self, body: Mapping[str, Any]) -> VendorErrorDetails:
        """The message and codes in an error's body."""

    @abstractmethod
    def _health_paths(self) -> Iterable[str]:
        """The paths that a health check reads."""

    @abstractmethod
    def _missing_models(self, body: dict[str, Any]) -> Iterable[str]:
        """The needed models that are missing in the answer to one of these paths."""

    # --- the same for all vendors

    _logprob_mode: LogprobMode | None = None
    """Which logprobs the server returns; None where that depends on how it was started."""
    _sends_reasoning = False
    """Whether requests carry the reasoning of earlier messages."""

    def _encode_request(self, ask: ModelRequest, model: str, *, stream: bool) -> EncodedRequest:
        try:
            if ask.needs_tools and not self.supports_tools(model):
                raise Unsupported("the model takes no tools, and the request has some", backend=self.name, model=model)
            fields = self._encode(ask, model, stream=stream)
            body = encode_body(fields)
        except CannotEncode as unfit:
            raise Unsupported(str(unfit), backend=self.name, model=model) from None
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            what = f"the request is not made of chat messages and tools ({type(error).__name__})"
            raise BadRequest(what, backend=self.name, model=model) from error
        return EncodedRequest(ask, model, body.encode("ascii"), sent_sampling(ask, fields))

    def _completion(self, parts: AnswerParts, request: EncodedRequest, reply: HttpReply) -> Completion:
        tokens, note = consistent_tokens(parts.tokens, parts.counts)
        request_id = reply.headers.get("request-id") or reply.headers.get("x-request-id")
        extra = {name: value for name, value in parts.extra.items() if name != LOGPROBS or request.ask.sampling.get("logprobs")}
        return Completion(
            message=parts.message,
            finish_reason=parts.finish_reason,
            usage=billed_usage(parts.counts, request.ask, parts.message),
            model=parts.model or request.model,
            derived=() if parts.model else ("model",),
            policy_version=parts.policy_version,
            sampling=request.sampling,
            request_digest=request.digest,
            is_reasoning_sent=self._sends_reasoning,
            prompt_token_ids=tokens.prompt,
            token_ids=tokens.completion,
            logprobs=tokens.logprobs,
            logprob_mode=self._logprob_mode if tokens.logprobs is not None else None,
            extra={**extra, **note, **({"request_id": request_id} if request_id else {})},
        )

    def _stream_error(
        self, error: TransportError | ErrorInAnswer | MalformedAnswer, request: EncodedRequest, partial: AnswerParts | None
    ) -> BackendError:
        """The error of a stream that broke off: before its first delta the error itself, after it CutShort with the partial answer."""
        if partial is not None:
            model = request.model
            why = self._error(error.status, {}, self._error_details(error.body), model) if isinstance(error, ErrorInAnswer) else error
            usage = billed_usage(partial.counts, request.ask, partial.message)
            return CutShort(f"the answer broke off: {why}", backend=self.name, model=model, partial=partial.message, usage=usage)
        match error:
            case TransportError():
                return Unreachable(str(error), backend=self.name, model=request.model)
            case ErrorInAnswer():
                return self._error(error.status, {}, self._error_details(error.body), request.model)
        return Garbled(error.what, backend=self.name, model=request.model, status=200)

    def _error_of_reply(self, reply: HttpReply, body: bytes, model: str) -> BackendError:
        """The error for an answer with another status than 200. Its body may be anything: a proxy's page, or empty."""
        try:
            details = self._error_details(parse_object(body, "the error"))
        except MalformedAnswer:
            details = VendorErrorDetails()
        return self._error(reply.status, reply.headers, details, model)

    def _error(self, status: int, headers: Mapping[str, str], details: VendorErrorDetails, model: str) -> BackendError:
        return classify_error(status, headers, details, FailedRequest(self.name, model, (self._api_key,) if self._api_key else ()))

    def _finding(self, reply: HttpReply, body: bytes) -> list[BackendFinding]:
        """The faults that one answer of a health check shows; empty if there are none."""
        name = self.name
        if reply.status == 200:
            return [
                BackendFinding("model_missing", FindingLevel.ERROR, f"{name} has no model {model}", "Correct its name, or fetch it.")
                for model in self._missing_models(parse_object(body, "the list of models"))
            ]
        error = self._error_of_reply(reply, body, "")
        if reply.status in (401, 402, 403):
            return [BackendFinding("unauthorized", FindingLevel.ERROR, f"{name}: {error}", "Check its API key, and that the bill is paid.")]
        if reply.status == 429:
            return [BackendFinding("rate_limited", FindingLevel.WARN, f"{name}: {error}", "It works, but takes no more requests for now.")]
        if reply.status == 404:
            return self._not_found(error)
        return [BackendFinding("failing", FindingLevel.ERROR, f"{name}: {error}", "See its own status page or log.")]

    def _not_found(self, error: BackendError) -> list[BackendFinding]:
        return [
            BackendFinding(
                "no_model_list", FindingLevel.WARN, f"{self.name} does not say which models it has: {error}", "Is its address right?"
            )
        ]


OTHER_NAMES = {"stop": "stop_sequences"}
"""Names that some vendors have for a sampling parameter."""


def sent_sampling(ask: ModelRequest, body: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling parameters of a request that are in its body; some vendors have them under `options`."""
    sent = {*body, *(body.get("options") or ())}
    return {name: value for name, value in ask.sampling.items() if name in sent or OTHER_NAMES.get(name) in sent}


async def next_piece(read_piece: Callable[[], Awaitable[bytes]], reader: StreamReader) -> bytes:
    """The next piece of a stream. A connection that breaks after the last event, or a program that does not end, is no error: the answer
    is whole."""
    try:
        return await read_piece()
    except TransportError:
        if reader.is_whole:
            return b""
        raise


def deltas(framing: Framing, reader: StreamReader, piece: bytes) -> Iterator[Delta]:
    """The deltas that a piece of a stream adds to the answer."""
    for event in framing.feed(piece):
        yield from reader.feed(event)
        if reader.is_over:
            return


def finished_answer(reader: StreamReader) -> AnswerParts:
    """The whole answer of a stream. Raises MalformedAnswer if the stream ended too early."""
    if not reader.is_whole:
        raise MalformedAnswer("the stream ended before the answer did")
    return reader.parts()
