"""`hermes dead-letters`: messages that Hermes could not deliver. The operator looks at them, sends them again, or drops them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app, lazy_parts
from hermes.cli.options import By, Config, Json, Limit, complete_from
from hermes.cli.output import fail, print_json, print_properties, print_result, print_table, storable_text
from hermes.cli.runtime import complete_accounts, read_tables, run, with_hermes
from hermes.console.amounts import count_phrase
from hermes.console.queues import MAX_LETTERS, QueueActions, refuse_unknown_letters
from hermes.ports.channels import SendOutcome
from hermes.ports.errors import NotFound, UserErased, require_known
from hermes.ports.outbox import DeadLetter, DeadLetterQuery, DeliveryStatus
from hermes.ports.runtime import Transaction
from hermes.terminal import one_line
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.app.root import Hermes

dead_letters = typer.Typer(
    no_args_is_help=True,
    help="Messages that could not be delivered: list, show, requeue, drop.\n\n"
    "Hermes tries to send an answer for half an hour. Then the answer is a dead letter for a week, and its credit is given back. When the "
    "reason is gone, for instance after you renewed a token, requeue it; or drop it. A dead letter with the outcome `ambiguous` may have "
    "arrived, and then the user gets it twice; a late receipt removes it from this list:\n\n"
    "    hermes dead-letters list --outcome unauthorized\n"
    "    hermes dead-letters requeue --all --outcome unauthorized\n\n"
    "    hermes dead-letters show 17\n"
    "    hermes dead-letters drop 17 18\n\n"
    "Exit code 0 when it is done, 1 when the database cannot be reached, 2 for bad input.",
)
app.add_typer(dead_letters, name="dead-letters")

Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="The numbers of dead letters, as `list` shows them.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All dead letters, or all that match the options below.")]
PlatformOption = Annotated[
    str | None,
    typer.Option(
        "--platform",
        help=f"Only dead letters for {', '.join(Platform)}.",
        show_default=False,
        autocompletion=complete_from(lambda: Platform),
    ),
]
AccountOption = Annotated[
    str | None, typer.Option("--account", help="Only dead letters of this account.", show_default=False, autocompletion=complete_accounts)
]
OutcomeOption = Annotated[
    str | None,
    typer.Option(
        "--outcome",
        help=f"Only dead letters with this outcome: {', '.join(o for o in SendOutcome if o != SendOutcome.SENT)}.",
        show_default=False,
        autocompletion=complete_from(lambda: SendOutcome),
    ),
]


@dead_letters.command("list")
def list_(
    *,
    platform: PlatformOption = None,
    account: AccountOption = None,
    outcome: OutcomeOption = None,
    limit: Limit = 100,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """List the dead letters, the newest first, with the reasons. The text is not shown; `show` prints it."""

    async def read(tables: Tables, tx: Transaction) -> tuple[Sequence[DeadLetter], int]:
        found = await tables.outbox.dead_letters.list(tx, dead_letter_query(None, platform, account, outcome), limit=limit)
        return found, (await tables.outbox.lengths(tx)).dead_letters

    found, total = run(read_tables(config, read))
    if is_json:
        print_json([_letter_json(letter) for letter in found])
        return
    if not found:
        typer.echo("There is no dead letter." if not total else f"None of the {count_phrase(total, 'dead letter')} matches.")
        return
    print_table(
        ("id", "died", "platform", "account", "channel", "of", "outcome", "tries", "reason"),
        (
            (
                str(letter.id),
                f"{letter.died_at:%Y-%m-%d %H:%M}",
                letter.platform,
                one_line(letter.account),
                one_line(letter.channel_id),
                _letter_kind(letter),
                letter.outcome or "",
                str(letter.tries),
                one_line(letter.reason),
            )
            for letter in found
        ),
    )
    if len(found) < total:
        typer.secho(f"{len(found)} of {total}.", fg="bright_black", err=True)


@dead_letters.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The number of the dead letter, as `list` shows it.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show one dead letter: its text, its recipient, the tries, and the status of the other parts of the answer."""
    [number] = parse_ids([letter_id])

    async def read(tables: Tables, tx: Transaction) -> tuple[DeadLetter, str | None, Sequence[DeliveryStatus]]:
        letters = tables.outbox.dead_letters
        found = await letters.list(tx, DeadLetterQuery(ids=[number]))
        refuse_unknown_letters(DeadLetterQuery(ids=[number]), found)
        try:
            text: str | None = await letters.text(tx, number)
        except UserErased:
            text = None
        return found[0], text, await tables.outbox.tracking.statuses(tx, found[0].turn_id)

    letter, text, statuses = run(read_tables(config, read))
    if is_json:
        print_json({**_letter_json(letter), "text": text, "parts": [_status_json(each) for each in statuses]})
        return
    doubt = f", {letter.doubts} of which may have arrived" if letter.doubts else ""
    rows = (
        ("id", str(letter.id)),
        ("for", f"{letter.platform}:{letter.account}/{letter.channel_id}"),
        ("of", _letter_kind(letter)),
        ("turn", str(letter.turn_id)),
        ("outcome", str(letter.outcome or "")),
        ("reason", letter.reason),
        ("tries", f"{letter.tries}{doubt}"),
        ("promised", f"{letter.promised_at:%Y-%m-%d %H:%M:%S}"),
        ("died", f"{letter.died_at:%Y-%m-%d %H:%M:%S}"),
        ("late", "yes: it was requeued before" if letter.is_late else "no"),
        ("the answer", ", ".join(_part_status(each) for each in statuses if each.news == letter.news)),
    )
    print_properties((name, one_line(value)) for name, value in rows)
    typer.echo()
    for line in (text or "").splitlines():
        typer.echo(one_line(line))
    if text is None:
        typer.echo("Its user was erased, so its text can no longer be read.")


