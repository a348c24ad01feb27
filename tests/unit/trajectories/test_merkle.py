"""The Merkle root of an export: as defined, level by level, however many leaves there are and wherever they wait."""

import pickle
from hashlib import sha256
from pathlib import Path

import pytest

from hermes.trajectories import merkle
from hermes.trajectories.merkle import SampleLeaves, merkle_root


def level_by_level(leaves: list[bytes]) -> str:
    """The definition: pairs are hashed level by level, an odd leaf moves up unhashed."""
    level = leaves
    while len(level) > 1:
        pairs = [sha256(b"\1" + level[at] + level[at + 1]).digest() for at in range(0, len(level) - 1, 2)]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    return level[0].hex() if level else sha256(b"").hexdigest()


def test_the_root_is_that_of_the_definition_for_every_number_of_leaves() -> None:
    leaves = [sha256(bytes([number])).digest() for number in range(70)]
    assert [merkle_root(leaves[:end]) for end in range(71)] == [level_by_level(leaves[:end]) for end in range(71)]


def test_leaves_come_sorted_whether_they_wait_in_memory_or_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merkle, "RUN_LEAVES", 7)
    monkeypatch.setattr(merkle, "BLOCK_LEAVES", 3)
    given = [(f"sample {number * 37 % 50}\0é", sha256(bytes([number])).digest()) for number in range(50)]
    in_memory, in_files, of_parts = SampleLeaves(), SampleLeaves(tmp_path), SampleLeaves(tmp_path)
    for leaf in given:
        in_memory.add(leaf)
        in_files.add(leaf)
    for start in range(0, 50, 20):
        part = SampleLeaves()
        for leaf in given[start : start + 20]:
            part.add(leaf)
        of_parts.take(pickle.loads(pickle.dumps(part)))  # noqa: S301  # written in this line
    assert list(in_memory) == list(in_files) == list(of_parts) == sorted(given)
    assert len(in_files.gathered) < 7
    assert list(tmp_path.iterdir()) == []  # runs have no names
    in_files.close()
    of_parts.close()
