"""A process that raises and sends alerts, as told on its standard input: for tests that kill or stop it between two steps.

raise EVENT     report an alert and write its row; prints "raised"
send            one round to each destination; prints how many messages arrived
hang            from now on, print "sending" instead of sending a message, and wait for ever
stop            stop this process (SIGSTOP) at the next message, after its claim"""

import asyncio
import os
import signal
import sys
import time
from typing import NoReturn

from hermes.app.alerting import destinations_from
from hermes.config import AlertKindSetting, AlertSettings, NamedTables, Secret, Settings
from hermes.http_client import HttpClient
from hermes.ops import logs
from hermes.ops.alert_sender import AlertSender, RoutedDestination
from hermes.ops.alerts import AlertWriter, OperatorAlerts
from hermes.ops.metrics import LogAlerts, Metrics
from hermes.ports.alerts import AlertMessage
from hermes.stores.postgres.alerts import PostgresAlerts
from hermes.stores.postgres.database import open_database
from tests.fakes.alert_receivers import SECRET, SLACK_PATH

LEASE_S, TIMEOUT_S = 2.0, 1.0


class HangingDestination:
    """Says that it would send, and never does."""

    name = "hanging"

    async def send(self, message: AlertMessage, *, timeout_s: float) -> None:  # the port's
        say("sending")
        await asyncio.Event().wait()


class Timer:
    """The clock of the sender, which asks it before each message."""

    def __init__(self) -> None:
        self.stops = False
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        if self.stops and self.asked > 1:
            self.stops = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return time.monotonic()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def obey(database_url: str, receivers_url: str) -> NoReturn:
    destinations = {
        "slack": AlertSettings(url=Secret(receivers_url + SLACK_PATH)),
        "ops": AlertSettings(kind=AlertKindSetting.WEBHOOK, url=Secret(f"{receivers_url}/hook"), secret=Secret(SECRET)),
    }
    client, timer = HttpClient(), Timer()
    async with open_database(database_url, pool_min=1, pool_max=2) as database:
        records, alerts = PostgresAlerts(), OperatorAlerts(LogAlerts(Metrics()))
        routed = destinations_from(Settings(alerts=NamedTables(destinations)), client)
        sender = AlertSender(database, records, routed, window_s=3600, lease_s=LEASE_S, timeout_s=TIMEOUT_S, timer=timer)
        writer = AlertWriter(alerts, database, records)
        say("ready")
        while True:
            command, _, event = (await asyncio.to_thread(sys.stdin.readline)).strip().partition(" ")
            match command:
                case "raise":
                    alerts.alert(event, platform="telegram", account="bali")
                    await writer.write()
                    say("raised")
                case "send":
                    timer.asked = 0
                    say(str(sum([await sender.send_due(each) for each in routed])))
                case "hang":
                    routed = [RoutedDestination(each.route, HangingDestination()) for each in routed]
                case "stop":
                    timer.stops = True
                case _:
                    os._exit(0)


if __name__ == "__main__":
    logs.configure("json", "warning", sys.stderr)  # standard output is for what it says
    asyncio.run(obey(*sys.argv[1:]))
