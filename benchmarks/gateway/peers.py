"""The other gateways and clients, each in an environment of its own under .benchmarks/: they do not agree on their dependencies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gateway.machine import ROOT


@dataclass(frozen=True, slots=True)
class Peer:
    """A library, and what is installed for it. uvloop with all of them: they are measured on the same event loop."""

    name: str
    client: str
    """Its module in `clients`."""
    title: str
    package: str
    wanted: tuple[str, ...]

    @property
    def home(self) -> Path:
        return ROOT / ".benchmarks" / self.name

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    def install(self) -> None:
        """Make the environment hold what is wanted, unless it does. Minutes."""
        stamp, wanted = self.home / "installed.txt", "\n".join(self.wanted)
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return
        print(f"installing {', '.join(self.wanted)} into {self.home.relative_to(ROOT)} (minutes)…", file=sys.stderr, flush=True)
        shutil.rmtree(self.home, ignore_errors=True)
        install = [self.python, "-I", "-m", "pip", "install", "--compile", "--disable-pip-version-check", *self.wanted]
        for command in ([sys.executable, "-I", "-m", "venv", str(self.home)], install):
            told = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own commands
            if told.returncode:
                raise SystemExit(f"{told.stdout}{told.stderr}\ncould not install {self.name}; what the installer said is above")
        stamp.write_text(wanted, encoding="utf-8")  # last: an install that was broken off is done over

    def version(self) -> str:
        asked = f"from importlib.metadata import version; print(version({self.package!r}))"
        told = subprocess.run([self.python, "-I", "-c", asked], check=True, capture_output=True, text=True)  # noqa: S603
        return told.stdout.strip()


# Without opentelemetry-sdk the proxy looks for it again at every request, which costs it a third of its time; so it is given it.
LITELLM = Peer(
    "litellm", "litellm_router", "LiteLLM Router with fallbacks", "litellm", ("litellm[proxy]==1.106.2", "opentelemetry-sdk", "uvloop")
)
LANGCHAIN = Peer("langchain", "langchain_fallbacks", "LangChain with_fallbacks", "langchain-openai", ("langchain-openai==1.7.3", "uvloop"))
PYDANTIC_AI = Peer(
    "pydantic-ai", "pydantic_ai_fallback", "pydantic-ai FallbackModel", "pydantic-ai-slim", ("pydantic-ai-slim[openai]==2.66.0", "uvloop")
)


@dataclass(frozen=True, slots=True)
class NodePeer:
    """A server for Node, out of npm."""

    name: str
    package: str
    wanted: str
    script: str
    """What Node runs, below the package."""

    @property
    def home(self) -> Path:
        return ROOT / ".benchmarks" / self.name

    @property
    def _package(self) -> Path:
        return self.home / "node_modules" / self.package

    @property
    def command(self) -> tuple[str, ...]:
        return "node", str(self._package / self.script)

    def install(self) -> None:
        """Install the wanted version, unless it is there."""
        if (self._package / "package.json").exists() and self.version() == self.wanted:
            return
        told_what = f"{self.package}@{self.wanted}"
        print(f"installing {told_what} into {self.home.relative_to(ROOT)}…", file=sys.stderr, flush=True)
        shutil.rmtree(self.home, ignore_errors=True)
        command = ["npm", "install", "--prefix", str(self.home), "--ignore-scripts", "--no-audit", "--no-fund", told_what]
        told = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
        if told.returncode:
            raise SystemExit(f"{told.stdout}{told.stderr}\ncould not install {self.name}; what npm said is above")

    def version(self) -> str:
        return str(json.loads((self._package / "package.json").read_text(encoding="utf-8"))["version"])


PORTKEY = NodePeer("portkey", "@portkey-ai/gateway", "1.15.2", "build/start-server.js")
PEERS = (LITELLM, LANGCHAIN, PYDANTIC_AI)
