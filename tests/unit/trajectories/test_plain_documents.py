"""The reader of usual documents agrees with the codec: on graphs, on damaged documents, and on what is said about those."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from hermes.graph import CodecError
from hermes.graph.stored_graph import history_of
from hermes.trajectories.errors import SourceError
from hermes.trajectories.plain_documents import read_plain
from hermes.trajectories.source import GraphDocument, check_session, read_session
from tests.unit.graph.sessions import rich_session
from tests.unit.graph.test_codec import everything, mutate
from tests.unit.graph.test_linear_document import CALLS, NAMES, NUMBERS, TEXTS, lists, read_whole
from tests.unit.trajectories import samples, text_sessions
from tests.unit.trajectories.programs import PROGRAMS, Step, program_graphs

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"é": [1, 1.0, True, None]}}}]
OVERLAYS = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.sampled_from([TOOLS, TOOLS * 2]),
        "ephemeral": TEXTS,
        "keep_reasoning": st.sampled_from(["none", "all"]),
        "template_id": st.sampled_from(["t", "é"]),
        "system": TEXTS,
    },
)
MORE = st.fixed_dictionaries(
    {}, optional={"request_digest": NAMES, "finish_reason": NAMES, "tokenizer": NAMES, "logprob_mode": st.just("raw")}
)
NOTES = st.dictionaries(st.sampled_from(["reward", "é"]), st.none() | TEXTS | st.floats(-2, 2) | st.just(2**70), max_size=2)
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), TEXTS, CALLS, MORE, OVERLAYS, NOTES), max_size=9)


@st.composite
def plain_graphs(draw: st.DrawFn) -> MessageGraph:
    """A graph with edits, overlays, metadata and annotations; nothing is attached to it or erased in it."""
    chat = MessageGraph([{"role": "system", "content": draw(TEXTS)}], seed=draw(NAMES))
    prompt: list[int] = []
    for number, (what, place, text, call, more, overlay, notes) in enumerate(draw(STEPS)):
        if what < 2:
            chat.append({"role": "user", "content": text, "metadata": {"note": text, "n": [number, 0.5]} if what else None})
        elif what < 4:
            chat.replace(place % len(chat), {"role": "user", "content": text}, kind=("edit", "compaction")[what % 2])
        elif what == 4 and len(chat) > 1:
            del chat[place % len(chat)]
        else:
            prompt = prompt[place % 3 :] + draw(NUMBERS)
            turn = chat.prepare(**overlay)
            record = CallRecord(**call, **more, prompt_token_ids=prompt if place % 7 else None, sample_id=f"{number} {text!a}")
            answer = {"role": "assistant", "content": text, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}
            if what == 5:
                chat.append({"role": "user", "content": "late"})
            response = chat.commit(turn, answer, call=record if place % 5 else None, adopt=what == 6)
            if notes:
                chat.annotate(response, **notes)
    return chat


def agree(text: str) -> bool:
    """Whether the reader took a document. It must then give what the codec gives; a fault must be named as the codec names it."""
    plain = read_plain(text.encode("utf-8", "surrogatepass"))
    found = read_session(GraphDocument("s", "file, line 1", text.encode("utf-8", "surrogatepass")))
    whole = by_the_codec(text)
    if isinstance(whole, SourceError):
        assert (plain, str(found)) == (None, str(whole))
        return False
    assert not isinstance(found, SourceError)
    assert opened(found.graph) == opened(whole)
    assert found.root == whole.root
    if plain is not None:
        assert opened(plain) == opened(whole)
    return plain is not None


def by_the_codec(text: str) -> MessageGraph | SourceError:
    try:
        whole = MessageGraph.from_json(text)
    except CodecError as error:
        return SourceError("file, line 1", f"not a message graph ({error})")
    checked = check_session("s", MessageGraph.from_json(text), "file, line 1")
    return checked if isinstance(checked, SourceError) else whole


def opened(chat: MessageGraph) -> Any:
    about = history_of(chat)
    heads = (about.kept, about.deltas, about.edges, about.places, about.live, about.fresh, about.agreement(), about.root_read)
    return chat.to_json(), chat.find_alteration(), heads, everything(chat), about.annotations


@settings(max_examples=100, deadline=None)
@given(plain_graphs() | lists())
def test_a_usual_graph_is_read_as_the_codec_reads_it(chat: MessageGraph) -> None:
    text = chat.to_json()
    # A JSON reader may refuse half a surrogate pair; the codec reads it.
    assert agree(text) or "\\ud83d" in text.replace("\\ud83d\\ude00", "")


@settings(max_examples=30, deadline=None)
@given(PROGRAMS)
def test_sessions_of_every_kind_are_read_as_the_codec_reads_them(program: list[Step]) -> None:
    for graph in program_graphs(program):
        text = graph.to_json()
        assert agree(text) is (len(json.loads(text)["graphs"]) == 1)


@settings(max_examples=150, deadline=None)
@given(plain_graphs(), st.integers(0, 2**32), st.integers(1, 3), st.booleans())
def test_damaged_documents_are_left_to_the_codec(chat: MessageGraph, seed: int, times: int, is_sealed: bool) -> None:
    document = json.loads(chat.to_json())
    rng = random.Random(seed)
    for _ in range(times):
        document["graphs"][0] = mutate(document["graphs"][0], rng)
    if is_sealed:  # with the root of what it now says, so that the root does not give the damage away
        history = read_whole(document["graphs"][0])
        document["root"] = document["root"] if history is None else history.root_read
    agree(json.dumps(document))


@settings(max_examples=100, deadline=None)
@given(plain_graphs(), st.integers(0, 2**32))
def test_damaged_text_is_left_to_the_codec(chat: MessageGraph, seed: int) -> None:
    text = chat.to_json()
    rng = random.Random(seed)
    at, size = rng.randrange(len(text)), rng.choice((0, 1, 5))
    agree(text[:at] + rng.choice(("", "0", '"', "]", "\\", "\ud83d", "NaN", "1e999", ",", "9" * 30)) + text[at + size :])


@pytest.mark.parametrize(
    "graph",
    [
        rich_session(),
        *(session.graph for session in samples.sessions()),
        samples.two_tokenizers().graph,
        *(make() for make in (text_sessions.tool_session, text_sessions.soul_session, text_sessions.forked_session)),
        *(make() for make in (text_sessions.nested_session, text_sessions.hard_session)),
    ],
)
def test_the_fixtures_are_read_as_the_codec_reads_them(graph: MessageGraph) -> None:
    document = json.loads(graph.to_json())
    is_erased = any(history["erased"] for history in document["graphs"])
    assert agree(json.dumps(document)) is (len(document["graphs"]) == 1 and not is_erased and "\\ud83d" not in json.dumps(document))


def test_documents_that_are_not_usual_are_left_to_the_codec() -> None:
    chat = MessageGraph([{"role": "user", "content": "hi"}], seed="s")
    text = chat.to_json()
    assert agree(text)
    assert agree(f" {text}\n")
    assert not agree(text.replace('"version":2', '"version":3'))
    assert not agree(text.replace("hermes.graph", "hermes.text"))
    assert not agree(text.replace(json.loads(text)["root"], "0" * 64))
    assert not agree((Path(__file__).parents[1] / "graph/rich_session_version_1.json").read_text("utf-8"))
    assert read_plain(text.encode("utf-16")) is None
    chat.redact(0)
    assert not agree(chat.to_json())


@pytest.mark.parametrize(
    "field", ["sampling", "policy_spans", "tools", "usage", "extra", "template_id", "sample_id", "prompt_derived", "model"]
)
@pytest.mark.parametrize("value", [0, False, True, None, [], {}, "", "x", [["a", 0, 1]], {"a": 1e400}])
def test_a_field_of_another_kind_is_read_as_the_codec_reads_it(field: str, value: Any) -> None:
    chat = MessageGraph(seed="s")
    chat.append(
        {"role": "assistant", "content": "hi"}, call=CallRecord(sample_id="1", token_ids=[1], prompt_token_ids=[2], logprobs=[-1.0])
    )
    document = json.loads(chat.to_json())
    document["graphs"][0]["responses"][0]["call"][field] = value
    history = read_whole(document["graphs"][0])
    for root in (document["root"], "" if history is None else history.root_read):
        agree(json.dumps({**document, "root": root}))
