"""Models on an Ollama server, over Ollama's own API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hermes.backends.answer_parts import AnswerParts
from hermes.backends.http_backend import EncodedRequest, HttpBackend
from hermes.backends.json_fields import object_list
from hermes.backends.ollama.answer import OllamaReader, decode, read_error_details
from hermes.backends.ollama.request import encode
from hermes.backends.sse import JsonLines
from hermes.backends.vendor_errors import VendorErrorDetails
from hermes.gateway.token_estimate import prompt_tokens
from hermes.http_client import HttpClient
from hermes.ports.backends import Capabilities, ContextTooLong, ModelRequest

DEFAULT_NUM_CTX = 8_192
"""Tokens of context where neither the settings nor the table of models has a number; memory grows with it."""


class OllamaBackend(HttpBackend):
    """The port Backend for Ollama. Without tools, unless `takes_tools` or the table of models says otherwise.

    The backend refuses a prompt that may not fit, because an older server would cut its start off and answer the rest."""

    def __init__(
        self,
        client: HttpClient,
        base_url: str = "http://127.0.0.1:11434",
        *,
        name: str = "ollama",
        api_key: str | None = None,
        models: Mapping[str, Capabilities] | None = None,
        needs: Collection[str] = (),
        takes_tools: bool = False,
        num_ctx: int | None = None,
        keep_alive: str | None = None,
    ) -> None:
        """`models` says what each model can do; `needs` are the models that a health check must find. `num_ctx` is the context to load
        models with: by default that of the table, else 8,192 tokens."""
        default_capabilities = Capabilities(tools=takes_tools)
        super().__init__(
            client, name=name, base_url=base_url, api_key=api_key, models=models, default_capabilities=default_capabilities, needs=needs
        )
        self._num_ctx, self._keep_alive = num_ctx, keep_alive

    def context(self, model: str) -> int:
        """The tokens of prompt and answer together that a model is loaded for."""
        return self._num_ctx or self.capabilities(model).context or DEFAULT_NUM_CTX

    @property
    def _url(self) -> str:
        return f"{self._base_url}/api/chat"

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        return {**headers, "authorization": f"Bearer {self._api_key}"} if self._api_key else headers

    def _encode(self, ask: ModelRequest, model: str, *, stream: bool) -> dict[str, Any]:
        context = self.context(model)
        if (bound := prompt_tokens(ask)) > context:
            raise ContextTooLong(f"up to {bound:,} tokens of prompt in a context of {context:,}", backend=self.name, model=model)
        return encode(ask, model, self.capabilities(model), stream=stream, num_ctx=context, keep_alive=self._keep_alive)

    def _decode(self, body: dict[str, Any], request: EncodedRequest) -> AnswerParts:
        return decode(body, request.call_prefix)

    def _reader(self, request: EncodedRequest) -> OllamaReader:
        return OllamaReader(request.call_prefix)

    def _framing(self) -> JsonLines:
        return JsonLines()

    def _error_details(self, body: Mapping[str, Any]) -> VendorErrorDetails:
        return read_error_details(body)

    def _health_paths(self) -> Iterable[str]:
        return ["/api/tags"]

    def _missing_models(self, body: dict[str, Any]) -> Iterable[str]:
        known = {model.get("name") for model in object_list(body.get("models"), "models")}
        return [model for model in self._needs if (model if ":" in model else f"{model}:latest") not in known]
