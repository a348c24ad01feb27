"""Build what speaks to platforms: a channel for each channel account of the database, and a poller for each bot without a webhook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import structlog

from hermes.app.adapters import Adapters
from hermes.app.clock import SystemClock
from hermes.channels.instagram import InstagramChannel, InstagramLogin
from hermes.channels.meta import GRAPH_API_VERSION
from hermes.channels.telegram import BotApi, BotProfile, TelegramChannel, profile_in, updates_in
from hermes.channels.whatsapp import CloudApi, Dialog360, WhatsAppChannel
from hermes.config import DeliverySettings
from hermes.delivery.channel_sender import ChannelSender
from hermes.delivery.outbox_delivery import SettlementWriter
from hermes.delivery.platform_limits import MessageTemplate
from hermes.delivery.receipts import ReceiptHandler
from hermes.ops.metrics import Metrics
from hermes.ports.channels import Channel, ChannelAccount, MaybeSent, NotSent, PlatformClient, SharesWebhook
from hermes.ports.errors import InboxFull, StoreUnavailable
from hermes.ports.outbox import ChannelName
from hermes.ports.runtime import Transactions
from hermes.ports.users import UserState
from hermes.router.intake import InboundRouter
from hermes.stores.postgres.channel_accounts import PostgresChannelAccounts
from hermes.tasks import end_tasks, stop_if_cancelled
from hermes.turn import Platform

log = structlog.get_logger()

POLL_WAIT_S = 25
"""How long Telegram may hold a poll until there is an update."""
MAX_UPDATES = 100
"""The most updates that Telegram returns to one poll."""
RETRY_PAUSE_S = 5.0
"""The pause after a poll that failed."""
REFRESH_S = 2.0
SETUP_TIMEOUT_S = 15.0


class BadAccount(ValueError):
    """The stored settings of a channel account are incomplete or invalid. Says which one, without showing any value."""


def channel_from(account: ChannelAccount) -> Channel:
    """Return the channel of an account. Raises BadAccount."""
    about = account.about
    try:
        match account.platform:
            case Platform.TELEGRAM:
                return TelegramChannel(
                    account=account.account,
                    api=BotApi(token=about["token"], **optional_field(about, "base_url")),
                    secret=about.get("secret", ""),
                    username=about.get("username"),
                )
            case Platform.WHATSAPP if "access_token" in about:
                cloud = CloudApi(
                    access_token=about["access_token"],
                    phone_number_id=about["phone_number_id"],
                    app_secrets=split_secrets(about["app_secrets"]),
                    verify_tokens=split_secrets(about.get("verify_tokens", "")),
                    version=about.get("version", GRAPH_API_VERSION),
                    **optional_field(about, "base_url"),
                    media_urls=split_secrets(about.get("media_urls", "https://lookaside.fbsbx.com")),
                )
                return WhatsAppChannel(account=account.account, provider=cloud)
            case Platform.WHATSAPP:
                dialog = Dialog360(
                    api_key=about["api_key"],
                    webhook_secrets=split_secrets(about["webhook_secrets"]),
                    secret_header=about.get("secret_header"),
                    phone_number_id=about.get("phone_number_id"),
                    **optional_field(about, "base_url"),
                )
                return WhatsAppChannel(account=account.account, provider=dialog)
            case Platform.INSTAGRAM:
                return InstagramChannel(
                    account=account.account,
                    instagram_id=about["instagram_id"],
                    login=InstagramLogin(about.get("login", "instagram")),
                    access_token=about["access_token"],
                    app_secrets=split_secrets(about["app_secrets"]),
                    verify_tokens=split_secrets(about.get("verify_tokens", "")),
                    version=about.get("version", GRAPH_API_VERSION),
                    base_url=about.get("base_url"),
                )
    except KeyError as error:
        raise BadAccount(f"{account.platform} account {account.account}: {error.args[0]} is missing") from None
    except ValueError as error:
        raise BadAccount(f"{account.platform} account {account.account}: {error}") from None
    raise BadAccount(f"{account.platform} has no accounts")


def optional_field(about: Mapping[str, str], name: str) -> dict[str, str]:
    return {name: about[name]} if about.get(name) else {}


def split_secrets(text: str) -> tuple[str, ...]:
    """Split secrets that are separated by commas; each of them is valid."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


