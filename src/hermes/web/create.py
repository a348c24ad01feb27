"""Builds the web app from its routes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from hermes import __version__
from hermes.ops.metrics import RequestCounter
from hermes.web.answers import TurnAnswers
from hermes.web.api_auth import ApiAuth
from hermes.web.body_limit import BodyLimit
from hermes.web.chat_page import chat_routes
from hermes.web.completions import CHAT_PATH, CompletionsEndpoint, CompletionsShortcut, completion_routes
from hermes.web.errors import install_error_handlers
from hermes.web.health import health_routes
from hermes.web.messages import message_routes
from hermes.web.my_data import user_data_routes, visitor_data_routes
from hermes.web.proactive import proactive_routes, visitor_proactive_routes
from hermes.web.rate_limit import RateLimit
from hermes.web.services import WebServices
from hermes.web.webhooks import MAX_WEBHOOK_BYTES, webhook_routes

DESCRIPTION = "Send messages to Hermes, and get its answers: at once, later, or as a stream of events."


def create_web(services: WebServices) -> FastAPI:
    """Return the whole web as one ASGI app. It opens nothing: the caller keeps the services open."""
    # No interactive documentation: FastAPI's pages load their scripts from another server.
    no_docs: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    web = FastAPI(title="Hermes", version=__version__, description=DESCRIPTION, redirect_slashes=False, **no_docs)
    answers = TurnAnswers(
        services.transactions, services.inbox, services.outbox, services.replies, services.settings.ping_s, services.closing
    )
    web.include_router(health_routes(services))
    guesses = RateLimit(services.settings.refused_per_minute)
    api_auth = ApiAuth(services.transactions, services.api_keys, guesses=guesses)
    web.include_router(message_routes(services, answers, api_auth))
    web.include_router(proactive_routes(services.transactions, services.outbox, api_auth))
    endpoint = CompletionsEndpoint(services.completions, api_auth, services.completions_settings.max_choices)
    web.include_router(completion_routes(endpoint))
    if services.has_chat:
        web.include_router(chat_routes(services.intake, answers, RateLimit(services.settings.per_minute)))
        web.include_router(visitor_proactive_routes(services.transactions, services.outbox))
    if services.account_channels is not None and services.inbound is not None:
        web.include_router(webhook_routes(services.account_channels, services.inbound, guesses))
    if services.my_data is not None:
        web.include_router(user_data_routes(services.my_data, api_auth))
        if services.has_chat:
            web.include_router(visitor_data_routes(services.my_data))

    @web.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return web.openapi()

    install_error_handlers(web)
    wider = {CHAT_PATH: services.completions_settings.max_body_bytes, "/webhooks/": MAX_WEBHOOK_BYTES}
    web.add_middleware(CompletionsShortcut, endpoint=endpoint)
    web.add_middleware(BodyLimit, max_bytes=services.settings.max_body_bytes, wider=wider)
    web.add_middleware(RequestCounter, metrics=services.metrics)  # the last one is the outermost: it sees every response
    return web
