"""A small pack: it watches the weather in a town, and tells the user when it rains there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from importlib import resources
from typing import Annotated

from hermes.packs import Pack, PackServices
from hermes.ports.runtime import Transaction
from hermes.router.proactive import DueMessage
from hermes.router.replies import PackReplies
from hermes.soul.fact_keys import FactKey, parse_name
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.users import UserTable
from hermes.tools.gate import GateRules
from hermes.tools.parameters import AtMost
from hermes.tools.registry import ToolContext, ToolEffect, ToolReach, tool

FOLDER = resources.files(__package__)
REPLIES = PackReplies(FOLDER / "replies.toml", {"rain": ("town",)})


@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def watch_weather(_: PackServices, context: ToolContext, *, town: Annotated[str, "Its name.", AtMost(60)]) -> str:
    """Watch the weather in a town, and tell the user when it rains there."""
    row = [context.user.user_id, context.user.turn_id, town]
    await connection_of(context.tx).execute("insert into weather_watches (user_id, turn_id, town) values (%s, %s, %s)", row)
    return f"Watching {town}."


async def take_rain(tx: Transaction, _: datetime, limit: int) -> Sequence[DueMessage]:
    """Take the watches of towns where it rains, each once."""
    query = "delete from weather_watches where id in (select id from weather_watches where rains limit %s) returning turn_id, id, town"
    found = await (await connection_of(tx).execute(query, [limit])).fetchall()
    return [DueMessage(turn_id, f"rain/{number}", partial(REPLIES.reply, "rain", town=town)) for turn_id, number, town in found]


PACK = Pack(
    name="weather",
    role="weather guide",
    tools=lambda services: [watch_weather.of(services)],
    gate=GateRules.for_words("weather", words=["weather", "rain*", "umbrella*"], tools=["watch_weather"]),
    fact_keys=[FactKey(name="rain_gear", parse=parse_name, gap="What they wear in the rain.")],
    due_messages=lambda _: [take_rain],
    migrations=FOLDER / "migrations",
    user_tables=[UserTable("weather_watches", has_turns=True)],
    script=FOLDER / "script.toml",
    commands={"weather": f"{__package__}.commands:weather_commands"},
)
