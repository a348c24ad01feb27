"""How long things take, in time of the processor: others may be busy beside us."""

import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """The best of a few tries."""

    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(once() for _ in range(4))


def assert_linear(work: Callable[[int], Callable[[], object]]) -> None:
    """Work of some length takes time as its length does: for 16 times as much 16 times as long, where quadratic were 256."""
    # What takes no time at all is too quick to be compared.
    assert seconds(work(16_000)) < max(80 * seconds(work(1_000)), 0.03)
