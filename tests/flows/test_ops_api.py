"""`/v1/ops` as a whole: odd input gets one line, every route is described, and the documentation has every route."""

from pathlib import Path
from uuid import UUID

from tests.browser.console import token_headers
from tests.flows.service import running

NO_ID = UUID(int=0)
REFERENCE = (Path(__file__).parents[2] / "docs/reference/http.md").read_text(encoding="utf-8")
ODD = [
    ("conversations/%00/graph", 422, "invalid_address"),
    ("conversations?platform=%00", 422, "invalid_address"),
    (f"conversations?before={2**63}", 422, "less_than"),
    ("people?q=%00", 422, "invalid_address"),
    ("queues/dead?before=yesterday", 422, "invalid_cursor"),
    ("alerts?before=yesterday", 422, "invalid_cursor"),
    ("alerts?show=closed", 422, "literal_error"),
    ("audit?since=yesterday", 422, "invalid_filter"),
]
MISSING = [("people", "user"), ("turns", "turn"), ("calls", "call"), ("replays", "replay")]


async def test_operators_programs_get_one_line_for_odd_input_and_a_description_of_every_route(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        headers = await token_headers(service)
        for path, status, code in ODD:
            got = await service.get(f"/v1/ops/{path}", headers)
            assert (path, got.status, got.body["error"]["code"]) == (path, status, code)
        for path, what in MISSING:
            got = await service.get(f"/v1/ops/{path}/{NO_ID}", headers)
            assert (got.status, got.body["error"]["message"].rstrip(".")) == (404, f"there is no {what} {NO_ID}")
        assert (await service.get("/v1/ops/audit?since=24h", headers)).status == 200

        described = (await service.get("/openapi.json")).body["paths"]
    routes = {
        (method.upper(), path): route for path, methods in described.items() if "/v1/ops" in path for method, route in methods.items()
    }
    assert ("POST", "/v1/ops/replays") in routes
    for (method, path), route in routes.items():
        assert f"`{method} {path}" in REFERENCE, f"docs/reference/http.md lacks {method} {path}"
        assert route["summary"] != route["operationId"].partition("_v1_ops")[0].replace("_", " ").title(), f"{path} has no summary"
        assert {"401", "403", "422"} <= set(route["responses"]), path
