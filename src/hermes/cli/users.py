"""`hermes users`: list users, sign them up, give them credits, link their channels. What Hermes stores about one is in user_data.py."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from uuid import UUID, uuid4

import typer

from hermes.app.console_access import access_from
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, Limit, complete_from
from hermes.cli.output import fail, print_json, print_result
from hermes.cli.runtime import complete_tiers, find_tiers, in_transaction, read_tables, run, with_tables
from hermes.cli.user_output import about_user, print_users
from hermes.config import Settings
from hermes.console.access import ReasonMissing, Subject
from hermes.ports.credits import Balance
from hermes.ports.errors import UserErased, require_known
from hermes.ports.operators import Role
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.users import ChannelTaken, LinkResult, NewUser, User, UserChannel, Users, UserState
from hermes.router.replies import LANGUAGES
from hermes.router.signup import PRINTABLE_TEXT, ReferralRefused, Signup, find_user
from hermes.soul.json_values import to_json_value
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.app.root import Hermes

T = TypeVar("T")

NO_LANGUAGE = "auto"
"""Typed instead of a language: Hermes answers in the language that the user writes in."""
REASON_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,31}")
OWN_EVENTS = frozenset({"signup", "referral", "referred"})
"""The reasons for which Hermes itself gives credits, once each. The operator cannot use these names."""

users = typer.Typer(
    no_args_is_help=True,
    help="Users: create, activate, credit, tier, training, language, link, show, list, memory, forget.\n\n"
    "A stranger wrote to Hermes, and Hermes tells them how to sign up. An invited user signed up, and Hermes tells them how to activate. "
    "An active user gets answers. Let a stranger in, or sign a user up and link the channel that they will write from:\n\n"
    "    hermes users list --state stranger\n"
    "    hermes users activate telegram:bali/42\n\n"
    "    hermes users create --tier pro --language id --active\n"
    "    hermes users link 3f2a whatsapp bali 628123456\n\n"
    "USER is an id, the beginning of an id (at least 4 characters), a referral code, or a channel: platform:account/sender.",
)
app.add_typer(users, name="users")

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
    tier: Annotated[
        str, typer.Option(help="The tier: it decides the models and the tokens that the user gets.", autocompletion=complete_tiers)
    ] = "free",
    language: Annotated[
        str | None,
        typer.Option(
            help="The language of the answers.",
            show_default="the one they write in",
            autocompletion=complete_from(lambda: LANGUAGES),
        ),
    ] = None,
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

    async def make(tables: Tables, tx: Transaction) -> tuple[User, Balance]:
        require_known(tier, find_tiers(tables.settings), "tier")
        user = await signup_of(tables).create(tx, NewUser(state=state, tier=tier, language=language), referred_by=referred_by)
        return user, await tables.credits.balance(tx, user.id)

    user, balance = run_for_user(read_tables(config, make))
    if is_json:
        print_json(about_user(user, balance))
        return
    typer.echo(f"{user.id} is {user.state}, tier {user.tier}, with {balance.available} credits and the referral code {user.referral_code}.")
    following = f"hermes users link {str(user.id)[:8]} PLATFORM ACCOUNT SENDER"
    typer.secho(f"Link the channel that they write from: {following}", fg="bright_black", err=True)


@users.command()
def activate(who: Who, *, referred_by: ReferredBy = None, is_json: Json = False, config: Config = None) -> None:
    """Activate a stranger or an invited user, and give the signup credits. For an active user nothing changes."""

    async def let_in(tables: Tables, tx: Transaction) -> tuple[User, User, Balance]:
        before = await find_user(tx, tables.people, who)
        user = await signup_of(tables).activate(tx, before.id, referred_by=referred_by)
        return before, user, await tables.credits.balance(tx, user.id)

    before, user, balance = run_for_user(read_tables(config, let_in))
    how = "is active already" if before.state is UserState.ACTIVE else f"was {before.state} and is active now"
    print_result(about_user(user, balance), f"{user.id} {how}, with {balance.available} credits.", is_json=is_json)


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

    async def give(tables: Tables) -> tuple[User, bool, Balance]:
        async with tables.database.begin() as tx:
            user = await find_present_user(tx, tables.people, who)
        await permit_act(tables.settings, tables.database, "user.credit", user, amount=int(amount))
        async with tables.database.begin() as tx:
            try:
                is_new = await tables.credits.grant(tx, user.id, int(amount), event)
            except ValueError as error:
                fail(str(error))
            return user, is_new, await tables.credits.balance(tx, user.id)

    user, is_new, balance = run_for_user(with_tables(config, give))
    result = f"got {amount} credits" if is_new else f"got the credits of {event} before; nothing changed"
    given = {**about_user(user, balance), "event": event, "is_new": is_new}
    print_result(given, f"{user.id} {result}, and has {balance.available} now.", is_json=is_json)


@users.command()
def tier(
    who: Who,
    name: Annotated[str, typer.Argument(metavar="TIER", help="A tier of the settings.", autocompletion=complete_tiers)],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Move a user to another tier. The models and budgets of that tier hold from the next message on."""

    async def move(tables: Tables) -> tuple[User, User]:
        require_known(name, find_tiers(tables.settings), "tier")
        async with tables.database.begin() as tx:
            before = await find_user(tx, tables.people, who)
        await permit_act(tables.settings, tables.database, "user.tier", before, tier=name, before=before.tier)
        async with tables.database.begin() as tx:
            await tables.people.set_tier(tx, before.id, name)
            return before, await tables.people.get(tx, before.id)

    before, user = run_for_user(with_tables(config, move))
    print_result(about_user(user), f"{user.id} is in the tier {user.tier} now; before, in {before.tier}.", is_json=is_json)


