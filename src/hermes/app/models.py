"""Backends, ready for calls: one builder for each kind. Opens no connection, and reads no file but the script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes.app.catalogue import OPENAI_URL, backend_kind, backends_of, catalogue_from, reason_missing
from hermes.app.packs import packs_from, script_from
from hermes.backends import (
    LLAMA_CPP,
    OPENAI,
    PLAIN,
    SGLANG,
    VLLM,
    AnthropicBackend,
    BadScript,
    ClaudeLocal,
    CodexLocal,
    Dialect,
    HttpClient,
    OllamaBackend,
    OpenAICompatibleBackend,
    Script,
    ScriptedBackend,
)
from hermes.backends.local import LocalBackend
from hermes.config import BackendKind, BackendSettings, Settings, kind_of_backend
from hermes.gateway.catalogue import ModelCatalogue
from hermes.packs import Pack
from hermes.ports.backends import Backend, Capabilities
from hermes.ports.errors import StartRefused

ANTHROPIC_URL = "https://api.anthropic.com"
OLLAMA_URL = "http://127.0.0.1:11434"
DEFAULT_LOCAL_CONTEXT_TOKENS = 4_096
"""Tokens of context for `local` if the settings of no model say; a larger context takes more memory."""


def backends_from(settings: Settings, client: HttpClient) -> dict[str, Backend]:
    """Return every backend that can be asked, by name. The caller closes the client."""
    catalogue, found = catalogue_from(settings), backends_of(settings)
    # A backend of a kind without a builder is refused if the settings name it or a chain uses it, and left out otherwise.
    chosen = {name for name in found if name in settings.backends or chosen_model_ids(name, settings, catalogue)}
    usable = [name for name in found if not reason_missing(name, found) and (backend_kind(found, name) in BUILDERS or name in chosen)]
    return {name: build_backend(name, settings, catalogue, client) for name in usable}


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """What a builder needs to make a backend."""

    name: str
    settings: BackendSettings
    client: HttpClient
    models: Mapping[str, Capabilities]
    needs: tuple[str, ...]
    """The model ids that a health check must find."""
    script: Path | None
    packs: Sequence[Pack]

    @property
    def key(self) -> str | None:
        return self.settings.api_key.reveal() if self.settings.api_key is not None else None


Builder = Callable[[BackendSpec], Backend]


def build_anthropic(spec: BackendSpec) -> Backend:
    url = spec.settings.base_url or ANTHROPIC_URL
    return AnthropicBackend(spec.client, spec.key or "", url, name=spec.name, models=spec.models, needs=spec.needs)


def chat_completions_builder(dialect: Dialect) -> Builder:
    def build(spec: BackendSpec) -> Backend:
        url = spec.settings.base_url or OPENAI_URL
        return OpenAICompatibleBackend(spec.client, url, spec.key, spec.name, dialect, models=spec.models, needs=spec.needs)

    return build


def build_ollama(spec: BackendSpec) -> Backend:
    url = spec.settings.base_url or OLLAMA_URL
    return OllamaBackend(spec.client, url, name=spec.name, api_key=spec.key, models=spec.models, needs=spec.needs)


def build_scripted(spec: BackendSpec) -> Backend:
    try:
        script = Script.load(spec.script) if spec.script is not None else script_from(spec.packs)
    except BadScript as error:
        raise StartRefused(f"llm.script: {error}") from None
    return ScriptedBackend(script, name=spec.name, models=spec.models)


def build_local(spec: BackendSpec) -> Backend:
    context = max((can.context for can in spec.models.values() if can.context is not None), default=DEFAULT_LOCAL_CONTEXT_TOKENS)
    return LocalBackend(spec.settings.model_path, name=spec.name, threads=spec.settings.threads, context=context)


def build_claude_local(spec: BackendSpec) -> Backend:
    return ClaudeLocal(spec.settings.command or ("claude",), name=spec.name, cwd=spec.settings.cwd, models=spec.models)


def build_codex_local(spec: BackendSpec) -> Backend:
    return CodexLocal(spec.settings.command or ("codex",), name=spec.name, cwd=spec.settings.cwd, models=spec.models)


BUILDERS: Mapping[BackendKind, Builder] = {
    BackendKind.ANTHROPIC: build_anthropic,
    BackendKind.OPENAI: chat_completions_builder(OPENAI),
    BackendKind.VLLM: chat_completions_builder(VLLM),
    BackendKind.SGLANG: chat_completions_builder(SGLANG),
    BackendKind.LLAMA_CPP: chat_completions_builder(LLAMA_CPP),
    BackendKind.PLAIN: chat_completions_builder(PLAIN),
    BackendKind.OLLAMA: build_ollama,
    BackendKind.SCRIPTED: build_scripted,
    BackendKind.CLAUDE_LOCAL: build_claude_local,
    BackendKind.CODEX_LOCAL: build_codex_local,
    BackendKind.LOCAL: build_local,
}
"""Makes a backend of each kind."""


def build_backend(name: str, settings: Settings, catalogue: ModelCatalogue, client: HttpClient) -> Backend:
    entry = backends_of(settings)[name]
    kind = kind_of_backend(name, entry)
    if kind is None:
        raise StartRefused(f"backends.{name}.kind is missing; expected one of {', '.join(BackendKind)}")
    spec = BackendSpec(
        name,
        entry,
        client,
        models=catalogue.capabilities_of(name),
        needs=chosen_model_ids(name, settings, catalogue),
        script=settings.llm.script,
        packs=packs_from(settings),
    )
    return BUILDERS[kind](spec)


def chosen_model_ids(backend: str, settings: Settings, catalogue: ModelCatalogue) -> tuple[str, ...]:
    """Return the ids of a backend's models that a chain uses or the settings name."""
    names = {*settings.models, *(name for tier in catalogue.tiers.values() for name in tier.chain)}
    return tuple(dict.fromkeys(model.id for name, model in catalogue.models.items() if name in names and model.backend == backend))
