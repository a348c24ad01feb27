"""LiteLLM: its Router, with a second model to fall back on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import litellm

from gateway.asking import MAX_TOKENS, messages
from gateway.calls import Aim, Client


class LiteLlm:
    """The port Client."""

    def __init__(self, router: Any) -> None:
        self._router = router

    async def ask(self, number: int) -> str:
        response = await self._router.acompletion(model="primary", messages=messages(number), max_tokens=MAX_TOKENS)
        return str(response.choices[0].message.content)

    async def stream(self, number: int) -> AsyncIterator[str]:
        pieces = await self._router.acompletion(model="primary", messages=messages(number), max_tokens=MAX_TOKENS, stream=True)
        async for piece in pieces:
            yield piece.choices[0].delta.content or ""


@asynccontextmanager
async def opened(aim: Aim) -> AsyncIterator[Client]:
    litellm.suppress_debug_info = True
    limit = {} if aim.timeout_s is None else {"timeout": aim.timeout_s}
    models = [
        {"model_name": name, "litellm_params": {"model": "openai/bench", "api_base": url, "api_key": "none"}}
        for name, url in (("primary", aim.primary_url), ("second", aim.second_url))
    ]
    yield LiteLlm(litellm.Router(model_list=models, fallbacks=[{"primary": ["second"]}], **limit))
