"""The HTTP server: the API under `/v1`, the chat page, webhooks, health and metrics.

    web = create_web(WebServices(transactions=…, intake=…, …))
    uvicorn.run(web)

It stores messages and hands out their answers; the turns between run in a worker. Only `/v1/chat/completions` calls models from here.
Knows ports and the services of other rooms, no store."""

from hermes.web.operator_pages import operator_app
from hermes.web.server import Probe, WebServices, create_web, open_server, serve_until_cancelled

__all__ = ["Probe", "WebServices", "create_web", "open_server", "operator_app", "serve_until_cancelled"]
