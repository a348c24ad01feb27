"""Break an export as a forger would who wants it to look whole: edit rows and ledger, then make hashes, counts and root agree again."""

import hashlib
import json
import pickle
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SamplePolicies
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.ledger import merkle_leaf, merkle_root
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession
from hermes.trajectories.verify.exported_rows import UnreadableFile
from hermes.trajectories.verify.folder import READERS

Row = dict[str, Any]
PROMPT = [1, 2, 3]


def sessions() -> list[MessageGraph]:
    """Return two sessions. The first, in rows:

    0   1 2 3 | 5 6 7 | 8 9 | 10 11 |      twins `one` and `two` at [3, 6), `part` at [8, 10), of whose five tokens two are trained
    1   1 2 3 | 5 6 7 |                    `three`, their twin with other logprobs
    2   1 2 3 | 5 9 |                      `four`
    3   20 21 | 22 23 |                    `agent`, in a chat attached to a tool's result

    and `bare` without ids, `kept` without consent, `ours` with a derived prompt. The second session has one sample, `last`."""
    chat = MessageGraph([{"role": "user", "content": "question"}], seed="forged")
    turn = chat.prepare()
    for name, tokens, score in (("one", [5, 6, 7], -0.5), ("two", [5, 6, 7], -0.5), ("three", [5, 6, 7], -0.25), ("four", [5, 9], -1.0)):
        call = CallRecord(prompt_token_ids=PROMPT, token_ids=tokens, logprobs=[score] * len(tokens), sample_id=name, tokenizer="t")
        chat.commit(turn, {"role": "assistant", "content": f"answer {tokens}"}, call=call)
    agent = MessageGraph([{"role": "user", "content": "sub"}], seed="agent")
    call = CallRecord(prompt_token_ids=[20, 21], token_ids=[22, 23], logprobs=[-0.1, -0.2], sample_id="agent", tokenizer="t")
    agent.append({"role": "assistant", "content": "done"}, call=call)
    chat.append({"role": "tool", "content": "done", "metadata": {"chat": agent}})
    part = CallRecord(
        prompt_token_ids=[*PROMPT, 5, 6, 7, 8, 9],
        token_ids=[10, 11, 12],
        logprobs=[-0.1, -0.2],
        usage={"completion_tokens": 5},
        sample_id="part",
        tokenizer="t",
    )
    chat.append({"role": "assistant", "content": "partly"}, call=part)
    chat.append({"role": "assistant", "content": "bare"}, call=CallRecord(sample_id="bare"))
    chat.append({"role": "user", "content": "may I?"})
    for name, fields in (("kept", {}), ("ours", {"prompt_derived": True})):
        call = CallRecord(prompt_token_ids=[30], token_ids=[31], logprobs=[-0.5], sample_id=name, tokenizer="t", **fields)
        chat.append({"role": "assistant", "content": name}, call=call)
    [kept] = [response for response in chat.responses() if response.sample_id == "kept"]
    chat.annotate(kept, consent=False)
    other = MessageGraph([{"role": "user", "content": "other"}], seed="other")
    call = CallRecord(prompt_token_ids=[40, 41], token_ids=[42, 43], logprobs=[-0.5, -0.75], sample_id="last", tokenizer="t")
    other.append({"role": "assistant", "content": "last words"}, call=call)
    return [chat, other]


def make(
    folder: Path, name: str, graphs: Sequence[MessageGraph] | None = None, policies: SamplePolicies | None = None
) -> tuple[Path, Path]:
    """Export sessions and return the export and the file of its source."""
    graphs = sessions() if graphs is None else graphs
    out, source = folder / "out", folder / "source.jsonl"
    source.write_text("".join(f"{graph.to_json()}\n" for graph in graphs), "utf-8")
    named = [ExportSession(f"session {place}", graph) for place, graph in enumerate(graphs)]
    export(named, out, ExportSettings(format=name, policies=policies or SamplePolicies()), FORMATS)
    return out, source