@dead_letters.command()
def requeue(
    ids: Ids = None,
    *,
    is_all: AllOption = False,
    platform: PlatformOption = None,
    account: AccountOption = None,
    outcome: OutcomeOption = None,
    by: By = "operator",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Send dead letters again, for instance: hermes dead-letters requeue 17, or: … requeue --all --platform telegram.

    Each one goes to the end of its conversation's queue, is marked as late, and gets all its tries again. Refunds are not taken back."""
    chosen = _query_from_options(ids, is_all=is_all, platform=platform, account=account, outcome=outcome)

    async def again(hermes: Hermes) -> Sequence[DeadLetter]:
        actions: QueueActions = lazy_parts().load_app("console_operations").queue_actions_from(hermes)
        return await actions.requeue(command_actor(), chosen, by=storable_text(by))

    sent = run(with_hermes(config, again))
    again_phrase = f"{count_phrase(len(sent), 'dead letter')} will be sent again, last in their conversations. A worker must be running."
    sentence = again_phrase if sent else "There is no such dead letter; nothing changed."
    print_result([_letter_json(letter) for letter in sent], sentence, is_json=is_json)


@dead_letters.command()
def drop(
    ids: Ids = None,
    *,
    is_all: AllOption = False,
    platform: PlatformOption = None,
    account: AccountOption = None,
    outcome: OutcomeOption = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="Confirm --all: without --yes, nothing is dropped.")] = False,
    by: By = "operator",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Delete dead letters for good, for instance: hermes dead-letters drop 17 18. After a week Hermes deletes them itself."""
    chosen = _query_from_options(ids, is_all=is_all, platform=platform, account=account, outcome=outcome)

    async def away(hermes: Hermes) -> Sequence[DeadLetter]:
        if is_all and not is_sure:
            async with hermes.database.once() as tx:
                found = await hermes.adapters.outbox.dead_letters.list(tx, chosen, limit=MAX_LETTERS)
            if found:
                raise NotFound(f"nothing was dropped; {count_phrase(len(found), 'dead letter')} would be gone for good with: --all --yes")
        actions: QueueActions = lazy_parts().load_app("console_operations").queue_actions_from(hermes)
        return await actions.drop(command_actor(), chosen, by=storable_text(by))

    dropped = run(with_hermes(config, away))
    print_result([_letter_json(letter) for letter in dropped], f"{count_phrase(len(dropped), 'dead letter')} dropped.", is_json=is_json)


def dead_letter_query(ids: Sequence[int] | None, platform: str | None, account: str | None, outcome: str | None) -> DeadLetterQuery:
    """Return the query for these options. Raises NotFound for an unknown platform or outcome."""
    return DeadLetterQuery(
        ids=ids,
        platform=Platform(require_known(platform, [*Platform], "platform")) if platform else None,
        account=account,
        outcome=SendOutcome(require_known(outcome, [*SendOutcome], "outcome")) if outcome else None,
    )


def parse_ids(ids: Sequence[str]) -> list[int]:
    for each in ids:
        if not each.isascii() or not each.isdigit() or len(each) > 18:
            fail(f"{each!r} is not the number of a dead letter; `hermes dead-letters list` shows the numbers")
    return [int(each) for each in ids]


def _query_from_options(ids: Sequence[str] | None, *, is_all: bool, **options: str | None) -> DeadLetterQuery:
    if bool(ids) == is_all:
        fail("which dead letters? Give their numbers, or --all" if not ids else "give either numbers or --all, not both")
    if ids and any(options.values()):
        fail("--platform, --account and --outcome need --all; leave them out with numbers")
    try:
        return dead_letter_query(parse_ids(ids) if ids else None, options["platform"], options["account"], options["outcome"])
    except NotFound as error:
        fail(str(error))


def _letter_kind(letter: DeadLetter) -> str:
    return letter.news or f"answer, part {letter.part + 1}"


def _part_status(standing: DeliveryStatus) -> str:
    rank = f" ({standing.rank.name.lower()})" if standing.rank else ""
    return f"part {standing.part + 1} {standing.state}{rank}"


def _letter_json(letter: DeadLetter) -> dict[str, Any]:
    names = ("id", "account", "platform", "channel_id", "part", "news", "outcome", "reason", "tries", "doubts", "is_late")
    ids = {"turn_id": str(letter.turn_id), "conversation_id": str(letter.conversation_id)}
    times = {"promised_at": letter.promised_at.isoformat(), "died_at": letter.died_at.isoformat()}
    return {**{name: getattr(letter, name) for name in names}, **ids, **times}


def _status_json(standing: DeliveryStatus) -> dict[str, Any]:
    names = ("part", "news", "state", "outcome", "reason", "tries", "doubts", "is_late")
    rank, at = standing.rank, standing.ranked_at
    return {
        **{name: getattr(standing, name) for name in names},
        "rank": rank.name.lower() if rank else None,
        "ranked_at": at.isoformat() if at else None,
    }
