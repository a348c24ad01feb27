"""Paperclip as Hermes meets it: its adapter `hermes_gateway`, which begins a run, follows its events, asks for its state beside that, and
stops it when it takes too long. In our own words, after its source; as strict as it is, and as forgiving.

What it does that a server can trip over: the name of an event is its field `event`, then `type`, then the line `event:`; any event with a
final `status` ends the run; it sends `Idempotency-Key` with every request, and no `Last-Event-ID`; `/stop` has no body and no content type;
session keys are up to 140 characters long."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

COMPLETED, FAILED, CANCELLED = {"completed"}, {"failed", "error"}, {"cancelled", "canceled", "stopped", "interrupted"}
FINAL = COMPLETED | FAILED | CANCELLED
HTTP_CODES = {401: "auth_failed", 403: "auth_failed", 404: "runs_unsupported", 429: "rate_limited"}


@dataclass
class PaperclipResult:
    """What Paperclip keeps of a run."""

    exit_code: int
    error_code: str | None = None
    error: str | None = None
    timed_out: bool = False
    summary: str = ""
    usage: dict[str, int] | None = None
    cost_usd: float | None = None
    model: str | None = None
    session_id: str | None = None
    run_id: str | None = None


@dataclass
class _Watch:
    run_id: str
    ended: "asyncio.Future[dict[str, Any]]"
    chunks: list[str] = field(default_factory=list)


@dataclass
class PaperclipAgent:
    """An agent of a Paperclip company whose adapter is `hermes_gateway`."""

    client: aiohttp.ClientSession
    url: str
    api_key: str
    company: str = "5f0c2f0e-3a60-4d5c-9a4d-0d5f5d3b8b10"
    agent: str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
    strategy: str = "issue"
    template: Mapping[str, Any] = field(default_factory=dict)
    """`payloadTemplate` of its settings: fields that Hermes may not know."""
    timeout_s: float = 20.0
    poll_s: float = 0.25
    events_path: str = "/v1/runs/{}/events"
    """Another path is a proxy that does not let streams through."""
    frames_before_break: int | None = None
    """The connection of the first stream breaks after so many events."""
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Every event, over all connections."""
    statuses: list[int] = field(default_factory=list)
    """Of the streams."""
    polled: list[str] = field(default_factory=list)
    stop_body: dict[str, Any] | None = None

    async def execute(self, run: str, task: str, *, issue: str | None = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed") -> PaperclipResult:
        """Give Hermes a task and wait for its end."""
        headers = self.headers(run, issue)
        session = {"session_id": headers["X-Hermes-Session-Key"]} if "X-Hermes-Session-Key" in headers else {}
        body = {**self.template, "input": task, "instructions": "Follow the wake instructions.", **session}
        async with self.client.post(f"{self.url}/v1/runs", json=body, headers={**headers, "Accept": "application/json"}) as response:
            created = await response.json()
            if not response.ok:
                return PaperclipResult(1, f"hermes_gateway_{HTTP_CODES.get(response.status, 'upstream_error')}")
        run_id = created.get("run_id")
        if not isinstance(run_id, str) or not run_id.strip():
            return PaperclipResult(1, "hermes_gateway_protocol_error")
        watch = _Watch(run_id, asyncio.get_running_loop().create_future())
        quiet = {**headers, "Accept": "text/event-stream"}
        tasks = [asyncio.create_task(self._follow(watch, quiet)), asyncio.create_task(self._poll(watch, quiet))]
        try:
            async with asyncio.timeout(self.timeout_s):
                final = await asyncio.shield(watch.ended)
        except TimeoutError:
            return await self._give_up(watch, quiet)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return result_of(watch, final, headers.get("X-Hermes-Session-Key"))

    def headers(self, run: str, issue: str | None) -> dict[str, str]:
        keys = {"issue": f"paperclip:company:{self.company}:agent:{self.agent}:issue:{issue}", "run": f"paperclip:run:{run}"}
        session = {"X-Hermes-Session-Key": keys[self.strategy]} if self.strategy in keys else {}
        return {"Authorization": f"Bearer {self.api_key}", "Idempotency-Key": run, **session}

    async def _follow(self, watch: _Watch, headers: Mapping[str, str]) -> None:
        while not watch.ended.done():
            with suppress(aiohttp.ClientError):
                async with self.client.get(self.url + self.events_path.format(watch.run_id), headers=headers) as response:
                    self.statuses.append(response.status)
                    if response.status == 200:
                        await self._read(watch, response)
            await asyncio.sleep(0.05)

    async def _read(self, watch: _Watch, response: aiohttp.ClientResponse) -> None:
        buffer, frames = "", 0
        async for chunk in response.content.iter_any():
            *whole, buffer = (buffer + chunk.decode()).replace("\r\n", "\n").split("\n\n")
            for frame in whole:
                self._handle(watch, frame)
                frames += 1
                if watch.ended.done():
                    return
                if self.frames_before_break is not None and frames >= self.frames_before_break:
                    self.frames_before_break = None
                    return  # the response is left unread, so its connection is closed

    def _handle(self, watch: _Watch, frame: str) -> None:
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        data = "\n".join(line.removeprefix("data:").lstrip() for line in lines if line.startswith("data:"))
        if not data:
            return
        record = json.loads(data)
        line_name = next((line.removeprefix("event:").strip() for line in lines if line.startswith("event:")), None)
        name = record.get("event") or record.get("type") or line_name
        self.seen.append((name, record))
        if name == "message.delta" and record.get("delta"):
            watch.chunks.append(record["delta"])
        status = record.get("status") or (name[4:] if name.startswith("run.") else None)
        if status in FINAL and not watch.ended.done():
            watch.ended.set_result({**record, "status": status})

    async def _poll(self, watch: _Watch, headers: Mapping[str, str]) -> None:
        while not watch.ended.done():
            await asyncio.sleep(self.poll_s)
            with suppress(aiohttp.ClientError):
                state = await self.state(watch.run_id, headers)
                self.polled.append(str(state.get("status")))
                if state.get("status") in FINAL and not watch.ended.done():
                    watch.ended.set_result(state)

    async def state(self, run_id: str, headers: Mapping[str, str]) -> dict[str, Any]:
        async with self.client.get(f"{self.url}/v1/runs/{run_id}", headers=headers) as response:
            return await response.json() if response.ok else {}

    async def _give_up(self, watch: _Watch, headers: Mapping[str, str]) -> PaperclipResult:
        async with self.client.post(f"{self.url}/v1/runs/{watch.run_id}/stop", headers=headers) as response:
            self.stop_body = await response.json() if response.ok else None
        final = await self.state(watch.run_id, headers)
        return PaperclipResult(1, "hermes_gateway_timeout", str(final.get("status")), timed_out=True, run_id=watch.run_id)


def result_of(watch: _Watch, final: Mapping[str, Any], session_key: str | None) -> PaperclipResult:
    status, usage = final["status"], final.get("usage") or {}
    tokens = {"input": usage.get("input_tokens", 0), "output": usage.get("output_tokens", 0)}
    code = None if status in COMPLETED else "hermes_gateway_run_failed" if status in FAILED else "hermes_gateway_cancelled"
    return PaperclipResult(
        exit_code=0 if status in COMPLETED else 1,
        error_code=(final.get("error_code") or code) if code else None,
        error=final.get("error") if code else None,
        summary=final.get("output") or "".join(watch.chunks).strip(),
        usage=tokens if any(tokens.values()) else None,
        cost_usd=final.get("cost_usd"),
        model=final.get("model"),
        session_id=final.get("session_id") or session_key,
        run_id=watch.run_id,
    )
