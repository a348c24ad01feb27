"""Reports whether the process runs, whether it can work, and its metrics."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from hermes.web.services import Probe, WebServices

PROBE_TIMEOUT_S = 2.0


def health_routes(services: WebServices) -> APIRouter:
    """`/health`, `/ready` and `/metrics`."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/health", summary="Whether the process runs")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @routes.get("/ready", summary="Whether Hermes can accept messages, part by part", responses={503: {"description": "It cannot."}})
    async def ready() -> JSONResponse:
        """`ready`; `degraded` if a part is down that only makes Hermes faster; `unavailable` with 503 if a part is down that it needs."""
        states = await asyncio.gather(*(state_of(probe) for probe in services.probes.values()))
        parts = dict(zip(services.probes, states, strict=True))
        down = {name for name, state in parts.items() if state != "ok"}
        status = "unavailable" if down & services.needed else "degraded" if down else "ready"
        return JSONResponse({"status": status, "parts": parts}, 503 if status == "unavailable" else 200, {"Cache-Control": "no-store"})

    @routes.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
    async def metrics(request: Request) -> Response:
        page, content_type = await services.metrics.exposition(request.headers.get("accept", ""))
        return Response(page, headers={"Content-Type": content_type})

    # Some monitors ask with HEAD.
    routes.add_api_route("/health", health, methods=["HEAD"], include_in_schema=False)
    routes.add_api_route("/ready", ready, methods=["HEAD"], include_in_schema=False)
    return routes


async def state_of(probe: Probe) -> str:
    """Probe a part; return `ok`, or the reason in a few words that name no host."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            await probe()
    except TimeoutError:
        return f"down: no answer within {PROBE_TIMEOUT_S:g} s"
    except Exception as error:  # noqa: BLE001  # a probe may fail in any way, and each means that the part is down
        return f"down: {type(error).__name__}"
    return "ok"
