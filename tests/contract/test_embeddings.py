"""The port Embeddings: vectors of length one that say which model made them; on every adapter."""

from __future__ import annotations

import asyncio
import json
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp import web

from hermes.http_client import HttpClient
from hermes.ports.memories import Embedding, Embeddings, EmbeddingsUnavailable
from hermes.stores.embeddings import ApiEmbeddings, HashedEmbeddings, local_embeddings
from hermes.stores.embeddings.local import hash_text
from hermes.stores.embeddings.minilm import MAX_BATCH_CHARS, MiniLmEmbeddings, MiniLmModel, cut_into_batches


class Server:
    """An embeddings API as OpenAI's, over the wire. Vectors are hashed letters, twice as long; rows come in reverse."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, Any], str | None]] = []
        self.answer: web.Response | None = None

    async def embed(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append((body, request.headers.get("Authorization")))
        if self.answer is not None:
            return self.answer
        rows = [{"object": "embedding", "index": n, "embedding": [2 * x for x in hash_text(text)]} for n, text in enumerate(body["input"])]
        return web.json_response({"object": "list", "data": rows[::-1], "model": body["model"], "usage": {"total_tokens": 7}})


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    served = Server()
    app = web.Application()
    app.router.add_post("/v1/embeddings", served.embed)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield served, f"http://127.0.0.1:{runner.addresses[0][1]}/v1/"
    await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    opened = HttpClient()
    yield opened
    await opened.aclose()


def api(client: HttpClient, address: str, **more: Any) -> ApiEmbeddings:
    return ApiEmbeddings(client, address=address, name="small", dimension=512, key="secret", **more)


@pytest.fixture(params=["hashed", "minilm", "api"])
def embeddings(request: pytest.FixtureRequest, client: HttpClient, server: tuple[Server, str]) -> Embeddings:
    adapters: dict[str, Embeddings] = {"hashed": HashedEmbeddings(), "minilm": MiniLmEmbeddings(), "api": api(client, server[1])}
    return adapters[request.param]


def cosine(one: Embedding, other: Embedding) -> float:
    return sum(a * b for a, b in zip(one.vector, other.vector, strict=True))


async def test_vectors_have_their_models_name_size_and_length_one(embeddings: Embeddings) -> None:
    made = await embeddings.embed(["My dog is called Rex", "", "寿司が好き 🍣", "x" * 10_000])
    assert [(each.model, len(each.vector)) for each in made] == [(embeddings.model, embeddings.dimension)] * 4
    assert [math.hypot(*each.vector) for each in made] == pytest.approx([1.0] * 4, abs=1e-5)
    assert await embeddings.embed([]) == []
    assert 0 < embeddings.weight < 1


async def test_a_text_has_one_vector_alone_or_among_others(embeddings: Embeddings) -> None:
    texts = [f"fact number {n}, {'and so on ' * n}" for n in range(20)]
    together = await embeddings.embed(texts)
    [alone] = await embeddings.embed([texts[7]])
    assert cosine(alone, together[7]) == pytest.approx(1.0, abs=0.02)  # int8 weights round with the batch


async def test_what_is_alike_lies_nearer_than_what_is_not(embeddings: Embeddings) -> None:
    dog, again, tax = await embeddings.embed(["My dog is called Rex", "Rex is my dog", "Corporate tax law of 1987"])
    assert cosine(dog, again) > cosine(dog, tax) + 0.2


async def test_meaning_is_seen_where_no_letter_is_shared() -> None:
    fear, scared, tea = await MiniLmEmbeddings().embed(["I have a fear of heights", "Tall buildings scare me", "Green tea is nice"])
    assert cosine(fear, scared) > cosine(fear, tea) + 0.2


async def test_the_event_loop_goes_on_while_a_model_loads_and_works() -> None:
    task = asyncio.create_task(MiniLmEmbeddings().embed(["a long text " * 40] * 32))
    longest = 0.0
    while not task.done():
        started = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - started)
    assert len(await task) == 32
    assert longest < 0.3


async def test_a_model_works_while_all_threads_of_the_loop_wait_for_something() -> None:
    threads, may_end = ThreadPoolExecutor(1), threading.Event()
    asyncio.get_running_loop().set_default_executor(threads)
    waiting = asyncio.create_task(asyncio.to_thread(may_end.wait, 60))
    try:
        [made] = await MiniLmEmbeddings().embed(["My dog is called Rex"])
        assert not waiting.done()
    finally:
        may_end.set()
        await waiting
    assert len(made.vector) == MiniLmEmbeddings.dimension


async def test_weights_that_are_not_the_known_ones_are_refused(tmp_path: Any) -> None:
    wrong = tmp_path / "model.onnx"
    for contents in (None, b"something else"):
        if contents is not None:
            wrong.write_bytes(contents)
        with pytest.raises(EmbeddingsUnavailable):
            MiniLmModel(wrong)


def test_the_best_of_this_machine_is_chosen_and_letters_where_nothing_else_is() -> None:
    assert isinstance(local_embeddings(), MiniLmEmbeddings)
    without_the_extra = """
