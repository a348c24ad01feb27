"""Trajectory files in chunks: put together again they are the file, and reading goes on from any place."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.trajectories.compress import chunks as under_test
from hermes.trajectories.compress.chunks import INPUT_START, Chunk, InputPosition, find_inputs, fingerprint, read_chunks
from hermes.trajectories.errors import SourceError

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)
space = st.text(" \t\n\r", max_size=3)


def together(chunks: list[Chunk]) -> bytes:
    parts = [
        *(lead + row for chunk in chunks for lead, row in zip(chunk.leads or [b""] * len(chunk.rows), chunk.rows, strict=True)),
        *(chunk.tail + chunk.broken for chunk in chunks),
    ]
    return b"".join(parts)


@st.composite
def lists(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """A JSON list with white space wherever it may stand, and its elements."""
    elements = draw(st.lists(values, max_size=6))
    texts = [json.dumps(each, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2]))) for each in elements]
    spaced = [f"{draw(space)}{text}{draw(space)}" for text in texts]
    return f"{draw(space)}[{','.join(spaced) or draw(space)}]{draw(space)}", elements


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
@given(drawn=lists(), size=st.integers(1, 40))
def test_a_list_comes_apart_and_together_again(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[str, list[Any]], size: int, block: int
) -> None:
    text, elements = drawn
    file = tmp_path_factory.getbasetemp() / f"list{block}.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(under_test, "READ_BLOCK_BYTES", block)
        found = list(read_chunks(find_inputs(file), size=size))
        assert together(found) == file.read_bytes()
        assert [json.loads(row) for chunk in found for row in chunk.rows] == elements
        for place, chunk in enumerate(found):
            rest = list(read_chunks(find_inputs(file), chunk.end, size))
            assert rest == found[place + 1 :], "goes on from there as if nothing had happened"


@given(
    lines=st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=8),
    is_ended=st.booleans(),
    size=st.integers(1, 30),
)
def test_lines_come_apart_and_together_again(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], is_ended: bool, size: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "lines.jsonl"
    file.write_bytes(b"\n".join(lines) + (b"\n" if is_ended and lines else b""))
    found = list(read_chunks(find_inputs(file), size=size))
    assert together(found) == file.read_bytes()
    for place, chunk in enumerate(found):
        rest = list(read_chunks(find_inputs(file), chunk.end, size))
        assert rest == found[place + 1 :]


@pytest.mark.parametrize(
    ("text", "rows", "broken"),
    [
        (b'{"a": 1}', [b'{"a": 1}'], b""),
        (b'\xef\xbb\xbf {"a":\n 1}\n', [b'{"a":\n 1}'], b""),
        (b'{"a": 1}\n{"b": 2}\n', [b'{"a": 1}', b'{"b": 2}'], b""),  # lines in a file that is called .json
        (b"", [], b""),
        (b"[]", [], b""),
        (b'[{"a": 1}, {"b": ', [b'{"a": 1}'], b', {"b": '),
        (b'[{"a": 1} {"b": 2}]', [b'{"a": 1}'], b' {"b": 2}]'),
        (b'[{"a": 1}, "\xff"]', [b'{"a": 1}'], b', "\xff"]'),
        (b"nonsense", [], b"nonsense"),
    ],
)
def test_what_a_json_file_may_hold(tmp_path: Path, text: bytes, rows: list[bytes], broken: bytes) -> None:
    file = tmp_path / "t.json"
    file.write_bytes(text)
    found = list(read_chunks(find_inputs(file)))
    assert [row for chunk in found for row in chunk.rows] == rows
    assert b"".join(chunk.broken for chunk in found) == broken
    assert found[-1].end == InputPosition(1), "what comes next is the next file"


def test_a_folder_is_read_in_the_order_of_names_without_what_lies_beside(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/z.json", ".hidden.jsonl", "notes.txt", "x.rejected.jsonl", ".run/y.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    inputs = find_inputs(tmp_path, leave_out=[".rejected.jsonl"])
    assert [each.name for each in inputs] == ["a/z.json", "b.jsonl"]
    assert [(chunk.file, chunk.name) for chunk in read_chunks(inputs)] == [(0, "a/z.json"), (1, "b.jsonl")]
    assert [each["name"] for each in fingerprint(inputs)] == ["a/z.json", "b.jsonl"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"no \.json or \.jsonl file"):
        find_inputs(tmp_path / "empty")
    with pytest.raises(SourceError, match="no such file or folder"):
        find_inputs(tmp_path / "nowhere")


def test_a_name_is_left_out_whole_and_an_ending_wherever_it_ends_one(tmp_path: Path) -> None:
    for name in ("ledger.jsonl", "general-ledger.jsonl", "x.rejected.jsonl"):
        (tmp_path / name).write_text("{}")
    assert [each.name for each in find_inputs(tmp_path, ["ledger.jsonl", ".rejected.jsonl"])] == ["general-ledger.jsonl"]


def test_every_file_has_a_chunk_so_that_every_output_is_made(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "b.json").write_text("")
    assert [(chunk.file, list(chunk.rows)) for chunk in read_chunks(find_inputs(tmp_path), INPUT_START)] == [(0, []), (1, [])]
