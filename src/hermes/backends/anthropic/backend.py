"""Claude, at Anthropic or at another server with the Messages API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hermes.backends.answer_parts import AnswerParts
from hermes.backends.anthropic.answer import AnthropicReader, decode, read_error_details
from hermes.backends.anthropic.request import encode
from hermes.backends.http_backend import EncodedRequest, HttpBackend
from hermes.backends.json_fields import MalformedAnswer
from hermes.backends.sse import ServerSentEvents
from hermes.backends.vendor_errors import VendorErrorDetails
from hermes.http_client import HttpClient
from hermes.ports.backends import BackendError, BackendFinding, Capabilities, FindingLevel, ModelRequest

DEFAULT_CAPABILITIES = Capabilities(tools=True, vision=True, sampling=True, prefill=False, context=200_000)
"""The capabilities of a Claude model that is not in the caller's table."""
API_VERSION = "2023-06-01"
"""The version that takes temperature, top_p and top_k where the model does; its successor, 2026-10-21, refuses them for all models."""


class AnthropicBackend(HttpBackend):
    """The port Backend for the Messages API."""

    def __init__(
        self,
        client: HttpClient,
        api_key: str,
        base_url: str = "https://api.anthropic.com",
        *,
        name: str = "anthropic",
        models: Mapping[str, Capabilities] | None = None,
        needs: Collection[str] = (),
        caches_prompts: bool = False,
        betas: Sequence[str] = (),
    ) -> None:
        """`models` says what each model can do; `needs` are the models that a health check must find."""
        base_url = base_url.rstrip("/").removesuffix("/v1")
        super().__init__(
            client, name=name, base_url=base_url, api_key=api_key, models=models, default_capabilities=DEFAULT_CAPABILITIES, needs=needs
        )
        self._caches_prompts, self._betas = caches_prompts, ",".join(betas)

    @property
    def _url(self) -> str:
        return f"{self._base_url}/v1/messages"

    def _headers(self) -> dict[str, str]:
        headers = {"x-api-key": self._api_key or "", "anthropic-version": API_VERSION, "content-type": "application/json"}
        return {**headers, "anthropic-beta": self._betas} if self._betas else headers

    def _encode(self, ask: ModelRequest, model: str, *, stream: bool) -> dict[str, Any]:
        return encode(ask, model, self.capabilities(model), stream=stream, cache=self._caches_prompts)

    def _decode(self, body: dict[str, Any], request: EncodedRequest) -> AnswerParts:
        return decode(body, request.model)

    def _reader(self, request: EncodedRequest) -> AnthropicReader:
        return AnthropicReader(request.model)

    def _framing(self) -> ServerSentEvents:
        return ServerSentEvents()

    def _error_details(self, body: Mapping[str, Any]) -> VendorErrorDetails:
        return read_error_details(body)

    def _health_paths(self) -> Iterable[str]:
        # One path for each model: the list has dated names only, and these paths take the undated names too.
        return [f"/v1/models/{quote(model, safe='')}" for model in self._needs] or ["/v1/models?limit=1"]

    def _missing_models(self, body: dict[str, Any]) -> Iterable[str]:
        if body.get("type") != "model" and "data" not in body:
            raise MalformedAnswer("the answer is neither a model nor a list of them")
        return ()

    def _not_found(self, error: BackendError) -> list[BackendFinding]:
        return [
            BackendFinding(
                "model_missing", FindingLevel.ERROR, f"{self.name} has no such model: {error}", f"One of {', '.join(self._needs)}."
            )
        ]
