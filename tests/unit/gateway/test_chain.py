"""The chain: one deadline, each backend once, and no half answer passed off as a whole one. Each attempt has a slot of its own."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hermes.gateway.chain import EVERY_PATIENCE, BackendPatience, ChainAnswer, ChainLink, ChainRun
from hermes.gateway.slots import Slots
from hermes.gateway.unwell_models import ModelWatch
from hermes.ports.backends import (
    TOKEN_MISMATCH,
    BackendError,
    BackendFinding,
    BadRequest,
    Capabilities,
    Completion,
    ContextTooLong,
    CutShort,
    Delta,
    FindingLevel,
    Garbled,
    ModelRequest,
    Overloaded,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Unauthorized,
    Unreachable,
    Unsupported,
    Usage,
)
from hermes.ports.models import ChainFailed, ModelAddress, NoCapacity
from hermes.testing.memory import MemoryAlerts, MemoryModelBreakers

ABLE = Capabilities()
HELLO = ModelRequest(messages=({"role": "user", "content": "hello"},), max_tokens=2_000)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}


class Scripted:
    """A backend that says, raises or hangs as it is told, piece by piece. None: its stream ends there, without a completion."""

    def __init__(self, name: str, *script: str | type[BackendError] | float | None, capabilities: Capabilities = ABLE) -> None:
        self.name, self.script, self.known, self.asked, self.closed = name, script, capabilities, list[ModelRequest](), 0

    def capabilities(self, model: str) -> Capabilities:
        return self.known

    def answers_as(self, model: str) -> str:
        return model

    def supports_tools(self, model: str) -> bool:
        return self.known.tools

    async def complete(self, ask: ModelRequest, model: str, *, timeout_s: float) -> Completion:
        async for piece in self.stream(ask, model, timeout_s=timeout_s):
            if isinstance(piece, Completion):
                return piece
        raise AssertionError

    async def stream(self, ask: ModelRequest, model: str, *, timeout_s: float) -> AsyncIterator[Delta | Completion]:
        self.asked.append(ask)
        said = ""
        try:
            for piece in self.script:
                match piece:
                    case str():
                        said += piece
                        yield TextDelta(piece)
                    case float():
                        await asyncio.sleep(piece)
                    case None:
                        return
                    case _ if issubclass(piece, CutShort):
                        raise CutShort("cut", backend=self.name, model=model, partial={"content": said}, usage=Usage(tokens_out=1))
                    case _:
                        raise piece("no", backend=self.name, model=model, status=500)
            message = {"role": "assistant", "content": said}
            yield Completion(message=message, finish_reason="stop", usage=Usage(tokens_out=1), model=model, request_digest="")
        finally:
            self.closed += 1

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:
        return ()

    async def aclose(self) -> None:
        return


def chain(*backends: Scripted) -> list[ChainLink]:
    return [ChainLink(backend.name, backend, f"{backend.name}-1", 1_000) for backend in backends]


async def complete(
    ask: ModelRequest, links: Sequence[ChainLink], *, deadline_s: float, slots: Slots | None = None, user: str = "alice"
) -> ChainAnswer:
    return await ChainRun(ask, links, deadline_s=deadline_s, slots=slots or Slots(), user=user).complete()


def stream(
    ask: ModelRequest, links: Sequence[ChainLink], *, deadline_s: float, slots: Slots | None = None, user: str = "alice"
) -> AsyncGenerator[ChainLink | Delta | ChainAnswer]:
    return ChainRun(ask, links, deadline_s=deadline_s, slots=slots or Slots(), user=user).stream()


def outcomes(answered: ChainAnswer | ChainFailed) -> list[tuple[str, str]]:
    return [(attempt.name, attempt.outcome) for attempt in answered.attempts]


async def streamed(
    links: Sequence[ChainLink], *, ask: ModelRequest = HELLO, deadline_s: float = 5, slots: Slots | None = None
) -> tuple[str, ChainAnswer | None]:
    text, last = "", None
    async for piece in stream(ask, links, deadline_s=deadline_s, slots=slots):
        if isinstance(piece, ChainAnswer):
            last = piece
        elif isinstance(piece, ChainLink):
            assert text == "", "who answers is said before the first word, and once"
        else:
            assert isinstance(piece, TextDelta)
            text += piece.text
    return text, last


@pytest.mark.parametrize("error", [Overloaded, RateLimited, Unreachable, Garbled, Unauthorized, ContextTooLong])
async def test_falls_through_to_the_next_and_asks_the_dead_one_once(error: type[BackendError]) -> None:
    dead, alive = Scripted("sonnet", error), Scripted("haiku", "hi")
    answered = await complete(HELLO, chain(dead, alive), deadline_s=5)
    assert (answered.completion.message["content"], answered.link.name) == ("hi", "haiku")
    assert outcomes(answered) == [("sonnet", error.__name__), ("haiku", "answered")]
    assert (len(dead.asked), len(alive.asked)) == (1, 1)
    text, last = await streamed(chain(Scripted("sonnet", error), alive))
    assert last is not None
    assert (text, outcomes(last)) == ("hi", outcomes(answered))


async def test_a_bad_request_asks_nobody_else() -> None:
    other = Scripted("haiku", "hi")
    with pytest.raises(ChainFailed) as failed:
        await complete(HELLO, chain(Scripted("sonnet", BadRequest), other), deadline_s=5)
    assert isinstance(failed.value.last, BadRequest)
    assert failed.value.__cause__ is failed.value.last
    assert other.asked == []


async def test_the_last_error_is_named_and_every_attempt_is_kept() -> None:
    with pytest.raises(ChainFailed, match=r"sonnet: Overloaded, haiku: Garbled.*last: no") as failed:
        await complete(HELLO, chain(Scripted("sonnet", Overloaded), Scripted("haiku", Garbled)), deadline_s=5)
    assert [(attempt.outcome, attempt.status) for attempt in failed.value.attempts] == [("Overloaded", 500), ("Garbled", 500)]
    with pytest.raises(ChainFailed, match="the chain is empty"):
        await complete(HELLO, [], deadline_s=5)


async def test_a_hang_fails_over_within_the_deadline() -> None:
    began = time.monotonic()
    answered = await complete(HELLO, chain(Scripted("sonnet", 60.0), Scripted("haiku", "hi")), deadline_s=0.5)
    assert outcomes(answered) == [("sonnet", "Unreachable"), ("haiku", "answered")]
    assert 0.25 < time.monotonic() - began < 0.45, "60 % of the deadline, and not all of it"
    text, _ = await streamed(chain(Scripted("sonnet", 60.0), Scripted("haiku", "hi")), deadline_s=0.5)
    assert text == "hi"


async def test_the_last_one_gets_all_that_is_left_and_no_more() -> None:
    began = time.monotonic()
    with pytest.raises(ChainFailed) as failed:
        await complete(HELLO, chain(Scripted("sonnet", 60.0), Scripted("haiku", 60.0)), deadline_s=0.3)
    assert 0.28 < time.monotonic() - began < 0.6
    assert outcomes(failed.value) == [("sonnet", "Unreachable"), ("haiku", "Unreachable")]


async def test_who_cannot_do_it_is_skipped() -> None:
    plain, able = Scripted("ollama", "no", capabilities=Capabilities(tools=False)), Scripted("haiku", "hi")
    with_tools = ModelRequest(messages=HELLO.messages, max_tokens=10, tools=(TOOL,))
    traces = ModelRequest(messages=(*HELLO.messages, {"role": "tool", "tool_call_id": "1", "content": "x"}), max_tokens=10)
    image = ModelRequest(messages=(IMAGE,), max_tokens=10)
    seeing = Scripted("eyes", "a bar", capabilities=Capabilities(vision=True))
    assert outcomes(await complete(with_tools, chain(plain, able), deadline_s=5)) == [
        ("ollama", "skipped: no tools"),
        ("haiku", "answered"),
    ]
    assert outcomes(await complete(traces, chain(plain, able), deadline_s=5))[0] == ("ollama", "skipped: no tools")
    assert outcomes(await complete(image, chain(able, seeing), deadline_s=5)) == [("haiku", "skipped: no vision"), ("eyes", "answered")]
    with pytest.raises(ChainFailed, match="skipped: no tools"):
        await complete(with_tools, chain(plain), deadline_s=5)
    assert plain.asked == []


async def test_an_answer_is_as_long_as_its_model_may_answer() -> None:
    backend = Scripted("haiku", "hi")
    await complete(HELLO, chain(backend), deadline_s=5)
    await complete(ModelRequest(messages=HELLO.messages, max_tokens=7), chain(backend), deadline_s=5)
    assert [ask.max_tokens for ask in backend.asked] == [1_000, 7]


async def test_after_the_first_delta_nobody_takes_over() -> None:
    other = Scripted("haiku", "hi")
    with pytest.raises(CutShort) as cut:
        await streamed(chain(Scripted("sonnet", "half an ans", CutShort), other))
    assert (cut.value.partial["content"], cut.value.usage.tokens_out, other.asked) == ("half an ans", 1, [])


async def test_an_answer_that_does_not_end_in_time_is_cut_short_with_what_was_said() -> None:
    with pytest.raises(CutShort) as cut:
        await streamed(chain(Scripted("sonnet", "half an ans", 60.0), Scripted("haiku", "hi")), deadline_s=0.2)
    assert cut.value.partial == {"role": "assistant", "content": "half an ans"}
    assert cut.value.usage.is_estimated
    assert cut.value.usage.tokens_out == 4


async def test_a_stream_that_ends_before_its_first_delta_says_so_and_another_model_answers() -> None:
    text, answered = await streamed(chain(Scripted("sonnet", None), Scripted("haiku", "hi")))
    assert answered is not None
    assert (text, outcomes(answered)) == ("hi", [("sonnet", "Garbled"), ("haiku", "answered")])
    with pytest.raises(ChainFailed, match="last: the stream of sonnet ended without an answer"):
        await streamed(chain(Scripted("sonnet", None)))


async def test_a_stream_that_ends_after_its_first_delta_is_cut_short_and_not_too_slow() -> None:
    other = Scripted("haiku", "hi")
    with pytest.raises(CutShort, match="the stream of sonnet ended without an answer") as cut:
        await streamed(chain(Scripted("sonnet", "half an ans", None), other))
    assert (cut.value.partial["content"], other.asked) == ("half an ans", [])


async def test_any_error_after_the_first_delta_cuts_the_answer_short() -> None:
    other = Scripted("haiku", "hi")
    with pytest.raises(CutShort, match="the answer broke off: no") as cut:
        await streamed(chain(Scripted("sonnet", "half an ans", Overloaded), other))
    assert (cut.value.partial["content"], other.asked) == ("half an ans", [])


async def test_thoughts_and_half_a_tool_call_are_said_and_billed_too() -> None:
    class Thinker(Scripted):
        async def stream(self, ask: ModelRequest, model: str, *, timeout_s: float) -> AsyncIterator[Delta | Completion]:
            yield ReasoningDelta("hm" * 3_000)
            yield ToolCallDelta(0, "c1", "look", '{"at": "se')
            await asyncio.sleep(60)

    with pytest.raises(CutShort) as cut:
        await anext_all(stream(HELLO, chain(Thinker("sonnet")), deadline_s=0.2))
    assert cut.value.partial["reasoning"] == "hm" * 3_000
    assert cut.value.partial["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "se'}
    assert cut.value.usage.tokens_out == 1_000, "as many as it may say"


async def anext_all(pieces: AsyncIterator[object]) -> list[object]:
    return [piece async for piece in pieces]


async def test_whoever_leaves_a_stream_ends_it() -> None:
    backend = Scripted("sonnet", "one", "two", 60.0)
    deltas = stream(HELLO, chain(backend), deadline_s=5)
    assert isinstance(await anext(deltas), ChainLink)
    assert await anext(deltas) == TextDelta("one")
    await deltas.aclose()  # type: ignore[attr-defined]
    assert backend.closed == 1


async def test_a_cancelled_call_is_no_failure_of_its_backend() -> None:
    other = Scripted("haiku", "hi")
    task = asyncio.create_task(complete(HELLO, chain(Scripted("sonnet", 60.0), other), deadline_s=5))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert other.asked == []


# --- models whose last calls failed


class Noon:
    """A clock that the test advances."""

    passed_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 18, 12, tzinfo=UTC) + timedelta(seconds=self.passed_s)


class Watched:
    """Calls of one Hermes, with breakers that outlive a call."""

    def __init__(self) -> None:
        self.clock, self.alerts = Noon(), MemoryAlerts()
        self.watch = ModelWatch(MemoryModelBreakers(self.clock), self.alerts)

    async def complete(self, *backends: Scripted, deadline_s: float = 5, patience: BackendPatience = EVERY_PATIENCE) -> ChainAnswer:
        links = [replace(link, patience=patience) for link in chain(*backends)]
        unwell = await self.watch.look([link.address for link in links])
        return await ChainRun(HELLO, links, deadline_s=deadline_s, slots=Slots(), user="alice", unwell=unwell).complete()

    async def stream(self, *backends: Scripted, patience: BackendPatience = EVERY_PATIENCE) -> ChainAnswer:
        links = [replace(link, patience=patience) for link in chain(*backends)]
        unwell = await self.watch.look([link.address for link in links])
        run = ChainRun(HELLO, links, deadline_s=5, slots=Slots(), user="alice", unwell=unwell)
        return next(piece for piece in await anext_all(run.stream()) if isinstance(piece, ChainAnswer))


AT_ONCE = (Unauthorized, RateLimited, Unreachable)
AFTER_THREE = (Overloaded, Garbled)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("error", [*AT_ONCE, *AFTER_THREE])
async def test_a_dead_primary_is_hardly_asked_again(error: type[BackendError], is_streamed: bool) -> None:
    here, dead, alive = Watched(), Scripted("sonnet", error), Scripted("haiku", "hi")
    calls = [await (here.stream if is_streamed else here.complete)(dead, alive) for _ in range(50)]
    assert len(dead.asked) == (1 if error in AT_ONCE else 3)
    assert len(alive.asked) == 50
    assert outcomes(calls[-1]) == [("sonnet", "skipped: breaker open"), ("haiku", "answered")]
    unwell = ("model_unwell", {"backend": "sonnet", "model": "sonnet-1", "error": error.__name__, "retries_in_s": 30})
    assert here.alerts.alerts == ([] if error is Unauthorized else [unwell]), "the gateway itself tells of a refused key"


async def test_a_wrong_key_is_tried_once_for_all_models_of_its_backend() -> None:
    class Locked(Scripted):
        key = "wrong"

        async def complete(self, ask: ModelRequest, model: str, *, timeout_s: float) -> Completion:
            if self.key == "right":
                return await super().complete(ask, model, timeout_s=timeout_s)
            self.asked.append(ask)
            raise Unauthorized("no", backend=self.name, model=model, status=401)

    here, locked, alive = Watched(), Locked("anthropic", "back"), Scripted("ollama", "hi")
    first, second = [ChainLink(name, locked, f"{name}-1", 100) for name in ("sonnet", "haiku")], ChainLink("llama", alive, "llama", 100)

    async def ask(*links: ChainLink) -> list[tuple[str, str]]:
        unwell = await here.watch.look([link.address for link in links])
        try:
            return outcomes(await ChainRun(HELLO, links, deadline_s=5, slots=Slots(), user="alice", unwell=unwell).complete())
        except ChainFailed as failed:
            return outcomes(failed)

    skipped = ("haiku", "skipped: key refused")
    assert await ask(*first, second) == [("sonnet", "Unauthorized"), skipped, ("llama", "answered")]
    assert await ask(first[1], second) == [("haiku", "skipped: breaker open"), ("llama", "answered")]
    assert len(locked.asked) == 1
    assert await ask(*first) == [("sonnet", "skipped: breaker open"), ("haiku", "Unauthorized")], (
        "the last of a chain is asked all the same"
    )
    here.clock.passed_s, locked.key = 30, "right"
    assert await ask(first[1], second) == [("haiku", "answered")]
    assert await ask(first[0], second) == [("sonnet", "answered")]


@pytest.mark.parametrize("error", [ContextTooLong, Unsupported])
async def test_an_error_of_the_request_says_nothing_about_the_model(error: type[BackendError]) -> None:
    here, dead, alive = Watched(), Scripted("sonnet", error), Scripted("haiku", "hi")
    for _ in range(5):
        await here.complete(dead, alive)
    assert (len(dead.asked), here.alerts.alerts) == (5, [])


async def test_one_call_finds_out_that_a_model_is_back_and_the_others_do_not_wait_for_it() -> None:
    here, primary, alive = Watched(), Scripted("sonnet", Unreachable), Scripted("haiku", "hi")
    await here.complete(primary, alive)
    here.clock.passed_s = 30
    primary.script = (0.05, "back")
    first, second = await asyncio.gather(here.complete(primary, alive), here.complete(primary, alive))
    assert [answered.completion.message["content"] for answered in (first, second)] == ["back", "hi"]
    assert here.alerts.ended == [("model_unwell", {"backend": "sonnet", "model": "sonnet-1"})]
    assert outcomes(await here.complete(primary, alive)) == [("sonnet", "answered")]


async def test_if_every_model_is_unwell_they_are_asked_all_the_same() -> None:
    here, only = Watched(), Scripted("sonnet", Unreachable)
    for _ in range(3):
        with pytest.raises(ChainFailed, match="sonnet: Unreachable"):
            await here.complete(only)
    only.script = ("back",)
    assert outcomes(await here.complete(only)) == [("sonnet", "answered")]


async def test_a_vendor_that_says_how_long_is_not_asked_until_then() -> None:
    class Limited(Scripted):
        async def complete(self, ask: ModelRequest, model: str, *, timeout_s: float) -> Completion:
            self.asked.append(ask)
            raise RateLimited("slow down", backend=self.name, model=model, status=429, retry_after_s=7.0)

    here, only = Watched(), Limited("sonnet")
    for passed_s, wait_s in ((0.0, 7.0), (2.0, 5.0)):
        here.clock.passed_s = passed_s
        with pytest.raises(ChainFailed) as failed:
            await here.complete(only)
        assert isinstance(failed.value.last, RateLimited)
        assert failed.value.last.retry_after_s == wait_s
    assert (len(only.asked), outcomes(failed.value)) == (1, [("sonnet", "skipped: breaker open")])
    here.clock.passed_s = 7.0
    with pytest.raises(ChainFailed):
        await here.complete(only)
    assert len(only.asked) == 2


SOON = BackendPatience(0.1, is_same_streamed=True)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_hang_costs_the_first_call_the_time_to_the_first_token_and_later_ones_nothing(is_streamed: bool) -> None:
    here, hanging, alive = Watched(), Scripted("sonnet", 60.0), Scripted("haiku", "hi")
    ask = here.stream if is_streamed else here.complete
    first, second = await ask(hanging, alive, patience=SOON), await ask(hanging, alive, patience=SOON)
    assert 100 <= first.ms < 400
    assert (second.ms < 50, len(hanging.asked)) == (True, 1)
    assert outcomes(first) == [("sonnet", "Unreachable"), ("haiku", "answered")]


async def test_a_server_that_is_not_streamed_is_given_up_when_it_is_not_there() -> None:
    class Server(Scripted):
        findings: Sequence[BackendFinding] = ()

        async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:
            return self.findings

    here, alive, patience = Watched(), Scripted("haiku", "hi"), BackendPatience(0.1, is_checked=True)
    busy, gone = Server("sonnet", 0.4, "slow but sure"), Server("sonnet", 60.0)
    gone.findings = [BackendFinding("unreachable", FindingLevel.ERROR, "no")]
    assert outcomes(await here.complete(busy, alive, patience=patience)) == [("sonnet", "answered")]
    first, second = await here.complete(gone, alive, patience=patience), await here.complete(gone, alive, patience=patience)
    assert outcomes(first) == [("sonnet", "Unreachable"), ("haiku", "answered")]
    assert 100 <= first.ms < 400
    assert len(gone.asked) == 1
    assert outcomes(second)[0] == ("sonnet", "skipped: breaker open")


async def test_a_stream_that_loses_token_ids_is_not_asked_for_again() -> None:
    class Lossy(Scripted):
        streams = wholes = 0

        async def complete(self, ask: ModelRequest, model: str, *, timeout_s: float) -> Completion:
            self.wholes += 1
            return await Scripted("other", "hi").complete(ask, model, timeout_s=timeout_s)

        async def stream(self, ask: ModelRequest, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion]:
            self.streams += 1
            yield replace(await Scripted("other", "hi").complete(ask, model, timeout_s=timeout_s), extra={TOKEN_MISMATCH: {}})

    lossy, seen, patience = Lossy("gpu", "hi"), set[ModelAddress](), BackendPatience(1.0, is_same_without_tools=True)
    links = [replace(link, patience=patience) for link in chain(lossy, Scripted("haiku", "hi"))]
    for ask in (HELLO, HELLO, replace(HELLO, tools=({"type": "function"},))):
        await ChainRun(ask, links, deadline_s=5, slots=Slots(), user="alice", lossy_streams=seen).complete()
    assert (lossy.streams, lossy.wholes, seen) == (1, 2, {links[0].address})


async def test_an_answer_that_has_begun_in_time_may_take_longer_and_the_last_model_has_all_the_time() -> None:
    here, slow = Watched(), Scripted("sonnet", "slow ", 0.2, "but sure")
    answered = await here.complete(slow, Scripted("haiku", "hi"), patience=SOON)
    assert answered.completion.message["content"] == "slow but sure"
    late = Scripted("sonnet", 0.2, "late")
    assert (await here.complete(late, patience=SOON)).completion.message["content"] == "late"
    assert (await here.stream(late, patience=SOON)).completion.message["content"] == "late"


async def test_a_broken_answer_that_no_caller_saw_is_given_by_the_next_model() -> None:
    here, broken = Watched(), Scripted("sonnet", "half an ans", CutShort)
    answered = await here.complete(broken, Scripted("haiku", "hi"), patience=SOON)
    assert outcomes(answered) == [("sonnet", "Unreachable"), ("haiku", "answered")]


async def test_a_call_with_hardly_any_time_opens_no_breaker() -> None:
    here, slow = Watched(), Scripted("sonnet", 60.0)
    for _ in range(2):
        assert outcomes(await here.complete(slow, Scripted("haiku", "hi"), deadline_s=0.1, patience=SOON))[0] == ("sonnet", "Unreachable")
    assert (len(slow.asked), here.alerts.alerts) == (2, [])


# --- slots


@asynccontextmanager
async def full(slots: Slots, *backends: str) -> AsyncIterator[None]:
    """Another user holds every slot that these backends can have."""
    async with AsyncExitStack() as stack:
        for backend in backends:
            while slots.has_room(backend):
                await stack.enter_async_context(slots.hold("other", backend))
        yield


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_link_without_a_slot_is_passed_over_and_not_asked(is_streamed: bool) -> None:
    slots, sick, well = Slots(6, wait_s=0.5, limits={"sick": 2}), Scripted("sick", "no"), Scripted("well", "hi")
    async with full(slots, "sick"):
        if is_streamed:
            text, answered = await streamed(chain(sick, well), slots=slots)
            assert text == "hi"
        else:
            answered = await complete(HELLO, chain(sick, well), deadline_s=5, slots=slots)
        assert answered is not None
        assert outcomes(answered) == [("sick", "NoCapacity"), ("well", "answered")]
        assert 290 <= answered.attempts[0].ms < 490, "60 % of the wait, while another backend remains"
        assert answered.ms < 250, "waiting is not the model's time"
        assert (sick.asked, slots.used) == ([], 2)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_without_a_slot_of_any_backend_there_is_no_capacity(is_streamed: bool) -> None:
    slots, links = Slots(3, wait_s=0.5), chain(Scripted("a", "no"), Scripted("b", "no"))
    async with full(slots, "a", "b"):
        began = time.monotonic()
        with pytest.raises(NoCapacity, match="no slot of b became free within"):
            await (streamed(links, slots=slots) if is_streamed else complete(HELLO, links, deadline_s=5, slots=slots))
        assert 0.49 < time.monotonic() - began < 0.9, "the wait is for the whole chain"


async def test_a_chain_that_was_asked_and_then_finds_no_slot_failed_with_what_it_heard() -> None:
    slots = Slots(6, wait_s=0.02, limits={"full": 1})
    async with full(slots, "full"):
        with pytest.raises(ChainFailed, match=r"sick: Overloaded, full: NoCapacity.*last: no") as failed:
            await complete(HELLO, chain(Scripted("sick", Overloaded), Scripted("full", "hi")), deadline_s=5, slots=slots)
    assert isinstance(failed.value.last, Overloaded)


async def test_models_of_one_backend_wait_for_it_in_one_line() -> None:
    slots, links = Slots(3, wait_s=0.1), chain(Scripted("a", "hi"), Scripted("a", "hi"))
    async with full(slots, "a"):
        with pytest.raises(NoCapacity):
            await complete(HELLO, links, deadline_s=5, slots=slots)
        run = ChainRun(HELLO, links, deadline_s=5, slots=slots, user="alice")
        with pytest.raises(NoCapacity):
            await run.complete()
        assert [attempt.ms > 90 for attempt in run.attempts] == [True, False]
        assert run.called is None


async def test_the_deadline_stands_still_while_a_call_waits_for_a_slot() -> None:
    slots, slow = Slots(1, wait_s=10), Scripted("a", 0.4, "hi")
    answers = await asyncio.gather(*(complete(HELLO, chain(slow), deadline_s=1, slots=slots) for _ in range(3)))
    assert [outcomes(answered) for answered in answers] == [[("a", "answered")]] * 3
    assert max(answered.ms for answered in answers) < 1_000, "the last one has waited for 800 ms, and 400 more are its own"


async def test_a_failed_attempt_gives_its_slot_back_before_the_call_waits_for_another() -> None:
    slots = Slots(6, wait_s=5, limits={"full": 1})
    async with full(slots, "full"):
        call = asyncio.create_task(complete(HELLO, chain(Scripted("sick", Overloaded), Scripted("full", "hi")), deadline_s=5, slots=slots))
        while not slots.waiting:  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0)
        assert slots.used == 1
    assert outcomes(await call) == [("sick", "Overloaded"), ("full", "answered")]


async def test_a_stream_holds_its_slot_while_it_is_told_and_not_when_it_is_over() -> None:
    slots = Slots(1)
    async with aclosing(stream(HELLO, chain(Scripted("a", "one ", "two")), deadline_s=5, slots=slots)) as pieces:
        held = [(type(piece), slots.used) async for piece in pieces]
    assert held == [(ChainLink, 1), (TextDelta, 1), (TextDelta, 1), (ChainAnswer, 0)]
    async with aclosing(stream(HELLO, chain(Scripted("a", "one ", "two")), deadline_s=5, slots=slots)) as pieces:
        await anext(pieces)
        assert slots.used == 1
    assert slots.used == 0


@pytest.mark.parametrize("seed", range(10))
async def test_no_slot_is_lost_however_calls_end(seed: int) -> None:
    rng, slots = random.Random(seed), Slots(4, wait_s=0.02, limits={"b": 1})

    async def call() -> None:
        backends = [Scripted(name, rng.random() / 100, rng.choice(["hi", Overloaded])) for name in rng.sample("abc", 2)]
        if rng.random() < 0.5:
            await complete(HELLO, chain(*backends), deadline_s=0.02, slots=slots, user=rng.choice("xyz"))
        else:
            async with aclosing(stream(HELLO, chain(*backends), deadline_s=0.02, slots=slots, user=rng.choice("xyz"))) as pieces:
                async for _ in pieces:
                    await asyncio.sleep(rng.random() / 500)

    calls = [asyncio.create_task(call()) for _ in range(60)]
    for _ in range(30):
        await asyncio.sleep(rng.random() / 500)
        rng.choice(calls).cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {type(None), ChainFailed, NoCapacity, CutShort, asyncio.CancelledError}
    assert (slots.used, slots.waiting, slots.has_room("b")) == (0, 0, True)


async def test_a_call_that_is_given_up_while_it_waits_behind_a_model_that_refused_has_asked_nobody() -> None:
    slots = Slots(3)
    async with full(slots, "b"):
        run = ChainRun(HELLO, chain(Scripted("a", Overloaded), Scripted("b", "hi")), deadline_s=5, slots=slots, user="alice")
        call = asyncio.create_task(run.complete())
        while not slots.waiting:  # noqa: ASYNC110  # slots have a number for it, and no event
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert (run.called, [attempt.outcome for attempt in run.attempts]) == (None, ["Overloaded"])
    assert (slots.used, slots.waiting) == (0, 0)
