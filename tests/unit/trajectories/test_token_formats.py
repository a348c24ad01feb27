"""What holds for every token format: each sample trained once in its own context, the same bytes again, whatever the session was."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession
from tests.unit.trajectories.samples import check_conservation, written
from tests.unit.trajectories.token_units import UNITS

every_format = pytest.mark.parametrize("name", UNITS)


@every_format
def test_every_sample_is_trained_once_in_its_own_context(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "out", name, FORMATS[name])
    check_conservation(folder, UNITS[name](folder))


@every_format
def test_a_re_run_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    once, again = (written(tmp_path / out, name, FORMATS[name]) for out in ("once", "again"))
    assert {path.name: path.read_bytes() for path in once.iterdir()} == {path.name: path.read_bytes() for path in again.iterdir()}


@every_format
def test_an_export_of_nothing_can_be_read(name: str, tmp_path: Path) -> None:
    export([], tmp_path / "out", ExportSettings(format=name), FORMATS)
    assert UNITS[name](tmp_path / "out") == []


ids = st.lists(st.integers(0, 2), max_size=4)
steps = st.lists(
    st.tuples(
        st.sampled_from(["go on", "edit", "sibling", "delegate"]), ids, ids.filter(bool), st.integers(1, 4), st.sampled_from([-0.5, -0.1])
    ),
    min_size=1,
    max_size=10,
)


@every_format
@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_whatever_the_session_was(name: str, steps: list[Any]) -> None:
    session = random_session(steps)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        manifest = export([session], out, ExportSettings(format=name), FORMATS).manifest
        units = UNITS[name](out)
        lines = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()[1:]]
        records = {response.sample_id: response.call for response in session.graph.responses()}
        spans = []
        for line in lines:
            call = records[line["sample"]]
            assert call is not None
            assert call.prompt_token_ids is not None
            assert call.token_ids is not None
            for where in line["trained"]:
                tokens, _ = units[where["row"]]
                assert tokens[: where["start"]] == list(call.prompt_token_ids)
                assert tokens[where["start"] : where["end"]] == list(call.token_ids)[: len(call.logprobs or ())]
                spans += [(where["row"], at) for at in range(where["start"], where["end"])]
        assert sorted(spans) == [(row, at) for row, (_, mask) in enumerate(units) for at, trained in enumerate(mask) if trained]
        trainable = [call for call in records.values() if call is not None and call.prompt_token_ids]
        assert len(spans) == manifest["tokens"]["trained"] == sum(len(call.logprobs or ()) for call in trainable)


def random_session(steps: list[Any]) -> ExportSession:
    """A chat whose prompts go on from earlier tokens or leave them, over an alphabet so small that samples meet and overlap."""
    chat = MessageGraph([{"role": "user", "content": "q"}], seed="s")
    context: list[int] = []
    for number, (step, more, completion, scored, logprob) in enumerate(steps):
        prompt = [*context, *more] if step in {"go on", "sibling"} else more
        call = CallRecord(
            sample_id=str(number), prompt_token_ids=prompt, token_ids=completion, logprobs=[logprob] * min(scored, len(completion))
        )
        reply = {"role": "assistant", "content": str(completion)}
        if step == "delegate":
            inner = MessageGraph([{"role": "user", "content": str(more)}], seed=str(number))
            inner.append(reply, call=call)
            chat.append({"role": "tool", "content": "done", "metadata": {"chat": inner}})
            continue
        if step == "edit":
            chat[0]["content"] = str(number)
        if step == "sibling":
            for name in ("", " again"):
                chat.commit(chat.prepare(), reply, call=CallRecord.from_dict({**call.to_dict(), "sample_id": f"{number}{name}"}))
        else:
            chat.commit(chat.prepare(), reply, call=call)
            context = prompt + completion
        chat.append({"role": "user", "content": "next"})
    return ExportSession("s", chat)
