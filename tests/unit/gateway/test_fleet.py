"""Exchanging a backend: checked before, tried after, taken back with the reason, and no call fails because of it."""

import asyncio
from collections.abc import Sequence

import pytest

from hermes.gateway.chain import Link, complete
from hermes.gateway.fleet import Fleet, SwapFailed, Swapped
from hermes.ports.backends import Backend, Check, CheckLevel, Overloaded
from tests.unit.gateway.test_chain import HELLO, Scripted

SICK = Check("refused", CheckLevel.ERROR, "nobody listens there", "start it")
FINE = Check("ok", CheckLevel.INFO, "answers in 3 ms")


class Adapter(Scripted):
    """A backend that knows its health, and whether it was closed while a call was under way."""

    def __init__(self, name: str, *script: str | type[Overloaded] | float, checks: Sequence[Check] = (FINE,)) -> None:
        super().__init__(name, *script)
        self.checks, self.is_closed = checks, False

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[Check]:
        return self.checks

    async def aclose(self) -> None:
        self.is_closed = True


async def ask(fleet: Fleet, name: str = "agent") -> str:
    answered = await complete(HELLO, [Link(name, fleet[name], "m", 100)], deadline_s=5)
    return str(answered.completion.message["content"])


async def test_calls_go_to_the_new_one_and_the_old_one_is_closed_in_the_end() -> None:
    old, new = Adapter("claude_local", "old"), Adapter("codex_local", "new")
    fleet = Fleet({"agent": old}, retire_s=0.01)
    assert await ask(fleet) == "old"
    assert await fleet.swap("agent", new) == Swapped("agent", "claude_local", "codex_local", (FINE,))
    assert (await ask(fleet), list(fleet), len(fleet)) == ("new", ["agent"], 1)
    await asyncio.sleep(0.05)
    assert (old.is_closed, new.is_closed) == (True, False)
    await fleet.aclose()
    assert new.is_closed


async def test_a_call_under_way_ends_on_the_backend_on_which_it_began() -> None:
    old = Adapter("old", 0.05, "old")
    fleet = Fleet({"agent": old}, retire_s=1)
    call = asyncio.create_task(ask(fleet))
    await asyncio.sleep(0.01)
    await fleet.swap("agent", Adapter("new", "new"))
    assert (await call, old.is_closed, await ask(fleet)) == ("old", False, "new")
    await fleet.aclose()
    assert old.is_closed


async def test_a_sick_one_is_refused_and_nothing_changes() -> None:
    old, sick = Adapter("old", "old"), Adapter("sick", "x", checks=(FINE, SICK))
    fleet = Fleet({"agent": old})
    with pytest.raises(SwapFailed, match="agent was not exchanged: nobody listens there") as failed:
        await fleet.swap("agent", sick)
    assert failed.value.checks == (FINE, SICK)
    assert (await ask(fleet), old.is_closed, sick.is_closed) == ("old", False, True)


async def canary(backend: Backend) -> None:
    await backend.complete(HELLO, "m", timeout_s=1)


@pytest.mark.parametrize(("script", "reason"), [(Overloaded, "no"), (60.0, "no answer to the canary within 0.05 s")])
async def test_a_failed_canary_takes_the_exchange_back(script: type[Overloaded] | float, reason: str) -> None:
    old, new = Adapter("old", "old"), Adapter("new", script)
    fleet = Fleet({"agent": old}, retire_s=0.01)
    with pytest.raises(SwapFailed, match=reason):
        await fleet.swap("agent", new, canary=canary, timeout_s=0.05)
    await asyncio.sleep(0.05)
    assert (await ask(fleet), old.is_closed, new.is_closed) == ("old", False, True)


async def test_a_name_that_is_not_there_cannot_be_exchanged() -> None:
    with pytest.raises(KeyError):
        await Fleet({}).swap("agent", Adapter("new", "new"))


async def test_a_thousand_exchanges_under_load_fail_no_call() -> None:
    fleet = Fleet({"agent": Adapter("0", 0.001, "ok")}, retire_s=0.2)
    is_over, answers = False, list[str]()

    async def caller() -> None:
        while not is_over:
            answers.append(await ask(fleet))

    callers = [asyncio.create_task(caller()) for _ in range(16)]
    for number in range(1, 1_001):
        await fleet.swap("agent", Adapter(str(number), 0.001, "ok"), canary=canary)
    is_over = True
    await asyncio.gather(*callers)
    assert set(answers) == {"ok"}
    assert len(answers) > 1_000
    await fleet.aclose()
