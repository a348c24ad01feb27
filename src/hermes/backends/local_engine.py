"""The program that runs the model: llama.cpp's own server on a port of this machine. Started by its path; imports nothing of Hermes.

    python local_engine.py '{"model": "/…/model.gguf", "name": "…", "threads": 1, "context": 4096}'

Prints one line, `{"address": …, "key": …}` or `{"error": …}`, and ends when its standard input does. So it never outlives the process
that started it, however that process ends. It makes the key and prints it once: other users of this machine can reach the port, but not
use it."""

from __future__ import annotations

import json
import os
import secrets
import sys
from typing import Any

import xllamacpp  # type: ignore[import-untyped]  # it has no types

MAX_WAITING_REQUESTS = 64
"""Requests that may wait for the model at once, each in a thread of the server; later requests wait for a thread."""


def main() -> None:
    # Standard output gets this one line only: everything that the libraries print goes to standard error.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        server, key = serve(json.loads(sys.argv[1]))
    except (RuntimeError, ValueError, MemoryError) as error:
        message = {"error": " ".join(str(error).split()) or type(error).__name__}
    else:
        message = {"address": server.listening_address, "key": key}
    with output:
        output.write(json.dumps(message) + "\n")
    while "address" in message and os.read(0, 4096):
        pass
    os._exit(0)  # a normal exit would wait for the server's threads, and one of them may be in the middle of an answer


def serve(options: dict[str, Any]) -> tuple[Any, str]:
    """Load the model and start to listen. This holds Python's lock all the time, so the engine is a process of its own."""
    key = secrets.token_urlsafe(32)
    params = xllamacpp.CommonParams()
    params.model.path = options["model"]
    params.model_alias = {options["name"]}
    params.n_ctx = options["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.n_threads_http = MAX_WAITING_REQUESTS
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    params.endpoint_slots = False  # it would show the prompts of other requests
    params.cache_ram_mib = 0  # by default the server keeps gigabytes of earlier prompts
    params.warmup = False
    params.verbosity = -1
    return xllamacpp.Server(params), key


if __name__ == "__main__":
    main()
