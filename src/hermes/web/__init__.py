"""The HTTP face: the API under `/v1`, the chat page, health and metrics. Thin: it takes messages in, and hands answers out.

    web = create_web(WebServices(transactions=…, intake=…, …))
    uvicorn.run(web)

Knows ports and the router's intake, no adapter. The model never runs in here."""

from hermes.web.create import create_web
from hermes.web.server import serve_until_cancelled
from hermes.web.services import Probe, WebServices

__all__ = ["Probe", "WebServices", "create_web", "serve_until_cancelled"]
