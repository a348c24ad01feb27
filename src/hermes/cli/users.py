"""`hermes users`: who may write to Hermes, what they have, what is known of them, and the way out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID, uuid4

import typer

from hermes.app import Hermes
from hermes.cli.commands import app
from hermes.cli.errors import fail
from hermes.cli.runtime import Config, run, with_hermes
from hermes.cli.users_output import about_user, count_phrase, print_memory, print_user, print_users
from hermes.gateway.fleet import require_known
from hermes.ports.credits import Balance
from hermes.ports.errors import UserErased
from hermes.ports.transactions import Transaction
from hermes.ports.users import ChannelTaken, LinkResult, NewUser, User, UserChannel, UserDataCounts, UserState
from hermes.router.replies import LANGUAGES
from hermes.router.signup import PRINTABLE_TEXT, ReferralRefused, Signup, find_user
from hermes.soul.my_data import MyData, data_as_json, forget_user, memory_as_json, my_data, to_json_value
from hermes.turn import Platform

T = TypeVar("T")

NO_LANGUAGE = "auto"
"""What is written in place of a language for whatever the user writes in."""
REASON_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,31}")
OWN_EVENTS = frozenset({"signup", "referral", "referred"})
"""What Hermes itself gives credits for, once; nobody else takes these names."""

users = typer.Typer(
    no_args_is_help=True,
    help="Users: create, activate, credit, tier, language, link, show, list, memory, forget.\n\n"
    "A stranger wrote to us and is told to sign up; an invited user signed up and is told to activate; an active one is answered. "
    "Let a stranger in, or sign somebody up and say where they will write from:\n\n"
    "    hermes users list --state stranger\n"
    "    hermes users activate telegram:bali/42\n\n"
    "    hermes users create --tier pro --language id --active\n"
    "    hermes users link 3f2a whatsapp bali 628123456\n\n"
    "USER is an id, its beginning (4 characters at least), a referral code, or a channel: platform:account/sender.",
)
app.add_typer(users, name="users")

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Who = Annotated[str, typer.Argument(metavar="USER", help="An id, its beginning, a referral code, or platform:account/sender.")]
ReferredBy = Annotated[
    str | None,
    typer.Option("--referred-by", metavar="CODE", help="The referral code of whoever brought them; both get a reward.", show_default=False),
]


@users.command()
def create(
    *,
    tier: Annotated[str, typer.Option(help="The models and tokens that they get.")] = "free",
    language: Annotated[str | None, typer.Option(help="What they are answered in.", show_default="what they write in")] = None,
    is_active: Annotated[
        bool, typer.Option("--active/--invited", help="Let them in at once with the signup grant, or have them activate first.")
    ] = False,
    referred_by: ReferredBy = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Sign somebody up, for instance: hermes users create --tier pro --language id --active."""
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
    typer.secho(f"Say where they write from: {following}", fg="bright_black", err=True)


@users.command()
def activate(who: Who, *, referred_by: ReferredBy = None, is_json: Json = False, config: Config = None) -> None:
    """Let a stranger or an invited user in, with the signup grant. For somebody who is active, nothing changes."""

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


@users.command(context_settings={"ignore_unknown_options": True})  # or -5 would be taken for an option
def credit(
    who: Who,
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="How many credits, from 1 up. An answer takes one.")],
    *,
    reason: Annotated[str, typer.Option(help="What for, in a word: purchase, apology, prize.")] = "operator",
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="A second command with the same key gives nothing; take a payment's number, for instance.", show_default=False),
    ] = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Give credits, for instance: hermes users credit 3f2a 100 --reason purchase --idempotency-key order-17.

    The ledger is only ever added to, and takes back what a turn was charged and nothing else; so there is no negative gift."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}", amount):
        fail(f"{amount!r} is no number of credits; expected 1 to 999999999, because credits are given here and never taken")
    if not REASON_PATTERN.fullmatch(reason) or reason in OWN_EVENTS:
        fail(f"{reason!r} is no reason; expected a word such as purchase, and not one of Hermes' own: {', '.join(sorted(OWN_EVENTS))}")
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
    said = f"was given {amount} credits" if is_new else f"was given the credits of {event} before; nothing changed"
    typer.echo(f"{user.id} {said}, and has {balance.available} now.")


