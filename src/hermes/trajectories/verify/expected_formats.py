"""The expectation of each format, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hermes.trajectories.verify.expected import Expectation
from hermes.trajectories.verify.expected_atif import ExpectedAtif
from hermes.trajectories.verify.expected_bare_sharegpt import ExpectedBareShareGpt
from hermes.trajectories.verify.expected_llamafactory import ExpectedLlamaFactory
from hermes.trajectories.verify.expected_openai import ExpectedOpenAi
from hermes.trajectories.verify.expected_sharegpt import ExpectedShareGpt
from hermes.trajectories.verify.expected_tokens import (
    ExpectedAgentLightning,
    ExpectedAtropos,
    ExpectedParquet,
    ExpectedSlime,
    ExpectedTree,
    ExpectedTrl,
    ExpectedVerl,
)
from hermes.trajectories.verify.expected_verifiers import ExpectedVerifiers

EXPECTATIONS: dict[str, Callable[[str], Expectation]] = {
    "parquet": ExpectedParquet,
    "tree": ExpectedTree,
    "trl": ExpectedTrl,
    "verl": ExpectedVerl,
    "atropos": ExpectedAtropos,
    "agentlightning": ExpectedAgentLightning,
    "verifiers": ExpectedVerifiers,
    "slime": ExpectedSlime,
    "sharegpt": ExpectedShareGpt,
    "llamafactory": ExpectedLlamaFactory,
    "openai": ExpectedOpenAi,
    "atif": ExpectedAtif,
}

TEXT_FORMATS = frozenset({"sharegpt", "llamafactory", "openai", "atif"})
"""Formats that train turns, not tokens."""


def expectation_of(settings: Mapping[str, Any]) -> Expectation:
    """Return the expectation of a manifest's settings."""
    make = ExpectedBareShareGpt if settings["is_bare"] else EXPECTATIONS[settings["format"]]
    return make(settings["source"])
