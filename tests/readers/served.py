"""Hermes as its users run it, in a process and an environment of its own: the judges in this folder need not share one with it."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERMES = ROOT / ".venv" / "bin" / "hermes"


@dataclass(frozen=True)
class Served:
    """A running Hermes."""

    url: str
    home: Path
    config: Path

    def hermes(self, *arguments: str) -> str:
        """Run a command beside it; return what it prints."""
        command = [HERMES, *arguments]
        return subprocess.run(
            command, env=environ(self.home, self.config), cwd=self.home, check=True, capture_output=True, text=True
        ).stdout

    def key(self, *options: str) -> str:
        """A new API key."""
        secret: str = json.loads(self.hermes("keys", "create", "judge", "--json", *options))["secret"]
        return secret


@contextmanager
def served(toml: str) -> Iterator[Served]:
    """Run `hermes serve` with these settings and embedded stores until the block ends."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        home, config = Path(folder) / "home", Path(folder) / "hermes.toml"
        home.mkdir()
        config.write_text(toml, encoding="utf-8")
        with subprocess.Popen([HERMES, "serve"], env=environ(home, config), stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Served(ready(process), home, config)
            finally:
                process.terminate()


def environ(home: Path, config: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HERMES_HOME": str(home), "HERMES_CONFIG": str(config), "HERMES_WEB_PORT": "0"}


def ready(process: "subprocess.Popen[str]") -> str:
    """Wait until it says where it is."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Hermes is ready: "):
            return line.split()[3].rstrip("/")
    raise AssertionError("hermes serve did not start")
