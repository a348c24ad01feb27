"""Keys are looked up once in a while, a revoked one is out after that while, and a right one is let in whatever wrong ones do."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from hermes.ports.errors import StoreUnavailable
from hermes.ports.users import ApiKey
from hermes.web import api_auth
from hermes.web.api_auth import ApiAuth
from hermes.web.errors import ApiError
from hermes.web.limits import RateLimit


def key(name: str, *scopes: str) -> ApiKey:
    return ApiKey(uuid4(), name, "shop", f"hk_{name}", None, False, scopes or None, None, datetime.now(UTC), None, None)


class Keys:
    """The port ApiKeys as far as ApiAuth needs it, with every look-up: the secrets that it was for. While it is shut, nothing is found."""

    def __init__(self, *names: str) -> None:
        self.known = {f"hk_{name}": key(name) for name in names}
        self.asked: list[list[str]] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.fault: Exception | None = None

    async def find(self, tx: Any, secrets: Collection[str]) -> dict[str, ApiKey]:
        self.asked.append([*secrets])
        await self.is_open.wait()
        if self.fault is not None:
            raise self.fault
        return {secret: self.known[secret] for secret in secrets if secret in self.known}


class NoTransactions:
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        yield None


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class AuthClient:
    """Asks an ApiAuth for the scope `messages`, always from one address."""

    api_auth: ApiAuth

    async def admit(self, secret: str | None, scope: str = "messages") -> ApiKey:
        return await self.api_auth.admit(secret, scope, "192.0.2.1")


def make_client(keys: Keys, time: Time, guesses: int = 100) -> AuthClient:
    return AuthClient(ApiAuth(NoTransactions(), keys, clock=time, guesses=RateLimit(guesses, time)))  # type: ignore[arg-type]


async def test_a_key_is_looked_up_once_in_five_seconds() -> None:
    keys, time = Keys("one"), Time()
    client = make_client(keys, time)
    for time.now in (0.0, 1.0, 4.9):
        assert await client.admit("hk_one") == keys.known["hk_one"]
    assert keys.asked == [["hk_one"]]
    time.now = 5.0
    await client.admit("hk_one")
    assert keys.asked == [["hk_one"], ["hk_one"]]


async def test_a_revoked_key_is_out_after_five_seconds() -> None:
    keys, time = Keys("one"), Time()
    client = make_client(keys, time)
    await client.admit("hk_one")
    keys.known.clear()
    time.now = 4.9
    await client.admit("hk_one")
    time.now = 5.0
    with pytest.raises(ApiError, match="was revoked"):
        await client.admit("hk_one")


async def test_that_a_key_is_unknown_is_not_remembered() -> None:
    keys = Keys()
    client = make_client(keys, Time())
    with pytest.raises(ApiError):
        await client.admit("hk_one")
    keys.known["hk_one"] = key("one")
    assert await client.admit("hk_one") == keys.known["hk_one"]


@pytest.mark.parametrize("secret", [None, "", "x" * 201])
async def test_what_cannot_be_a_key_costs_no_look_up(secret: str | None) -> None:
    keys = Keys()
    with pytest.raises(ApiError):
        await make_client(keys, Time()).admit(secret)
    assert keys.asked == []


async def test_no_more_keys_are_remembered_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_auth, "MAX_CACHED_KEYS", 2)
    keys = Keys("one", "two", "three")
    client = make_client(keys, Time())
    for secret in ("hk_one", "hk_two", "hk_three", "hk_two", "hk_three", "hk_one"):
        await client.admit(secret)
    assert keys.asked == [["hk_one"], ["hk_two"], ["hk_three"], ["hk_one"]]


async def test_a_key_is_let_in_for_its_own_scopes_only() -> None:
    keys = Keys()
    keys.known["hk_one"] = key("one", "messages", "users")
    client = make_client(keys, Time())
    await client.admit("hk_one", "messages")
    with pytest.raises(ApiError, match="lacks the scope completions; it has messages, users") as refused:
        await client.admit("hk_one", "completions")
    assert refused.value.status == 403


async def test_an_address_that_keeps_guessing_is_told_to_wait_and_its_right_keys_are_let_in_all_the_same() -> None:
    keys, time = Keys("one", "two"), Time()
    client = make_client(keys, time, guesses=2)
    await client.admit("hk_one")
    for guess in ("hk_a", "hk_b"):
        with pytest.raises(ApiError, match="is unknown"):
            await client.admit(guess)
    time.now = 10.0
    with pytest.raises(ApiError, match=r"try again in 20 s") as refused:
        await client.admit("hk_c")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "20"})
    assert await client.admit("hk_one") == keys.known["hk_one"]
    assert await client.admit("hk_two") == keys.known["hk_two"]  # which this process sees for the first time
    time.now = 30.0
    with pytest.raises(ApiError, match="is unknown"):
        await client.admit("hk_c")


async def outcomes(client: AuthClient, *secrets: str) -> list[int]:
    """The statuses of requests that come at once."""

    async def status(secret: str) -> int:
        try:
            await client.admit(secret)
        except ApiError as refused:
            return refused.status
        return 200

    return list(await asyncio.gather(*map(status, secrets)))


@pytest.mark.parametrize("is_remembered", [False, True])
async def test_of_five_hundred_at_once_with_a_right_key_none_is_refused_and_one_look_up_is_made(is_remembered: bool) -> None:
    keys, time = Keys("one"), Time()
    client = make_client(keys, time, guesses=10)
    if is_remembered:
        await client.admit("hk_one")
        time.now = 5.0
        keys.asked.clear()
    wrong = [f"hk_wrong_{number}" for number in range(200)]
    assert await outcomes(client, *wrong, *["hk_one"] * 500) == [401] * 10 + [429] * 190 + [200] * 500
    assert keys.asked == [[*wrong, "hk_one"]]


async def test_a_request_that_comes_while_its_key_is_looked_up_shares_the_answer() -> None:
    keys = Keys("one")
    client = make_client(keys, Time(), guesses=1)
    keys.is_open.clear()
    first = asyncio.create_task(client.admit("hk_one"))
    await settled()
    others = [asyncio.create_task(client.admit("hk_one")) for _ in range(100)]
    await settled()
    keys.is_open.set()
    assert await asyncio.gather(first, *others) == [keys.known["hk_one"]] * 101
    assert keys.asked == [["hk_one"]]


async def test_wrong_keys_take_one_look_up_at_a_time_and_no_key_waits_for_more_than_two() -> None:
    keys = Keys("one")
    client = make_client(keys, Time())
    keys.is_open.clear()
    wrong = [asyncio.create_task(outcomes(client, "hk_a"))]
    await settled()
    wrong += [asyncio.create_task(outcomes(client, f"hk_{number}")) for number in range(300)]
    right = asyncio.create_task(client.admit("hk_one"))
    await settled()
    assert keys.asked == [["hk_a"]]
    keys.is_open.set()
    assert await right == keys.known["hk_one"]
    assert [len(secrets) for secrets in keys.asked] == [1, 301]
    await asyncio.gather(*wrong)


async def test_no_look_up_is_for_more_keys_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_auth, "MAX_KEYS_PER_LOOKUP", 2)
    keys = Keys("a", "c")
    assert await outcomes(make_client(keys, Time()), *(f"hk_{letter}" for letter in "abcde")) == [200, 401, 200, 401, 401]
    assert keys.asked == [["hk_a", "hk_b"], ["hk_c", "hk_d"], ["hk_e"]]


async def test_a_request_that_is_cancelled_leaves_the_look_up_to_the_others() -> None:
    keys = Keys("one")
    client = make_client(keys, Time())
    keys.is_open.clear()
    first, second = asyncio.create_task(client.admit("hk_one")), asyncio.create_task(client.admit("hk_one"))
    await settled()
    first.cancel()
    await settled()
    keys.is_open.set()
    assert await second == keys.known["hk_one"]
    assert first.cancelled()
    assert keys.asked == [["hk_one"]]


async def test_a_look_up_that_fails_fails_for_all_who_wait_and_is_not_remembered() -> None:
    keys, time = Keys("one"), Time()
    client = make_client(keys, time, guesses=1)
    keys.fault = StoreUnavailable("away")
    keys.is_open.clear()
    waiting = [asyncio.create_task(client.admit("hk_one")) for _ in range(3)]
    await settled()
    waiting.append(asyncio.create_task(client.admit("hk_two")))  # would go with the next look-up
    await settled()
    keys.is_open.set()
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(failure) for failure in failures] == [StoreUnavailable] * 4
    assert keys.asked == [["hk_one"]]
    keys.fault = None
    assert await outcomes(client, "hk_one", "hk_two") == [200, 401]


async def test_a_look_up_that_hangs_ends_as_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_auth, "LOOKUP_TIMEOUT_S", 0.01)
    keys = Keys("one")
    client = make_client(keys, Time())
    keys.is_open.clear()
    with pytest.raises(StoreUnavailable, match=r"could not be looked up within 0\.01 s"):
        await client.admit("hk_one")
    keys.is_open.set()
    assert await client.admit("hk_one") == keys.known["hk_one"]


async def settled() -> None:
    """Let everything that can run now run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)
