"""The client of Redis, from the settings."""

from __future__ import annotations

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hermes.config import Settings
from hermes.ports.errors import StartRefused


def redis_client(url: str, settings: Settings) -> Redis:
    """Return a client that fails quickly when Redis is away. It does not retry: its callers go on without Redis instead of waiting."""
    return Redis.from_url(
        url,
        socket_timeout=settings.redis.timeout_s,
        socket_connect_timeout=settings.redis.timeout_s,
        max_connections=settings.redis.pool_max,
        retry=Retry(NoBackoff(), 0),
    )


def check_redis_address(settings: Settings) -> None:
    """Raise StartRefused for an invalid address. The error does not show the address, which may hold a password."""
    if settings.redis_url is not None:
        try:
            parse_url(settings.redis_url.reveal())
        except ValueError:
            expected = "redis://host:6379, rediss://host or unix:///path; signs like / in a password are written as %2F"
            raise StartRefused(f"HERMES_REDIS_URL is no Redis address; expected {expected}") from None
