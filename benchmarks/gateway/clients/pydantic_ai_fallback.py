"""pydantic-ai: a FallbackModel, asked directly, without an agent around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openai import AsyncOpenAI
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from gateway.asking import MAX_TOKENS, MODEL, SYSTEM, question
from gateway.calls import Aim, Client

SETTINGS = ModelSettings(max_tokens=MAX_TOKENS)


class PydanticAi:
    """The port Client."""

    def __init__(self, model: FallbackModel) -> None:
        self._model = model

    async def ask(self, number: int) -> str:
        response = await model_request(self._model, asked(number), model_settings=SETTINGS)
        return "".join(part.content for part in response.parts if isinstance(part, TextPart))

    async def stream(self, number: int) -> AsyncIterator[str]:
        async with model_request_stream(self._model, asked(number), model_settings=SETTINGS) as events:
            async for event in events:
                match event:
                    case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                        yield text


def asked(number: int) -> list[ModelMessage]:
    return [ModelRequest(parts=[SystemPromptPart(SYSTEM), UserPromptPart(question(number))])]


@asynccontextmanager
async def opened(aim: Aim) -> AsyncIterator[Client]:
    limit = {} if aim.timeout_s is None else {"timeout": aim.timeout_s}
    primary, second = (
        OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=AsyncOpenAI(base_url=url, api_key="none", **limit)))
        for url in (aim.primary_url, aim.second_url)
    )
    yield PydanticAi(FallbackModel(primary, second))
