"""Tamper with an export in every way that its files allow: for each field of each file, change, drop, swap, double or reorder a value.

The kinds are not listed by hand. `kinds_of` walks what an export holds, so a field that a format gains brings its kinds with it. After
each change the ledger is made anew as a forger would make it: hashes, turn digests, fingerprints, counts, root."""

import copy
import hashlib
import json
import math
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hermes import CallRecord, MessageGraph
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import read_sessions
from hermes.trajectories.verify.exported_rows import ExportedConversation, ExportedRow
from hermes.trajectories.verify.folder import READERS
from tests.unit.trajectories import samples, text_sessions
from tests.unit.trajectories.forgery import Forged

LEDGER = "ledger.jsonl"
BARE = "sharegpt --bare"
FORMS = {**{name: ExportSettings(format=name) for name in FORMATS}, BARE: ExportSettings(format="sharegpt", is_bare=True)}
"""The forms that an export can have, by their names in the table."""
NUMBERED = re.compile(r"(trajectory-|rollout_)\d+")
"""Files of one kind, of which an export has many."""

Place = tuple[str | int, ...]
"""The keys and indices that lead to a value in a file."""


@dataclass(frozen=True)
class Kind:
    """One kind of tampering: what is done to which field of which file."""

    format: str
    file: str
    field: str
    operation: str
    places: tuple[tuple[str, Place], ...] = ()
    """The first and the last place in a certain export, each with its file."""

    @property
    def name(self) -> str:
        return f"{self.format}: {self.file}: {self.field}: {self.operation}"


# What is exported ------------------------------------------------------------------------------------------------


def graphs() -> list[MessageGraph]:
    """Return sessions that have a value in every field of every format, and for every policy a sample that it leaves out."""
    plain = single("plain", samples.record("plain", policy_version="3"))
    kept = single("kept", CallRecord(prompt_token_ids=[30], token_ids=[31, 32], logprobs=[-0.5, -0.25], sample_id="kept", tokenizer="t"))
    kept.annotate(next(iter(kept.responses())), consent=False)
    spans = CallRecord(
        model="m",
        prompt_token_ids=[33],
        token_ids=[34, 35, 36],
        logprobs=[-0.5, -0.25, -0.125],
        policy_spans=[("1", 0, 2), ("2", 2, 3)],
        sample_id="spans",
        usage={"prompt_tokens": 1, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}},
    )
    long = single("long", spans)
    long.annotate(next(iter(long.responses())), reward=2.5, advantage=1.5)
    ours = CallRecord(prompt_token_ids=[40], prompt_derived=True, token_ids=[41], logprobs=[-0.5], sample_id="ours")
    script = CallRecord(model="scripted", prompt_token_ids=[42], token_ids=[43], logprobs=[-0.5], sample_id="script")
    texts = [text_sessions.tool_session(), text_sessions.forked_session(), text_sessions.nested_session()]
    return [samples.everything(), plain, kept, long, single("ours", ours), single("script", script), *texts]


def single(seed: str, call: CallRecord) -> MessageGraph:
    """Return a session of one question and one answer."""
    chat = MessageGraph([samples.user(f"{seed}?")], seed=seed)
    chat.append({**samples.answer(seed), "reasoning": "hm"}, call=call)
    return chat


def make(folder: Path, name: str) -> tuple[Path, Path]:
    """Export the sessions as `hermes export` does; return the export and the file of its graphs."""
    out, source = folder / "out", folder / "graphs.jsonl"
    source.write_text("".join(f"{graph.to_json()}\n" for graph in graphs()), "utf-8")
    export(list(read_sessions([source])), out, FORMS[name], FORMATS)
    return out, source


# Values of files -------------------------------------------------------------------------------------------------


