"""A run whose web process and worker are both killed with -9 is finished once, and the stream of events tells of the restarts."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.faults.tree import Tree


def call(url: str, secret: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json", "Idempotency-Key": "one"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, headers), timeout=20) as response:  # noqa: S310
        return dict(json.loads(response.read()))


def command(tree: Tree, *words: str) -> Any:
    done = subprocess.run([sys.executable, "-m", "hermes", *words, "--json"], env=tree.environ, capture_output=True, check=True)
    return json.loads(done.stdout)


def has_ended(url: str, secret: str) -> bool:
    try:
        return str(call(url, secret)["status"]) not in {"queued", "running"}
    except OSError:  # its web process is being replaced
        return False


def test_a_run_outlives_the_death_of_its_web_process_and_its_worker(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tree = Tree(Path(environ["HERMES_HOME"]), {**environ, "HERMES_WEB_PORT": str(port)})
    try:
        tree.wait_until_ready()
        secret, base = (
            command(tree, "keys", "create", "supervisor", "--account", "shop", "--scope", "runs")["secret"],
            f"http://127.0.0.1:{port}",
        )
        run = call(f"{base}/v1/runs", secret, {"input": "hello"})
        for pid in (*tree.children("worker"), *tree.children("serve")):
            os.kill(pid, signal.SIGKILL)
        where = f"{base}/v1/runs/{run['run_id']}"
        tree.wait_until(lambda: has_ended(where, secret), "the run has ended")
        assert call(where, secret)["output"] == "hello"
        assert call(f"{base}/v1/runs", secret, {"input": "hello"})["run_id"] == run["run_id"]
        assert tree.rows("select (select count(*) from inbox), (select count(*) from outbox)") == [(1, 1)]
        tree.wait_until(lambda: tree.process_events().count("process_restarted") == 2, "both restarts are written")
        told = [event["event"] for event in command(tree, "events", "--limit", "1000")["data"]]
        assert [told.count(name) for name in ("process.restarted", "credit.charged", "turn.recorded")] == [2, 1, 1]
    finally:
        tree.clear_away()
