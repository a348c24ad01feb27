"""slime: `rollout_<n>.pt`, which `--load-debug-rollout-data DIR/rollout_{rollout_id}.pt` reads, one file for each training step.

The ledger's `row` counts slime's samples through all files in the order of n; it is also the sample's `index`. A sample's tokens are
`tokens`; its last `response_length` tokens have a `loss_mask`, and those with mask 1 are trained. The response begins with the first
trained token. slime has no weights, so tokens shared by several samples come in several samples of the file (see `unweighted_rows`). All
rows of a rollout have the same `rollout_id`, so that slime's loss, which is normalised per rollout, counts forks and repetitions as one.

A file holds whole sessions, and is closed when it holds a million tokens. `reward` is the rollout's, 0.0 if none was annotated
(slime takes no null; `metadata.hermes.reward` is null then); `group_index` counts sessions. Texts are left empty: slime trains on tokens.
Hermes cuts nothing. slime normalises rewards by groups only if there are n_samples_per_prompt * rollout_batch_size rows; if forks
make more rows, pass `--custom-reward-post-process-path`.

The files are written without torch, and the same values give the same bytes. Each is a zip of stored entries, one of them a pickle of
protocol 2. It loads with `weights_only` on and off. It holds None, bool, int, float, str, list and dict, and no tensors."""

from __future__ import annotations

import io
import pickle  # only written, never read
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hermes.trajectories.formats.parquet import arrays
from hermes.trajectories.formats.unweighted_rows import provenance, unweighted_rows
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, RolloutPlan, SessionPlan
from hermes.trajectories.rows import Row

PICKLE_PROTOCOL = 2
"""The only protocol that `weights_only=True` reads without a warning."""


def write_torch(path: Path, value: Any) -> None:
    """Write `value`, a tree of plain Python values, as `torch.save` would."""
    entries = {
        "data.pkl": _pickle_value(value),
        ".format_version": b"1",
        ".storage_alignment": b"64",
        "byteorder": b"little",
        "version": b"3\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(f"archive/{name}")  # dated 1980, the zip format's first day
            entry.create_system = 0  # the bytes must not depend on the operating system
            file.writestr(entry, data)


def _pickle_value(value: Any) -> bytes:
    data = io.BytesIO()
    pickler = pickle.Pickler(data, protocol=PICKLE_PROTOCOL)
    # No memo: with a memo the bytes depend on which equal values are the same object.
    pickler.fast = True
    pickler.dump(value)
    return data.getvalue()


FILE_NAME = "rollout_{rollout_id}.pt"


class SlimeWriter:
    """Gathers samples, and writes a file whenever it has enough tokens."""

    untrained = "not written by this format"
    step_tokens = 1_000_000
    """A file is written once it holds this many tokens: memory stays bounded, and a training step does not become too large."""

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._steps = SlimeFiles(folder, self.step_tokens)
        self.files = (self._steps,)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        samples: list[dict[str, Any]] = []
        names = dict.fromkeys(rollout.rollout for rollout in plan.rollouts if rollout.rows)
        for number, name in enumerate(names, start=self._steps.rollouts):
            for rollout in plan.rollouts:
                if rollout.rollout == name:
                    yield from self._gather(rollout, number, samples)
        self._steps.add(samples, len(names))

    def _gather(self, rollout: RolloutPlan, number: int, samples: list[dict[str, Any]]) -> Iterator[Placement]:
        for row in unweighted_rows(rollout):
            ids = {"index": self.rows, "group_index": self._steps.sessions, "rollout_id": number}
            samples.append(record(row, rollout) | ids)
            for call in row.calls:
                yield Placement(call, {"row": self.rows, "start": call.start, "end": call.end})
            self.rows += 1

    def close(self) -> None:
        self._steps.close()


class SlimeSession(NamedTuple):
    """The samples of one session, and the number of their rollouts."""

    samples: list[dict[str, Any]]
    rollouts: int


class SlimeFiles:
    """Files of samples, each closed after the session that fills it; without a folder, the sessions are kept in memory."""

    def __init__(self, folder: Path | None, step_tokens: int) -> None:
        self._folder = folder
        self._step_tokens = step_tokens
        self._kept: list[SlimeSession] = []
        self._samples: list[dict[str, Any]] = []
        self._tokens = 0
        self._files = 0
        self.sessions = 0
        self.rollouts = 0

    def add(self, samples: list[dict[str, Any]], rollouts: int) -> None:
        """Add a session whose samples are numbered after those of the sessions before."""
        self.sessions += 1
        self.rollouts += rollouts
        if self._folder is None:
            self._kept.append(SlimeSession(samples, rollouts))
            return
        self._samples += samples
        self._tokens += sum(len(sample["tokens"]) for sample in samples)
        if self._tokens >= self._step_tokens:
            self._flush(self._folder)

    def part(self) -> list[SlimeSession]:
        return self._kept

    def take(self, part: list[SlimeSession], first_row: int) -> None:
        before = {"index": first_row, "group_index": self.sessions, "rollout_id": self.rollouts}
        for session in part:
            for sample in session.samples:
                sample |= {key: sample[key] + count for key, count in before.items()}
            self.add(session.samples, session.rollouts)

    def close(self) -> None:
        if self._folder is not None and (self._samples or not self._files):
            self._flush(self._folder)

    def _flush(self, folder: Path) -> None:
        write_torch(folder / FILE_NAME.format(rollout_id=self._files), {"rollout_id": self._files, "samples": self._samples})
        self._samples, self._tokens = [], 0
        self._files += 1


def record(row: Row, rollout: RolloutPlan) -> dict[str, Any]:
    """Return one sample as slime's `Sample.from_dict` takes it, without `index`, `group_index` and `rollout_id`."""
    columns = arrays(row)
    start = row.calls[0].start
    return {
        "prompt": "",
        "tokens": np.frombuffer(row.tokens, np.int32).tolist(),
        "response": "",
        "response_length": row.length - start,
        "label": None,
        "reward": row.calls[0].rollout_reward or 0.0,
        "loss_mask": columns["mask"][start:].astype(int).tolist(),
        "rollout_log_probs": columns["logprobs"][start:].tolist(),
        "weight_versions": list(dict.fromkeys(version for call in row.calls for version, _, _ in call.policy_spans)),
        "remove_sample": False,
        "status": "completed",
        "session_id": row.session,
        "metadata": {"hermes": provenance(row, rollout)},
    }
