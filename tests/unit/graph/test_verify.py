"""verify() notices what was altered; redact() erases for good and leaves every id standing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes import CallRecord, MessageGraph
from hermes.graph.message import thaw
from tests.unit.graph.sessions import rich_session


def test_an_honest_graph_is_ok() -> None:
    chat = rich_session()
    report = chat.verify()
    assert (bool(report), report.status, report.responses, report.redacted, report.problems) == (True, "ok", 8, (), ())
    read = MessageGraph.from_json(chat.to_json())
    assert (read.find_alteration(), read.verify()) == (None, report)


@pytest.mark.parametrize(
    "alter",
    [
        lambda g: g["messages"][0].update(content="Be long."),
        lambda g: g["messages"][-1].update(content="late twin, altered"),
        lambda g: g["responses"][0].update(sample_id="other"),
        lambda g: g["responses"][1]["call"].update(token_ids={"int32": "BQAAAAQAAAA="}),
        lambda g: g["responses"][1]["call"].update(prompt_token_ids={"int32": "AQAAAAIAAAA="}),
        lambda g: g["responses"][1]["call"].update(logprobs={"float32": "AAAAAAAAAAA="}),
        lambda g: g["responses"][1]["call"].update(raw_text="altered"),
        lambda g: g["responses"][1]["call"].update(model="another"),
        lambda g: g["responses"][1].pop("call"),
        lambda g: g["responses"][1].pop("overlay"),
        lambda g: g["responses"][0].update(at=[2, 2]),
        lambda g: g["overlays"][0].update(ephemeral="Openly."),
        lambda g: g["overlays"][0]["tools"][0]["function"].update(name="tell"),
        lambda g: g["overlays"][0].update(keep_reasoning="all"),
        lambda g: g.update(seed="another"),
        lambda g: g["annotations"].update({"0" * 64: [{"reward": 1}]}),
        lambda g: g.update(length=g["length"] + 1),
        lambda g: first_note(g).update(reward=1.0),
        lambda g: first_note(g).pop("reward"),
        lambda g: first_note(g).update(consent=True),
        lambda g: next(iter(g["annotations"].values())).append({"reward": 1.0}),
        lambda g: g["annotations"].popitem(),
        lambda g: g["edges"][0].__setitem__(2, "edit"),
        lambda g: g["edges"][0].__setitem__(1, 2),
        lambda g: g["responses"].pop(),
        lambda g: g["responses"].insert(1, g["responses"].pop(2)),
        lambda g: g["messages"][0]["metadata"].update(note="main"),
        lambda g: g["messages"][0].pop("metadata"),
        lambda g: g["versions"][1]["hunks"][0][2].reverse(),
        lambda g: g["versions"][1].update(hunks=[[1, 2, [7]], [2, 2, [8]]]),
        lambda g: g["erased"].append("0" * 64),
        lambda g: g.update(broken_root="0" * 64),
    ],
)
def test_an_altered_document_is_noticed(alter: Any) -> None:
    document = json.loads(rich_session().to_json())
    alter(document["graphs"][-1])
    chat = MessageGraph.from_json(json.dumps(document))
    problem = chat.find_alteration()
    report = chat.verify()
    assert (bool(report), report.status, problem) == (False, "broken", report.problems[0])


def first_note(graph: dict[str, Any]) -> dict[str, Any]:
    note: dict[str, Any] = next(iter(graph["annotations"].values()))[0]
    return note


def test_an_altered_attached_chat_is_noticed() -> None:
    document = json.loads(rich_session().to_json())
    document["graphs"][0]["messages"][0]["content"] = "altered"
    problems = MessageGraph.from_json(json.dumps(document)).verify().problems
    assert problems[0] == f"altered after it was saved: its root is not {document['root'][:12]}, as the document said"


@pytest.mark.parametrize(
    "alter",
    [
        lambda chat: chat["annotations"].update({"0" * 64: []}),
        lambda chat: chat["messages"][0].update(metadata={"said": "later"}),
        lambda chat: chat["edges"][0].__setitem__(2, "compaction"),
        lambda chat: chat["responses"].clear(),
    ],
)
def test_what_ids_do_not_cover_in_an_attached_chat_is_covered_by_the_root(alter: Any) -> None:
    document = json.loads(rich_session().to_json())
    alter(document["graphs"][1])
    assert MessageGraph.from_json(json.dumps(document)).verify().status == "broken"


def test_a_broken_root_stays_broken_when_the_graph_is_saved_copied_forked_or_attached() -> None:
    document = json.loads(rich_session().to_json())
    document["graphs"][-1]["edges"][0][2] = "edit"
    broken = MessageGraph.from_json(json.dumps(document))
    outer = MessageGraph([{"role": "tool", "content": "done", "metadata": {"chat": broken}}])
    for chat in (broken, MessageGraph.from_json(broken.to_json()), broken.copy(), broken.fork(), MessageGraph.from_json(outer.to_json())):
        (problem,) = chat.verify().problems
        assert problem.endswith(f"altered after it was saved: its root is not {document['root'][:12]}, as the document said")
    broken.append({"role": "user", "content": "on"})
    assert MessageGraph.from_json(broken.to_json()).to_json() == broken.to_json()


def test_the_root_is_that_of_the_content_and_moves_with_everything_in_it() -> None:
    chat = rich_session()
    document = json.loads(chat.to_json())
    assert document["root"] == chat.root == chat.verify().root == chat.copy().root == rich_session().root
    assert MessageGraph.from_json(json.dumps(document, indent=1, sort_keys=True)).verify() == chat.verify()
    roots = [chat.root]
    chat.annotate(next(chat.responses()), reward=1)
    roots.append(chat.root)
    chat[0]["metadata"] = {"note": "other"}
    roots.append(chat.root)
    chat.append({"role": "user", "content": "on"})
    roots.append(chat.root)
    chat.redact(len(chat) - 1)
    roots.append(chat.root)
    assert len(set(roots)) == 5


def test_a_document_without_a_root_is_read_and_says_that_it_has_none() -> None:
    text = Path(__file__).with_name("rich_session_version_1.json").read_text()
    old, new = MessageGraph.from_json(text), rich_session()
    assert (old.verify().is_sealed, new.verify().is_sealed) == (False, True)
    assert replace(old.verify(), is_sealed=True, root=new.root) == new.verify()
    assert [(r.id, r.context_id, r.call) for r in old.responses()] == [(r.id, r.context_id, r.call) for r in new.responses()]
    again = MessageGraph.from_json(old.to_json())
    assert (again.verify().is_sealed, again.to_json()) == (True, old.to_json())


def test_an_id_that_an_old_document_recorded_is_kept_so_that_its_alteration_stays_visible() -> None:
    document = json.loads(Path(__file__).with_name("rich_session_version_1.json").read_text())
    document["graphs"][-1]["responses"][1]["call"]["model"] = "another"
    altered = MessageGraph.from_json(json.dumps(document))
    again = MessageGraph.from_json(altered.to_json())
    assert (altered.verify().status, again.verify().status) == ("broken", "broken")
    assert again.verify().problems == altered.verify().problems


def test_tokens_altered_in_memory_are_noticed() -> None:
    chat = MessageGraph([{"role": "user", "content": "a"}])
    chat.append({"role": "assistant", "content": "b"}, call=CallRecord(token_ids=[1, 2]))
    (response,) = chat.responses()
    response.call.token_ids[0] = 7  # type: ignore[union-attr,index]
    assert chat.verify().status == "broken"


def test_redaction_erases_everywhere_and_keeps_every_id() -> None:
    chat = rich_session()
    ids = {response.id: response.context_id for response in chat.responses()}
    number = next(index for index, message in enumerate(chat) if "555" in str(message["content"]))
    item = chat[number]
    turn = chat.prepare()
    chat.redact(number)
    assert item == chat[number] == {"role": "user", "content": "[redacted]"}
    kept = {response.id: response.context_id for response in chat.responses()}
    assert kept == ids
    report = chat.verify()
    assert (report.status, set(report.redacted) < set(ids), len(report.redacted)) == ("redacted", True, 5)
    # The call that answered it repeats the number in its own words: that is another message, with its own tokens.
    (response,) = (response for response in chat.responses() if response.sample_id == "2")
    assert response.call is not None
    assert (response.redacted, response.call.prompt_token_ids, list(response.call.token_ids or ())) == (True, None, [4, 5])
    chat.redact(response.message)
    (response,) = (response for response in chat.responses() if response.sample_id == "2")
    assert response.call is not None
    assert (response.message["content"], response.call.token_ids, response.call.raw_text) == ("[redacted]", None, None)
    chat.commit(turn, {"role": "assistant", "content": "late"})
    for text in (chat.to_json(), repr(chat), repr(chat.versions), repr(list(chat.responses())), chat.to_mermaid()):
        assert "555-1234" not in text
    again = MessageGraph.from_json(chat.to_json())
    assert (again.to_json(), again.verify()) == (chat.to_json(), chat.verify())


def test_what_follows_a_redaction_is_sampled_under_what_the_list_says_now() -> None:
    chat = MessageGraph([{"role": "user", "content": "secret"}])
    chat.append({"role": "assistant", "content": "noted"})
    chat.redact(0)
    chat.append({"role": "assistant", "content": "on"})
    assert (chat.previous.kind, chat.previous[0].redacted) == ("redaction", True)  # type: ignore[union-attr,index]
    first, second = chat.responses()
    assert (first.redacted, second.redacted) == (True, False)
    assert second.context == [{"role": "user", "content": "[redacted]"}, {"role": "assistant", "content": "noted"}]


def test_redaction_reaches_into_attached_chats_and_keeps_their_samples() -> None:
    chat = rich_session()
    ids = {response.id for response in chat.responses()}
    inner = next(message for message in chat if message.get("metadata", {}).get("chat"))["metadata"]["chat"]
    chat.redact(inner.graph.versions[0][0])
    assert 'agent question"' not in chat.to_json()
    assert "agent question, edited" in chat.to_json()
    tool = next(index for index, message in enumerate(chat) if message["role"] == "tool")
    chat.redact(tool)
    assert {response.id for response in chat.responses()} == ids
    assert chat.verify().status == "redacted"
    assert MessageGraph.from_json(chat.to_json()).to_json() == chat.to_json()


def test_redacting_twice_and_redacting_nothing() -> None:
    chat = rich_session()
    chat.redact(0)
    before = chat.to_json()
    chat.redact(chat.versions[0][0])
    assert chat.to_json() == before
    with pytest.raises(IndexError):
        chat.redact(99)
    assert thaw(chat.versions[0][0]) == {"role": "system", "content": "[redacted]"}
