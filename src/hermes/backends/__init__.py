"""Models: over HTTP a pure codec for each vendor and one client that sends for all of them; on this machine a process.

shape  sse  parts                read what somebody else wrote: values, events, answers
classify  estimate  tool_calls   what vendors share: errors, counts that nobody gave, calls and their results
client                           the one file that knows aiohttp
http                             encode, send once, decode, or say which error it was
anthropic/  openai_compatible/  ollama/    a vendor each: request.py, answer.py, backend.py
local/                           a small real model, in a process of its own
processes/                       the programs `claude` and `codex`, one run for each call
scripted/                        no model at all: answers from a script
"""

from hermes.backends.anthropic.backend import AnthropicBackend
from hermes.backends.http_client import HttpClient
from hermes.backends.local.backend import LocalBackend
from hermes.backends.ollama.backend import OllamaBackend
from hermes.backends.openai_compatible.backend import OpenAICompatibleBackend
from hermes.backends.openai_compatible.dialect import DIALECTS, LLAMA_CPP, OPENAI, PLAIN, SGLANG, VLLM, Dialect
from hermes.backends.processes.claude import ClaudeLocal
from hermes.backends.processes.codex import CodexLocal
from hermes.backends.scripted.backend import ScriptedBackend
from hermes.backends.scripted.script import BadScript, Script

__all__ = [
    "DIALECTS",
    "LLAMA_CPP",
    "OPENAI",
    "PLAIN",
    "SGLANG",
    "VLLM",
    "AnthropicBackend",
    "BadScript",
    "ClaudeLocal",
    "CodexLocal",
    "Dialect",
    "HttpClient",
    "LocalBackend",
    "OllamaBackend",
    "OpenAICompatibleBackend",
    "Script",
    "ScriptedBackend",
]
