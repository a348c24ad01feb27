"""The tests of `hermes setup`: each answer is tried at once, as Hermes would use it. None of them costs money or changes anything."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import psycopg

from hermes.app.catalogue import catalogue_from
from hermes.app.doctor import HEALTH_TIMEOUT_S, check_redis
from hermes.app.doctor_basics import Health, HealthFinding
from hermes.app.models import OLLAMA_URL, build_backend
from hermes.app.setup_plan import ModelProvider
from hermes.app.stores import check_addresses
from hermes.app.web_port import PortUse, find_port_use, refuse_port
from hermes.backends import HttpClient
from hermes.channels.platform_client import open_platform_client
from hermes.channels.telegram import BotApi, profile_in
from hermes.channels.webhook_values import as_object, as_text, objects_in, parse_object
from hermes.config import Settings
from hermes.config.values import check_address
from hermes.http_client import TransportError
from hermes.ports.backends import FindingLevel
from hermes.ports.channels import MaybeSent, NotSent
from hermes.ports.errors import StartRefused
from hermes.stores.postgres.migrate import SchemaRefused, check_server

LOOKUP_TIMEOUT_S = 5.0
MAX_LIST_BYTES = 4 * 1024 * 1024
PORTS_TO_TRY = 20
OWNERS = {"vllm": ModelProvider.VLLM, "sglang": ModelProvider.SGLANG, "llamacpp": ModelProvider.LLAMA_CPP}
"""What servers write as the owner of their models, and which kind of server does."""


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The models that a server lists, and the kind of server that lists them so."""

    names: tuple[str, ...] = ()
    kind: ModelProvider = ModelProvider.PLAIN


async def check_backend(settings: Settings, name: str) -> tuple[HealthFinding, str]:
    """Return whether the backend can be asked, and the code of what is wrong. Makes the backend's own health check, which costs nothing."""
    client = HttpClient()
    try:
        backend = build_backend(name, settings, catalogue_from(settings), client)
        try:
            found = await backend.health_check(timeout_s=HEALTH_TIMEOUT_S)
        finally:
            await backend.aclose()
    except StartRefused as error:
        return HealthFinding("model", Health.BAD, str(error).splitlines()[0]), "refused"
    finally:
        await client.aclose()
    worst = next((each for each in found if each.level is not FindingLevel.INFO), found[0])
    health = Health.GOOD if worst.level is FindingLevel.INFO else Health.BAD
    return HealthFinding("model", health, worst.message, worst.hint), worst.code


async def list_models(settings: Settings, name: str) -> ServedModels:
    """Return the models of an OpenAI-compatible server or an Ollama; none if it does not say."""
    entry = settings.backends.get(name)
    url, key = (entry.base_url, entry.api_key) if entry is not None else (None, None)
    is_ollama = name == ModelProvider.OLLAMA
    base = url or (OLLAMA_URL if is_ollama else "https://api.openai.com/v1")
    headers = {"Authorization": f"Bearer {key.reveal()}"} if key is not None else {}
    client = HttpClient()
    try:
        path = "/api/tags" if is_ollama else "/models"
        async with client.send("GET", base.rstrip("/") + path, headers=headers, timeout_s=HEALTH_TIMEOUT_S) as reply:
            body = as_object(parse_object(await reply.read(MAX_LIST_BYTES)))
    except TransportError:
        return ServedModels()
    finally:
        await client.aclose()
    models = objects_in(body.get("models" if is_ollama else "data"))
    names = tuple(text for model in models if (text := as_text(model.get("name" if is_ollama else "id"))))
    kinds = (OWNERS.get(as_text(model.get("owned_by")) or "") for model in models)
    return ServedModels(names, next((kind for kind in kinds if kind is not None), ModelProvider.PLAIN))


async def check_bot(token: str, base_url: str | None) -> HealthFinding:
    """Ask Telegram whose token this is. Raises ValueError for a text that cannot be a token."""
    api = BotApi(token=token, **({"base_url": base_url} if base_url else {}))
    try:
        async with open_platform_client() as client:
            profile = profile_in(await client.send(api.me(), timeout_s=LOOKUP_TIMEOUT_S))
    except (NotSent, MaybeSent) as error:
        return HealthFinding("telegram", Health.BAD, f"Telegram cannot be reached: {error}", "is this machine connected to the internet?")
    if profile is None:
        return HealthFinding("telegram", Health.BAD, "Telegram does not know this token", "copy it again from @BotFather")
    return HealthFinding("telegram", Health.GOOD, f"the bot is @{profile.username}")