def read_file(path: Path) -> Any:
    """Return what a file of an export holds, as plain values that can be changed."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text("ascii").splitlines()]
    if path.suffix == ".json":
        return json.loads(path.read_text("ascii"))
    with zipfile.ZipFile(path) as file:
        return pickle.loads(file.read("archive/data.pkl"))  # noqa: S301  # written by this test


def write_file(path: Path, value: Any) -> None:
    """Write values into a file in its own form; raise what its writer raises if it cannot hold them."""
    if path.suffix == ".parquet":
        schema = pq.read_schema(path)
        pq.write_table(pa.Table.from_pylist(value, schema=schema), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(line)}\n" for line in value), "ascii")
    elif path.suffix == ".json":
        path.write_text(json.dumps(value), "ascii")
    else:
        with zipfile.ZipFile(path) as file:
            entries = {name: file.read(name) for name in file.namelist()}
        entries["archive/data.pkl"] = pickle.dumps(value, protocol=2)
        with zipfile.ZipFile(path, "w") as file:
            for name, data in entries.items():
                file.writestr(name, data)


def walk(value: Any, path: Place = ()) -> Iterator[tuple[str, Place, Any]]:
    """Yield every value inside a value: its field (the path without indices), its path, itself."""
    yield "".join("[]" if isinstance(key, int) else f".{key}" for key in path).lstrip("."), path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from walk(inner, (*path, at))


def at(value: Any, path: Place) -> Any:
    for key in path:
        value = value[key]
    return value


# Operations ------------------------------------------------------------------------------------------------------

MISSING = object()


def _change(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    return 1.0 if value is None else MISSING


def _nudge(value: Any) -> Any:
    return math.nextafter(value, 9.0) if isinstance(value, float) else MISSING


def _nan(value: Any) -> Any:
    return math.nan if isinstance(value, float) else MISSING


def _empty(value: Any) -> Any:
    return type(value)() if isinstance(value, str | list | dict) and value else MISSING


def _null(value: Any) -> Any:
    return None if value is not None else MISSING


def _cut(value: Any) -> Any:
    return value[:-1] if isinstance(value, list) and value else MISSING


def _double(value: Any) -> Any:
    return [*value, value[-1]] if isinstance(value, list) and value else MISSING


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, list) and value != value[::-1] else MISSING


def _shift(value: Any) -> Any:
    return [value[-1], *value[:-1]] if isinstance(value, list) and len(set(map(repr, value))) > 1 else MISSING


def _more(value: Any) -> Any:
    return {**value, "extra": 1} if isinstance(value, dict) else MISSING


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "change": _change,
    "nudge": _nudge,
    "nan": _nan,
    "empty": _empty,
    "null": _null,
    "cut": _cut,
    "double": _double,
    "reverse": _reverse,
    "shift": _shift,
    "more": _more,
}
"""What is done to a value; MISSING if it cannot be done to a value of this type. `drop`, which removes a key, is done by the holder."""


def kinds_of(name: str, folder: Path) -> list[Kind]:
    """Return every kind of tampering with a single value that the files of an export allow."""
    found: dict[tuple[str, str, str], list[tuple[str, Place]]] = {}
    for path in sorted(folder.iterdir()):
        for field, place, value in walk(read_file(path)):
            if path.name == LEDGER and len(place) < 2:
                continue  # whole lines: see ROW_KINDS
            known = field.removeprefix("[].")
            if path.name == LEDGER:
                known = f"{'manifest' if place[0] == 0 else 'line'}.{known}"
            operations = [operation for operation, change in OPERATIONS.items() if change(value) is not MISSING]
            operations += ["drop"] if place and isinstance(place[-1], str) and path.suffix != ".parquet" else []
            for operation in operations:
                found.setdefault((NUMBERED.sub(r"\1*", path.name), known or "(all)", operation), []).append((path.name, place))
    return [
        Kind(name, file, field, operation, tuple(dict.fromkeys((places[0], places[-1]))))
        for (file, field, operation), places in found.items()
    ]


# Tampering -------------------------------------------------------------------------------------------------------


class Workplace:
    """An export that is tampered with again and again, and put back in order in between."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self.format = name
        self.out, self.source = make(folder, name)
        self._bytes = {path.name: path.read_bytes() for path in self.out.iterdir()}
        self._values = {path.name: read_file(path) for path in self.out.iterdir()}
        self.kinds = kinds_of(name, self.out)

    def restore(self) -> None:
        for path in self.out.iterdir():
            if path.name not in self._bytes:
                path.unlink()
        for name, data in self._bytes.items():
            if not (self.out / name).exists() or (self.out / name).read_bytes() != data:
                (self.out / name).write_bytes(data)

    def tamper(self, kind: Kind, place: tuple[str, Place]) -> bool:
        """Do it in one place, and make the ledger anew; return False if the file's own form cannot hold the result."""
        name, path = place
        holder = {"": copy.deepcopy(self._values[name])}
        whole: Place = ("", *path)
        if kind.operation == "drop":
            del at(holder, whole[:-1])[whole[-1]]
        else:
            at(holder, whole[:-1])[whole[-1]] = copy.deepcopy(OPERATIONS[kind.operation](at(holder, whole)))
        if name == LEDGER:
            write_file(self.out / name, holder[""])
            if path[0] != 0:
                seal_if_possible(self.out)
            return True
        try:
            write_file(self.out / name, holder[""])
        except (pa.ArrowException, TypeError, ValueError, AttributeError):
            self.restore()
            return False
        if name.endswith(".parquet") and repr(read_file(self.out / name)) == repr(self._values[name]):
            return False  # the column's type rounds the change away
        renew(self.out, kind.format)
        return True


