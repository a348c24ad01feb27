"""What is there at the start is not looked at again by later collections; what comes later is."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = """
    import gc, weakref
    from hermes.ops.event_loop import collect_and_freeze

    class Ring:
        def __init__(self):
            self.self = self

    early, late = Ring(), None
    left_over = weakref.ref(Ring())
    collect_and_freeze()
    assert left_over() is None, "what was garbage before is set aside with the rest"
    assert gc.get_freeze_count() > 1000
    assert not any(one is early for one in gc.get_objects())
    late = weakref.ref(Ring())
    gc.collect()
    assert late() is None
    print("ok")
"""


def test_a_later_collection_looks_only_at_what_came_later() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("ok\n", "")
