"""The floor: a proxy in Python that reads a request, sends it on, and reads the answer. No key, no budget, no record.

aiohttp on both sides, on uvloop. `python -m gateway.bare_proxy UPSTREAM` prints its port. Ends when its standard input does."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web


async def main(upstream: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as client:

        async def passed_on(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            headers = {"content-type": "application/json"}
            async with client.request(request.method, upstream + request.path, data=body, headers=headers) as answer:
                if answer.content_length is not None:
                    return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)
                response = web.StreamResponse(status=answer.status, headers={"content-type": answer.content_type})
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                return response

        loop = asyncio.get_running_loop()
        server = await loop.create_server(web.Server(passed_on), "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        ended = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), ended.set)
        await ended.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