class AccountChannels:
    """The port Channels, with the settings of each account. Follows the database, which other processes may change."""

    def __init__(self, accounts: PostgresChannelAccounts, transactions: Transactions) -> None:
        self._accounts, self._transactions = accounts, transactions
        self._channels: dict[tuple[Platform, str], Channel] = {}
        self._known: dict[tuple[Platform, str], ChannelAccount] = {}
        self._mark: str | None = None

    def get(self, platform: Platform, account: str) -> Channel | None:
        return self._channels.get((platform, account))

    def channels_by_webhook_id(self, platform: Platform, webhook_id: str) -> list[Channel]:
        """Return the channels that share their app's webhook and have this id in it; more than one if an account was set up twice."""
        on_platform = (channel for (its_platform, _), channel in self._channels.items() if its_platform is platform)
        return [channel for channel in on_platform if isinstance(channel, SharesWebhook) and channel.webhook_id == webhook_id]

    def new_user_state(self, platform: Platform, account: str) -> UserState:
        """Return the state of a user who writes to this account for the first time: active if the account is open, otherwise a stranger."""
        known = self._known.get((platform, account))
        return UserState.ACTIVE if known is not None and known.about.get("is_open") == "yes" else UserState.STRANGER

    @property
    def names(self) -> list[ChannelName]:
        """All accounts, by platform and name."""
        return [ChannelName(platform, account) for platform, account in self._known]

    @property
    def polled(self) -> list[ChannelAccount]:
        """The accounts whose platform Hermes polls for updates."""
        return [account for account in self._known.values() if account.is_polled]

    async def refresh(self) -> None:
        """Read the accounts again if they were changed. While the database is away, the known accounts stay."""
        try:
            async with self._transactions.begin() as tx:
                mark = await self._accounts.mark(tx)
                if mark == self._mark:
                    return
                found = await self._accounts.list(tx)
        except StoreUnavailable as error:
            log.warning("channels_not_read", error=type(error).__name__)
            return
        self._mark = mark
        channels: dict[tuple[Platform, str], Channel] = {}
        for account in found:
            try:
                channels[account.platform, account.account] = channel_from(account)
            except BadAccount as error:
                log.warning("channel_not_set_up", reason=str(error))
        self._channels = channels
        self._known = {(account.platform, account.account): account for account in found if (account.platform, account.account) in channels}

    async def follow(self) -> None:
        """Refresh every `REFRESH_S` seconds, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()
            stop_if_cancelled()


@asynccontextmanager
async def follow_accounts(account_channels: AccountChannels) -> AsyncIterator[None]:
    """Keep the accounts up to date for as long as the block lasts."""
    await account_channels.refresh()
    task = asyncio.create_task(account_channels.follow(), name="channels")
    try:
        yield
    finally:
        await end_tasks(task)


def channel_sender_from(
    settings: DeliverySettings, adapters: Adapters, account_channels: AccountChannels, post: PlatformClient, metrics: Metrics
) -> ChannelSender:
    """Return the sender that brings answers to platforms."""
    template = settings.whatsapp_template
    return ChannelSender(
        channels=account_channels,
        post=post,
        breakers=adapters.breakers,
        alerts=adapters.alerts,
        meter=metrics,
        clock=SystemClock(),
        timeout_s=settings.timeout_s,
        max_s=settings.cut_off_s - 2 * settings.timeout_s,
        queue_s=settings.queue_s,
        receipt_s=settings.receipt_s,
        templates={Platform.WHATSAPP: MessageTemplate(template, settings.whatsapp_template_language)} if template else {},
    )


def receipts_from(adapters: Adapters, transactions: Transactions, settlement: SettlementWriter, metrics: Metrics) -> ReceiptHandler:
    """Return the handler of delivery receipts."""
    return ReceiptHandler(
        transactions=transactions,
        tracking=adapters.outbox.tracking,
        dead_letters=adapters.outbox.dead_letters,
        settlement=settlement,
        meter=metrics,
    )


class SetupRefused(Exception):
    """A platform refused a step of the set-up of an account. Says why, without secrets."""


async def connect_telegram(account: ChannelAccount, post: PlatformClient, *, url: str | None) -> BotProfile:
    """Check a bot's token; then set its webhook to `url`, or remove it if `url` is None. Raises SetupRefused."""
    channel = channel_from(account)
    assert isinstance(channel, TelegramChannel)  # noqa: S101  # its platform says so
    try:
        profile = profile_in(await post.send(channel.api.me(), timeout_s=SETUP_TIMEOUT_S))
        if profile is None:
            raise SetupRefused("Telegram does not know this token; copy it again from @BotFather")
        call = channel.api.delete_webhook() if url is None else channel.api.set_webhook(url, channel.secret)
        reply = await post.send(call, timeout_s=SETUP_TIMEOUT_S)
    except (NotSent, MaybeSent) as error:
        raise SetupRefused(f"Telegram cannot be reached: {error}") from None
    if reply.status != 200:
        raise SetupRefused(f"Telegram refused the webhook: {channel.classify(reply).detail}")
    return profile


