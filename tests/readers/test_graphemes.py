"""Another reader of Unicode's tables finds no character that we would cut through."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.graphemes import find_boundaries

pytestmark = pytest.mark.readers

SCRIPTS = [
    *((0x300, 0x370), (0x600, 0x700), (0x900, 0x980), (0x980, 0xE80), (0xE80, 0x1200), (0x1780, 0x1800), (0x200B, 0x2010)),
    *((0x2190, 0x2C00), (0xAC00, 0xAC40), (0xFE00, 0xFE10), (0x1F1E6, 0x1F200), (0x1F3F0, 0x1F480), (0x1F900, 0x1FA00), (0xE0020, 0xE0080)),
]
SIGNS = st.one_of(st.integers(first, behind - 1).map(chr) for first, behind in SCRIPTS) | st.characters(exclude_categories=["Cs"])


@settings(max_examples=3000, deadline=None)
@given(st.lists(SIGNS, max_size=12).map("".join))
def test_what_regex_takes_for_one_is_never_cut(text: str) -> None:
    regex = pytest.importorskip("regex", reason="needs regex: pip install regex")
    ends = {0, *(found.end() for found in regex.finditer(r"\X", text))}
    assert set(find_boundaries(text)) <= ends
