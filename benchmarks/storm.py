"""A storm of ten minutes: people on every channel while processes, stores and platforms are struck; a checker says whether all is well.

    scripts/bench storm --seed 7 --minutes 2

Real `hermes serve` and `hermes worker` on stores of their own, the strict stand-ins of the platforms, a script as the model. One number
gives the weather and what people say; how the processes' steps fall between it differs each time. Exits with 1 if anything is wrong."""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the storm lives with the tests

from tests.storm.checker import check
from tests.storm.figures import figures
from tests.storm.opened import open_world
from tests.storm.weather import Forecast, forecast
from tests.storm.world import World

MOST_STORIES = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long people talk and the weather strikes")
    parser.add_argument("--seed", type=int, default=None, help="the number that gives the weather; by default another one each time")
    parser.add_argument("--users", type=int, default=24, help="how many people, over all channels")
    parser.add_argument("--every", type=float, default=6.0, help="seconds from one blow at processes and stores to the next")
    parser.add_argument("--logs", type=Path, default=None, help="keep the processes' logs in this folder")
    wanted = parser.parse_args()
    seed = random.randrange(10**6) if wanted.seed is None else wanted.seed
    weather = forecast(seed, seconds=60 * wanted.minutes, users=wanted.users, every_s=wanted.every)
    return asyncio.run(run(weather, wanted.logs))


async def run(weather: Forecast, logs: Path | None) -> int:
    blows = ", ".join(f"{count} {name}" for name, count in weather.counts().items())
    print(f"seed {weather.seed}: {len(weather.talkers)} people, {weather.messages} messages in {weather.seconds:.0f} s")
    print(f"weather: {blows}; bursts are {'joined' if weather.burst_s else 'not joined'}")
    print(f"Python {platform.python_version()} on {platform.machine()}\n", flush=True)
    async with open_world(weather) as world:
        telling = asyncio.create_task(tell(world))
        try:
            await world.storm()
            await world.calm()
        finally:
            telling.cancel()
            if logs is not None:
                keep(world, logs)
        return await verdict(world)


async def tell(world: World) -> None:
    """Say now and then how far it is."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(30)
        said, received = sum(len(one.said) for one in world.people), sum(len(one.received) for one in world.people)
        print(f"  {time.monotonic() - began:5.0f} s: {said} said, {received} received, {len(world.done)} blows", flush=True)


async def verdict(world: World) -> int:
    history = await world.history()
    violations = check(history)
    print()
    for line in figures(world, history, await world.outcomes()).lines():
        print(line)
    print()
    if violations:
        print(world.chronicle(), "\n")
    for violation in violations[:MOST_STORIES]:
        print(await world.story(violation), "\n")
    print(f"seed {world.forecast.seed}: {f'{len(violations)} violations' if violations else 'nothing is wrong'}")
    return 1 if violations else 0


def keep(world: World, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for machine in world.machines:
        shutil.copy(machine.log, folder)


if __name__ == "__main__":
    sys.exit(main())