async def check_port(settings: Settings) -> HealthFinding:
    """Return whether Hermes can listen on the port of the settings; if not, the advice has the next port that is free."""
    web = settings.web
    place = f"{web.host}:{web.port}"
    use = await find_port_use(settings)
    if use is PortUse.FREE:
        return HealthFinding("port", Health.GOOD, f"{place} is free")
    if use is PortUse.OURS:
        return HealthFinding("port", Health.GOOD, f"this Hermes runs at {place}; restart it, and it uses the new settings")
    others = range(web.port + 1, min(web.port + PORTS_TO_TRY, 65_535))
    free = next((port for port in others if refuse_port(web.host, port) is None), None)
    reasons = {PortUse.OTHER_HERMES: "another Hermes listens there", PortUse.FORBIDDEN: "this user may not listen there"}
    says = f"{place}: {reasons.get(use, 'another program listens there')}"
    return HealthFinding("port", Health.BAD, says, f"port {free} is free" if free else "choose another port")


async def check_public_url(url: str) -> HealthFinding:
    """Look the address up, and ask whether a Hermes answers there. Raises ValueError for a text that is no address."""
    part = "address"
    try:
        parts = urlsplit(check_address(url))
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise ValueError("this is no address; expected one such as https://hermes.example.com, without a query") from None
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return HealthFinding(part, Health.BAD, f"{parts.hostname} has no address in the DNS", "correct the name, or make its DNS record")
    if parts.scheme != "https":
        advice = "platforms send webhooks to https only; put TLS in front of Hermes"
        return HealthFinding(part, Health.WARNING, f"{url} is not https", advice)
    client = HttpClient(connect_timeout_s=LOOKUP_TIMEOUT_S)
    try:
        async with client.send("GET", f"{url.rstrip('/')}/health", headers={}, timeout_s=LOOKUP_TIMEOUT_S) as reply:
            if reply.status == 200:
                return HealthFinding(part, Health.GOOD, f"{url} answers")
    except TransportError:
        pass  # Hermes does not run yet, or its proxy is not set up yet
    finally:
        await client.aclose()
    says = f"{parts.hostname} is {found[0][4][0]}; whether requests reach Hermes shows only when it runs"
    return HealthFinding(part, Health.WARNING, says, f"then try: curl {url.rstrip('/')}/health")


async def check_database(settings: Settings) -> HealthFinding:
    """Connect to PostgreSQL, and check its version and pgvector. Raises ValueError for a text that is no address."""
    url = checked_address(settings, "database")
    try:
        limit_s = max(1, round(settings.database.connect_timeout_s))
        async with await psycopg.AsyncConnection.connect(url, connect_timeout=limit_s, application_name="hermes setup") as connection:
            await check_server(connection)
            major = connection.info.server_version // 10_000
    except SchemaRefused as error:
        return HealthFinding("database", Health.BAD, str(error), "see docs/how-to/run.md")
    except psycopg.Error as error:
        return HealthFinding("database", Health.BAD, str(error).splitlines()[0], "check the address, and that the server runs")
    return HealthFinding("database", Health.GOOD, f"PostgreSQL {major} with pgvector")


async def check_cache(settings: Settings) -> HealthFinding:
    """Ask Redis or Valkey for its version. Raises ValueError for a text that is no address."""
    found = await check_redis(checked_address(settings, "redis"), "a server", settings)
    return found if found.health is Health.GOOD else replace(found, health=Health.BAD, advice="check the address, and that the server runs")


def checked_address(settings: Settings, store: str) -> str:
    """Return the address of a store. Raises ValueError, without showing it: it may hold a password."""
    try:
        check_addresses(settings)
    except StartRefused as error:
        raise ValueError(str(error)) from None
    secret = settings.database_url if store == "database" else settings.redis_url
    return secret.reveal() if secret is not None else ""
