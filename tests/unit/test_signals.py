"""Signals mean to the tests and to every program that they start what they mean in a terminal, however the tests were started."""

import json
import signal
import subprocess
import sys

HEARD = ("SIGINT", "SIGQUIT", "SIGTERM")
TELL = f"""
import json, signal
heard = [signal.Signals[name] for name in {HEARD}]
dispositions = [signal.getsignal(number) for number in heard]
print(json.dumps([
    [name for name, found in zip({HEARD}, dispositions) if found is signal.SIG_IGN],
    [number.name for number in sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))],
]))
"""
START_DEAF = f"""
import os, signal, sys
heard = [signal.Signals[name] for name in {HEARD}]
for number in heard:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def told(*command: str) -> str:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_program_hears_every_signal() -> None:
    assert json.loads(told("-c", TELL)) == [[], []]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_hears_every_signal_also_where_the_tests_were_started_deaf() -> None:
    assert json.loads(told("-c", START_DEAF, "-c", TELL)) == [list(HEARD), list(HEARD)]
    assert "1 passed" in told("-c", START_DEAF, "-m", "pytest", "-q", f"{__file__}::{test_a_program_hears_every_signal.__name__}")
