"""A conversation that is too long is compacted before the model is asked, and nothing that was sampled is lost."""

from dataclasses import replace

import pytest

from hermes.graph import MessageGraph
from hermes.ports.backends import ModelRequest
from hermes.ports.credits import BudgetSpent, BudgetWindow
from hermes.ports.models import Caller, ChainFailed
from hermes.router.compaction_policy import CompactionPolicy, ImageTokenCounter, SelectiveSummariser
from hermes.router.pipeline import handle_message
from hermes.router.services import Services
from hermes.testing import ScriptedModel
from hermes.testing.memory import MemoryGraphs, RouterHarness
from hermes.trajectories.compress import CompressionSettings, ExtractiveSummariser, ModelSummariser, Summary, SummaryRequest
from tests.unit.router.test_pipeline import MORNING, house

LONG = "Canggu has many bars by the sea, and the Old Man is the loudest of all of them. " * 30


def compaction(*, asks: bool, limit: int = 4_000) -> CompactionPolicy:
    usual = CompressionSettings()
    quick = replace(usual.summarization, max_retries=1, retry_delay=0.0)
    settings = replace(usual, summarization=quick, live=replace(usual.live, last_n_turns=2))
    return CompactionPolicy(
        limit_of=lambda _: limit,
        summariser=lambda model, _: ModelSummariser(model, settings) if asks else ExtractiveSummariser(),
        settings=settings,
        counter=ImageTokenCounter(),
    )


def graph_of(made: RouterHarness) -> MessageGraph:
    [graph] = made.graphs.graphs.values()
    return graph


async def talk(made: RouterHarness, services: Services, count: int) -> None:
    for number in range(count):
        await handle_message(made.claim(f"question {number}"), services)


async def test_a_conversation_that_fits_is_left_alone() -> None:
    made = house(*["short"] * 4)
    await talk(made, replace(made.services, compaction=compaction(asks=False)), 4)
    assert len(graph_of(made).versions) == 1


async def test_a_room_that_is_too_long_forgets_its_oldest_messages_and_puts_nobodys_words_into_another_voice() -> None:
    made = house(*[LONG] * 8)
    made.credits.available[made.user.id] = 100
    services = replace(made.services, compaction=compaction(asks=True))
    for number in range(8):
        claim = made.claim(f"question {number}")
        await handle_message(replace(claim, envelope=replace(claim.envelope, is_shared=True, sender_name="Ada")), services)
    last = [message for message in asks(made)[-1].messages if message["role"] == "user"]
    assert len(asks(made)) == 8, "no model was asked for a summary"
    assert 1 < len(last) < 8
    assert all("writes:]\n> question" in message["content"] for message in last)
    counter = ImageTokenCounter()
    assert max(counter.count(ask.messages[1:]) for ask in asks(made)) < 4_000
    assert len(list(graph_of(made).responses())) == 8
    assert graph_of(made).verify()


async def test_one_that_does_not_is_compacted_and_every_answer_keeps_its_context() -> None:
    made = house(*[LONG] * 8)
    made.credits.available[made.user.id] = 100
    await talk(made, replace(made.services, compaction=compaction(asks=False)), 8)
    graph = graph_of(made)
    assert len(graph) < 16
    assert kinds(graph) == {"compaction"}
    assert len(list(graph.responses())) == 8
    assert graph.verify()
    counter = ImageTokenCounter()
    shown = [counter.count(ask.messages[1:]) for ask in asks(made)]
    assert max(shown) < 4_000
    assert any("for reference only" in str(message["content"]) for message in graph)


async def test_a_summary_by_a_model_is_a_sample_of_its_own_and_is_paid_once() -> None:
    made = house(*[LONG] * 5, "They asked about bars in Canggu.", "done")
    made.credits.available[made.user.id] = 100
    services = replace(made.services, compaction=compaction(asks=True))
    await talk(made, services, 6)
    graph = graph_of(made)
    [summary] = [message for message in graph if "They asked about bars in Canggu." in str(message["content"])]
    assert summary["role"] == "user"
    texts = [response.message["content"] for response in graph.responses()]
    assert sorted(texts) == sorted([*[LONG] * 5, "They asked about bars in Canggu.", "done"])
    caller = callers(made)[5]
    assert (caller.may_use_cache, caller.turn_id is not None) == (False, True)


class Counted:
    """A summariser that says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def summarise(self, piece: SummaryRequest) -> Summary:
        self.asked += 1
        return await ExtractiveSummariser().summarise(piece)


@pytest.mark.parametrize(("target", "times"), [(100, 1), (2_100, 0)])
async def test_a_model_is_asked_only_where_enough_is_gained(target: int, times: int) -> None:
    summariser = Counted()
    piece = SummaryRequest([{"role": "user", "content": LONG * 3}], target, "s", ImageTokenCounter())
    assert 2_300 < piece.counter.count(piece.messages) < 2_500
    summary = await SelectiveSummariser(summariser, 400).summarise(piece)
    assert (summariser.asked, bool(summary.text)) == (times, True)


class Dies(Exception):
    """The worker, in the moment in which the shorter list is written."""


class Unwritable(MemoryGraphs):
    """Graphs that nobody can save."""

    async def save(self, *_: object) -> str:
        raise Dies


async def test_a_turn_that_is_driven_again_does_not_pay_its_summary_again() -> None:
    made = house(*[LONG] * 5, "A summary.", "done")
    made.credits.available[made.user.id] = 100
    services = replace(made.services, compaction=compaction(asks=True))
    await talk(made, services, 5)
    claim = made.claim("and now?")

    broken = Unwritable(made.graphs.graphs)
    with pytest.raises(Dies):
        await handle_message(claim, replace(services, graphs=broken))
    await handle_message(replace(claim, attempt=2), services)
    texts = [ask.messages[-1]["content"] for ask in asks(made)]
    assert sum("Write the summary now" in str(text) for text in texts) == 1


@pytest.mark.parametrize("error", [ChainFailed((), None), BudgetSpent(BudgetWindow.DAY, MORNING)])
async def test_where_no_model_summarises_the_most_telling_sentences_are_kept(error: Exception) -> None:
    made = house(*[LONG] * 5, error, "done")
    made.credits.available[made.user.id] = 100
    await talk(made, replace(made.services, compaction=compaction(asks=True)), 6)
    graph = graph_of(made)
    assert [response.message["content"] for response in graph.responses()] == [*[LONG] * 5, "done"]
    assert kinds(graph) == {"compaction"}


def kinds(graph: MessageGraph) -> set[str]:
    return {edge.kind for edge in graph.edges()} - {"sequential"}


async def test_pictures_count_for_what_vendors_count_them() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    shown = {"role": "user", "content": [picture, {"type": "text", "text": "look"}]}
    assert ImageTokenCounter().count([shown]) > 1_600


def asks(made: RouterHarness) -> list[ModelRequest]:
    assert isinstance(made.models, ScriptedModel)
    return made.models.requests


def callers(made: RouterHarness) -> list[Caller]:
    assert isinstance(made.models, ScriptedModel)
    return made.models.callers
