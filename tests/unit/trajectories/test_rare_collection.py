"""Cyclic garbage is looked for rarely while exports run, and as before when the last of them has ended."""

import gc
from contextlib import AbstractContextManager

import pytest

from hermes.trajectories.rare_collection import NEW_OBJECTS, collect_rarely


def fail_beside(other: AbstractContextManager[None], inside: tuple[int, int, int]) -> None:
    """Begin another export, which does not end, and fail."""
    other.__enter__()
    assert gc.get_threshold() == inside
    raise RuntimeError("an export failed")


@pytest.mark.parametrize(
    ("before", "inside"), [((700, 10, 10), (NEW_OBJECTS, 10, 10)), ((10**6, 5, 5), (10**6, 5, 5)), ((0, 10, 10), (0, 10, 10))]
)
def test_the_thresholds_are_those_of_before_when_the_last_export_has_ended(
    before: tuple[int, int, int], inside: tuple[int, int, int]
) -> None:
    usual = gc.get_threshold()
    try:
        gc.set_threshold(*before)
        first = collect_rarely()
        with pytest.raises(RuntimeError, match="an export failed"), collect_rarely():
            fail_beside(first, inside)
        assert gc.get_threshold() == inside
        first.__exit__(None, None, None)
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*usual)
