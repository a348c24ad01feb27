"""Read the ledger without trusting it: each line is parsed strictly, each count is made again, the Merkle root is computed again.

    first line   {"ledger": "hermes.trajectories", "version": 1, "settings", "files", "rows", "sessions", "samples", "duplicates",
                  "tokens": {"sampled", "trained", "excluded"}, "trained": {"on_policy" | "off_policy": {"rows", "samples", "tokens"}},
                  "nonzero_advantages", "excluded": {reason: {"samples", "tokens"}}, "merkle_root"}
    other lines  {"sample", "response", "session", "rollout", "tokenizer", "sampled", "prompt": {"length", "sha256"},
                  "completion": {"length", "sha256"}, "trained": [where], "excluded": [{"start", "end", "reason"}]}

A Merkle leaf is the SHA-256 of a zero byte and the line of JSON (sorted keys, no spaces, ASCII, newline) without `trained` and
`excluded`. Leaves are sorted by sample id, then by digest; a pair is the SHA-256 of the byte 1 and both digests; an odd digest moves up
unhashed; the root of an empty ledger is the SHA-256 of nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.verify.report import ProblemList

FILE_NAME = "ledger.jsonl"
SIGNATURE_FILE = "ledger.sig"
"""The signature of the ledger; no manifest can list it, because it is made last."""
VERSION = 1
NAME_TAKEN = "sample id used by another sample"
"""The only reason with which a sample id may come again: another sample had the id first, so this one is not trained."""

IDENTITY = ("sample", "response", "session", "rollout", "tokenizer", "sampled", "prompt", "completion")
KEYS = frozenset({*IDENTITY, "trained", "excluded"})
MANIFEST_KEYS = (
    *("ledger", "version", "settings", "files", "rows", "sessions", "samples", "duplicates", "tokens", "trained"),
    *("nonzero_advantages", "excluded", "merkle_root", "source_root"),
)
PLACES = ({"row", "start", "end"}, {"row", "segments"}, {"row", "turn", "sha256", "context"})
"""The fields that say where a sample is trained: in a row, a tree, a conversation."""
POLICY_VALUES = {
    "keep": ("all", "accepted"),
    "retries": ("all", "last"),
    "derived": ("exclude", "include"),
    "scripted": ("exclude", "include"),
    "advantages": ("reward", "group", "grpo"),
}
"""The values of each policy in the settings; beside them there are `policy_versions` and `rewards`."""


class NotAnExport(TrajectoryError):
    """This folder is not what hermes export writes."""


@dataclass(frozen=True, slots=True)
class TokenFingerprint:
    """Length and SHA-256 of some tokens."""

    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One line of the ledger."""

    line: int
    sample: str
    response: str
    session: str
    rollout: str
    tokenizer: str
    sampled: int
    prompt: TokenFingerprint
    completion: TokenFingerprint
    where: Mapping[str, Any] | None
    """Where it is trained, in the form of its format; None if nothing of it is trained."""
    excluded: tuple[tuple[int, int, str], ...]

    @property
    def trained(self) -> int:
        """How many tokens, from the front, are trained: those that no exclusion covers."""
        if self.where is None:
            return 0
        return self.sampled - sum(end - start for start, end, _ in self.excluded)


@dataclass(slots=True)
class LedgerIndex:
    """The whole ledger, indexed for the other checks."""

    manifest: Mapping[str, Any]
    samples: list[LedgerLine] = field(default_factory=list)
    by_row: dict[int, list[LedgerLine]] = field(default_factory=dict)
    by_response: dict[str, LedgerLine] = field(default_factory=dict)
    rollout_tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    """Trained tokens by session and rollout."""

    @property
    def format(self) -> str:
        return str(self.manifest["settings"]["format"])