class TelegramPollers:
    """Polls Telegram for updates, for bots without a webhook. In one process at a time: Telegram answers a second one with a conflict, and
    that one waits."""

    def __init__(
        self,
        account_channels: AccountChannels,
        post: PlatformClient,
        inbound: InboundRouter,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._account_channels, self._post, self._inbound, self._pause = account_channels, post, inbound, pause
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Poll every such account, until cancelled."""
        try:
            while True:
                polled = {account.account: account for account in self._account_channels.polled if account.platform is Platform.TELEGRAM}
                for name in [name for name in self._tasks if name not in polled or self._tasks[name].done()]:
                    self._tasks.pop(name).cancel()
                for name in polled.keys() - self._tasks.keys():
                    self._tasks[name] = asyncio.create_task(self._poll(name), name=f"polling {name}")
                await asyncio.sleep(REFRESH_S)
        finally:
            await end_tasks(*self._tasks.values())

    async def _poll(self, name: str) -> None:
        offset: int | None = None
        limit = MAX_UPDATES
        while True:
            channel = self._account_channels.get(Platform.TELEGRAM, name)
            if not isinstance(channel, TelegramChannel):
                return
            try:
                reply = await self._post.send(channel.api.updates(offset, wait_s=POLL_WAIT_S, limit=limit), timeout_s=POLL_WAIT_S + 10)
                found = updates_in(reply)
                if found is None:
                    log.warning("polling_refused", account=name, reason=channel.classify(reply).detail[:200])
                    await self._pause(RETRY_PAUSE_S)
                    continue
                for webhook in found.webhooks:
                    events = channel.parse(webhook, now=SystemClock().now())
                    await self._inbound.route(channel, events, newcomer=self._account_channels.new_user_state(Platform.TELEGRAM, name))
                offset, limit = found.offset, MAX_UPDATES
            except (NotSent, MaybeSent, StoreUnavailable, InboxFull) as error:
                log.warning("polling_failed", account=name, error=type(error).__name__)
                # A response that was too long, or broke off, would be the same again; so the next one asks for fewer updates.
                limit = max(1, limit // 10) if isinstance(error, MaybeSent) else limit
                stop_if_cancelled()
                await self._pause(RETRY_PAUSE_S)
            stop_if_cancelled()