@users.command()
def training(
    who: Who,
    word: Annotated[Literal["yes", "no"], typer.Argument(help="Whether the user's messages, old and new, may be used for training.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Record whether a user allows training. Without it, exports leave out all their messages, also the older ones."""

    async def note(tables: Tables, tx: Transaction) -> User:
        user = await find_user(tx, tables.people, who)
        await tables.people.allow_training(tx, user.id, trains=word == "yes")
        return await tables.people.get(tx, user.id)

    user = run_for_user(read_tables(config, note))
    print_result(about_user(user), f"The messages of {user.id} may {'' if user.trains else 'not '}be used for training.", is_json=is_json)


@users.command()
def language(
    who: Who,
    code: Annotated[
        str,
        typer.Argument(
            metavar="CODE",
            help=f"{' '.join(LANGUAGES)}, or `{NO_LANGUAGE}`: the language they write in.",
            autocompletion=complete_from(lambda: (*LANGUAGES, NO_LANGUAGE)),
        ),
    ],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Set the language in which Hermes answers a user."""
    wanted = None if code == NO_LANGUAGE else _check_language(code)

    async def note(tables: Tables, tx: Transaction) -> User:
        user = await find_user(tx, tables.people, who)
        await tables.people.set_language(tx, user.id, wanted)
        return await tables.people.get(tx, user.id)

    user = run_for_user(read_tables(config, note))
    print_result(about_user(user), f"Hermes answers {user.id} in {user.language or 'the language they write in'}.", is_json=is_json)


@users.command()
def link(
    who: Who,
    platform: Annotated[str, typer.Argument(help=f"{', '.join(Platform)}.", autocompletion=complete_from(lambda: Platform))],
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
        # The whole Hermes: a stranger who is erased has rows in the tables of packs too.
        channel = UserChannel(_check_text(account), Platform(require_known(platform, [*Platform], "platform")), _check_text(sender_id))
        user = await find_user(tx, hermes.adapters.people, who)
        return user, channel, await hermes.adapters.people.link(tx, user.id, channel)

    user, channel, linked = run_for_user(in_transaction(config, join))
    replaced = f"; the stranger {linked.replaced} who wrote from there is erased" if linked.replaced else ""
    sentence = f"{user.id} writes from {channel}{replaced}." if linked.is_new else f"{channel} is theirs already; nothing changed."
    known = {**about_user(user), "channel": str(channel), "is_new": linked.is_new, "replaced": linked.replaced}
    print_result(to_json_value(known), sentence, is_json=is_json)


@users.command("list")
def list_(
    *,
    state: Annotated[UserState | None, typer.Option(help="Only users in this state.", show_default="all but deleted")] = None,
    limit: Limit = 50,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """List users, the newest first, with the channels that they write from."""

    async def read(tables: Tables, tx: Transaction) -> tuple[Sequence[User], Mapping[UUID, Sequence[UserChannel]]]:
        found = await tables.people.list(tx, state=state, limit=limit)
        return found, await tables.people.channels(tx, [user.id for user in found])

    found, channels = run_for_user(read_tables(config, read))
    if is_json:
        print_json([{**about_user(user), "channels": [str(each) for each in channels.get(user.id, ())]} for user in found])
        return
    if not found:
        typer.echo("There is no user; sign one up: hermes users create")
        return
    print_users(found, channels)


def signup_of(tables: Tables) -> Signup:
    """Return the signup with the grants of the settings."""
    given = tables.settings.credits
    return Signup(people=tables.people, credits=tables.credits, signup_grant=given.signup_grant, referral_reward=given.referral_reward)


async def permit_act(settings: Settings, transactions: Transactions, action: str, user: User, **facts: str | int) -> None:
    """Write to the audit log what the person at the command line does to a user, before it is done."""
    subject = Subject(kind="user", id=str(user.id), user_id=user.id)
    await access_from(settings, transactions).permit(command_actor(), Role.OWNER, action, subject, facts=facts)


def run_for_user(main: Coroutine[Any, Any, T]) -> T:
    """Like `run`. An erased user, a taken channel and a refused referral are bad input too."""

    async def main_or_fail() -> T:
        try:
            return await main
        except UserErased:
            fail("this user was erased; Hermes has no data about them")
        except ReasonMissing as error:
            fail(f"{error}: --reason")
        except (ChannelTaken, ReferralRefused) as error:
            fail(str(error))

    return run(main_or_fail())


async def find_present_user(tx: Transaction, people: Users, who: str) -> User:
    """Find a user. Raises UserErased if the user was erased."""
    user = await find_user(tx, people, who)
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
