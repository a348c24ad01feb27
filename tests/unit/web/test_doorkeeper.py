"""Keys are looked up once in a while, and a revoked one is out after that while."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from hermes.ports.api_keys import ApiKey
from hermes.web import doorkeeper
from hermes.web.doorkeeper import Doorkeeper
from hermes.web.errors import Refused
from hermes.web.limits import Limit


def key(name: str, *doors: str) -> ApiKey:
    return ApiKey(uuid4(), name, "shop", f"hk_{name}", None, False, doors or None, None, datetime.now(UTC), None, None)


class Keys:
    """The port ApiKeys as far as the door needs it, with a count of the look-ups."""

    def __init__(self, *names: str) -> None:
        self.known = {f"hk_{name}": key(name) for name in names}
        self.asked: list[str] = []

    async def find(self, tx: Any, secret: str) -> ApiKey | None:
        self.asked.append(secret)
        return self.known.get(secret)


class NoTransactions:
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        yield None


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Door:
    """A doorkeeper at the door `messages`, to whom everybody comes from one address."""

    keeper: Doorkeeper

    async def admit(self, secret: str | None, name: str = "messages") -> ApiKey:
        return await self.keeper.admit(secret, name, "192.0.2.1")


def door(keys: Keys, time: Time, guesses: int = 100) -> Door:
    return Door(Doorkeeper(NoTransactions(), keys, clock=time, guesses=Limit(guesses, time)))  # type: ignore[arg-type]


async def test_a_key_is_looked_up_once_in_five_seconds() -> None:
    keys, time = Keys("one"), Time()
    keeper = door(keys, time)
    for time.now in (0.0, 1.0, 4.9):
        assert await keeper.admit("hk_one") == keys.known["hk_one"]
    assert keys.asked == ["hk_one"]
    time.now = 5.0
    await keeper.admit("hk_one")
    assert keys.asked == ["hk_one", "hk_one"]


async def test_a_revoked_key_is_out_after_five_seconds() -> None:
    keys, time = Keys("one"), Time()
    keeper = door(keys, time)
    await keeper.admit("hk_one")
    keys.known.clear()
    time.now = 4.9
    await keeper.admit("hk_one")
    time.now = 5.0
    with pytest.raises(Refused, match="was revoked"):
        await keeper.admit("hk_one")


async def test_that_a_key_is_unknown_is_not_remembered() -> None:
    keys = Keys()
    keeper = door(keys, Time())
    with pytest.raises(Refused):
        await keeper.admit("hk_one")
    keys.known["hk_one"] = key("one")
    assert await keeper.admit("hk_one") == keys.known["hk_one"]


@pytest.mark.parametrize("secret", [None, "", "x" * 201])
async def test_what_cannot_be_a_key_costs_no_look_up(secret: str | None) -> None:
    keys = Keys()
    with pytest.raises(Refused):
        await door(keys, Time()).admit(secret)
    assert keys.asked == []


async def test_no_more_keys_are_remembered_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "MOST_REMEMBERED", 2)
    keys = Keys("one", "two", "three")
    keeper = door(keys, Time())
    for secret in ("hk_one", "hk_two", "hk_three", "hk_two", "hk_three", "hk_one"):
        await keeper.admit(secret)
    assert keys.asked == ["hk_one", "hk_two", "hk_three", "hk_one"]


async def test_a_key_opens_its_own_doors_only() -> None:
    keys = Keys()
    keys.known["hk_one"] = key("one", "messages", "users")
    keeper = door(keys, Time())
    await keeper.admit("hk_one", "messages")
    with pytest.raises(Refused, match="opens messages, users, and not completions") as refused:
        await keeper.admit("hk_one", "completions")
    assert refused.value.status == 403


async def test_who_keeps_guessing_is_not_looked_up_any_more_and_who_is_known_is_let_in_all_the_same() -> None:
    keys, time = Keys("one"), Time()
    keeper = door(keys, time, guesses=3)
    await keeper.admit("hk_one")
    for guess in ("hk_a", "hk_b"):
        with pytest.raises(Refused, match="not known"):
            await keeper.admit(guess)
    time.now = 10.0
    with pytest.raises(Refused, match=r"come again in 10 s") as refused:
        await keeper.admit("hk_c")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "10"})
    assert await keeper.admit("hk_one") == keys.known["hk_one"]
    assert keys.asked == ["hk_one", "hk_a", "hk_b", "hk_one"]
    time.now = 20.0
    with pytest.raises(Refused, match="not known"):
        await keeper.admit("hk_c")
