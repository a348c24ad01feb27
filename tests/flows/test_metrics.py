"""What `GET /metrics` of `hermes up` shows after real turns: every founding name has a value, from whichever process did the work."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.vendors import ToolCall
from tests.flows.running_up import BOT, RunningUp, running_up

TOKEN = "for-prometheus"  # noqa: S105
Page = Mapping[str, Mapping[frozenset[tuple[str, str]], float]]


def read_page(text: str) -> Page:
    """The samples by name and labels."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name][frozenset(sample.labels.items())] = sample.value
    return found


def total(page: Page, name: str, **labels: str) -> float:
    """The sum over all processes, and over the labels that are not given."""
    return sum(value for found, value in page.get(name, {}).items() if found >= set(labels.items()))


async def scrape(tree: RunningUp) -> Page:
    status, text = await tree.get("/metrics")
    assert status == 200
    return read_page(text)


async def talk(tree: RunningUp) -> None:
    """Text, a trivial message, a repeated one, a tool, a failing request, and a message over a platform."""
    model, key = tree.vendors.openai, await tree.key()
    status, answer = await tree.post("/v1/messages", {"text": "What is the capital of Bali?", "user": "ada"}, key)
    assert (status, answer["text"]) == (200, "ok")
    for number in range(5):  # the same words in a new conversation; the prompt has the minute in it
        status, answer = await tree.post("/v1/messages", {"text": "thanks!", "user": "ada", "channel": f"c{number}"}, key)
        assert status == 200
        if answer["cache_hit"]:
            break
    assert answer["cache_hit"]
    model.say(tool_calls=[ToolCall("venue_search", {"query": "bar"})])
    status, answer = await tree.post("/v1/messages", {"text": "find me a sunset bar in Canggu", "user": "ben"}, key)
    assert (status, answer["tool_calls_made"]) == (200, 1)
    model.fail(500)
    status, _ = await tree.post("/v1/chat/completions", {"model": "house", "messages": [{"role": "user", "content": "hi"}]}, key)
    assert status >= 500
    bot = tree.platforms.telegram
    await tree.command("channels", "add", "telegram", "--name", BOT, "--token", bot.token, "--base-url", tree.platforms.url, "--open")
    ada = bot.person("Ada")
    ada.say("What is the best beach here?")
    async with asyncio.timeout(60):
        await ada.wait_for_messages(1)


async def test_every_founding_name_has_a_real_value_after_real_turns() -> None:
    async with running_up() as tree:
        await talk(tree)

        async def is_counted() -> bool:
            page = await scrape(tree)
            is_sent = total(page, "hermes_sends_total", outcome="sent") >= 1
            # The web process reads new accounts now and then.
            return is_sent and total(page, "hermes_turns_total") >= 5 and "hermes_breaker_state" in page

        await tree.until(is_counted, "the turns and the send are counted")
        _, text = await tree.get("/metrics")
        page = read_page(text)
        house = {"backend": "house", "tier": "free"}
        assert total(page, "hermes_llm_calls_total", **house) >= 5
        assert total(page, "hermes_llm_tokens_total", backend="house", direction="in") >= 5 * 12
        assert total(page, "hermes_llm_tokens_total", backend="house", direction="out") >= 5 * 5
        assert total(page, "hermes_llm_cache_hits_total", **house) == 1
        assert total(page, "hermes_semantic_recall_skipped_trivial_total") >= 2
        assert total(page, "hermes_request_count_total", route="/v1/messages", status="200") >= 4
        assert total(page, "hermes_request_errors_total", route="/v1/chat/completions") == 1
        assert total(page, "hermes_request_latency_seconds_count", route="/v1/messages") >= 4
        assert total(page, "hermes_request_latency_seconds_sum", route="/v1/messages") > 0
        # What else a turn leaves.
        assert total(page, "hermes_turns_total", outcome="answered") >= 5
        assert total(page, "hermes_step_seconds_count", step="call_model") >= 5
        assert total(page, "hermes_step_seconds_count", step="run_tools") >= 1
        assert total(page, "hermes_sends_total", platform="telegram", outcome="sent") >= 1
        cost = total(page, "hermes_llm_cost_usd_total", **house)
        tokens = [total(page, "hermes_llm_tokens_total", direction=direction) for direction in ("in", "out")]
        assert cost == pytest.approx(tokens[0] * 1e-6 + tokens[1] * 5e-6)
        assert cost > 0
        assert total(page, "hermes_spend_today_usd", scope="all") == pytest.approx(cost)
        assert total(page, "hermes_spend_cap_usd", scope="all") == 5
        assert total(page, "hermes_spend_today_usd", scope="fleet") == total(page, "hermes_spend_today_usd", scope="agent:hermes") > 0
        assert total(page, "hermes_spend_cap_usd", scope="fleet") == 4
        assert not any(("scope", "agent:hermes") in labels for labels in page["hermes_spend_cap_usd"]), "this agent has no cap"
        assert page["hermes_breaker_state"] == {frozenset({("platform", "telegram"), ("account", BOT)}): 0}
        assert total(page, "hermes_llm_attempts_total", outcome="answered") >= 5
        assert page["hermes_process_up"] == {frozenset({("process", name)}): 1 for name in ("serve-1", "worker-1", "worker-2")}
        assert {dict(labels)["process"] for labels in page["hermes_turns_total"]} <= {"worker-1", "worker-2"}
        check_with_promtool(text)


