"""Strict stand-ins for model vendors: one server that speaks the wire protocols of Anthropic, OpenAI, vLLM, SGLang, llama.cpp and Ollama.

    async with vendors() as v:
        v.openai.say("hi")                            # the next answer; without one it says "ok"
        v.openai.say("hello there", cut=Cut.RESET)    # goes wrong after its first word
        v.anthropic.fail(529)                         # refuses, in the vendor's shape
        v.ollama.hang(); v.vllm.reset(); v.sglang.empty(); v.openai.html()
        OpenAICompatibleBackend(client, v.openai.url, v.openai.key)
        v.openai.requests[-1].body

Requests are checked as the vendor would, before anything of the script is used up: a request that the vendor would refuse is refused.
Streams are real: server-sent events and lines of JSON, one piece at a time."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.fakes.chat_completions import ChatCompletions, Flavour
from tests.fakes.messages_api import MessagesApi
from tests.fakes.ollama_api import OllamaApi
from tests.fakes.script import Cut, Say, Seen, ToolCall
from tests.fakes.vendor import Vendor

__all__ = ["Cut", "Say", "Seen", "ToolCall", "Vendor", "Vendors", "vendors"]

LARGEST_REQUEST = 32 * 1024 * 1024


class Vendors:
    """All vendors, at one server."""

    def __init__(self, base: str) -> None:
        self.anthropic = MessagesApi(f"{base}/anthropic")
        self.openai = ChatCompletions(f"{base}/openai", Flavour.OPENAI)
        self.vllm = ChatCompletions(f"{base}/vllm", Flavour.VLLM)
        self.sglang = ChatCompletions(f"{base}/sglang", Flavour.SGLANG)
        self.llama_cpp = ChatCompletions(f"{base}/llama_cpp", Flavour.LLAMA_CPP)
        self.ollama = OllamaApi(f"{base}/ollama")

    def __iter__(self) -> Iterator[Vendor]:
        yield from (self.anthropic, self.openai, self.vllm, self.sglang, self.llama_cpp, self.ollama)


@asynccontextmanager
async def vendors() -> AsyncIterator[Vendors]:
    """Run all vendors on a port of their own until the block ends."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        all_of_them = Vendors(f"http://127.0.0.1:{listener.getsockname()[1]}")
        app = web.Application(client_max_size=LARGEST_REQUEST)
        for vendor in all_of_them:
            below = web.Application(client_max_size=LARGEST_REQUEST)
            below.add_routes(vendor.routes())
            app.add_subapp(f"/{vendor.base.rpartition('/')[2]}", below)
        # A handler whose client goes away is cancelled, and one that hangs is not waited for at the end.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            yield all_of_them
        finally:
            await runner.cleanup()