def seal_if_possible(folder: Path) -> None:
    """Make the manifest agree with the lines, unless they are so broken that no manifest can."""
    try:
        Forged(folder).seal()
    except (KeyError, TypeError, AttributeError):
        return


def renew(folder: Path, name: str) -> None:
    """Make the ledger agree with changed rows: digests of turns, fingerprints of tokens, counts, hashes, root."""
    forged = Forged(folder)
    try:
        rows = list(READERS[FORMS[name].format](folder))
    except Exception:  # noqa: BLE001  # the rows are so broken that nothing can be taken from them
        rows = []
    for line in forged.lines:
        for where in line["trained"]:
            if where["row"] < len(rows):
                renew_line(line, where, rows[where["row"]])
    forged.seal()


def renew_line(line: dict[str, Any], where: dict[str, Any], row: Any) -> None:
    if isinstance(row, ExportedConversation) and where["turn"] < len(row.digests):
        first = row.starts[where["turn"]] if row.starts else 0
        where["sha256"] = row.digests[where["turn"]]
        where["context"] = hashlib.sha256("".join(row.digests[first : where["turn"]]).encode("ascii")).hexdigest()
    if isinstance(row, ExportedRow) and where["end"] <= len(row.tokens):
        start, end = where["start"], where["end"]
        parts = {"prompt": row.tokens[:start]} | ({"completion": row.tokens[start:end]} if not line["excluded"] else {})
        for key, tokens in parts.items():
            line[key] = {"length": len(tokens), "sha256": hashlib.sha256(tokens.astype("<i4").tobytes()).hexdigest()}


# Rows, columns and files -----------------------------------------------------------------------------------------


def drop_row(forged: Forged, rows: list[Any]) -> None:
    """Remove the last row and the ledger's lines of what it trains."""
    rows.pop()
    forged.lines = [line for line in forged.lines if not any(where["row"] == len(rows) for where in line["trained"])]


def double_row(forged: Forged, rows: list[Any]) -> None:
    """Append the last row once more, for samples with new ids."""
    last = len(rows) - 1
    rows.append(renumbered(copy.deepcopy(rows[last]), last + 1))
    new = [copy.deepcopy(line) for line in forged.lines if any(where["row"] == last for where in line["trained"])]
    for line in new:
        line |= {"sample": f"{line['sample']}-again", "response": hashlib.sha256(line["response"].encode()).hexdigest()}
        line["trained"][0]["row"] = last + 1
        rows[-1] = json.loads(json.dumps(rows[-1]).replace(json.dumps(line["sample"][: -len("-again")]), json.dumps(line["sample"])))
    forged.lines += new


