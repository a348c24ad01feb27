"""`hermes users` show, memory, forget: what Hermes stores about a user. Needs every store, so it loads a whole Hermes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes.app.console_access import access_from
from hermes.app.erasure_proof import ErasureProof, prove_erasure
from hermes.cli.actor import command_actor
from hermes.cli.options import Config, Json
from hermes.cli.output import CANNOT_RUN, fail, print_json, print_result
from hermes.cli.runtime import with_hermes
from hermes.cli.user_data_output import print_memory, print_proof, print_user, proof_as_json, record_phrases
from hermes.cli.users import Who, find_present_user, permit_act, run_for_user, users
from hermes.console.access import Subject
from hermes.console.amounts import count_phrase
from hermes.ports.users import User, UserDataCounts, UserState
from hermes.router.signup import find_user
from hermes.soul.my_data import MyData, data_as_json, forget_user, memory_as_json, my_data

if TYPE_CHECKING:
    from hermes.app.root import Hermes


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


@users.command()
def memory(
    who: Who,
    *,
    reason: Annotated[str, typer.Option(help="Why you read it, in a few words, for the audit log. Needed in production.")] = "",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show every fact that Hermes knows about a user, with its source, also replaced facts; and the conclusions of dreams.

    This opens what a user told Hermes: the audit log has an entry of it."""
    data = _read(config, who, opens_with=reason)
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
    proves: Annotated[
        bool,
        typer.Option("--prove", help="Destroy the key at once, search the files of the stores for what is left, and try to open it."),
    ] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Erase a user for good: their data key, messages, channels, facts and tool records.

    The ledger keeps what was paid, under a number that identifies no user. A running server notices within half a minute. Old bytes in the
    files of the stores are sealed under a key that the vault destroys `erasure.grace_s` later; --prove destroys it now, and shows what is
    left. It works for a user who was erased before, too: then it looks for the keys alone."""

    async def end(hermes: Hermes) -> tuple[User, UserDataCounts, ErasureProof | None]:
        # This opens nothing of the user's sealed data, so damaged data can be erased too.
        async with hermes.database.begin() as tx:
            user = await (find_user if proves else find_present_user)(tx, hermes.adapters.people, who)
            kept = await hermes.adapters.people.count_data(tx, user.id)
        is_gone = user.state is UserState.DELETED
        erase = None if is_gone else partial(forget_user, user.id, hermes.my_data)
        if is_sure and not is_gone:
            await permit_act(hermes.settings, hermes.database, "user.forget", user)
        if proves and (is_sure or is_gone):
            return user, kept, await prove_erasure(hermes.settings, hermes.database, hermes.redis, user.id, erase)
        if is_sure and erase is not None:
            await erase()
        return user, kept, None

    user, kept, proof = run_for_user(with_hermes(config, end))
    what = ", ".join((count_phrase(kept.messages, "message"), count_phrase(kept.facts, "fact"), *record_phrases(kept)))
    if not is_sure and proof is None:
        fail(f"nothing was deleted; {user.id} ({user.state}, {what}) is erased for good with: hermes users forget {who} --yes")
    erased = {"id": str(user.id), "state": UserState.DELETED, "forgotten": kept.by_kind()}
    was_gone = user.state is UserState.DELETED
    sentence = f"{user.id} was erased before." if was_gone else f"{user.id} is erased: {what}."
    print_result({**erased, **({} if proof is None else {"proof": proof_as_json(proof)})}, sentence, is_json=is_json)
    if proof is not None and not is_json:
        print_proof(proof)
    if proof is not None and proof.opened:
        raise typer.Exit(CANNOT_RUN)


def _read(config: Path | None, who: str, opens_with: str | None = None) -> MyData:
    """Read what is stored about a user. `opens_with`: the caller shows content, for this reason; None: it shows none."""

    async def read(hermes: Hermes) -> MyData:
        async with hermes.database.begin() as tx:
            user = await find_user(tx, hermes.adapters.people, who)
        if opens_with is not None:
            subject = Subject(kind="user", id=str(user.id), user_id=user.id)
            await access_from(hermes.settings, hermes.database).open(command_actor(), subject, opens_with)
        return await my_data(user.id, hermes.my_data)

    return run_for_user(with_hermes(config, read))
