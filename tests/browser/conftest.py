"""One Chromium for all tests of a process. Each tab has cookies of its own (`browser.tab`), so tests share nothing but the start."""

from collections.abc import Iterator

import pytest

from tests.browser.browser import installed, started


@pytest.fixture(scope="session")
def devtools() -> Iterator[int]:
    """The port of a browser's DevTools."""
    path = installed()
    assert path is not None
    with started(path) as port:
        yield port
