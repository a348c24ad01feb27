"""Verify an export: read its files, trust none of them, and report every problem."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hermes.trajectories.verify.exported_rows import ExportedConversation, ExportedRow, ExportedTree, UnreadableFile
from hermes.trajectories.verify.ledger import FILE_NAME, SIGNATURE_FILE, LedgerIndex, read_ledger
from hermes.trajectories.verify.linear_reader import read_rows, read_trl
from hermes.trajectories.verify.llamafactory_reader import read_llamafactory
from hermes.trajectories.verify.proof import describe_proof
from hermes.trajectories.verify.report import ProblemList, VerifyReport
from hermes.trajectories.verify.rows import check_linear, check_tree, check_turns
from hermes.trajectories.verify.source import Exported, ExportFolder, check_source
from hermes.trajectories.verify.text_readers import read_atif, read_openai, read_sharegpt
from hermes.trajectories.verify.trainer_readers import read_agentlightning, read_atropos, read_slime, read_verifiers, read_verl
from hermes.trajectories.verify.tree_reader import read_trees


def check_files(folder: Path, ledger: LedgerIndex, problems: ProblemList) -> None:
    """Note each file that is missing, altered, listed twice or not listed."""
    listed: dict[str, None] = {}
    for entry in ledger.manifest["files"]:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or Path(name).name != name or name == FILE_NAME:
            problems.add(f"the manifest lists {entry!r}, which is not a file of an export", file=FILE_NAME)
            continue
        if name in listed:
            problems.add("the manifest lists it twice", file=name)
        listed[name] = None
        path = folder / name
        if not path.is_file():
            problems.add("missing", file=name)
            continue
        if entry.keys() != {"name", "bytes", "sha256"} or type(entry["bytes"]) is not int:
            problems.add(f"the manifest lists it as {entry!r}", file=name)
            continue
        size = path.stat().st_size
        if size != entry.get("bytes"):
            problems.add(f"{size} bytes long, the manifest says {entry.get('bytes')}", file=name)
        elif _sha256(path) != entry.get("sha256"):
            problems.add("altered: its SHA-256 is not the manifest's", file=name)
    if list(listed) != sorted(listed):
        problems.add("the manifest's files are not in the order of their names", file=FILE_NAME)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in listed and name not in (FILE_NAME, SIGNATURE_FILE):
            problems.add("not listed in the manifest", file=name)


def _sha256(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


READERS: Mapping[str, Callable[[Path], Iterator[Exported]]] = {
    "parquet": read_rows,
    "tree": read_trees,
    "trl": read_trl,
    "verl": read_verl,
    "atropos": read_atropos,
    "agentlightning": read_agentlightning,
    "verifiers": read_verifiers,
    "slime": read_slime,
    "sharegpt": read_sharegpt,
    "llamafactory": read_llamafactory,
    "openai": read_openai,
    "atif": read_atif,
}


def verify(folder: Path, against: Sequence[Path] = (), on_progress: Callable[[str, int], None] = lambda *_: None) -> VerifyReport:
    """Check an export from its files alone, and against the graphs it was made from if `against` names them.

    Every sample is in the ledger once; its tokens are trained once, after exactly its prompt, or excluded with a reason; nothing
    else is trained; every count, every hash and the Merkle root equal those computed again. Raises TrajectoryError if the folder is
    not an export. `on_progress` is called with "samples", "rows" or "graphs" and how many were read.
    Memory: one row group, and the index of the ledger."""
    problems = ProblemList()
    ledger = read_ledger(folder, problems, lambda done: on_progress("samples", done))
    check_files(folder, ledger, problems)
    reader = READERS.get(ledger.format)
    rows, findings = 0, None
    if reader is None:
        problems.add(f"this hermes cannot read the format {ledger.format!r}, so its rows are not checked", file=FILE_NAME)
    else:
        rows = _check_rows(reader(folder), ledger, problems, lambda done: on_progress("rows", done))
        if against:
            findings = check_source(against, ExportFolder(folder, ledger, reader), problems, lambda done: on_progress("graphs", done))
    counts = {
        "rows": rows,
        "sessions": len({sample.session for sample in ledger.samples}),
        "samples": len(ledger.samples),
        "sampled": sum(sample.sampled for sample in ledger.samples),
        "trained": sum(sample.trained for sample in ledger.samples),
        "excluded": sum(end - start for sample in ledger.samples for start, end, _ in sample.excluded),
    }
    return VerifyReport(folder, ledger.format, problems.close(), counts, *describe_proof(ledger, findings))


FORMATS_WITHOUT_POLICY = frozenset({"agentlightning", "verifiers"})
"""Formats whose rows do not say one by one whether they are on policy."""


def _check_rows(exported_rows: Iterator[Exported], ledger: LedgerIndex, problems: ProblemList, on_row: Callable[[int], None]) -> int:
    """Compare the rows with the ledger; return how many there are."""
    rows, off_policy = 0, set[int]()
    try:
        for exported in exported_rows:
            rows += 1
            on_row(rows)
            if exported.on_policy is False:
                off_policy.add(exported.row)
            match exported:
                case ExportedRow():
                    check_linear(exported, ledger, problems)
                case ExportedTree():
                    check_tree(exported, ledger, problems)
                case ExportedConversation():
                    check_turns(exported, ledger, problems)
    except UnreadableFile as error:
        problems.add(error.reason, file=error.file)
    if rows != ledger.manifest["rows"]:
        problems.add(f"the manifest says rows is {ledger.manifest['rows']}, the files have {rows}", file=FILE_NAME)
    for row, samples in ledger.by_row.items():
        if row >= rows:
            what = f"trained in row {row}, which the files do not have"
            problems.add(what, file=FILE_NAME, line=samples[0].line, sample=samples[0].sample)
    _check_policies(ledger, off_policy, problems)
    return rows


def _check_policies(ledger: LedgerIndex, off_policy: set[int], problems: ProblemList) -> None:
    """Count again what the manifest says is trained on and off policy: a row counts as the row itself says."""
    counts = {name: {"rows": 0, "samples": 0, "tokens": 0} for name in ("on_policy", "off_policy")}
    for row, samples in ledger.by_row.items():
        count = counts["off_policy" if row in off_policy else "on_policy"]
        count["rows"] += 1
        count["samples"] += len(samples)
        count["tokens"] += sum(sample.trained for sample in samples)
    stated = ledger.manifest["trained"]
    if ledger.format in FORMATS_WITHOUT_POLICY:
        counts, stated = _totals(counts), _totals(stated)
    if stated != counts:
        problems.add(f"the manifest says trained is {stated}, the rows give {counts}", file=FILE_NAME)


def _totals(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {"all": {name: sum(count[name] for count in counts.values()) for name in ("rows", "samples", "tokens")}}
