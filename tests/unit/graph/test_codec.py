"""The codec: the round trip is identity, damaged documents give our own error with a path, and never half a graph."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import CallRecord, CodecError, MessageGraph
from hermes.graph.message import thaw
from tests.unit.graph.sessions import rich_session

DOCUMENT = rich_session().to_json()


def everything(chat: MessageGraph) -> Any:
    return (
        [[thaw(message) for message in version] for version in chat.versions],
        [
            (r.id, r.context_id, r.context, r.message, r.call, r.overlay, r.sample_id, r.version, r.index, r.annotations)
            for r in chat.responses()
        ],
        list(chat.edges()),
        chat.verify(),
        chat.head,
    )


def test_the_round_trip_is_identity() -> None:
    chat = rich_session()
    again = MessageGraph.from_json(chat.to_json())
    assert everything(again) == everything(chat)
    assert again.to_json() == chat.to_json() == DOCUMENT
    assert MessageGraph.from_json(DOCUMENT.encode()).to_json() == DOCUMENT


def test_a_loaded_graph_goes_on_where_the_saved_one_was() -> None:
    one, two = rich_session(), MessageGraph.from_json(DOCUMENT)
    for chat in (one, two):
        chat.append({"role": "assistant", "content": "more"}, call=CallRecord(sample_id="more"))
        chat[0]["content"] = "other"
        chat.pop()
        chat.append({"role": "assistant", "content": "again"}, call=CallRecord(sample_id="again"))
        chat.reverse()
    assert one.to_json() == two.to_json()


def test_an_empty_graph_and_a_version_of_nothing() -> None:
    for chat in (MessageGraph(), MessageGraph(seed="")):
        assert MessageGraph.from_json(chat.to_json()).to_json() == chat.to_json()


def test_versions_are_splices_in_the_document_too() -> None:
    chat = MessageGraph({"role": "user", "content": "x" * 100} for _ in range(1000))
    size = len(chat.to_json())
    for _ in range(20):
        chat.append({"role": "assistant", "content": "a"})
        chat[500]["content"] = "edited"
        chat[500]["content"] = "edited back"
    assert len(chat.versions) == 21
    assert len(chat.to_json()) - size < 20 * 600


def test_unknown_edge_kinds_are_preserved() -> None:
    chat = MessageGraph([{"role": "user", "content": "a"}])
    chat.append({"role": "assistant", "content": "b"})
    chat.replace(0, {"role": "user", "content": "c"}, kind="invented-elsewhere")
    assert MessageGraph.from_json(chat.to_json()).versions[0].kind == "invented-elsewhere"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: d.update(format="other"), "^format: expected 'hermes.graph'"),
        (lambda d: d.update(version=3), "^version: this reader knows versions 1 and 2"),
        (lambda d: d.pop("root"), "^root: expected text"),
        (lambda d: d.update(extra=1), "^document.extra: unknown field"),
        (lambda d: d.update(graphs=[]), "^graphs: empty"),
        (lambda d: d.update(graphs={}), "^graphs: expected a list"),
        (lambda d: d["graphs"][2].pop("seed"), r"^graphs\[2\].seed: expected text"),
        (lambda d: d["graphs"][2]["messages"][0].update(role="bot"), r"^graphs\[2\].messages\[0\].role: unknown role"),
        (lambda d: d["graphs"][2]["messages"].insert(0, 5), r"^graphs\[2\].messages\[0\]: expected an object"),
        (lambda d: d["graphs"][2].update(length=999), r"^graphs\[2\].length: expected a whole number under"),
        (lambda d: d["graphs"][2]["messages"].append({"role": "user"}), r"^graphs\[2\].messages: a message that no version has"),
        (lambda d: d["graphs"][2].update(length=True), r"^graphs\[2\].length"),
        (lambda d: d["graphs"][2]["versions"][0].update(tail=-1), r"^graphs\[2\].versions\[0\].tail"),
        (lambda d: d["graphs"][2]["versions"][0].update(end=[10**6]), r"^graphs\[2\].versions\[0\].end\[0\]"),
        (lambda d: d["graphs"][2]["versions"][1].update(hunks=[[2, 1, []]]), r"^graphs\[2\].versions\[1\].hunks\[0\]: hunks must be"),
        (lambda d: d["graphs"][2]["versions"][1].update(hunks=[[1]]), r"^graphs\[2\].versions\[1\].hunks\[0\]: expected \[start"),
        (lambda d: d["graphs"][2]["edges"].pop(), r"^graphs\[2\].edges: expected one for each of 2 versions"),
        (lambda d: d["graphs"][2]["edges"][0].__setitem__(1, 0), r"^graphs\[2\].edges\[0\]: expected an edge"),
        (lambda d: d["graphs"][2]["responses"][0].update(at=[0, 99]), r"^graphs\[2\].responses\[0\].at\[1\]"),
        (lambda d: d["graphs"][2]["responses"][0].update(id="xyz"), r"^graphs\[2\].responses\[0\].id: expected 64"),
        (lambda d: d["graphs"][2]["responses"][1].update(sample_id="1"), r"^graphs\[2\].responses\[1\].sample_id: empty or used twice"),
        (lambda d: d["graphs"][2]["responses"][1].update(overlay=7), r"^graphs\[2\].responses\[1\].overlay"),
        (lambda d: d["graphs"][2]["responses"][1]["call"].update(token_ids={"int32": "A"}), r"^graphs\[2\].responses\[1\].call.token_ids"),
        (lambda d: d["graphs"][2]["responses"][1]["call"].update(odd=1), r"^graphs\[2\].responses\[1\].call.odd: unknown field"),
        (lambda d: d["graphs"][2]["overlays"][0].update(keep_reasoning="x"), r"^graphs\[2\].overlays\[0\].keep_reasoning"),
        (lambda d: d["graphs"][2]["annotations"].update(x=[]), r"^graphs\[2\].annotations.x: expected 64"),
        (lambda d: d["graphs"][1]["messages"][1]["metadata"].update(length=9), r"^graphs\[1\].messages\[1\].metadata.length: 9, but"),
        (lambda d: d["graphs"][1]["messages"][1]["metadata"]["chat"].update(graph=1), r"^graphs\[1\].messages\[1\].metadata.chat.graph"),
    ],
)
def test_a_damaged_document_is_refused_with_the_path_to_the_field(change: Any, complaint: str) -> None:
    document = json.loads(DOCUMENT)
    change(document)
    with pytest.raises(CodecError, match=complaint):
        MessageGraph.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", "{}", "[" * 100_000, '{"a": NaN}', b"\xff\xfe\x00", "9" * 5000])
def test_what_is_no_graph_is_refused(text: str | bytes) -> None:
    with pytest.raises(CodecError):
        MessageGraph.from_json(text)


VALUES: list[Any] = [None, True, 0, -1, 10**9, 1.5, "", "x", "redacted", [], {}, [0], [[0, 0, []]], {"graph": 0}]


def mutate(value: Any, rng: random.Random) -> Any:
    """Change one place of a JSON value."""
    places: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        at = stack.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at))
        places += [(at, key) for key in keys]
        stack += [at[key] for key in keys if isinstance(at[key], dict | list)]
    where, key = rng.choice(places)
    match rng.randrange(4):
        case 0:
            where[key] = rng.choice(VALUES)
        case 1 if isinstance(where, list):
            where.insert(key, rng.choice(VALUES))
        case 2:
            del where[key]
        case _:
            donor, other = rng.choice(places)
            where[key] = (
                json.loads(json.dumps(donor[other])) if other in (donor if isinstance(donor, dict) else range(len(donor))) else None
            )
    return value


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_mutated_documents_give_our_own_error_or_a_whole_graph(seed: int, times: int) -> None:
    rng = random.Random(seed)
    document = json.loads(DOCUMENT)
    for _ in range(times):
        document = mutate(document, rng)
    try:
        chat = MessageGraph.from_json(json.dumps(document))
    except CodecError:
        return
    # Accepted: then it is a graph in every respect, even where its ids no longer hold.
    list(chat.versions)
    everything(chat)
    chat.append({"role": "assistant", "content": "x"})
    chat.reverse()
    assert MessageGraph.from_json(chat.to_json()).to_json() == chat.to_json()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(DOCUMENT) - 1))
def test_truncated_documents_give_our_own_error(length: int) -> None:
    with pytest.raises(CodecError):
        MessageGraph.from_json(DOCUMENT[:length])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(DOCUMENT)))
def test_bytes_thrown_into_a_document_give_our_own_error_or_a_whole_graph(noise: bytes, at: int) -> None:
    data = DOCUMENT.encode()
    try:
        chat = MessageGraph.from_json(data[:at] + noise + data[at + len(noise) :])
    except CodecError:
        return
    assert MessageGraph.from_json(chat.to_json()).to_json() == chat.to_json()