class Forged:
    """An export under the hands of a forger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        text = (folder / "ledger.jsonl").read_text("ascii").splitlines()
        self.manifest, *self.lines = [json.loads(line) for line in text]

    def line(self, sample: str) -> Row:
        return next(line for line in self.lines if line["sample"] == sample)

    def drop_line(self, sample: str) -> None:
        self.lines.remove(self.line(sample))

    def table(self, name: str, edit: Callable[[list[Row]], object]) -> None:
        """Edit the rows of a Parquet file in place."""
        file = pq.read_table(self.folder / name)
        rows = file.to_pylist()
        edit(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=file.schema), self.folder / name)

    def rows(self, edit: Callable[[list[Row]], object]) -> None:
        self.table("rows.parquet", edit)

    def trees(self, edit: Callable[[list[Row]], object]) -> None:
        self.table("tree.parquet", edit)

    def text(self, name: str, edit: Callable[[list[Any]], object]) -> None:
        """Edit the lines of a JSONL file in place."""
        lines = [json.loads(line) for line in (self.folder / name).read_text("ascii").splitlines()]
        edit(lines)
        (self.folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines), "ascii")

    def torch(self, edit: Callable[[Any], object]) -> None:
        """Edit slime's file in place."""
        path = self.folder / "rollout_0.pt"
        with zipfile.ZipFile(path) as file:
            entries = {name: file.read(name) for name in file.namelist()}
        value = pickle.loads(entries["archive/data.pkl"])  # noqa: S301  # written by this test
        edit(value)
        entries["archive/data.pkl"] = pickle.dumps(value, protocol=2)
        with zipfile.ZipFile(path, "w") as file:
            for name, data in entries.items():
                file.writestr(name, data)

    def save(self) -> None:
        """Write the ledger as it is now."""
        lines = [self.manifest, *self.lines]
        text = "".join(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in lines)
        (self.folder / "ledger.jsonl").write_text(text, "ascii")

    def seal(self) -> None:
        """Make the manifest agree with everything, as the exporter would have."""
        reasons: dict[str, dict[str, int]] = {}
        for line in self.lines:
            for part in line["excluded"]:
                count = reasons.setdefault(part["reason"], {"samples": 0, "tokens": 0})
                count["samples"] += 1
                count["tokens"] += part["end"] - part["start"]
        sampled, excluded = sum(line["sampled"] for line in self.lines), sum(count["tokens"] for count in reasons.values())
        leaves = sorted((line["sample"], merkle_leaf(line)) for line in self.lines)
        files = [path for path in sorted(self.folder.iterdir()) if path.name != "ledger.jsonl"]
        self.manifest |= {
            "samples": len(self.lines),
            "tokens": {"sampled": sampled, "trained": sampled - excluded, "excluded": excluded},
            "excluded": reasons,
            "merkle_root": merkle_root(digest for _, digest in leaves),
            "files": [
                {"name": path.name, "bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in files
            ],
        }
        for path in files:
            with suppress(pa.ArrowInvalid):  # a file that was cut off has no rows to count
                self.manifest["rows"] = pq.read_metadata(path).num_rows if path.suffix == ".parquet" else self.manifest["rows"]
        self.manifest["trained"] = self._trained()
        self.save()

    def _trained(self) -> dict[str, dict[str, int]]:
        """Count what is trained on and off policy, as the rows say."""
        rows: dict[int, str] = {}
        with suppress(UnreadableFile, KeyError):
            for exported in READERS[self.manifest["settings"]["format"]](self.folder):
                rows[exported.row] = "off_policy" if exported.on_policy is False else "on_policy"
        counts = {name: {"rows": 0, "samples": 0, "tokens": 0} for name in ("on_policy", "off_policy")}
        for row in {line["trained"][0].get("row") for line in self.lines if line["trained"]}:
            counts[rows.get(row, "on_policy")]["rows"] += 1
        for line in self.lines:
            for where in line["trained"][:1]:
                count = counts[rows.get(where.get("row"), "on_policy")]
                count["samples"] += 1
                count["tokens"] += line["sampled"] - sum(part["end"] - part["start"] for part in line["excluded"])
        return counts
