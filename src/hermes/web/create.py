"""Put the routes together."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from hermes import __version__
from hermes.ops.metrics import RequestCounter
from hermes.web.answers import Answers
from hermes.web.body import LimitedBody
from hermes.web.chat import chat_routes
from hermes.web.completions import CHAT, Completions, FrontDoor, completion_routes
from hermes.web.doorkeeper import Doorkeeper
from hermes.web.errors import answer_errors
from hermes.web.health import health_routes
from hermes.web.limits import Limit
from hermes.web.messages import message_routes
from hermes.web.my_data import user_data_routes, visitor_data_routes
from hermes.web.news import news_routes, visitor_news_routes
from hermes.web.services import WebServices
from hermes.web.webhooks import WEBHOOK_BYTES, webhook_routes

DESCRIPTION = "Send messages to Hermes, and get its answers: at once, later, or as a stream of events."


def create_web(services: WebServices) -> FastAPI:
    """Return the whole web as one ASGI app. Opens nothing: whoever runs it holds the services open."""
    # No interactive documentation: FastAPI's loads its scripts from somebody else's server.
    elsewhere: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    web = FastAPI(title="Hermes", version=__version__, description=DESCRIPTION, redirect_slashes=False, **elsewhere)
    answers = Answers(services.transactions, services.inbox, services.outbox, services.replies, services.settings.ping_s, services.closing)
    web.include_router(health_routes(services))
    guesses = Limit(services.settings.refused_per_minute)
    doorkeeper = Doorkeeper(services.transactions, services.api_keys, guesses=guesses)
    web.include_router(message_routes(services, answers, doorkeeper))
    web.include_router(news_routes(services.transactions, services.outbox, doorkeeper))
    completions = Completions(services.door, doorkeeper, services.door_settings.max_choices)
    web.include_router(completion_routes(completions))
    if services.has_chat:
        web.include_router(chat_routes(services.intake, answers, Limit(services.settings.per_minute)))
        web.include_router(visitor_news_routes(services.transactions, services.outbox))
    if services.lines is not None and services.hearing is not None:
        web.include_router(webhook_routes(services.lines, services.hearing, guesses))
    if services.my_data is not None:
        web.include_router(user_data_routes(services.my_data, doorkeeper))
        if services.has_chat:
            web.include_router(visitor_data_routes(services.my_data))

    @web.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return web.openapi()

    answer_errors(web)
    wider = {CHAT: services.door_settings.max_body_bytes, "/webhooks/": WEBHOOK_BYTES}
    web.add_middleware(FrontDoor, completions=completions)
    web.add_middleware(LimitedBody, max_bytes=services.settings.max_body_bytes, wider=wider)
    web.add_middleware(RequestCounter, metrics=services.metrics)  # the last one is the outermost: it sees every answer
    return web
