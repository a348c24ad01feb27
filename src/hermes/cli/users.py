"""`hermes users`: sign users up, give them credits, link their channels, show what Hermes stores about them, and erase them."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from uuid import UUID, uuid4

import typer

from hermes.app.catalogue import tiers_of
from hermes.app.tables import Tables
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, Limit, complete_from
from hermes.cli.output import count_phrase, fail, print_json, print_properties, print_result, print_table
from hermes.cli.runtime import complete_tiers, in_transaction, read_tables, run, with_hermes
from hermes.ports.credits import Balance
from hermes.ports.errors import UserErased, require_known
from hermes.ports.memories import Dream, DreamKind, DreamReview, Fact, FactOrigin
from hermes.ports.runtime import Transaction
from hermes.ports.users import ChannelTaken, LinkResult, NewUser, User, UserChannel, UserDataCounts, Users, UserState
from hermes.router.replies import LANGUAGES
from hermes.router.signup import PRINTABLE_TEXT, ReferralRefused, Signup, find_user
from hermes.soul.my_data import MyData, MyMemory, data_as_json, forget_user, memory_as_json, my_data, to_json_value
from hermes.terminal import one_line
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
        require_known(tier, tiers_of(tables.settings), "tier")
        user = await signup_of(tables).create(tx, NewUser(state=state, tier=tier, language=language), referred_by=referred_by)
        return user, await tables.credits.balance(tx, user.id)

    user, balance = _run(read_tables(config, make))
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

    before, user, balance = _run(read_tables(config, let_in))
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

    async def give(tables: Tables, tx: Transaction) -> tuple[User, bool, Balance]:
        user = await _find_present_user(tx, tables.people, who)
        try:
            is_new = await tables.credits.grant(tx, user.id, int(amount), event)
        except ValueError as error:
            fail(str(error))
        return user, is_new, await tables.credits.balance(tx, user.id)

    user, is_new, balance = _run(read_tables(config, give))
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

    async def move(tables: Tables, tx: Transaction) -> tuple[User, User]:
        require_known(name, tiers_of(tables.settings), "tier")
        before = await find_user(tx, tables.people, who)
        await tables.people.set_tier(tx, before.id, name)
        return before, await tables.people.get(tx, before.id)

    before, user = _run(read_tables(config, move))
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

    user = _run(read_tables(config, note))
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

    user = _run(read_tables(config, note))
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

    user, channel, linked = _run(in_transaction(config, join))
    replaced = f"; the stranger {linked.replaced} who wrote from there is erased" if linked.replaced else ""
    sentence = f"{user.id} writes from {channel}{replaced}." if linked.is_new else f"{channel} is theirs already; nothing changed."
    known = {**about_user(user), "channel": str(channel), "is_new": linked.is_new, "replaced": linked.replaced}
    print_result(to_json_value(known), sentence, is_json=is_json)


@users.command()
def show(who: Who, *, is_json: Json = False, config: Config = None) -> None:
    """Show a user: state, tier, language, credits, channels, referral code, and how much Hermes stores about them."""
    data = _read(config, who)
    live = [fact for fact in data.memory.facts if fact.superseded_at is None]
    counts = {"facts": len(live), "superseded": len(data.memory.facts) - len(live), "dreams": len(data.memory.dreams)}
    if is_json:
        about = {name: value for name, value in data_as_json(data).items() if name not in {"facts", "dreams"}}
        print_json({**about, "known": counts})
        return
    print_user(data, counts)


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

    found, channels = _run(read_tables(config, read))
    if is_json:
        print_json([{**about_user(user), "channels": [str(each) for each in channels.get(user.id, ())]} for user in found])
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
        print_json({"id": str(data.user.id), **memory_as_json(data.memory)})
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
            user = await _find_present_user(tx, hermes.adapters.people, who)
            kept = await hermes.adapters.people.count_data(tx, user.id)
        if is_sure:
            await forget_user(user.id, hermes.my_data)
        return user, kept

    user, kept = _run(with_hermes(config, end))
    what = ", ".join((count_phrase(kept.messages, "message"), count_phrase(kept.facts, "fact"), *record_phrases(kept)))
    if not is_sure:
        fail(f"nothing was deleted; {user.id} ({user.state}, {what}) is erased for good with: hermes users forget {who} --yes")
    erased = {"id": str(user.id), "state": UserState.DELETED, "forgotten": kept.by_kind()}
    print_result(erased, f"{user.id} is erased: {what}.", is_json=is_json)


def signup_of(tables: Tables) -> Signup:
    """Return the signup with the grants of the settings."""
    given = tables.settings.credits
    return Signup(people=tables.people, credits=tables.credits, signup_grant=given.signup_grant, referral_reward=given.referral_reward)


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


async def _find_present_user(tx: Transaction, people: Users, who: str) -> User:
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


# --- what the commands show


ORIGIN_WORDS = {FactOrigin.SAID: "said", FactOrigin.RULE: "said", FactOrigin.TOOL: "by a tool", FactOrigin.SYSTEM: "by Hermes"}


def print_user(data: MyData, known: Mapping[str, int]) -> None:
    """Print a summary of one user, a line for each property. Of facts, dreams, messages and tool records it prints how many there are."""
    user, kept = data.user, data.kept
    print_properties(
        (
            ("id", str(user.id)),
            ("state", user.state),
            ("tier", user.tier),
            ("language", user.language or "what they write in"),
            ("credits", f"{data.balance.available} available, {data.balance.reserved} reserved"),
            ("channels", "\n".join(one_line(str(each)) for each in data.channels) or "none; link one: hermes users link"),
            ("referral code", user.referral_code),
            ("referred by", str(user.referred_by or "no user")),
            ("training", "allowed" if user.trains else "not allowed"),
            ("since", f"{user.created_at:%Y-%m-%d %H:%M}" if user.created_at else ""),
            (
                "known",
                f"{count_phrase(known['facts'], 'fact')}, {known['superseded']} older, {count_phrase(known['dreams'], 'line')} of dreams",
            ),
            ("kept", f"{count_phrase(kept.messages, 'message')} in {count_phrase(kept.conversations, 'conversation')}"),
            *([("", ", ".join(record_phrases(kept)))] if kept.records else []),
        )
    )


def print_users(found: Sequence[User], channels: Mapping[UUID, Sequence[UserChannel]]) -> None:
    """Print a line for each user, with the channels that they write from."""
    rows = []
    for user in found:
        since = f"{user.created_at:%Y-%m-%d %H:%M}" if user.created_at else ""
        where = "\n".join(one_line(str(each)) for each in channels.get(user.id, ()))
        rows.append((str(user.id), user.state, user.tier, user.language or "", user.referral_code, since, where))
    print_table(("id", "state", "tier", "language", "code", "since", "writes from"), rows)


def print_memory(memory: MyMemory) -> None:
    """Print a line for each fact and for each line of a dream."""
    rows = [
        (
            f"{fact.valid_from:%Y-%m-%d %H:%M}",
            fact.key or "",
            one_line(fact.text),
            ORIGIN_WORDS[fact.origin],
            f"{fact.confidence:.0%}",
            _state(fact),
            str(fact.source_turn or ""),
            str(fact.id),
        )
        for fact in memory.facts
    ]
    for dream in memory.dreams:
        what = one_line(dream.text)
        rows.append((f"{dream.period or ''}", dream.key or "", what, f"{dream.depth} dream", "", _review(dream), "", str(dream.id)))
    print_table(("since", "key", "what", "how", "confidence", "state", "turn", "id"), rows)


def about_user(user: User, balance: Balance | None = None) -> dict[str, Any]:
    """Return a user as JSON values, with the credits if a balance is given."""
    about = {"id": user.id, "state": user.state, "tier": user.tier, "language": user.language, "referral_code": user.referral_code}
    known = {**about, "referred_by": user.referred_by, "created_at": user.created_at}
    if balance is not None:
        known["credits"] = {"available": balance.available, "reserved": balance.reserved}
    shown: dict[str, Any] = to_json_value(known)
    return shown


def _state(fact: Fact) -> str:
    """Whether a fact holds: `ended` (replaced or taken back), `until` the day on which it expires, or `current`."""
    if fact.superseded_at is not None:
        return f"ended {fact.superseded_at:%Y-%m-%d}"
    return f"until {fact.expires_at:%Y-%m-%d}" if fact.expires_at else "current"


def _review(dream: Dream) -> str:
    kind = "would like to know" if dream.kind is DreamKind.GAP else "concluded"
    return kind if dream.review is DreamReview.ACCEPTED else f"rejected: {dream.reason}"


def record_phrases(kept: UserDataCounts) -> list[str]:
    """How many rows the tools of packs stored: `2 bookings`, `1 price watcher`."""
    return [count_phrase(number, name.replace("_", " ").removesuffix("s")) for name, number in kept.records.items()]