@users.command()
def tier(
    who: Who,
    name: Annotated[str, typer.Argument(metavar="TIER", help="A tier of the settings.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Move a user to another tier: other models, other budgets, from the next message on."""

    async def move(hermes: Hermes, tx: Transaction) -> tuple[User, User]:
        require_known(name, hermes.gateway.catalogue.tiers, "tier")
        before = await find_user(tx, hermes.adapters.people, who)
        await hermes.adapters.people.set_tier(tx, before.id, name)
        return before, await hermes.adapters.people.get(tx, before.id)

    before, user = _in_transaction(config, move)
    if is_json:
        typer.echo(json.dumps(about_user(user)))
        return
    typer.echo(f"{user.id} is in {user.tier}; before, in {before.tier}.")


@users.command()
def training(
    who: Who,
    word: Annotated[Literal["yes", "no"], typer.Argument(help="Whether what they said and say may be trained on.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Record a user's word on training; exports leave out what they did not allow, also what was said before."""

    async def note(hermes: Hermes, tx: Transaction) -> User:
        user = await find_user(tx, hermes.adapters.people, who)
        await hermes.adapters.people.allow_training(tx, user.id, trains=word == "yes")
        return await hermes.adapters.people.get(tx, user.id)

    user = _in_transaction(config, note)
    if is_json:
        typer.echo(json.dumps(about_user(user)))
        return
    typer.echo(f"What {user.id} says may {'' if user.trains else 'not '}be trained on.")


@users.command()
def language(
    who: Who,
    code: Annotated[str, typer.Argument(metavar="CODE", help=f"{' '.join(LANGUAGES)}, or `{NO_LANGUAGE}` for what they write in.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Say what a user is answered in."""
    wanted = None if code == NO_LANGUAGE else _check_language(code)

    async def note(hermes: Hermes, tx: Transaction) -> User:
        user = await find_user(tx, hermes.adapters.people, who)
        await hermes.adapters.people.set_language(tx, user.id, wanted)
        return await hermes.adapters.people.get(tx, user.id)

    user = _in_transaction(config, note)
    if is_json:
        typer.echo(json.dumps(about_user(user)))
        return
    typer.echo(f"{user.id} is answered in {user.language or 'the language they write in'}.")


@users.command()
def link(
    who: Who,
    platform: Annotated[str, typer.Argument(help=f"{', '.join(Platform)}.")],
    account: Annotated[str, typer.Argument(help="The account that they write to: a bot, a number, a page, the account of an API key.")],
    sender_id: Annotated[
        str, typer.Argument(metavar="SENDER", help="Who they are there: a phone number, a chat's id, a `user` of the API.")
    ],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Say where a user writes from. What is known of them is one, wherever they write; conversations stay apart.

    A stranger who wrote from there before is forgotten, unless they were ever given or charged credits: activate that one instead."""

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
    replaced = f"; the stranger {linked.replaced} who was met there is forgotten" if linked.replaced else ""
    typer.echo(f"{user.id} writes from {channel}{replaced}." if linked.is_new else f"{channel} is theirs already; nothing was changed.")


@users.command()
def show(who: Who, *, is_json: Json = False, config: Config = None) -> None:
    """Show who somebody is to us: state, tier, language, credits, channels, referral code, and how much is kept and known of them."""
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
    state: Annotated[UserState | None, typer.Option(help="Only who is in this state.", show_default="all but deleted")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, the newest first.")] = 50,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """List users, the newest first, with where they write from."""

    async def read(hermes: Hermes, tx: Transaction) -> tuple[Sequence[User], Mapping[UUID, Sequence[UserChannel]]]:
        found = await hermes.adapters.people.list(tx, state=state, limit=limit)
        return found, await hermes.adapters.people.channels(tx, [user.id for user in found])

    found, channels = _in_transaction(config, read)
    if is_json:
        typer.echo(json.dumps([{**about_user(user), "channels": [str(each) for each in channels.get(user.id, ())]} for user in found]))
        return
    if not found:
        typer.echo("There is nobody; sign somebody up: hermes users create")
        return
    print_users(found, channels)


@users.command()
def memory(who: Who, *, is_json: Json = False, config: Config = None) -> None:
    """Show all that is known of a user, with where it comes from, also what was true before; and what was dreamt of it."""
    data = _read(config, who)
    if is_json:
        typer.echo(json.dumps({"id": str(data.user.id), **memory_as_json(data.memory)}, ensure_ascii=False))
        return
    if not data.memory.facts and not data.memory.dreams:
        typer.echo(f"Nothing is known of {data.user.id}.")
        return
    print_memory(data.memory)


@users.command()
def forget(
    who: Who,
    *,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do it. It cannot be undone.")] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Delete a user for good: their key, channels, facts, bookings; what was sealed with the key can never be read again.

    What was paid stays in the ledger, under a number that names nobody. A running server notices within half a minute."""

    async def end(hermes: Hermes) -> tuple[User, UserDataCounts]:
        # Nothing of theirs is opened: also what is damaged can be forgotten.
        async with hermes.database.begin() as tx:
            user = await _find_present_user(tx, hermes, who)
            kept = await hermes.adapters.people.count_data(tx, user.id)
        if is_sure:
            await forget_user(user.id, hermes.my_data)
        return user, kept

    user, kept = _run(with_hermes(config, end))
    what = ", ".join((count_phrase(kept.messages, "message"), count_phrase(kept.facts, "fact"), count_phrase(kept.bookings, "booking")))
    if not is_sure:
        fail(f"nothing was deleted; {user.id} ({user.state}, {what}) is gone for good with: hermes users forget {who} --yes")
    if is_json:
        typer.echo(json.dumps({"id": str(user.id), "state": UserState.DELETED, "forgotten": asdict(kept)}))
        return
    typer.echo(f"{user.id} is forgotten: {what}.")


def signup_of(hermes: Hermes) -> Signup:
    """How people are signed up and activated here."""
    given = hermes.settings.credits
    people, ledger = hermes.adapters.people, hermes.adapters.credits
    return Signup(people=people, credits=ledger, signup_grant=given.signup_grant, referral_reward=given.referral_reward)


def _in_transaction(config: Path | None, act: Callable[[Hermes, Transaction], Coroutine[Any, Any, T]]) -> T:
    """Do something in one transaction: all of it happens, or nothing."""

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
    """As `run`; what somebody asked for and cannot have is bad input too."""

    async def told() -> T:
        try:
            return await main
        except UserErased:
            fail("this user was deleted; nothing is left of them")
        except (ChannelTaken, ReferralRefused) as error:
            fail(str(error))

    return run(told())


async def _find_present_user(tx: Transaction, hermes: Hermes, who: str) -> User:
    """Find a user who was not deleted."""
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
        fail(f"{name!r} is no name; expected text on one line")
    return name
