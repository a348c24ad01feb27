"""The pipeline: streams, counts each sample once, appears whole or not at all, gives the same bytes again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SamplePolicies
from hermes.trajectories.errors import SourceError, TrajectorySettingsError
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.merkle import merkle_root
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession, find_files, read_sessions
from hermes.trajectories.verify import verify


def chat_with(name: str, tokens: int = 3) -> MessageGraph:
    chat = MessageGraph([{"role": "user", "content": name}], seed=name)
    call = CallRecord(sample_id=name, prompt_token_ids=[1], token_ids=list(range(tokens)), logprobs=[-1.0] * tokens)
    chat.append({"role": "assistant", "content": "a"}, call=call)
    return chat


def ledger(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    manifest, *lines = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    return manifest, lines


def test_writes_rows_and_ledger(tmp_path: Path) -> None:
    summary = export(
        [ExportSession("one", chat_with("a")), ExportSession("two", chat_with("b", 2))], tmp_path / "out", ExportSettings(), FORMATS
    )
    manifest, lines = ledger(tmp_path / "out")
    assert manifest == summary.manifest
    assert (manifest["sessions"], manifest["samples"], manifest["rows"]) == (2, 2, 2)
    assert manifest["tokens"] == {"sampled": 5, "trained": 5, "excluded": 0}
    assert [line["trained"] for line in lines] == [[{"row": 0, "start": 1, "end": 4}], [{"row": 1, "start": 1, "end": 3}]]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["ledger.jsonl", "rows.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def mixed_chats() -> list[ExportSession]:
    """An answer with ids, one whose prompt was tokenised later, and one without ids, in sessions of their own; and one behind another."""
    chats = [chat_with("a"), *(MessageGraph([{"role": "user", "content": name}], seed=name) for name in ("b", "c"))]
    derived = CallRecord(sample_id="b", prompt_token_ids=[1], token_ids=[2, 3], logprobs=[-1.0, -1.0], prompt_derived=True)
    chats[1].append({"role": "assistant", "content": "b"}, call=derived)
    behind = CallRecord(sample_id="d", prompt_token_ids=[1, 2, 3, 4], token_ids=[5], logprobs=[-1.0])
    chats[1].append({"role": "assistant", "content": "d"}, call=behind)
    chats[2].append({"role": "assistant", "content": "c"}, call=CallRecord(sample_id="c", usage={"completion_tokens": 7}))
    return [ExportSession(f"s{number}", chat) for number, chat in enumerate(chats)]


SPLIT: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "parquet": ({"rows": 1, "samples": 1, "tokens": 3}, {"rows": 1, "samples": 2, "tokens": 3}),
    "verifiers": ({"rows": 2, "samples": 2, "tokens": 4}, {"rows": 1, "samples": 1, "tokens": 2}),
    "sharegpt": ({"rows": 1, "samples": 1, "tokens": 3}, {"rows": 2, "samples": 3, "tokens": 10}),
    "llamafactory": ({"rows": 1, "samples": 1, "tokens": 3}, {"rows": 3, "samples": 3, "tokens": 10}),
    "openai": ({"rows": 1, "samples": 1, "tokens": 3}, {"rows": 2, "samples": 3, "tokens": 10}),
    "atif": ({"rows": 1, "samples": 1, "tokens": 3}, {"rows": 2, "samples": 3, "tokens": 10}),
}


@pytest.mark.parametrize("form", SPLIT)
def test_the_manifest_says_what_is_trained_on_and_off_policy(form: str, tmp_path: Path) -> None:
    settings = ExportSettings(format=form, policies=SamplePolicies(derived="include"))
    summary = export(mixed_chats(), tmp_path / "out", settings, FORMATS)
    on_policy, off_policy = SPLIT[form]
    assert summary.manifest["trained"] == {"on_policy": on_policy, "off_policy": off_policy}
    assert verify(tmp_path / "out").problems == ()
    assert on_policy["tokens"] + off_policy["tokens"] == summary.manifest["tokens"]["trained"]
    if form == "sharegpt":
        rows = [json.loads(line) for line in (tmp_path / "out" / "sharegpt.jsonl").read_text().splitlines()]
        assert [(row["on_policy"], row["hermes"]["off_policy"]) for row in rows] == [
            (True, ""),
            (False, "prompt tokens derived, not recorded"),
            (False, "no token ids"),
        ]


def test_a_re_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        for kind in ("parquet", "tree"):
            export([ExportSession("s", chat_with("a"))], tmp_path / f"{kind}-{name}", ExportSettings(format=kind), FORMATS)
    for kind in ("parquet", "tree"):
        contents = [{path.name: path.read_bytes() for path in (tmp_path / f"{kind}-{name}").iterdir()} for name in ("one", "two")]
        assert contents[0] == contents[1]


def test_the_same_sample_in_two_files_counts_once(tmp_path: Path) -> None:
    chat = chat_with("a")
    again = MessageGraph.from_json(chat.to_json())
    call = CallRecord(sample_id="b", prompt_token_ids=[1, 0, 1, 2], token_ids=[7], logprobs=[-1])
    again.append({"role": "assistant", "content": "more"}, call=call)
    export(
        [ExportSession("one", chat), ExportSession("two", again), ExportSession("three", chat.fork())],
        tmp_path / "out",
        ExportSettings(),
        FORMATS,
    )
    manifest, lines = ledger(tmp_path / "out")
    assert (manifest["samples"], manifest["duplicates"], [line["sample"] for line in lines]) == (2, 2, ["a", "b"])


def test_another_sample_under_a_known_id_is_said_and_not_dropped(tmp_path: Path) -> None:
    export([ExportSession("one", chat_with("a")), ExportSession("two", chat_with("a", 2))], tmp_path / "out", ExportSettings(), FORMATS)
    manifest, lines = ledger(tmp_path / "out")
    assert manifest["excluded"] == {"sample id used by another sample": {"samples": 1, "tokens": 2}}
    assert [bool(line["trained"]) for line in lines] == [True, False]


def test_a_broken_input_is_named_and_the_rest_is_exported(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "a.jsonl").write_text(chat_with("a").to_json() + "\n\nnonsense\n" + chat_with("b").to_json() + "\n")
    (tmp_path / "graphs" / "b.json").write_text("{}")
    (tmp_path / "graphs" / "c.json").write_text(chat_with("c").to_json())
    files = find_files([tmp_path / "graphs"])
    summary = export(read_sessions(files), tmp_path / "out", ExportSettings(), FORMATS)
    first, second = summary.broken
    assert (first.where, "not a message graph" in first.reason) == (f"{tmp_path / 'graphs' / 'a.jsonl'}, line 3", True)
    assert (second.where, "not a message graph" in second.reason) == (str(tmp_path / "graphs" / "b.json"), True)
    assert [line["session"] for line in ledger(tmp_path / "out")[1]] == ["a.jsonl:1", "a.jsonl:4", "c.json"]


def test_nothing_is_left_behind_when_it_fails(tmp_path: Path) -> None:
    def sessions() -> Iterator[ExportSession]:
        yield ExportSession("one", chat_with("a"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(sessions(), tmp_path / "out", ExportSettings(), FORMATS)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    for out in (tmp_path / "out", tmp_path / "out" / "mine.txt"):
        with pytest.raises(TrajectorySettingsError, match="exists and is not an empty folder"):
            export([], out, ExportSettings(), FORMATS)
    with pytest.raises(TrajectorySettingsError, match="unknown format 'csv'; one of"):
        export([], tmp_path / "other", ExportSettings(format="csv"), FORMATS)
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    export([], tmp_path / "empty", ExportSettings(), FORMATS)
    assert ledger(tmp_path / "empty")[0]["samples"] == 0


def test_files_are_found_in_folders_and_missing_ones_named(tmp_path: Path) -> None:
    for name in ("b.json", "a.jsonl", "deep/c.json", "note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [path.name for path in find_files([tmp_path, tmp_path / "note.txt"])] == ["a.jsonl", "b.json", "c.json", "note.txt"]
    with pytest.raises(SourceError, match="no such file"):
        find_files([tmp_path / "nothing"])
    (tmp_path / "run").mkdir()
    for name in ("graphs.jsonl", "run.json", "statistics.json", "rollouts.jsonl"):
        (tmp_path / "run" / name).write_text("")
    assert [path.name for path in find_files([tmp_path / "run"])] == ["graphs.jsonl"]
    (tmp_path / "void").mkdir()
    with pytest.raises(SourceError, match=r"no \.json or \.jsonl file"):
        find_files([tmp_path / "void"])


def test_the_merkle_root_is_the_one_of_the_definition() -> None:
    assert merkle_root([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert merkle_root([b"a" * 32]) == (b"a" * 32).hex()
    roots = {merkle_root([bytes([letter]) * 32 for letter in text]) for text in (b"ab", b"ba", b"abc", b"abcc", b"abcd")}
    assert len(roots) == 5


def test_marked_rollouts_have_rows_and_scales_of_their_own(tmp_path: Path) -> None:
    chat = MessageGraph([{"role": "user", "content": "q"}])
    turn = chat.prepare()
    for name, size in (("a", 2), ("b", 3)):
        call = CallRecord(sample_id=name, prompt_token_ids=[1], token_ids=[5] * size, logprobs=[-1.0] * size)
        response = chat.commit(turn, {"role": "assistant", "content": name}, call=call)
        chat.annotate(response, rollout=f"rollout {name}")
    rows: list[tuple[str, int, float]] = []
    summary = export(
        [ExportSession("s", chat)],
        tmp_path / "out",
        ExportSettings(),
        FORMATS,
        on_session=lambda plan: rows.extend((r.rollout, len(r.rows), r.loss_scale) for r in plan.rollouts),
    )
    assert rows == [("rollout a", 1, 0.5), ("rollout b", 1, 1 / 3)]
    assert summary.manifest["rows"] == 2


@pytest.mark.parametrize(("form", "has_rows"), [("tree", False), ("sharegpt", False), ("openai", False), ("parquet", True)])
def test_linear_rows_are_made_only_for_a_format_that_writes_them(tmp_path: Path, form: str, has_rows: bool) -> None:
    made: list[bool] = []
    export(
        [ExportSession("s", chat_with("a"))],
        tmp_path / "out",
        ExportSettings(format=form),
        FORMATS,
        on_session=lambda plan: made.extend("rows" in vars(rollout) for rollout in plan.rollouts),
    )
    assert made == [has_rows]


def test_sessions_of_equally_named_files_have_names_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.json").write_text(chat_with(name).to_json())
    sessions = list(read_sessions([tmp_path / "a" / "s.json", tmp_path / "b" / "s.json"]))
    assert [session.name for session in sessions if isinstance(session, ExportSession)] == ["a/s.json", "b/s.json"]


def test_a_clash_of_ids_is_said_once_and_other_logprobs_are_another_sample(tmp_path: Path) -> None:
    chats = [chat_with("a"), chat_with("a", 2), chat_with("a", 2), MessageGraph([{"role": "user", "content": "a"}], seed="a")]
    call = CallRecord(sample_id="a", prompt_token_ids=[1], token_ids=[0, 1, 2], logprobs=[-2.0] * 3)
    chats[-1].append({"role": "assistant", "content": "a"}, call=call)
    export([ExportSession(str(number), chat) for number, chat in enumerate(chats)], tmp_path / "out", ExportSettings(), FORMATS)
    manifest, lines = ledger(tmp_path / "out")
    assert (manifest["duplicates"], [bool(line["trained"]) for line in lines]) == (1, [True, False, False])


def test_as_text_a_sample_without_ids_is_trained_whole(tmp_path: Path) -> None:
    chat = MessageGraph([{"role": "user", "content": "q"}])
    chat.append({"role": "assistant", "content": "a"}, call=CallRecord(sample_id="a", usage={"completion_tokens": 4}))
    export([ExportSession("s", chat)], tmp_path / "out", ExportSettings(format="sharegpt"), FORMATS)
    manifest, (line,) = ledger(tmp_path / "out")
    assert (manifest["tokens"], manifest["excluded"]) == ({"sampled": 4, "trained": 4, "excluded": 0}, {})
    assert (line["excluded"], line["trained"][0]["turn"]) == ([], 1)


def test_what_one_copy_of_a_sample_says_holds_for_all_of_them(tmp_path: Path) -> None:
    """A later snapshot withdraws consent, erases a text, or brings the reward; the earlier file knows nothing of it."""
    for name, change in {
        "no consent": lambda chat: chat.annotate(next(chat.responses()), consent=False),
        "looked wrong": lambda chat: chat.annotate(next(chat.responses()), exclude="looked wrong"),
        "redacted": lambda chat: chat.redact(0),
    }.items():
        later = chat_with("a")
        change(later)
        for number, chats in enumerate(([chat_with("a"), later], [later, chat_with("a")])):
            out = tmp_path / f"{name} {number}"
            export([ExportSession(str(at), chat) for at, chat in enumerate(chats)], out, ExportSettings(), FORMATS)
            manifest, lines = ledger(out)
            assert (manifest["samples"], manifest["duplicates"], [line["trained"] for line in lines]) == (1, 1, [[]])
            assert lines[0]["excluded"][0]["reason"] == name
    later = chat_with("a")
    later.annotate(next(later.responses()), reward=2.0)
    export([ExportSession("0", chat_with("a")), ExportSession("1", later)], tmp_path / "reward", ExportSettings(), FORMATS)
    assert pq.read_table(tmp_path / "reward" / "rows.parquet")["reward"].to_pylist() == [2.0]


def test_what_a_fork_gave_up_stands_where_the_original_has_it(tmp_path: Path) -> None:
    chat = chat_with("a")
    fork = chat.fork()
    fork[0]["content"] = "other"
    settings = ExportSettings(policies=SamplePolicies(keep="accepted"))
    for number, chats in enumerate(([chat, fork], [fork, chat])):
        export([ExportSession(str(at), each) for at, each in enumerate(chats)], tmp_path / str(number), settings, FORMATS)
        assert ledger(tmp_path / str(number))[0]["tokens"]["trained"] == 3


def test_a_stream_that_cannot_be_read_twice_says_so(tmp_path: Path) -> None:
    later = chat_with("a")
    later.annotate(next(later.responses()), consent=False)
    with pytest.raises(TrajectorySettingsError, match="pass a list, not an iterator"):
        export(iter([ExportSession("0", chat_with("a")), ExportSession("1", later)]), tmp_path / "out", ExportSettings(), FORMATS)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_read_and_dangling_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(chat_with("a").to_json())
    (tmp_path / "b.json").symlink_to(tmp_path / "nowhere.json")
    kinds = [type(session) for session in read_sessions(find_files([tmp_path]))]
    assert kinds == [ExportSession, SourceError]


def test_names_do_not_depend_on_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.json", "sub/a.json"):
        (tmp_path / name).write_text(chat_with(name).to_json())
    names = []
    for place, paths in (("sub", ["a.json", "../b.json"]), (".", ["sub/a.json", "b.json"])):
        monkeypatch.chdir(tmp_path / place)
        names.append([session.name for session in read_sessions(map(Path, paths)) if isinstance(session, ExportSession)])
    assert names[0] == names[1] == ["sub/a.json", "b.json"]