def read_ledger(folder: Path, problems: ProblemList, on_line: Callable[[int], None] = lambda _: None) -> LedgerIndex:
    """Read and recount the ledger, and note every problem in it; raise NotAnExport if there is no ledger."""
    path = folder / FILE_NAME
    if not folder.is_dir():
        raise NotAnExport(f"{folder}: no such folder")
    if not path.is_file():
        raise NotAnExport(f"{folder}: no {FILE_NAME} in it, so this is not an export")
    with path.open("rb") as lines:
        ledger = LedgerIndex(_manifest(lines.readline(), path))
        for number, text in enumerate(lines, start=2):
            on_line(number - 1)
            try:
                sample = _sample(text, number)
            except _BadLine as bad:
                problems.add(str(bad), file=FILE_NAME, line=number)
                continue
            _enter(sample, ledger, problems)
    _recount(ledger, problems)
    return ledger


def strict_json(text: bytes | str) -> Any:
    """Parse JSON; raise ValueError for what Python's reader takes and others read in another way: NaN, infinities, a key twice."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return value


class _BadLine(Exception):
    """A line of the ledger is malformed; the message says how."""


def _manifest(text: bytes, path: Path) -> Mapping[str, Any]:
    try:
        manifest = strict_json(text)
    except (ValueError, RecursionError):
        raise NotAnExport(f"{path}: the first line is not JSON, so this is not an export") from None
    if not isinstance(manifest, dict) or manifest.get("ledger") != "hermes.trajectories":
        raise NotAnExport(f"{path}: the first line is not a manifest of hermes.trajectories")
    if manifest.get("version") != VERSION:
        raise NotAnExport(f"{path}: version {manifest.get('version')!r} of the ledger; this hermes knows version {VERSION}")
    try:
        _check_settings(_typed_value(manifest, "settings", dict))
        _check_keys(manifest, MANIFEST_KEYS)
        for key in ("files", "excluded", "tokens"):
            _typed_value(manifest, key, list if key == "files" else dict)
        _check_keys(_typed_value(manifest, "trained", dict), ("on_policy", "off_policy"))
        for trained in manifest["trained"].values():
            _check_keys(trained, ("rows", "samples", "tokens"))
            for key in trained:
                _count(trained, key)
        for key in ("rows", "sessions", "samples", "duplicates", "nonzero_advantages"):
            _count(manifest, key)
        _check_keys(manifest["tokens"], ("sampled", "trained", "excluded"))
        for key in ("sampled", "trained", "excluded"):
            _count(manifest["tokens"], key)
        _typed_value(manifest, "merkle_root", str)
        _typed_value(manifest, "source_root", str)
    except _BadLine as bad:
        raise NotAnExport(f"{path}: the manifest is broken: {bad}") from None
    return manifest


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Raise _BadLine for settings that `hermes export` does not know."""
    _check_keys(settings, ("format", "policies", "source", "tokenizer", "is_bare"))
    for key in ("format", "source"):
        _typed_value(settings, key, str)
    if not isinstance(settings["tokenizer"], str | None):
        raise _BadLine("`tokenizer` should be a name")
    if _typed_value(settings, "is_bare", bool) and settings["format"] != "sharegpt":
        raise _BadLine("only rows of sharegpt can be bare")
    policies = _typed_value(settings, "policies", dict)
    _check_keys(policies, (*POLICY_VALUES, "policy_versions", "rewards"))
    for key, values in POLICY_VALUES.items():
        if policies[key] not in values:
            raise _BadLine(f"`{key}` should be one of {', '.join(values)}, not {policies[key]!r}")
    versions = policies["policy_versions"]
    if versions is not None and not (isinstance(versions, list) and all(isinstance(version, str) for version in versions)):
        raise _BadLine("`policy_versions` should be a list of names")
    for rule in _typed_value(policies, "rewards", list):
        if not isinstance(rule, dict):
            raise _BadLine("`rewards` should be a list of rules")
        _check_keys(rule, ("name", "value", "scope"))
        if not isinstance(rule["name"], str) or not isinstance(rule["value"], str | None) or rule["scope"] not in ("response", "rollout"):
            raise _BadLine("a rule of `rewards` needs a name, a value or null, and a scope")


