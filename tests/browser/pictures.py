"""Takes the pictures of the documentation, from a Hermes that really answers: `scripts/pictures`.

Real PostgreSQL and Valkey in a folder that is removed afterwards, the scripted model with the concierge's tools, a real Chromium. The turn
has a tool call, and a model before it fails with 500. The chat of the API was edited and shortened: its graph has three versions."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes.config import BackendKind, BackendSettings, ModelSettings, PriceSettings, Secret, TierSettings
from hermes.ports.operators import Role
from hermes.stores import embedded
from tests.browser.browser import Page, installed, started
from tests.browser.console import console_tab
from tests.browser.small_png import shrink_png
from tests.fakes.vendors import Vendors, vendors
from tests.flows.service import Service, running

WIDTH, HEIGHT = 1_280, 860
MAX_BYTES = 150 * 1_024
SCHEMES = {"light": "", "dark": "-dark"}
"""The schemes, and what they add to the name of a file."""
PRICE = PriceSettings(input=1.0, output=5.0)
"""The scripted model is free; with a price the pictures show what a real one costs."""
CALLS_OF_A_TURN = 2
"""A turn with a tool calls a model before it and after it."""
MESSAGES = {
    "ada": ["hello", "find me a sunset bar in Canggu", "I am allergic to peanuts", "a quiet café to work in, please"],
    "made": ["where can I eat babi guling in Ubud?", "remind me tomorrow at 9 to book a table"],
    "lena": ["a restaurant with vegan food in Seminyak"],
}


@dataclass(frozen=True)
class Subject:
    """A page to take a picture of."""

    name: str
    path: str


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/pictures", description="Take the pictures of the console for the documentation.")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"), help="the folder for the pictures (docs/pictures)")
    options = parser.parse_args(arguments)
    browser = installed()
    if browser is None:
        parser.error("there is no Chromium on this machine (Debian: apt-get install chromium)")
    options.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="hermes-") as home,
        embedded.run_servers(Path(home) / "home") as stores,
        started(browser) as port,
    ):
        pictures = asyncio.run(take_all(port, stores))
    for name, picture in pictures.items():
        (options.out / name).write_bytes(picture)
        sys.stdout.write(f"{options.out / name}: {len(picture) / 1_024:.0f} KiB\n")
    return 1 if any(len(picture) > MAX_BYTES for picture in pictures.values()) else 0


async def take_all(port: int, stores: embedded.StoreUrls) -> dict[str, bytes]:
    """Return the pictures by the names of their files."""
    async with vendors() as fakes, running(stores.database_url, stores.redis_url, echoes=False, more=two_models(fakes)) as service:
        await talk(service)
        turn_id, session_id = await fall_over(service, fakes), await edit_chat(service)
        subjects = [
            Subject("turn", f"/console/turns/{turn_id}"),
            Subject("conversation", f"/console/conversations/{session_id}"),
        ]
        async with console_tab(port, service, Role.OWNER) as page:
            await page.size(WIDTH, HEIGHT)
            return {
                f"{subject.name}{suffix}.png": shrink_png(await take(page, service, subject, scheme))
                for subject in subjects
                for scheme, suffix in SCHEMES.items()
            }


def two_models(fakes: Vendors) -> dict[str, Any]:
    """Two models with a price: `small`, on a server of one's own, and the scripted one if it fails."""
    fakes.vllm.models[:] = ["small-1"]
    own = BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key))
    return {
        "backends": {"own": own},
        "models": {
            "small": ModelSettings(backend="own", id="small-1", prices=(PRICE,)),
            "scripted": ModelSettings(backend="scripted", prices=(PRICE,)),
        },
        "tiers": {name: TierSettings(chain=("small", "scripted"), day_tokens=1_000_000) for name in ("free", "pro")},
    }


async def talk(service: Service) -> None:
    key = await service.key("bali")
    for user, texts in MESSAGES.items():
        for text in texts:
            await say(service, key, user, text)


async def say(service: Service, key: dict[str, str], user: str, text: str) -> str:
    """Send a message; return its turn when it has its answer."""
    answer = await service.post("/v1/messages", {"user": user, "text": text}, key)
    assert answer.status == 200, answer
    return str(answer.body["turn_id"])


async def fall_over(service: Service, fakes: Vendors) -> str:
    """Have a turn in which the first model fails and the second one calls a tool; return it."""
    for _ in range(CALLS_OF_A_TURN):
        fakes.vllm.fail(500)
    return await say(service, await service.key("bali"), "nyoman", "find me a sunset bar in Canggu")


async def edit_chat(service: Service) -> str:
    """Chat as a program does: change the first question after three answers, then put a summary in the place of the beginning. Return the
    id of the session."""
    key = await service.key("bali", scopes=["completions"])
    system = {"role": "system", "content": "You are a guide to Bali."}
    chat = [system, said("hello")]
    for following in ("find me a bar in Canggu", "a restaurant in Ubud", "thanks"):
        chat += [await complete(service, key, chat), said(following)]
    chat[1] = said("good morning")
    chat += [await complete(service, key, chat), said("find me a quiet café")]
    chat.append(await complete(service, key, chat))
    shorter = [system, said("(In short: they want a bar in Canggu and a restaurant in Ubud.)"), *chat[-3:], said("thank you")]
    await complete(service, key, shorter)
    async with service.database.pool.connection() as connection:
        row = await (
            await connection.execute("select session_id from calls where source = 'completions' order by day desc limit 1")
        ).fetchone()
    assert row is not None
    return str(row[0])


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def complete(service: Service, key: dict[str, str], chat: list[dict[str, str]]) -> dict[str, str]:
    answer = await service.post("/v1/chat/completions", {"model": "scripted", "messages": chat, "user": "surf-guide"}, key)
    assert answer.status == 200, answer
    return {"role": "assistant", "content": answer.body["choices"][0]["message"]["content"]}


async def take(page: Page, service: Service, subject: Subject, scheme: str) -> bytes:
    """Return the picture of a page, with its content opened. Raises if the page complains or does not exist."""
    await page.color_scheme(scheme)
    await page.go(service.url + subject.path)
    if await page.see("document.querySelector('form[action=\"/console/open\"] button') !== null"):
        await page.see("window.isBeforeOpening = true")
        await page.click('form[action="/console/open"] button')
        await page.until("!window.isBeforeOpening && document.readyState === 'complete'")
    if await page.see("document.body.dataset.page === undefined"):
        raise RuntimeError(f"{subject.path}: {await page.see('document.body.innerText')}")
    await page.until("!document.querySelector('#strip')?.dataset.src || document.querySelector('#strip').dataset.was !== undefined")
    await page.see("scrollTo(0, 0)")
    return await page.picture()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
