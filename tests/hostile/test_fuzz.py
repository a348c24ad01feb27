"""Every parser that reads what a stranger wrote, with a few hundred mutated inputs. `scripts/bench fuzz` takes more time for it."""

import pytest

from tests.hostile.fuzz_targets import Target, targets
from tests.hostile.fuzzer import Findings, feed, fuzz

INPUTS = 150
SLOW = {"export ledger", "export rows"}
"""These verify a whole export with each input."""


@pytest.mark.parametrize("target", targets(), ids=[target.name for target in targets()])
def test_nothing_that_a_stranger_writes_is_unexpected(target: Target) -> None:
    findings = fuzz(target, inputs=INPUTS // (5 if target.name in SLOW else 1))
    assert [(crash.what, crash.data[:500]) for crash in findings.crashes.values()] == []
    assert len(findings.outcomes) > 1, "it reached more than one refusal"


FOUND: list[tuple[str, bytes]] = [
    ("api responses", b'{"model": "hermes", "input": [{"type": {}}]}'),
    ("api responses", b'{"model": "hermes", "input": [{"type": ["message"]}]}'),
    ("api responses", b'{"model": "hermes", "input": [{"type": "reasoning", "summary": 5}]}'),
    ("api responses", b'{"model": "hermes", "input": [{"type": "reasoning", "content": true}]}'),
    ("import", b'{"conversations": [{"from": {}, "value": "hi"}]}'),
    ("compress", b'{"conversations": [{"from": [], "value": "hi"}]}'),
]
"""What ten minutes of `scripts/bench fuzz` found once."""


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_was_found_is_mended(name: str, data: bytes) -> None:
    [target] = [target for target in targets() if target.name == name]
    findings = Findings()
    assert not feed(target, data, findings).startswith("crashed"), findings.crashes


def test_a_crash_is_found_and_named() -> None:
    def parse(data: bytes) -> object:
        if b"]" in data:
            raise KeyError("unexpected")
        return data

    findings = fuzz(Target("toy", parse, lambda: [b'{"a": 1}']), inputs=500)
    [name] = findings.crashes
    assert name.startswith("crashed KeyError at ")
    assert feed(Target("toy", parse, list), b"{}", Findings()) == "taken bytes"
