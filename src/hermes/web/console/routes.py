"""All routes of the console and of `/v1/ops`, and what each group of them gets."""

import asyncio
from typing import Any

from fastapi import FastAPI

from hermes.app.console import Console
from hermes.config import ConsoleSettings
from hermes.web.console.alerts_pages import alert_page_routes
from hermes.web.console.audit_api import audit_api_routes
from hermes.web.console.audit_pages import audit_page_routes
from hermes.web.console.compression import PageCompression
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.conversations_api import conversation_api_routes
from hermes.web.console.conversations_pages import conversation_page_routes
from hermes.web.console.costs_api import cost_api_routes
from hermes.web.console.costs_pages import cost_page_routes
from hermes.web.console.error_pages import ErrorPages, install_unreadable
from hermes.web.console.fleet_pages import fleet_page_routes
from hermes.web.console.keys_pages import key_page_routes
from hermes.web.console.live_api import live_api_routes
from hermes.web.console.live_pages import live_page_routes
from hermes.web.console.live_stream import live_stream_routes
from hermes.web.console.models_api import model_api_routes
from hermes.web.console.operators_pages import operator_page_routes
from hermes.web.console.pages import ConsolePages
from hermes.web.console.people_api import people_api_routes
from hermes.web.console.people_pages import people_page_routes, person_form_routes
from hermes.web.console.queues_api import queue_api_routes, worker_api_routes
from hermes.web.console.queues_pages import queue_page_routes
from hermes.web.console.replay_api import replay_api_routes
from hermes.web.console.replay_batch_pages import replay_batch_page_routes
from hermes.web.console.replay_pages import replay_page_routes
from hermes.web.console.settings_api import settings_api_routes
from hermes.web.console.settings_pages import settings_page_routes
from hermes.web.console.sign_in_pages import install_sign_in, sign_in_page_routes
from hermes.web.console.turn_api import turn_api_routes
from hermes.web.console.turn_list_pages import turn_list_page_routes
from hermes.web.console.turn_pages import turn_page_routes
from hermes.web.console.visits import Visits
from hermes.web.console.workers_pages import worker_page_routes
from hermes.web.errors import ErrorBody
from hermes.web.event_feed import EventFeed
from hermes.web.limits import RateLimit
from hermes.web.program_auth import ProgramAuth

CONSOLE_PATH = "/console"
OPS_ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 404, 410, 422, 503)}
"""What the description of the API says about the errors of its routes for operators."""


def install_console(app: FastAPI, web: ConsoleWeb, feed: EventFeed | None, *, ping_s: float, closing: asyncio.Event) -> None:
    """Add the console to the web. Without a feed its pages do not change by themselves."""
    install_sign_in(app, web)
    install_unreadable(app)
    app.include_router(sign_in_page_routes(web))
    app.include_router(live_page_routes(web))
    app.include_router(audit_page_routes(web))
    app.include_router(audit_api_routes(web), responses=OPS_ERRORS)
    app.include_router(operator_page_routes(web))
    app.include_router(turn_list_page_routes(web))
    app.include_router(live_api_routes(web))
    if feed is not None:
        app.include_router(live_stream_routes(web, feed, ping_s=ping_s, closing=closing))
    app.include_router(turn_page_routes(web))
    app.include_router(turn_api_routes(web), responses=OPS_ERRORS)
    app.include_router(cost_page_routes(web))
    app.include_router(cost_api_routes(web), responses=OPS_ERRORS)
    app.include_router(people_page_routes(web))
    app.include_router(person_form_routes(web))
    app.include_router(key_page_routes(web))
    app.include_router(people_api_routes(web), responses=OPS_ERRORS)
    app.include_router(settings_page_routes(web))
    app.include_router(settings_api_routes(web))
    app.include_router(model_api_routes(web))
    app.include_router(queue_page_routes(web))
    app.include_router(worker_page_routes(web))
    app.include_router(alert_page_routes(web))
    app.include_router(fleet_page_routes(web))
    app.include_router(queue_api_routes(web))
    app.include_router(worker_api_routes(web))
    app.include_router(conversation_page_routes(web))
    app.include_router(conversation_api_routes(web), responses=OPS_ERRORS)
    app.include_router(replay_page_routes(web))
    app.include_router(replay_batch_page_routes(web))
    app.include_router(replay_api_routes(web), responses=OPS_ERRORS)
    app.add_middleware(ErrorPages, pages=web.pages)
    app.add_middleware(PageCompression)


def console_web_from(
    console: Console, settings: ConsoleSettings, programs: ProgramAuth, guesses: RateLimit, *, has_chat: bool
) -> ConsoleWeb:
    return ConsoleWeb(console, ConsolePages(has_chat=has_chat), Visits(console, settings, programs, guesses))