async def test_a_worker_that_is_stopped_or_killed_is_down_and_the_page_still_comes() -> None:
    async with running_up() as tree:
        stopped, killed = sorted(worker_pids(tree))
        os.kill(stopped, signal.SIGSTOP)
        try:
            async with asyncio.timeout(30):
                page = await scrape(tree)
            assert sorted(page["hermes_process_up"].values()) == [0, 1, 1]
        finally:
            os.kill(stopped, signal.SIGCONT)
        os.kill(killed, signal.SIGKILL)
        await tree.until(lambda: len(tree.events("worker_ready")) >= 3, "another worker is ready")

        async def is_whole() -> bool:
            return sorted((await scrape(tree))["hermes_process_up"].values()) == [1, 1, 1]

        await tree.until(is_whole, "the new worker has the number of the killed one")


async def test_in_production_the_page_needs_the_token_or_a_port_of_its_own() -> None:
    async with running_up(HERMES_WEB_METRICS_TOKEN=TOKEN, HERMES_WEB_METRICS_PORT="0") as tree:
        assert [(await tree.get(path))[0] for path in ("/metrics", "/docs", "/openapi.json", "/health")] == [401, 401, 401, 200]
        token = {"Authorization": f"Bearer {TOKEN}"}
        assert [(await tree.get(path, token))[0] for path in ("/metrics", "/docs", "/openapi.json")] == [200, 200, 200]
        [place] = tree.events("metrics_ready")
        own = f"http://127.0.0.1:{place['port']}"
        async with tree.client.get(f"{own}/metrics") as response:
            page = read_page(await response.text())
        assert len(page["hermes_process_up"]) == 3
        # A worker that is started by hand shows its own numbers on its own port, and is on the page of the web too.
        environ = {**tree.environ, "HERMES_LOG_FORMAT": "json"}
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hermes", "worker", "--metrics-port", "0"), env=environ, cwd=tree.folder, stderr=subprocess.PIPE
        )
        try:
            port = await port_of(worker)
            async with tree.client.get(f"http://127.0.0.1:{port}/metrics") as response:
                alone = read_page(await response.text())
            assert {dict(labels).get("process") for labels in alone["hermes_loop_lag_seconds"]} == {"worker-3"}
            assert "hermes_queue_length" not in alone
            async with tree.client.get(f"{own}/metrics") as response:
                page = read_page(await response.text())
            assert frozenset({("process", "worker-3")}) in page["hermes_process_up"]
        finally:
            worker.send_signal(signal.SIGTERM)
            await worker.communicate()
        async with tree.client.get(f"{own}/metrics") as response:
            page = read_page(await response.text())
        assert len(page["hermes_process_up"]) == 3, "a process that stopped is not missed"


async def port_of(process: asyncio.subprocess.Process) -> int:
    """Read a process's log until it names its port."""
    assert process.stderr is not None
    async with asyncio.timeout(60):
        async for line in process.stderr:
            if line.startswith(b"{") and (event := json.loads(line))["event"] == "metrics_ready":
                return int(event["port"])
    raise AssertionError("it ended without a port")


def worker_pids(tree: RunningUp) -> list[int]:
    """The workers of this tree, found by their command line and their home."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"hermes\0worker\0" in line and f"HERMES_HOME={tree.home}\0".encode() in environ:
            found.append(int(entry.name))
    return found


def check_with_promtool(page: str) -> None:
    """Prometheus' own check of names, texts and types, where it is installed."""
    if program := shutil.which("promtool"):
        checked = subprocess.run([program, "check", "metrics"], input=page, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
