"""`hermes users`: sign users up, give them credits, link their channels, show what Hermes stores about them, and erase them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID, uuid4

import typer

from hermes.app import Hermes
from hermes.cli.commands import app
from hermes.cli.errors import fail
from hermes.cli.runtime import Config, run, with_hermes
from hermes.cli.users_output import about_user, count_phrase, print_memory, print_user, print_users, record_phrases
from hermes.gateway.fleet import require_known
from hermes.ports.credits import Balance
from hermes.ports.errors import UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.users import ChannelTaken, LinkResult, NewUser, User, UserChannel, UserDataCounts, UserState
from hermes.router.replies import LANGUAGES
from hermes.router.signup import PRINTABLE_TEXT, ReferralRefused, Signup, find_user
from hermes.soul.my_data import MyData, data_as_json, forget_user, memory_as_json, my_data, to_json_value
from hermes.turn import Platform

T = TypeVar("T")

NO_LANGUAGE = "auto"
"""Typed instead of a language: Hermes answers in the language that the user writes in."""
REASON_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,31}")
OWN_EVENTS = frozenset({"signup", "referral", "referred"})
"""The reasons for which Hermes itself gives credits, once each. The operator cannot use these names."""

users = typer.Typer(
    no_args_is_help=True,
    help="Users: create, activate, credit, tier, language, link, show, list, memory, forget.\n\n"
    "A stranger wrote to Hermes, and Hermes tells them how to sign up. An invited user signed up, and Hermes tells them how to activate. "
    "An active user gets answers. Let a stranger in, or sign a user up and link the channel that they will write from:\n\n"
    "    hermes users list --state stranger\n"
    "    hermes users activate telegram:bali/42\n\n"
    "    hermes users create --tier pro --language id --active\n"
    "    hermes users link 3f2a whatsapp bali 628123456\n\n"
    "USER is an id, the beginning of an id (at least 4 characters), a referral code, or a channel: platform:account/sender.",
)
app.add_typer(users, name="users")

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Who = Annotated[str, typer.Argument(metavar="USER", help="An id, the beginning of one, a referral code, or platform:account/sender.")]
ReferredBy = Annotated[
    str | None,
    typer.Option(
        "--referred-by", metavar="CODE", help="The referral code of the user who invited them; both get credits.", show_default=False
    ),
]


@users.command()
def create(
    *,
    tier: Annotated[str, typer.Option(help="The tier: it decides the models and the tokens that the user gets.")] = "free",
    language: Annotated[str | None, typer.Option(help="The language of the answers.", show_default="the one they write in")] = None,
    is_active: Annotated[
        bool, typer.Option("--active/--invited", help="Activate the user at once, with the signup credits; or let them activate later.")
    ] = False,
    referred_by: ReferredBy = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Sign a user up, for instance: hermes users create --tier pro --language id --active."""
    if language is not None:
        _check_language(language)
    state = UserState.ACTIVE if is_active else UserState.INVITED

    async def make(hermes: Hermes, tx: Transaction) -> tuple[User, Balance]:
        require_known(tier, hermes.gateway.catalogue.tiers, "tier")
        user = await signup_of(hermes).create(tx, NewUser(state=state, tier=tier, language=language), referred_by=referred_by)
        return user, await hermes.adapters.credits.balance(tx, user.id)

    user, balance = _in_transaction(config, make)
    if is_json:
        typer.echo(json.dumps(about_user(user, balance)))
        return
    typer.echo(f"{user.id} is {user.state}, tier {user.tier}, with {balance.available} credits and the referral code {user.referral_code}.")
    following = f"hermes users link {str(user.id)[:8]} PLATFORM ACCOUNT SENDER"
    typer.secho(f"Link the channel that they write from: {following}", fg="bright_black", err=True)


