"""TRL rows: labels where trained, extra columns beside them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hermes.trajectories.formats.trl import TrlWriter
from tests.unit.trajectories.samples import TRAINED_TOKENS, P, written

NO = -100


def test_labels_are_the_tokens_of_one_sample_each(tmp_path: Path) -> None:
    table = pq.read_table(written(tmp_path / "out", "trl", TrlWriter) / "rows.parquet")
    assert (table.schema.field("input_ids").type, table.schema.field("labels").type) == (pa.list_(pa.int32()), pa.list_(pa.int64()))
    rows = table.to_pylist()
    assert [(row["samples"], row["input_ids"], row["labels"]) for row in rows] == [
        (["ask", "answer"], [*P, 20, 21, 22, 23, 30, 31, 32, 24, 25, 26], [*[NO] * 6, 20, 21, 22, 23, NO, NO, NO, 24, 25, 26]),
        (["fork"], [*P, 20, 21, 22, 23, 40, 41, 27, 28], [*[NO] * 12, 27, 28]),
        (["twin-1"], [*P, 50, 60, 61], [*[NO] * 7, 60, 61]),
        (["twin-2"], [*P, 50, 60, 61], [*[NO] * 7, 60, 61]),
        (["odd-1"], [*P, 51, 62], [*[NO] * 7, 62]),
        (["odd-2"], [*P, 51, 62], [*[NO] * 7, 62]),
        (["whole"], [*P, 52, 63, 64, 65], [*[NO] * 7, 63, 64, 65]),
        (["rest"], [*P, 52, 63, 64, 65], [*[NO] * 8, 64, 65]),
        (["tail"], [*P, 53, 70, 71], [*[NO] * 7, 70, 71]),
        (["inner"], [90, 91, 92], [NO, NO, 92]),
        (["other"], [*P, 80, 81], [*[NO] * 6, 80, 81]),
        (["plain"], [1, 2, 3, 4], [NO, NO, 3, 4]),
    ]
    assert sum(label != NO for row in rows for label in row["labels"]) == TRAINED_TOKENS
    assert [row["row"] for row in rows] == list(range(12))


def test_what_is_known_of_a_row_stands_beside_it(tmp_path: Path) -> None:
    rows = pq.read_table(written(tmp_path / "out", "trl", TrlWriter) / "rows.parquet").to_pylist()
    first = {key: value for key, value in rows[0].items() if key not in {"input_ids", "labels"}}
    assert first == {
        "session": "s",
        "rollout": "s",
        "row": 0,
        "tokenizer": "",
        "logprobs": [*[0.0] * 6, -0.125, -0.5, -1.0625, -0.03125, 0.0, 0.0, 0.0, -0.25, -2.0, -0.0078125],
        "weight": [*[0.0] * 6, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        "advantages": [*[0.0] * 6, 0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        "reward": 1.0,
        "loss_scale": 1 / 23,
        "on_policy": True,
        "samples": ["ask", "answer"],
        "policy_spans": [{"version": "17", "start": 6, "end": 10}, {"version": "18", "start": 13, "end": 16}],
    }
    assert [(row["rollout"], row["reward"], row["loss_scale"]) for row in rows[-2:]] == [("r2", -1.0, 0.5), ("t", None, 0.5)]
