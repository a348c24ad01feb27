"""Several streams as one: they end together, whatever one of them does when it is cut off."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from structlog.testing import capture_logs

from hermes.gateway.completions import ChoicePiece, merge_streams
from hermes.ports.backends import TextDelta

PIECE = TextDelta("piece")


class Breaking:
    """Streams that break when they are cancelled: the error takes the place of the cancellation."""

    def __init__(self) -> None:
        self.broken = 0

    async def stream(self) -> AsyncGenerator[TextDelta]:
        try:
            yield PIECE
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.broken += 1
            raise ConnectionError("the connection broke") from None


async def whole() -> AsyncGenerator[TextDelta]:
    yield PIECE


async def failing() -> AsyncGenerator[TextDelta]:
    raise ConnectionError("no stream")
    yield PIECE


async def test_a_reader_that_leaves_is_not_held_up_by_streams_that_break_meanwhile() -> None:
    breaking = Breaking()
    with capture_logs() as logs:
        async with asyncio.timeout(20), aclosing(merge_streams([breaking.stream() for _ in range(3)])) as merged:
            assert {(await anext(merged)).choice for _ in range(3)} == {0, 1, 2}
            await asyncio.sleep(0)  # all of them wait for the next piece
    assert (breaking.broken, logs) == (3, [])


async def test_streams_end_together_with_the_last_piece_or_the_first_error() -> None:
    assert [piece async for piece in merge_streams([whole(), whole()])] == [ChoicePiece(0, PIECE), ChoicePiece(1, PIECE)]
    breaking = Breaking()
    with pytest.raises(ConnectionError, match="no stream"):
        _ = [piece async for piece in merge_streams([breaking.stream(), failing()])]
    assert breaking.broken == 1
