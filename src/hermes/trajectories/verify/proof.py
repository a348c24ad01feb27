"""Say in words what a verification proves, and what it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator

from hermes.trajectories.verify.expected_formats import TEXT_FORMATS
from hermes.trajectories.verify.ledger import LedgerIndex
from hermes.trajectories.verify.source import SourceFindings

FORMATS_WITH_SOURCE = frozenset({"sharegpt", "llamafactory", "atif"})
"""Formats that write the setting `source`."""


def describe_proof(ledger: LedgerIndex, findings: SourceFindings | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what holds if there is no problem, and what is not proven. `findings` are those of a comparison with the source."""
    return tuple(_proven(ledger, findings)), tuple(_not_proven(ledger, findings))


def _proven(ledger: LedgerIndex, findings: SourceFindings | None) -> Iterator[str]:
    yield "The files are those that the manifest lists, with their SHA-256, and there are no others."
    yield "The counts and the Merkle root of the manifest are those of the ledger's lines. Each line accounts for all its sampled tokens."
    if ledger.format in TEXT_FORMATS:
        yield "Each turn that is marked as trained belongs to one sample. The turn, and the turns before it, have the ledger's SHA-256."
    else:
        yield "Each trained token belongs to a sample of the ledger, and stands behind the prompt that the ledger has the SHA-256 of."
    if findings is not None:
        yield "Every value of every file and of every line of the ledger is the one that the graphs give under the manifest's settings."
        yield "Every response of the graphs is in the ledger once, and nothing else is."


def _not_proven(ledger: LedgerIndex, findings: SourceFindings | None) -> Iterator[str]:
    settings = ledger.manifest["settings"]
    if findings is None:
        yield "That the values are those of the graphs: a person who changes the rows can write a new ledger and new hashes for them."
        if ledger.format in TEXT_FORMATS:
            yield "So any text, thought, tool, call or result may be another, and so may token ids, logprobs, rewards and models."
        else:
            yield "So any token, logprob, reward, advantage, policy version, model or message may be another."
        yield "That nothing is missing: a row may have been removed together with its line. Nor that a reason for an exclusion is true."
        yield "Give the graphs that were exported, in the same order, to prove these: --against GRAPHS."
        return
    yield "That the graphs are what happened: their ids show that they were not altered since, not who wrote them."
    if not findings.has_names:
        yield "The names of sessions: the graphs do not tell them. Each graph has one name, and no two graphs share one."
    if findings.tokenised:
        made = f"the export says that the tokenizer {settings['tokenizer']!r} made them"
        yield f"The token ids of {findings.tokenised} samples: the graphs have none, and {made}."
    elif settings["tokenizer"] is not None:
        yield f"The tokenizer {settings['tokenizer']!r} of the settings: every sample has ids of its own, so it was not used."
    if ledger.format not in FORMATS_WITH_SOURCE:
        yield f"The setting source, {settings['source']!r}: this format does not write it."
    yield "Policies that change nothing in this export: another value of such a policy gives the same files."
