"""A Ray cluster of this machine, for the tests that need one."""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 120


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Ray cluster with one machine, this one."""
    port, client = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        command = [
            *(
                str(Path(sys.executable).with_name("ray")),
                "start",
                "--head",
                "--block",
                "--disable-usage-stats",
                "--include-dashboard=false",
            ),
            *(f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=2", f"--temp-dir={folder}"),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as head:
            try:
                wait_for(f"ray://127.0.0.1:{client}")
                yield f"ray://127.0.0.1:{client}"
            finally:
                head.terminate()
                head.wait(PATIENCE_S)


def wait_for(address: str) -> None:
    """Connect as a client does, until that succeeds. The port is open long before; a client that comes too early is refused."""
    connect = [sys.executable, "-c", "import ray, sys; ray.init(sys.argv[1], log_to_driver=False)", address]
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        if subprocess.run(connect, capture_output=True, check=False, timeout=PATIENCE_S).returncode == 0:
            return
        time.sleep(0.2)
    raise TimeoutError(f"no cluster at {address}")
