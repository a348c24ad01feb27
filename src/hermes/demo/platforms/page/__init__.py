"""The page at `/`, on which the operator writes as the people and schedules faults. Plain files that load nothing from other servers."""

from __future__ import annotations

from importlib import resources

from aiohttp import web

CONTENT_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def page_routes() -> list[web.RouteDef]:
    """The page and its files."""
    files = {
        file.name: (file.read_bytes(), CONTENT_TYPES[kind])
        for file in resources.files(__package__).iterdir()
        if (kind := file.name.rpartition(".")[2]) in CONTENT_TYPES
    }

    async def page(_: web.Request) -> web.Response:
        return serve("page.html")

    async def part(request: web.Request) -> web.Response:
        return serve(request.match_info["name"])

    def serve(name: str) -> web.Response:
        if name not in files:
            raise web.HTTPNotFound
        body, kind = files[name]
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)

    return [web.get("/", page), web.get("/_page/{name}", part)]
