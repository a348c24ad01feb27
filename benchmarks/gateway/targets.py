"""The servers under test: each one process, before the same upstream, with a key for each model.

The models are `bench`, which answers at once, and `slow`, after 200 ms; for a soak also `drip` and `failing`."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.asking import MAX_TOKENS, messages
from gateway.machine import first_line, module, running, tree
from gateway.peers import LITELLM, PORTKEY
from gateway.upstream_paths import address
from hermes.stores import embedded

MODELS = {"bench": "ok", "slow": "slow", "drip": "drip", "failing": "529"}
"""How the upstream behaves behind each model's name."""
START_S = 90.0


class TargetUnavailable(Exception):
    """A server that did not come up, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server that answers chat completions."""

    name: str
    port: int
    path: Mapping[str, str] = field(default_factory=dict)
    """Where a model is asked, where that is not the usual path."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """A key for each model."""
    headers: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Further headers for each model."""
    pids: tuple[int, ...] = ()
    stores: Callable[[], tuple[int, ...]] = tuple
    """The processes of its stores."""

    def path_to(self, model: str) -> str:
        return self.path.get(model, "/v1/chat/completions")


@contextmanager
def direct(upstream: int) -> Iterator[Target]:
    """The upstream itself, with no server in between."""
    yield Target(name="direct", port=upstream, path=behaviours())


@contextmanager
def bare(upstream: int) -> Iterator[Target]:
    """The floor of a proxy in Python."""
    with running(module("bare_proxy", f"http://127.0.0.1:{upstream}")) as process:
        yield Target(name="bare proxy", port=int(first_line(process)), path=behaviours(), pids=(process.pid,))


def behaviours() -> dict[str, str]:
    return {model: f"/{behaviour}/v1/chat/completions" for model, behaviour in MODELS.items()}


# --- Hermes


@contextmanager
def hermes_up(upstream: int, folder: Path) -> Iterator[Target]:
    """`hermes up`, as people run it: the web processes that it starts by itself, a worker, and its own stores."""
    port, home, log = free_port(), folder / "up", folder / "up.log"
    environ = hermes_environ(upstream, folder, home, port)
    with running([sys.executable, "-m", "hermes", "up"], environ=environ, log=log, pipes=False) as process:
        until_listening(port)
        keys = {model: hermes_key(model, environ) for model in MODELS}
        web = tuple(pid for pid in tree([process.pid]) if b"--listen-fds" in Path(f"/proc/{pid}/cmdline").read_bytes())
        name = f"Hermes, {len(web)} web processes" if len(web) > 1 else "Hermes up"
        target = Target(name=name, port=port, keys=keys, pids=web, stores=lambda: store_pids(home))
        until_answered(target, process, log)
        yield target


def until_listening(port: int) -> None:
    """Wait until both web processes have come up: the second one starts when the first one answers."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
        try:
            connection.request("GET", "/ready")
            if connection.getresponse().status == 200:
                time.sleep(4.0)
                return
        except OSError:
            time.sleep(0.1)
        finally:
            connection.close()
    raise TargetUnavailable("hermes up does not listen")


def hermes_environ(upstream: int, folder: Path, home: Path, port: int) -> dict[str, str]:
    config = folder / "hermes.toml"
    config.write_text(hermes_toml(upstream), encoding="utf-8")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HERMES_")},
        "HERMES_CONFIG": str(config),
        "HERMES_HOME": str(home),
        "HERMES_LOG_LEVEL": "warning",
        "HERMES_WEB_PORT": str(port),
    }


@contextmanager
def hermes(upstream: int, folder: Path) -> Iterator[Target]:
    """`hermes serve`, one process, with embedded stores: keys, budgets, costs, a row and a message graph for every call."""
    port = free_port()
    with embedded.run_servers(folder / "home") as stores:
        environ = {
            **hermes_environ(upstream, folder, folder / "home", port),
            "HERMES_DATABASE_URL": stores.database_url,
            "HERMES_REDIS_URL": stores.redis_url,
        }
        keys = {model: hermes_key(model, environ) for model in MODELS}
        command, log = [sys.executable, "-m", "hermes", "serve", "--with-parent"], folder / "hermes.log"
        with running(command, environ=environ, log=log, pipes=False) as process:
            target = Target(name="Hermes", port=port, keys=keys, pids=(process.pid,), stores=lambda: store_pids(folder / "home"))
            until_answered(target, process, log)
            yield target


def hermes_toml(upstream: int) -> str:
    # As many slots for one backend (two thirds) as there are clients: the others have no limit, and it is not the limit that is measured.
    return "[llm]\nslots = 96\n" + "\n".join(
        f"""
