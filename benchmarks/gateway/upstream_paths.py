"""Where the upstream behaves how, and the faults that are compared."""

from __future__ import annotations

from dataclasses import dataclass

HANG_S = 8.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a model fails."""

    name: str
    behaviour: str
    timeout_s: float | None = None
    is_streamed: bool = False


FAULTS = (
    Fault("529", "529"),
    Fault("429, retry-after 5", "429"),
    Fault("400", "400"),
    Fault("401", "401"),
    Fault("empty 200", "empty"),
    Fault(f"hang, timeout {HANG_S:g} s", "hang", timeout_s=HANG_S),
    Fault("stream cut after the first delta", "cut", is_streamed=True),
)


def address(port: int, behaviour: str) -> str:
    """The base address, as clients of OpenAI want it. A name that the upstream does not know is a healthy model with a count of its own."""
    return f"http://127.0.0.1:{port}/{behaviour}/v1"