def swap_rows(forged: Forged, rows: list[Any]) -> None:
    """Exchange the first and the last row, and their numbers in the ledger."""
    last = len(rows) - 1
    rows[0], rows[last] = renumbered(rows[last], 0), renumbered(rows[0], last)
    for line in forged.lines:
        for where in line["trained"]:
            where["row"] = {0: last, last: 0}.get(where["row"], where["row"])


def renumbered(row: Any, number: int) -> Any:
    if isinstance(row, dict) and "row" in row:
        row["row"] = number
    if isinstance(row, dict) and "extra_fields" in row:
        row["extra_fields"]["hermes"]["row"] = number
    if isinstance(row, dict) and "index" in row:
        row["index"] = number
    return row


ROW_OPERATIONS: dict[str, Callable[[Forged, list[Any]], object]] = {
    "drop a row and its lines": drop_row,
    "double a row under new ids": double_row,
    "swap two rows and their lines": swap_rows,
}
"""What is done to whole rows, with the ledger's lines of their samples."""

ROW_FILES = {
    **dict.fromkeys(("parquet", "trl"), "rows.parquet"),
    "tree": "tree.parquet",
    "verl": "rows.jsonl",
    "slime": "rollout_0.pt",
    "sharegpt": "sharegpt.jsonl",
    "llamafactory": "llamafactory.jsonl",
}
"""The formats with one file that has a value for each row."""


def tamper_rows(folder: Path, name: str, operation: str) -> None:
    """Tamper with whole rows, and make the ledger anew."""
    path = folder / ROW_FILES[name]
    value = read_file(path)
    forged = Forged(folder)
    ROW_OPERATIONS[operation](forged, value["samples"] if name == "slime" else value)
    write_file(path, value)
    rows = value["samples"] if name == "slime" else value
    forged.manifest |= {"rows": len(rows), "sessions": len({line["session"] for line in forged.lines})}
    forged.seal()
    renew(folder, name)


def add_column(folder: Path, path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.append_column("attention_mask", pa.array([[1]] * table.num_rows)), path)


def add_metadata(folder: Path, path: Path) -> None:
    pq.write_table(pq.read_table(path).replace_schema_metadata({"huggingface": '{"info": {}}'}), path)


def reorder_columns(folder: Path, path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.select(table.column_names[::-1]), path)


def add_second_key(folder: Path, path: Path) -> None:
    """Let the first line state its first key twice: readers differ in which of the two they take."""
    first, rest = path.read_text("ascii").split("\n", 1)
    key = next(iter(json.loads(first)))
    path.write_text(f'{{"{key}": null, {first[1:]}\n{rest}', "ascii")


def add_file(folder: Path, path: Path) -> None:
    (folder / f"more-{path.name}").write_bytes(path.read_bytes())


def add_entry(folder: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("archive/data/0", b"0000")


def split_file(folder: Path, path: Path) -> None:
    """Move slime's last sample into a second file."""
    value = read_file(path)
    (folder / "rollout_1.pt").write_bytes(path.read_bytes())
    write_file(folder / "rollout_1.pt", {"rollout_id": 1, "samples": [value["samples"].pop()]})
    write_file(path, value)


def exchange_documents(folder: Path, path: Path) -> None:
    """Let two documents take each other's name."""
    other = max(folder.glob("trajectory-*.json"))
    first, last = path.read_bytes(), other.read_bytes()
    path.write_bytes(last)
    other.write_bytes(first)


FILE_OPERATIONS: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "add a column": ("*.parquet", add_column),
    "add metadata": ("*.parquet", add_metadata),
    "reorder the columns": ("*.parquet", reorder_columns),
    "state a key twice": ("*.jsonl", add_second_key),
    "add a file": ("*", add_file),
    "add an entry": ("*.pt", add_entry),
    "move a row to another file": ("*.pt", split_file),
    "exchange two files": ("trajectory-00000.json", exchange_documents),
}
"""What is done to whole files, by the files that it can be done to."""


