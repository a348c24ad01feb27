"""Several streams as one: they end together, whatever one of them does when it is cut off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from structlog.testing import capture_logs

from hermes.gateway.client_chats import ChatCompletions


class Breaking:
    """A gateway whose streams break when they are cancelled: the error takes the place of the cancellation."""

    def __init__(self) -> None:
        self.broken = 0

    async def stream(self, *_: object) -> AsyncIterator[str]:
        try:
            yield "piece"
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.broken += 1
            raise ConnectionError("the connection broke") from None


async def test_a_reader_that_leaves_is_not_held_up_by_streams_that_break_meanwhile() -> None:
    gateway = Breaking()
    nothing = cast("Any", None)
    completions = ChatCompletions(
        gateway=cast("Any", gateway), people=nothing, chats=nothing, graphs=nothing, transactions=nothing, tier="t", deadline_s=1.0
    )
    with capture_logs() as logs:
        async with asyncio.timeout(20), aclosing(completions._merge_streams(3, nothing, nothing, nothing)) as merged:
            assert [(await anext(merged)).piece for _ in range(3)] == ["piece"] * 3
            await asyncio.sleep(0)  # all of them wait for the next piece
    assert (gateway.broken, logs) == (3, [])