@users.command()
def activate(who: Who, *, referred_by: ReferredBy = None, is_json: Json = False, config: Config = None) -> None:
    """Activate a stranger or an invited user, and give the signup credits. For an active user nothing changes."""

    async def let_in(hermes: Hermes, tx: Transaction) -> tuple[User, User, Balance]:
        before = await find_user(tx, hermes.adapters.people, who)
        user = await signup_of(hermes).activate(tx, before.id, referred_by=referred_by)
        return before, user, await hermes.adapters.credits.balance(tx, user.id)

    before, user, balance = _in_transaction(config, let_in)
    if is_json:
        typer.echo(json.dumps(about_user(user, balance)))
        return
    how = "is active already" if before.state is UserState.ACTIVE else f"was {before.state} and is active now"
    typer.echo(f"{user.id} {how}, with {balance.available} credits.")


@users.command(context_settings={"ignore_unknown_options": True})  # else typer takes -5 for an option
def credit(
    who: Who,
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="How many credits, at least 1. An answer costs one.")],
    *,
    reason: Annotated[str, typer.Option(help="The reason, in one word: purchase, apology, prize.")] = "operator",
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="A second command with the same key gives nothing; take a payment's number, for instance.", show_default=False),
    ] = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Give credits, for instance: hermes users credit 3f2a 100 --reason purchase --idempotency-key order-17.

    The ledger only grows. It can return the charge of a turn and nothing else, so you cannot give a negative number of credits."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}", amount):
        fail(f"{amount!r} is not a number of credits; expected 1 to 999999999: this command gives credits and cannot take them away")
    if not REASON_PATTERN.fullmatch(reason) or reason in OWN_EVENTS:
        fail(f"{reason!r} is not a reason; expected one word such as purchase, and none of Hermes' own: {', '.join(sorted(OWN_EVENTS))}")
    event = f"{reason}:{_check_text(idempotency_key) if idempotency_key else uuid4()}"

    async def give(hermes: Hermes, tx: Transaction) -> tuple[User, bool, Balance]:
        user = await _find_present_user(tx, hermes, who)
        try:
            is_new = await hermes.adapters.credits.grant(tx, user.id, int(amount), event)
        except ValueError as error:
            fail(str(error))
        return user, is_new, await hermes.adapters.credits.balance(tx, user.id)

    user, is_new, balance = _in_transaction(config, give)
    if is_json:
        typer.echo(json.dumps({**about_user(user, balance), "event": event, "is_new": is_new}))
        return
    result = f"got {amount} credits" if is_new else f"got the credits of {event} before; nothing changed"
    typer.echo(f"{user.id} {result}, and has {balance.available} now.")