[backends.{model}]
kind = "plain"
base_url = "{address(upstream, behaviour)}"

[models.{model}]
backend = "{model}"
id = "{model}"
max_tokens = {MAX_TOKENS}

[[models.{model}.prices]]
since = 2026-01-01
input = 1.0
output = 5.0

[tiers.{model}]
chain = ["{model}"]
day_tokens = 1_000_000_000
"""
        for model, behaviour in MODELS.items()
    )


def hermes_key(tier: str, environ: Mapping[str, str]) -> str:
    # A new key has a limit of some dollars a day. 1000 is not reached, and Hermes counts all the same.
    limit = ["--usd-per-day", "1000"]
    command = [sys.executable, "-m", "hermes", "keys", "create", f"bench-{tier}", "--tier", tier, "--json", *limit]
    told = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)  # noqa: S603  # our own command
    if told.returncode:
        raise TargetUnavailable(f"Hermes: no key: {told.stderr.strip()[-300:]}")
    return str(json.loads(told.stdout)["secret"])


def store_pids(home: Path) -> tuple[int, ...]:
    """The servers that run in a home, by the files in which they say so."""
    files = [home / "stores" / "postgres" / "postmaster.pid", *home.glob("stores/**/valkey.pid")]
    return tuple(int(file.read_text(encoding="utf-8").split("\n", 1)[0]) for file in files if file.exists())


# --- LiteLLM


@contextmanager
def litellm(upstream: int, folder: Path) -> Iterator[Target]:
    """LiteLLM's proxy, one worker, no database, with a master key."""
    port, key = free_port(), f"sk-{secrets.token_hex(8)}"
    models = [
        {"model_name": model, "litellm_params": {"model": f"openai/{model}", "api_base": address(upstream, behaviour), "api_key": "none"}}
        for model, behaviour in MODELS.items()
    ]
    config, log = folder / "litellm.yaml", folder / "litellm.log"
    config.write_text(json.dumps({"model_list": models, "general_settings": {"master_key": key}}), encoding="utf-8")  # JSON is YAML
    command = [str(LITELLM.home / "bin" / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
    with running([*command, "--num_workers", "1", "--telemetry", "False"], environ=environ, log=log, pipes=False) as process:
        target = Target(name=f"LiteLLM proxy {LITELLM.version()}", port=port, keys=dict.fromkeys(MODELS, key), pids=(process.pid,))
        until_answered(target, process, log)
        yield target


# --- Portkey


@contextmanager
def portkey(upstream: int, folder: Path) -> Iterator[Target]:
    """Portkey's gateway, one process of Node. It keeps nothing: each request says in its headers where the model is."""
    port, log = free_port(), folder / "portkey.log"
    headers = {
        model: (("x-portkey-provider", "openai"), ("x-portkey-custom-host", address(upstream, behaviour)))
        for model, behaviour in MODELS.items()
    }
    with running([*PORTKEY.command, f"--port={port}", "--headless"], environ=os.environ, log=log, pipes=False) as process:
        keys = dict.fromkeys(MODELS, "none")
        target = Target(name=f"Portkey {PORTKEY.version()}", port=port, keys=keys, headers=headers, pids=(process.pid,))
        until_answered(target, process, log)
        yield target


# --- coming up


def until_answered(target: Target, process: subprocess.Popen[str], log: Path) -> None:
    """Wait for the first answer. Raises TargetUnavailable."""
    deadline, last = time.monotonic() + START_S, "nobody listens"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            raise TargetUnavailable(f"{target.name} ended with {process.returncode}: {said[-400:]}")
        try:
            status, last = asked(target)
        except OSError:
            time.sleep(0.1)
            continue
        if status == 200:
            return
        if status in {400, 401, 403, 404, 405, 422}:
            raise TargetUnavailable(f"{target.name} answers {status}: {last[:300]}")
        time.sleep(0.2)
    raise TargetUnavailable(f"{target.name} gives no answer: {last[:300]}")


def asked(target: Target) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=30)
    try:
        body = json.dumps({"model": "bench", "max_tokens": MAX_TOKENS, "messages": messages(0)})
        headers = {"content-type": "application/json", "authorization": f"Bearer {target.keys.get('bench', '')}"}
        headers |= dict(target.headers.get("bench", ()))
        connection.request("POST", target.path_to("bench"), body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
