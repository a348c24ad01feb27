"""Rows for trainers without weights: where samples share tokens, the row is repeated with the next sample trained.

A canonical row may train one token for several samples (twins that agree, a continuation of half a reply); its weight counts them.
Most trainers have only a mask, and would train such a token once. Here every trained token of a row belongs to one sample.
Also gives the same formats the origin of a row and the order of calls. Knows nothing about files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hermes.trajectories.calls import TOKEN_BYTES, SampledCall
from hermes.trajectories.formats.parquet import policy_spans
from hermes.trajectories.plan import RolloutPlan
from hermes.trajectories.rows import Row


def unweighted_rows(rollout: RolloutPlan) -> Iterator[Row]:
    """Yield the rollout's rows in order, each as often as its samples overlap. `parent` and `shared` are those of the canonical row.

    [P A B] with A* twice and B* once gives [P A* B*] and, cut after its last trained token, [P A*]."""
    for row in rollout.rows:
        for layer in _layers(row):
            yield replace(row, calls=tuple(layer), tokens=row.tokens[: max(call.end for call in layer) * TOKEN_BYTES])


def _layers(row: Row) -> list[list[SampledCall]]:
    """Divide a row's calls into as few lists as possible, so that no two calls of a list train the same token."""
    layers: list[list[SampledCall]] = []
    for call in _in_order(row):
        free = next((layer for layer in layers if layer[-1].end <= call.start), None)
        if free is None:
            layers.append([call])
        else:
            free.append(call)
    return layers


def depth_first(rollout: RolloutPlan) -> Iterator[SampledCall]:
    """Yield a rollout's calls one by one, for formats without rows: row by row, in each from the shortest context to the longest."""
    for row in rollout.rows:
        yield from _in_order(row)


def _in_order(row: Row) -> list[SampledCall]:
    return sorted(row.calls, key=lambda call: (call.start, call.end, call.order))


def provenance(row: Row, rollout: RolloutPlan) -> dict[str, Any]:
    """Return what a format keeps under `hermes`: the origin of the row, and the facts of each sample trained in it."""
    return {
        "session": row.session,
        "rollout": row.rollout,
        "tokenizer": row.tokenizer,
        "reward": row.calls[0].rollout_reward,
        "loss_scale": rollout.loss_scale,
        "on_policy": all(call.on_policy for call in row.calls),
        "samples": [sample_facts(call) for call in row.calls],
    }


def sample_facts(call: SampledCall) -> dict[str, Any]:
    """Return the facts of one sample; start, end and policy spans count tokens of the row."""
    return {
        "sample": call.sample_id,
        "response": call.response_id,
        "start": call.start,
        "end": call.end,
        "reward": call.reward,
        "advantage": call.advantage,
        "policy_spans": list(policy_spans(call)),
    }
