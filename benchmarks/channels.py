"""Channels and delivery: acknowledging webhooks, bringing out answers, and whether web and worker grow over very many messages.

    acknowledge   webhooks of Telegram, WhatsApp (360dialog, Cloud API) and Instagram at a fixed rate: how long each waits for its 200
    delivery      one worker and a full outbox: messages a second, at the platforms' pace and at the machine's
    memory        web and worker over very many messages of very many people, from webhook to delivered answer

Starts stores, web and worker as `hermes up` would, for each part anew; the senders are a process of their own, and the platforms that take
the answers are a minimal server in this one. Exits with 1 if a promise is broken. The parts are in benchmarks/channels/."""

from __future__ import annotations

import argparse
import os
import platform
import sys

from channels.acknowledge import PROMISED_RATE, acknowledge
from channels.house import broken
from channels.memory import memory
from channels.outbox import deliver
from gateway.machine import foreign_share
from router import run

from hermes.ops import logs

PARTS = ("acknowledge", "delivery", "memory")


def main() -> int:
    """Run the parts that are asked for and print their tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", type=lambda text: text.split(","), default=PARTS, metavar="PARTS", help=f"some of {','.join(PARTS)}")
    options.add_argument("--seconds", type=float, default=15.0, help="how long each load runs (%(default)s)")
    options.add_argument("--rate", type=float, default=PROMISED_RATE, help="webhooks a second; the promise is for %(default)s")
    options.add_argument("--people", type=int, default=500, help="who sends them (%(default)s)")
    options.add_argument(
        "--messages", type=int, default=60_000, help="for the memory, of a fifth as many people (%(default)s: about 20 minutes)"
    )
    options.add_argument("--quick", action="store_true", help="short, to see that everything runs; the numbers mean little")
    chosen = options.parse_args()
    if unknown := set(chosen.only) - set(PARTS):
        options.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if chosen.quick:
        chosen.seconds, chosen.people, chosen.messages = min(chosen.seconds, 3.0), min(chosen.people, 60), min(chosen.messages, 1_500)
    logs.configure("json", "error", sys.stderr)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; ", end="")
    print(f"others use {foreign_share():.0%} of the machine\n", flush=True)
    if "acknowledge" in chosen.only:
        run(acknowledge(chosen.rate, chosen.seconds, chosen.people))
    if "delivery" in chosen.only:
        run(deliver(chosen.seconds))
    if "memory" in chosen.only:
        run(memory(chosen.messages))
    for promise in broken:
        print(f"BROKEN: {promise}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