def _check_keys(holder: Mapping[str, Any], keys: Collection[str]) -> None:
    if not isinstance(holder, dict) or holder.keys() != set(keys):
        found = ", ".join(sorted(holder)) if isinstance(holder, dict) else repr(holder)
        raise _BadLine(f"expected the fields {', '.join(sorted(keys))}, found {found}")


def _sample(text: bytes, number: int) -> LedgerLine:
    try:
        line = strict_json(text)
    except (ValueError, RecursionError):
        raise _BadLine("not JSON" if text.endswith(b"\n") else "cut off in the middle") from None
    if not isinstance(line, dict) or line.keys() != KEYS:
        raise _BadLine("not a sample: expected the fields " + ", ".join(sorted(KEYS)))
    for key in ("sample", "response", "session", "rollout", "tokenizer"):
        _typed_value(line, key, str)
    trained = _typed_value(line, "trained", list)
    if len(trained) > 1:
        raise _BadLine(f"sample {line['sample']!r} is trained {len(trained)} times")
    if trained and not isinstance(trained[0], dict):
        raise _BadLine("`trained` does not say where")
    return LedgerLine(
        number,
        **{key: line[key] for key in ("sample", "response", "session", "rollout", "tokenizer")},
        sampled=_count(line, "sampled"),
        prompt=_read_fingerprint(line, "prompt"),
        completion=_read_fingerprint(line, "completion"),
        where=trained[0] if trained else None,
        excluded=tuple(_exclusions(line)),
    )


def _exclusions(line: Mapping[str, Any]) -> Iterator[tuple[int, int, str]]:
    for part in _typed_value(line, "excluded", list):
        if not isinstance(part, dict) or part.keys() != {"start", "end", "reason"} or not part.get("reason"):
            raise _BadLine("an exclusion needs start, end and reason")
        yield _count(part, "start"), _count(part, "end"), _typed_value(part, "reason", str)


def _read_fingerprint(line: Mapping[str, Any], key: str) -> TokenFingerprint:
    value = _typed_value(line, key, dict)
    if value.keys() != {"length", "sha256"} or len(_typed_value(value, "sha256", str)) != 64:
        raise _BadLine(f"`{key}` needs length and sha256")
    return TokenFingerprint(_count(value, "length"), value["sha256"])


def _typed_value(holder: Mapping[str, Any], key: str, kind: type) -> Any:
    value = holder.get(key)
    if not isinstance(value, kind):
        raise _BadLine(f"`{key}` should be {kind.__name__}, not {type(value).__name__}")
    return value


def _count(holder: Mapping[str, Any], key: str) -> int:
    value = holder.get(key)
    if type(value) is not int or value < 0:
        raise _BadLine(f"`{key}` should be a count, not {value!r}")
    return value


def _enter(sample: LedgerLine, ledger: LedgerIndex, problems: ProblemList) -> None:
    complain = _complaint(sample, problems)
    if sample.completion.length > sample.sampled:
        complain(f"{sample.completion.length} tokens returned, but only {sample.sampled} sampled")
    if sample.where is None and not sample.excluded:
        complain("neither trained nor excluded")
    at = sample.trained
    if sample.where is not None and "turn" not in sample.where and at > sample.completion.length:
        complain(f"{at} tokens trained, but only {sample.completion.length} returned")
    for start, end, reason in sorted(sample.excluded):
        if start != at or end < start:
            complain(f"excluded [{start}, {end}) ({reason}) leaves a gap or an overlap: expected it to start at {at}")
        at = end
    if at != sample.sampled:
        complain(f"{sample.sampled} tokens sampled, {at} accounted for")
    if any(reason == NAME_TAKEN for _, _, reason in sample.excluded) and sample.where is not None:
        complain("trained, though another sample has its id")
    if sample.where is not None and sample.where.keys() not in PLACES:
        complain("`trained` does not say where in the form of any format")
    ledger.samples.append(sample)
    ledger.by_response.setdefault(sample.response, sample)
    if sample.where is not None:
        row = sample.where.get("row")
        if type(row) is not int or not 0 <= row < ledger.manifest["rows"]:
            complain(f"trained in row {row!r}, which does not exist")
        else:
            ledger.by_row.setdefault(row, []).append(sample)
        key = (sample.session, sample.rollout)
        ledger.rollout_tokens[key] = ledger.rollout_tokens.get(key, 0) + sample.trained


