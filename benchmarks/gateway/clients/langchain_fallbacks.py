"""LangChain: a chat model with another one to fall back on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_openai import ChatOpenAI

from gateway.asking import MAX_TOKENS, MODEL, messages
from gateway.calls import Aim, Client


class LangChain:
    """The port Client."""

    def __init__(self, chain: Any) -> None:
        self._chain = chain

    async def ask(self, number: int) -> str:
        return str((await self._chain.ainvoke(messages(number))).content)

    async def stream(self, number: int) -> AsyncIterator[str]:
        async for piece in self._chain.astream(messages(number)):
            yield str(piece.content)


@asynccontextmanager
async def opened(aim: Aim) -> AsyncIterator[Client]:
    limit = {} if aim.timeout_s is None else {"timeout": aim.timeout_s}
    primary, second = (
        ChatOpenAI(model=MODEL, base_url=url, api_key="none", max_tokens=MAX_TOKENS, **limit) for url in (aim.primary_url, aim.second_url)
    )
    yield LangChain(primary.with_fallbacks([second]))
