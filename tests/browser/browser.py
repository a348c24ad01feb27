"""A real Chromium without a window, driven over its DevTools protocol. Needs nothing but the browser and a WebSocket."""

import asyncio
import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_S = 15.0


def installed() -> str | None:
    """The browser on this machine, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def started(path: str) -> Iterator[int]:
    """Run a browser; give the port of its DevTools."""
    # Root has no sandbox to offer, and a container's /dev/shm may be too small for a page.
    options = ["--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    with tempfile.TemporaryDirectory(prefix="hermes-chromium-", ignore_cleanup_errors=True) as folder:
        command = [path, *options, f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield port_of(process, Path(folder) / "DevToolsActivePort")
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def port_of(process: "subprocess.Popen[bytes]", file: Path) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"Chromium ended with {process.returncode}")
        lines = file.read_text().splitlines() if file.exists() else []
        if lines:
            return int(lines[0])
        time.sleep(0.05)
    raise RuntimeError("Chromium opened no port within 60 s")


@dataclass
class Page:
    """One tab."""

    socket: aiohttp.ClientWebSocketResponse
    complaints: list[str] = field(default_factory=list)
    """What the browser wrote to its console: errors, refused loads, exceptions."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _answers: dict[int, "asyncio.Future[Any]"] = field(default_factory=dict)

    async def do(self, method: str, **params: Any) -> Any:
        """Call a DevTools method."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            return await answer

    async def listen(self) -> None:
        async for message in self.socket:
            told = json.loads(message.data)
            if "id" in told:
                answer = self._answers.pop(told["id"])
                if not answer.done():
                    answer.set_result(told["result"]) if "result" in told else answer.set_exception(RuntimeError(str(told["error"])))
            elif told["method"] == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.complaints.append(told["params"]["entry"]["text"])
            elif told["method"] == "Runtime.exceptionThrown":
                self.complaints.append(told["params"]["exceptionDetails"]["text"])

    async def go(self, url: str) -> None:
        await self.do("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def see(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        told = await self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"]["exception"].get("description", "it raised"))
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true; the page itself decides when that is."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await self.see(f"Boolean({expression})"):  # noqa: ASYNC110  # the page rings no bell for it
                    await asyncio.sleep(0.02)
        except TimeoutError:
            shown = await self.see("document.body.innerText")
            raise AssertionError(f"never came true: {expression}\nshown:\n{shown}") from None

    async def type(self, text: str) -> None:
        await self.do("Input.insertText", text=text)

    async def press(self, key: str, *, shift: bool = False) -> None:
        codes = {"Enter": 13, "Tab": 9, "Space": 32}
        values: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == "Space" else {}
        await self.do("Input.dispatchKeyEvent", type="keyDown", **values, **text)
        await self.do("Input.dispatchKeyEvent", type="keyUp", **values)

    async def click(self, selector: str) -> None:
        """Click into the middle of an element, where a finger would."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.see(f"{found}.scrollIntoView({{block: 'nearest'}})")
        x, y = await self.see(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({found}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            await self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def size(self, width: int, height: int) -> None:
        await self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    async def color_scheme(self, scheme: str) -> None:
        await self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def offline(self, is_offline: bool) -> None:
        await self.do("Network.emulateNetworkConditions", offline=is_offline, latency=0, downloadThroughput=-1, uploadThroughput=-1)

    async def block(self, *patterns: str) -> None:
        """Let every request to these addresses fail."""
        await self.do("Network.setBlockedURLs", urls=list(patterns))

    async def picture(self) -> bytes:
        return base64.b64decode((await self.do("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def tab(port: int) -> AsyncIterator[Page]:
    """Open a tab with cookies of its own, at a desktop's size."""
    async with aiohttp.ClientSession() as client:
        async with client.get(f"http://127.0.0.1:{port}/json/version") as response:
            browser_url = (await response.json())["webSocketDebuggerUrl"]
        async with client.ws_connect(browser_url, max_msg_size=0) as browser_socket, listening(Page(browser_socket)) as browser:
            context = (await browser.do("Target.createBrowserContext"))["browserContextId"]
            target = (await browser.do("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
            page_url = f"ws://127.0.0.1:{port}/devtools/page/{target}"
            async with client.ws_connect(page_url, max_msg_size=0) as socket, listening(Page(socket)) as page:
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.do(f"{domain}.enable")
                await page.size(1100, 760)
                yield page
            await browser.do("Target.disposeBrowserContext", browserContextId=context)


@asynccontextmanager
async def listening(page: Page) -> AsyncIterator[Page]:
    task = asyncio.create_task(page.listen())
    try:
        yield page
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
