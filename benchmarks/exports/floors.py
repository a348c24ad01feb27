"""What the least possible work takes: the floors beside whole exports. Each returns the CPU seconds of its fastest run.

Floors check nothing, keep no ledger and know no versions. No export can be as fast; the distance says what the rest costs."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt", "tool": "tool"}
TOKEN_FIELDS = ("prompt_token_ids", "token_ids", "logprobs")


def fastest(job: Callable[[], Any], repeats: int) -> float:
    took = []
    for _ in range(repeats):
        start = time.process_time()
        job()
        took.append(time.process_time() - start)
    return min(took)


def plain_python(file: Path, out: Path) -> None:
    """Read every graph, and write its messages as a ShareGPT conversation: `json.loads`, a loop, `json.dumps`."""
    with file.open("rb") as lines, out.open("w", encoding="ascii") as written:
        for line in lines:
            graph = json.loads(line)["graphs"][-1]
            turns = [{"from": SPEAKERS[message["role"]], "value": message["content"]} for message in graph["messages"][: graph["length"]]]
            written.write(json.dumps({"conversations": turns, "tools": "[]", "source": "hermes-agent"}) + "\n")


DUCKDB_QUERY = """
COPY (
    SELECT list_transform(
               from_json(json_extract(graphs[-1], '$.messages'), '[{"role": "VARCHAR", "content": "VARCHAR"}]'),
               lambda message: {'from': CASE message.role WHEN 'user' THEN 'human' WHEN 'assistant' THEN 'gpt' ELSE message.role END,
                           'value': message.content}) AS conversations,
           '[]' AS tools, 'hermes-agent' AS source
    FROM read_json('{file}', format = 'newline_delimited', columns = {graphs: 'JSON[]'}, maximum_object_size = 1000000000)
) TO '{out}' (FORMAT json)
"""


def duckdb(file: Path, out: Path) -> Callable[[], Any] | None:
    """Return the same conversion as one query on one thread; None if DuckDB is not installed."""
    try:
        module = importlib.import_module("duckdb")
    except ImportError:
        return None
    connection = module.connect(config={"threads": 1})
    query = DUCKDB_QUERY.replace("{file}", str(file)).replace("{out}", str(out))
    return lambda: connection.execute(query)


def bare_tokens(file: Path, exported: Path, out: Path) -> Callable[[], None]:
    """Return the least work on tokens: decode every graph's JSON and base64, hash each call's prompt and completion, write the finished
    table as Parquet. `exported` is the Parquet file of the export; it is read before."""
    table = pq.read_table(exported)

    def work() -> None:
        with file.open("rb") as lines:
            for line in lines:
                calls: dict[Any, bytes] = {}
                number = 0
                for graph in json.loads(line)["graphs"]:
                    for response in graph["responses"]:
                        calls[number] = _hash_call(response.get("call") or {}, calls)
                        number += 1
        pq.write_table(table, out, compression="zstd")

    return work


def _hash_call(call: dict[str, Any], calls: dict[Any, bytes]) -> bytes:
    prompt, completion, _ = (_decode(call.get(field)) for field in TOKEN_FIELDS)
    known = call.get("prompt_token_ids") or {}
    if "from" in known:
        prompt = calls[known["from"]][: known["shared"] * 4] + prompt
    hashlib.sha256(prompt).digest()
    hashlib.sha256(completion).digest()
    return prompt + completion


def _decode(value: dict[str, Any] | None) -> bytes:
    return base64.b64decode(value.get("int32") or value.get("float32") or "") if value else b""