import sys
sys.modules["onnxruntime"] = None
from hermes.stores.embeddings import local_embeddings
sys.stderr.write(local_embeddings().model)
"""
    chosen = subprocess.run([sys.executable, "-c", without_the_extra], capture_output=True, check=True, text=True, timeout=60)
    assert chosen.stderr == HashedEmbeddings.model
    assert "missing=onnxruntime" in re.sub(r"\x1b\[[0-9;]*m", "", chosen.stdout)


async def test_an_api_is_asked_in_batches_with_its_key(client: HttpClient, server: tuple[Server, str]) -> None:
    served, address = server
    texts = [f"text {n}" for n in range(130)]
    made = await api(client, address).embed(texts)
    assert [each.vector for each in made] == [pytest.approx(hash_text(text)) for text in texts]
    assert [(len(body["input"]), body["model"], body["encoding_format"], key) for body, key in served.asked] == [
        (128, "small", "float", "Bearer secret"),
        (2, "small", "float", "Bearer secret"),
    ]


def data(rows: Sequence[object]) -> bytes:
    return json.dumps({"data": rows}).encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"{}"),
        (401, b'{"error": {"message": "bad key secret"}}'),
        (200, b"not json"),
        (200, b"[]"),
        (200, data([])),
        (200, data([{"index": 0, "embedding": [0.5]}])),
        (200, data([{"index": 0, "embedding": [0.0] * 512}])),
        (200, data([{"index": 0, "embedding": ["x"] * 512}])),
        (200, data([{"index": 1, "embedding": [1.0] * 512}])),
    ],
)
async def test_an_answer_that_is_none_is_said_to_be_none(client: HttpClient, server: tuple[Server, str], status: int, body: bytes) -> None:
    served, address = server
    served.answer = web.Response(status=status, body=body)
    with pytest.raises(EmbeddingsUnavailable) as error:
        await api(client, address).embed(["x"])
    assert "secret" not in str(error.value)


async def test_a_server_that_is_not_there_is_unavailable(client: HttpClient) -> None:
    with pytest.raises(EmbeddingsUnavailable, match="did not answer"):
        await api(client, "http://127.0.0.1:1/v1", timeout_s=1.0).embed(["x"])


def test_a_batch_has_many_short_texts_or_few_long_ones() -> None:
    texts = ["short"] * 20 + ["long " * 1_000] * 6 + ["short"]
    batches = list(cut_into_batches(texts))
    assert [text for batch in batches for text in batch] == texts
    assert [len(batch) for batch in batches] == [16, 4, 4, 3]
    assert max(len(batch) * min(1_024, max(map(len, batch))) for batch in batches) <= MAX_BATCH_CHARS


LONG_TEXTS = """
import asyncio
from pathlib import Path
from hermes.stores.embeddings.minilm import MiniLmEmbeddings
def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
async def main():
    embeddings = MiniLmEmbeddings()
    await embeddings.embed(["hello"])
    before = resident_mb()
    await asyncio.gather(*(embeddings.embed(["word tree house " * 200] * 8) for _ in range(2)))
    print(resident_mb() - before)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_that_long_texts_take_is_given_back() -> None:
    grown = subprocess.run([sys.executable, "-c", LONG_TEXTS], check=True, capture_output=True, text=True)
    assert float(grown.stdout) < 60.0
