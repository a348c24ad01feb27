"""Every chore of a Hermes that is put together writes through the transactions of its run, which check its lease."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermes.app.root import open_hermes
from hermes.config import RetentionSettings, Secret, Settings
from hermes.ports.errors import LeaseLost
from hermes.ports.runtime import Transaction
from hermes.router.chores import ChoreRun

CHORES = ["reminders", "light_dreams", "deep_dreams", "re_embedding"]


class Lost:
    """The transactions of a chore whose lease another process has."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        raise LeaseLost
        yield

    once = begin


async def test_no_chore_opens_a_transaction_without_its_lease(database_url: str, redis_url: str, tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path, database_url=Secret(database_url), redis_url=Secret(redis_url), retention=RetentionSettings(messages_days=1)
    )
    async with open_hermes(settings) as hermes:
        for chore in hermes.background_jobs.chores:
            with pytest.raises(LeaseLost):
                await chore.do(ChoreRun(datetime.now(UTC), Lost()))
        assert {chore.name for chore in hermes.background_jobs.chores} >= set(CHORES)