@users.command()
def tier(
    who: Who,
    name: Annotated[str, typer.Argument(metavar="TIER", help="A tier of the settings.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Move a user to another tier. The models and budgets of that tier hold from the next message on."""

    async def move(hermes: Hermes, tx: Transaction) -> tuple[User, User]:
        require_known(name, hermes.gateway.catalogue.tiers, "tier")
        before = await find_user(tx, hermes.adapters.people, who)
        await hermes.adapters.people.set_tier(tx, before.id, name)
        return before, await hermes.adapters.people.get(tx, before.id)

    before, user = _in_transaction(config, move)
    if is_json:
        typer.echo(json.dumps(about_user(user)))
        return
    typer.echo(f"{user.id} is in the tier {user.tier} now; before, in {before.tier}.")


@users.command()
def training(
    who: Who,
    word: Annotated[Literal["yes", "no"], typer.Argument(help="Whether the user's messages, old and new, may be used for training.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Record whether a user allows training. Without it, exports leave out all their messages, also the older ones."""

    async def note(hermes: Hermes, tx: Transaction) -> User:
        user = await find_user(tx, hermes.adapters.people, who)
        await hermes.adapters.people.allow_training(tx, user.id, trains=word == "yes")
        return await hermes.adapters.people.get(tx, user.id)

    user = _in_transaction(config, note)
    if is_json:
        typer.echo(json.dumps(about_user(user)))
        return
    typer.echo(f"The messages of {user.id} may {'' if user.trains else 'not '}be used for training.")


@users.command()
def language(
    who: Who,
    code: Annotated[str, typer.Argument(metavar="CODE", help=f"{' '.join(LANGUAGES)}, or `{NO_LANGUAGE}`: the language they write in.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Set the language in which Hermes answers a user."""
    wanted = None if code == NO_LANGUAGE else _check_language(code)

    async def note(hermes: Hermes, tx: Transaction) -> User:
        user = await find_user(tx, hermes.adapters.people, who)
        await hermes.adapters.people.set_language(tx, user.id, wanted)
        return await hermes.adapters.people.get(tx, user.id)

    user = _in_transaction(config, note)
    if is_json:
        typer.echo(json.dumps(about_user(user)))
        return
    typer.echo(f"Hermes answers {user.id} in {user.language or 'the language they write in'}.")


@users.command()
def link(
    who: Who,
    platform: Annotated[str, typer.Argument(help=f"{', '.join(Platform)}.")],
    account: Annotated[
        str, typer.Argument(help="The account that the user writes to: a bot, a number, a page, or the account of an API key.")
    ],
    sender_id: Annotated[
        str, typer.Argument(metavar="SENDER", help="The user's id there: a phone number, a chat's id, or `user` of the API.")
    ],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Link a channel to a user. Hermes keeps one memory for all channels of a user; the conversations stay separate.

    A stranger who wrote from this channel before is erased. If they ever got or paid credits, the command refuses: activate them."""

    async def join(hermes: Hermes, tx: Transaction) -> tuple[User, UserChannel, LinkResult]:
        channel = UserChannel(_check_text(account), Platform(require_known(platform, [*Platform], "platform")), _check_text(sender_id))
        user = await find_user(tx, hermes.adapters.people, who)
        return user, channel, await hermes.adapters.people.link(tx, user.id, channel)

    user, channel, linked = _in_transaction(config, join)
    if is_json:
        typer.echo(
            json.dumps(to_json_value({**about_user(user), "channel": str(channel), "is_new": linked.is_new, "replaced": linked.replaced}))
        )
        return
    replaced = f"; the stranger {linked.replaced} who wrote from there is erased" if linked.replaced else ""
    typer.echo(f"{user.id} writes from {channel}{replaced}." if linked.is_new else f"{channel} is theirs already; nothing changed.")


@users.command()
def show(who: Who, *, is_json: Json = False, config: Config = None) -> None:
    """Show a user: state, tier, language, credits, channels, referral code, and how much Hermes stores about them."""
    data = _read(config, who)
    live = [fact for fact in data.memory.facts if fact.superseded_at is None]
    counts = {"facts": len(live), "superseded": len(data.memory.facts) - len(live), "dreams": len(data.memory.dreams)}
    if is_json:
        about = {name: value for name, value in data_as_json(data).items() if name not in {"facts", "dreams"}}
        typer.echo(json.dumps({**about, "known": counts}))
        return
    print_user(data, counts)


@users.command("list")
def list_(
    *,
    state: Annotated[UserState | None, typer.Option(help="Only users in this state.", show_default="all but deleted")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many users to show.")] = 50,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """List users, the newest first, with the channels that they write from."""

    async def read(hermes: Hermes, tx: Transaction) -> tuple[Sequence[User], Mapping[UUID, Sequence[UserChannel]]]:
        found = await hermes.adapters.people.list(tx, state=state, limit=limit)
        return found, await hermes.adapters.people.channels(tx, [user.id for user in found])

    found, channels = _in_transaction(config, read)
    if is_json:
        typer.echo(json.dumps([{**about_user(user), "channels": [str(each) for each in channels.get(user.id, ())]} for user in found]))
        return
    if not found:
        typer.echo("There is no user; sign one up: hermes users create")
        return
    print_users(found, channels)


@users.command()
def memory(who: Who, *, is_json: Json = False, config: Config = None) -> None:
    """Show every fact that Hermes knows about a user, with its source, also replaced facts; and the conclusions of dreams."""
    data = _read(config, who)
    if is_json:
        typer.echo(json.dumps({"id": str(data.user.id), **memory_as_json(data.memory)}, ensure_ascii=False))
        return
    if not data.memory.facts and not data.memory.dreams:
        typer.echo(f"Hermes knows nothing about {data.user.id}.")
        return
    print_memory(data.memory)


@users.command()
def forget(
    who: Who,
    *,
    is_sure: Annotated[bool, typer.Option("--yes", help="Really erase the user. You cannot undo it.")] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Erase a user for good: their data key, channels, facts and tool records. Without the key, their messages can never be read again.

    The ledger keeps what was paid, under a number that identifies no user. A running server notices within half a minute."""

    async def end(hermes: Hermes) -> tuple[User, UserDataCounts]:
        # This opens nothing of the user's sealed data, so damaged data can be erased too.
        async with hermes.database.begin() as tx:
            user = await _find_present_user(tx, hermes, who)
            kept = await hermes.adapters.people.count_data(tx, user.id)
        if is_sure:
            await forget_user(user.id, hermes.my_data)
        return user, kept

    user, kept = _run(with_hermes(config, end))
    what = ", ".join((count_phrase(kept.messages, "message"), count_phrase(kept.facts, "fact"), *record_phrases(kept)))
    if not is_sure:
        fail(f"nothing was deleted; {user.id} ({user.state}, {what}) is erased for good with: hermes users forget {who} --yes")
    if is_json:
        typer.echo(json.dumps({"id": str(user.id), "state": UserState.DELETED, "forgotten": kept.by_kind()}))
        return
    typer.echo(f"{user.id} is erased: {what}.")


def signup_of(hermes: Hermes) -> Signup:
    """Return the signup with the grants of the settings."""
    given = hermes.settings.credits
    people, ledger = hermes.adapters.people, hermes.adapters.credits
    return Signup(people=people, credits=ledger, signup_grant=given.signup_grant, referral_reward=given.referral_reward)


def _in_transaction(config: Path | None, act: Callable[[Hermes, Transaction], Coroutine[Any, Any, T]]) -> T:
    """Call `act` in one transaction: all its changes are stored, or none."""

    async def whole(hermes: Hermes) -> T:
        async with hermes.database.begin() as tx:
            return await act(hermes, tx)

    return _run(with_hermes(config, whole))


def _read(config: Path | None, who: str) -> MyData:
    async def read(hermes: Hermes) -> MyData:
        async with hermes.database.begin() as tx:
            user = await find_user(tx, hermes.adapters.people, who)
        return await my_data(user.id, hermes.my_data)

    return _run(with_hermes(config, read))


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Like `run`. An erased user, a taken channel and a refused referral are bad input too."""

    async def main_or_fail() -> T:
        try:
            return await main
        except UserErased:
            fail("this user was erased; Hermes has no data about them")
        except (ChannelTaken, ReferralRefused) as error:
            fail(str(error))

    return run(main_or_fail())


async def _find_present_user(tx: Transaction, hermes: Hermes, who: str) -> User:
    """Find a user. Raises UserErased if the user was erased."""
    user = await find_user(tx, hermes.adapters.people, who)
    if user.state is UserState.DELETED:
        raise UserErased
    return user


def _check_language(code: str) -> str:
    if code not in LANGUAGES:
        fail(f"Hermes does not speak {code!r}; it speaks {' '.join(LANGUAGES)}")
    return code


def _check_text(name: str) -> str:
    if not PRINTABLE_TEXT.fullmatch(name):
        fail(f"{name!r} is not a name; expected text on one line")
    return name
