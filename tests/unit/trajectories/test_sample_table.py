"""What an export remembers of every sample: the same answers from memory and from a table on disk."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.trajectories import sample_table
from hermes.trajectories.calls import SUPERSEDED
from hermes.trajectories.duplicates import SampleOccurrence, SeenSamples
from hermes.trajectories.sample_table import SampleTable

NOTES = ({}, {"reward": 0.1, "rollout": "half \ud800"}, {"consent": False}, {"reward": 1, "deep": {"b": [1, 1.0, True], "a": None}})
OCCURRENCES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 1), st.sampled_from(("", SUPERSEDED, "\udc00odd")), st.sampled_from(NOTES)), max_size=60
)


@given(OCCURRENCES)
def test_answers_do_not_depend_on_where_samples_wait(given_samples: list[tuple[int, int, str, dict[str, object]]]) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_table, "RECENT_SAMPLES", 3)
        table = SampleTable(Path(name))
        in_memory, on_disk = SeenSamples({}), SeenSamples({}, table=table)
        for number, other, refused, notes in given_samples:
            occurrence = SampleOccurrence(bytes([number] * 16), bytes([number, other] * 16), refused, notes)
            assert on_disk.add(occurrence) == in_memory.add(occurrence)
        assert (on_disk.changed_verdicts, on_disk.duplicates) == (in_memory.changed_verdicts, in_memory.duplicates)
        assert list(Path(name).iterdir()) == []  # the table has no name
        table.close()
