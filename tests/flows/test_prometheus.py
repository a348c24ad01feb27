"""Every query of every dashboard and rule, run by a real Prometheus on what a real Hermes did. Opt in: `scripts/test --slow`."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.flows.running_up import PATIENCE_S, RunningUp, running_up
from tests.flows.test_metrics import TOKEN, talk

DEPLOY = Path(__file__).parents[2] / "deploy"

MAY_BE_EMPTY = (
    "hermes_webhooks_ignored_total",  # no webhook of this run was for another account
    "hermes_alerts_total",  # nothing went wrong that an operator must know
)
"""What a short and healthy run does not show."""


@asynccontextmanager
async def running_prometheus(tree: RunningUp) -> AsyncIterator[str]:
    """Scrape a Hermes every second, with the rules of deploy/; give the address of the API."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed; Debian has it in the package prometheus")
    settings: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(DEPLOY / "prometheus/rules.yml")]
    [job] = settings["scrape_configs"]
    job |= {"scrape_timeout": "1s", "static_configs": [{"targets": [tree.url.removeprefix("http://")]}]}
    job["authorization"] = {"credentials": TOKEN}
    folder = tree.folder / "prometheus"
    folder.mkdir()
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(program, *options, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        await process.wait()


def queries() -> list[tuple[str, str]]:
    """Where each query stands, and the query."""
    found = []
    for path in sorted((DEPLOY / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            found += [(f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    for group in yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text(encoding="utf-8"))["groups"]:
        found += [(f"rule {rule.get('record') or rule['alert']}", rule["expr"]) for rule in group["rules"]]
    return found


@pytest.mark.slow
async def test_every_query_of_the_dashboards_and_rules_answers_with_data_of_a_real_run() -> None:
    async with running_up(HERMES_WEB_METRICS_TOKEN=TOKEN) as tree, running_prometheus(tree) as prometheus:

        async def ask(query: str) -> dict[str, Any]:
            async with tree.client.get(f"{prometheus}/api/v1/query", params={"query": query}) as response:
                answer: dict[str, Any] = await response.json()
                return answer

        async def is_scraped(query: str) -> bool:
            try:
                return bool((await ask(query))["data"]["result"])
            except (aiohttp.ClientError, KeyError):  # it is starting
                return False

        await tree.until(lambda: is_scraped('up{job="hermes"} == 1'), "Prometheus scrapes")
        await talk(tree)
        await tree.until(lambda: is_scraped('count_over_time(hermes_sends_total{outcome="sent"}[5m]) > 4'), "the send is scraped")
        await talk_again(tree)

        async def has_rate() -> bool:
            await ask_for_coffee(tree)  # a send raises a rate only in a process that has sent before, and either worker may send
            return await is_scraped("sum(rate(hermes_sends_total[5m])) > 0")

        await tree.until(has_rate, "rates can be computed")
        await tree.until(lambda: is_scraped("hermes:turns_failed:ratio5m"), "the rules are evaluated")
        refused, empty = [], []
        for place, query in queries():
            answer = await ask(re.sub(r"\$__rate_interval", "5m", query))
            if answer["status"] != "success":
                refused.append((place, answer))
            elif not answer["data"]["result"] and not place.startswith("rule Hermes") and not any(name in query for name in MAY_BE_EMPTY):
                empty.append((place, query))
        assert (refused, empty) == ([], [])
        async with tree.client.get(f"{prometheus}/api/v1/rules") as response:
            groups = (await response.json())["data"]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}


async def talk_again(tree: RunningUp) -> None:
    """A second round: a rate needs a counter that was there before, and has grown."""
    key = await tree.key()
    for number in range(3):
        for user in ("ada", "ben"):
            words = {"text": "thanks!", "user": user, "channel": f"again-{number}"}
            assert (await tree.post("/v1/messages", words, key))[0] == 200
    await ask_for_coffee(tree)
    tree.vendors.openai.fail(500)
    await tree.post("/v1/chat/completions", {"model": "house", "messages": [{"role": "user", "content": "hi"}]}, key)


async def ask_for_coffee(tree: RunningUp) -> None:
    wayan = tree.platforms.telegram.person("Wayan")
    wayan.say("And where is the best coffee?")
    async with asyncio.timeout(PATIENCE_S):
        await wayan.wait_for_messages(1)
