"""OpenAI, and every server with its chat completions API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from hermes.backends.answer_parts import AnswerParts
from hermes.backends.http_backend import EncodedRequest, HttpBackend
from hermes.backends.json_fields import object_list
from hermes.backends.openai_compatible.answer import OpenAIReader, decode, read_error_details
from hermes.backends.openai_compatible.dialect import OPENAI, Dialect
from hermes.backends.openai_compatible.request import encode
from hermes.backends.sse import ServerSentEvents
from hermes.backends.vendor_errors import VendorErrorDetails
from hermes.http_client import HttpClient
from hermes.ports.backends import Capabilities, ModelRequest

DEFAULT_CAPABILITIES = Capabilities(tools=True, vision=False, sampling=True)
"""The capabilities of a model that is not in the caller's table."""


class OpenAICompatibleBackend(HttpBackend):
    """The port Backend for chat completions."""

    def __init__(
        self,
        client: HttpClient,
        base_url: str,
        api_key: str | None = None,
        name: str = "openai",
        dialect: Dialect = OPENAI,
        *,
        models: Mapping[str, Capabilities] | None = None,
        needs: Collection[str] = (),
    ) -> None:
        """`base_url` ends as in OpenAI's client (`https://api.openai.com/v1`); one without a path gets `/v1`.

        `models` says what each model can do; `needs` are the models that a health check must find."""
        if urlsplit(base_url).path in ("", "/"):
            base_url = f"{base_url.rstrip('/')}/v1"
        super().__init__(
            client, name=name, base_url=base_url, api_key=api_key, models=models, default_capabilities=DEFAULT_CAPABILITIES, needs=needs
        )
        self._dialect = dialect
        self._sends_reasoning = dialect.reasoning_field is not None

    @property
    def _url(self) -> str:
        return f"{self._base_url}/chat/completions"

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if not self._dialect.keeps_connections:
            headers["connection"] = "close"
        return {**headers, "authorization": f"Bearer {self._api_key}"} if self._api_key else headers

    def _encode(self, ask: ModelRequest, model: str, *, stream: bool) -> dict[str, Any]:
        return encode(ask, model, self.capabilities(model), stream=stream, dialect=self._dialect)

    def _decode(self, body: dict[str, Any], request: EncodedRequest) -> AnswerParts:
        return decode(body, request.call_prefix)

    def _reader(self, request: EncodedRequest) -> OpenAIReader:
        return OpenAIReader(request.call_prefix)

    def _framing(self) -> ServerSentEvents:
        return ServerSentEvents()

    def _error_details(self, body: Mapping[str, Any]) -> VendorErrorDetails:
        return read_error_details(body)

    def _health_paths(self) -> Iterable[str]:
        return ["/models"]

    def _missing_models(self, body: dict[str, Any]) -> Iterable[str]:
        known = {model.get("id") for model in object_list(body.get("data"), "data")}
        return [model for model in self._needs if model not in known] if self._dialect.lists_model_names else []