def _complaint(sample: LedgerLine, problems: ProblemList) -> Callable[[str], None]:
    return lambda what: problems.add(what, file=FILE_NAME, line=sample.line, sample=sample.sample)


def _recount(ledger: LedgerIndex, problems: ProblemList) -> None:
    """Compare the manifest with the counts of the lines."""
    manifest = ledger.manifest
    first: dict[str, LedgerLine] = {}
    taken: set[tuple[Any, ...]] = set()
    reasons: dict[str, dict[str, int]] = {}
    for sample in ledger.samples:
        known = first.setdefault(sample.sample, sample)
        if known is not sample:
            same = (sample.sample, sample.response, sample.prompt, sample.completion)
            if [reason for *_, reason in sample.excluded] != [NAME_TAKEN] or same in taken:
                _complaint(sample, problems)(f"counted twice: line {known.line} has the same sample")
            taken.add(same)
        for start, end, reason in sample.excluded:
            count = reasons.setdefault(reason, {"samples": 0, "tokens": 0})
            count["samples"] += 1
            count["tokens"] += end - start
    excluded = sum(count["tokens"] for count in reasons.values())
    sessions = len({sample.session for sample in ledger.samples})
    claims = {
        "samples": (manifest["samples"], len(ledger.samples)),
        "tokens.sampled": (manifest["tokens"]["sampled"], sum(sample.sampled for sample in ledger.samples)),
        "tokens.trained": (manifest["tokens"]["trained"], sum(sample.trained for sample in ledger.samples)),
        "tokens.excluded": (manifest["tokens"]["excluded"], excluded),
        # A session whose samples were all counted before has no line, so the manifest may state more sessions, never fewer.
        "sessions": (manifest["sessions"], max(manifest["sessions"], sessions)),
        "merkle_root": (manifest["merkle_root"], _merkle_root(ledger.samples)),
    }
    for reason in sorted(reasons.keys() | manifest["excluded"].keys()):
        stated = manifest["excluded"].get(reason)
        in_order = dict(sorted(stated.items())) if isinstance(stated, dict) else stated
        claims[f"excluded[{reason!r}]"] = (in_order, reasons.get(reason))
    for name, (stated, counted) in claims.items():
        if repr(stated) != repr(counted):
            problems.add(f"the manifest says {name} is {stated}, the lines give {counted}", file=FILE_NAME)


def _merkle_root(samples: list[LedgerLine]) -> str:
    level = [digest for _, digest in sorted((sample.sample, _leaf(sample)) for sample in samples)]
    while len(level) > 1:
        level = [
            hashlib.sha256(b"\1" + b"".join(level[at : at + 2])).digest() if at + 1 < len(level) else level[at]
            for at in range(0, len(level), 2)
        ]
    return level[0].hex() if level else hashlib.sha256().hexdigest()


def _leaf(sample: LedgerLine) -> bytes:
    known: dict[str, Any] = {key: getattr(sample, key) for key in IDENTITY}
    for key in ("prompt", "completion"):
        known[key] = {"length": known[key].length, "sha256": known[key].sha256}
    text = json.dumps(known, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(b"\0" + text.encode("ascii") + b"\n").digest()
