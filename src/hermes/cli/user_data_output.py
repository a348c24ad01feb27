"""What `hermes users` prints of one user: a summary, and what Hermes knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from hermes.app.erasure_proof import ErasureProof
from hermes.cli.output import print_properties, print_table
from hermes.console.amounts import count_phrase
from hermes.ports.memories import Dream, DreamKind, DreamReview, Fact, FactOrigin
from hermes.ports.users import UserDataCounts
from hermes.soul.my_data import MyData, MyMemory
from hermes.terminal import one_line

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
            ("opened", f"{count_phrase(data.opened, 'time')} by operators"),
            (
                "known",
                f"{count_phrase(known['facts'], 'fact')}, {known['superseded']} older, {count_phrase(known['dreams'], 'line')} of dreams",
            ),
            ("kept", f"{count_phrase(kept.messages, 'message')} in {count_phrase(kept.conversations, 'conversation')}"),
            *([("", ", ".join(record_phrases(kept)))] if kept.records else []),
        )
    )


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


def print_proof(proof: ErasureProof) -> None:
    """Print what is left of an erased user in the files of the stores, and whether it opens."""
    if proof.places:
        rows = [
            (place, f"{found.bytes / 1e6:,.1f} MB", str(len(found.keys)), str(len(found.opened)), f"{found.rows} of {proof.looked_for}")
            for place, found in proof.places.items()
        ]
        print_table(("files", "searched", "wrapped data keys", "that open", "sealed rows"), rows)
    for unseen in proof.unseen:
        typer.echo(f"Not searched: {unseen}.")
    typer.echo(conclude_proof(proof))


def conclude_proof(proof: ErasureProof) -> str:
    if proof.opened:
        cause = "copies from before the database had a vault" if proof.has_vault else "this database has no vault (HERMES_VAULT)"
        return f"{count_phrase(proof.opened, 'wrapped data key')} can be opened with the master key: {cause}."
    if not proof.has_vault:
        return "No copy was found, but this database has no vault: old bytes elsewhere can be opened with the master key."
    return "Nothing that was found can be opened: the vault has destroyed the key."


def proof_as_json(proof: ErasureProof) -> dict[str, Any]:
    places = {
        place: {
            "files": found.files,
            "bytes": found.bytes,
            "wrapped_keys": len(found.keys),
            "opened_keys": len(found.opened),
            "sealed_rows": found.rows,
        }
        for place, found in proof.places.items()
    }
    about = {"destroyed_keys": proof.destroyed, "has_vault": proof.has_vault, "looked_for": proof.looked_for}
    return {**about, "opened": proof.opened, "places": places, "unseen": proof.unseen, "conclusion": conclude_proof(proof)}
