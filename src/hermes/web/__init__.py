"""The HTTP server: the API under `/v1`, the chat page, webhooks, health and metrics.

    web = create_web(WebServices(transactions=…, intake=…, …))
    uvicorn.run(web)

It stores messages and hands out their answers; the turns between run in a worker. Only the APIs for clients of
OpenAI and Anthropic call models from here: completions, responses, anthropic_messages and embeddings.
Knows ports and the services of other rooms, no store."""

from hermes.web.hosts import KnownHosts
from hermes.web.open_files import raise_file_limit
from hermes.web.operator_pages import operator_app
from hermes.web.server import Probe, WebServices, create_web, open_server, serve_until_cancelled

__all__ = [
    "KnownHosts",
    "Probe",
    "WebServices",
    "create_web",
    "open_server",
    "operator_app",
    "raise_file_limit",
    "serve_until_cancelled",
]