def tamper_file(folder: Path, name: str, operation: str) -> bool:
    """Tamper with a whole file, and make the ledger anew; return False if the format has no such file."""
    pattern, change = FILE_OPERATIONS[operation]
    files = sorted(path for path in folder.glob(pattern) if path.name != LEDGER)
    if not files:
        return False
    change(folder, files[0])
    renew(folder, name)
    return True


OTHER_POLICIES: dict[str, Any] = {
    "keep": "accepted",
    "retries": "last",
    "derived": "include",
    "scripted": "include",
    "policy_versions": ["3"],
    "rewards": [{"name": "advantage", "value": None, "scope": "response"}],
    "advantages": "group",
}
"""Settings that the export was not made with; each would have left out or let in a sample of these sessions."""


def state_policy(folder: Path, policy: str) -> None:
    """Let the manifest state another policy than the one that held."""
    forged = Forged(folder)
    forged.manifest["settings"]["policies"][policy] = OTHER_POLICIES[policy]
    forged.seal()


def whole_kinds(names: Iterable[str]) -> list[Kind]:
    """Return the kinds of tampering with whole rows, files and policies."""
    suffixes = {
        **dict.fromkeys(("parquet", "trl", "tree"), (".parquet",)),
        "slime": (".pt",),
        "atif": (".json", "trajectory-00000.json"),
    }
    found = []
    for name in sorted(names):
        found += [Kind(name, LEDGER, f"manifest.settings.policies.{policy}", "state another") for policy in OTHER_POLICIES]
        found += [Kind(name, "rows", "(rows)", operation) for operation in ROW_OPERATIONS if name in ROW_FILES]
        for operation, (pattern, _) in FILE_OPERATIONS.items():
            if pattern == "*" or pattern.removeprefix("*") in suffixes.get(name, (".jsonl",)):
                found.append(Kind(name, "files", "(files)", operation))
    return found


# The table in the documentation ----------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "verify.md"
BEGIN = "<!-- kinds of tampering: written by tests/unit/trajectories/tampering.py -->\n"


def table(kinds: Iterable[Kind]) -> str:
    """Return all kinds as a table: one line for the fields of a file with which the same is done in the same formats."""
    done: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for kind in kinds:
        done.setdefault((kind.file, kind.field), {}).setdefault(kind.format, {})[kind.operation] = None
    lines: dict[tuple[str, str, str], list[str]] = {}
    for (file, field), by_format in done.items():
        same: dict[str, list[str]] = {}
        for name, operations in by_format.items():
            same.setdefault(", ".join(operations), []).append(name)
        for operations, names in same.items():
            formats = "all" if len(names) == len(FORMS) else ", ".join(sorted(names))
            lines.setdefault((formats, file, operations), []).append(f"`{field}`")
    head = "| format | file | fields | what is done |\n|---|---|---|---|\n"
    rows = (f"| {formats} | `{file}` | {' '.join(fields)} | {operations} |\n" for (formats, file, operations), fields in lines.items())
    return head + "".join(rows)


def all_kinds(folder: Path) -> list[Kind]:
    """Return every kind of tampering with every format; the exports are written into a folder."""
    kinds = whole_kinds(FORMS)
    for name in sorted(FORMS):
        (folder / name).mkdir()
        kinds += kinds_of(name, make(folder / name, name)[0])
    return kinds


def write_table(folder: Path) -> None:
    """Write the table into the documentation anew."""
    before = PAGE.read_text("utf-8").split(BEGIN)[0]
    PAGE.write_text(before + BEGIN + table(all_kinds(folder)), "utf-8")


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        write_table(Path(place))
