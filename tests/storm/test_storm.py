"""A storm in miniature: people on every channel, real processes, and everything that can be struck is struck.

The longer one is `scripts/bench storm`. A seed of one's own: STORM_SEED=7 scripts/test tests/storm"""

import os

from tests.storm.checker import check
from tests.storm.opened import open_world
from tests.storm.weather import forecast

SECONDS, USERS = 40.0, 24


async def test_nothing_is_lost_doubled_swapped_crossed_or_mischarged_in_a_storm() -> None:
    seed = int(os.environ.get("STORM_SEED", "7"))
    async with open_world(forecast(seed, seconds=SECONDS, users=USERS)) as world:
        await world.storm()
        await world.calm()
        history = await world.history()
        violations = check(history)
        stories = [world.chronicle(), *[await world.story(violation) for violation in violations[:5]]]
    assert not violations, f"seed {seed}: {len(violations)} violations\n" + "\n\n".join(stories)
    assert len(history.turns) > USERS, "they did talk"
