"""JSON as no platform would send it: anything at all, and a good payload with one value exchanged."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["0", "-1", "9" * 40, "\x00", "\ud800", "1e9"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
Path = tuple[str | int, ...]


def shaken(payload: Any) -> st.SearchStrategy[Any]:
    """The payload with one of its values, at whatever depth, replaced by anything."""
    return st.builds(lambda path, value: with_value(payload, path, value), st.sampled_from(list(paths(payload))), ANYTHING)


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The way to every value within a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from paths(item, (*path, key))


def with_value(payload: Any, path: Path, value: Any) -> Any:
    result = copy.deepcopy(payload)
    place = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result
