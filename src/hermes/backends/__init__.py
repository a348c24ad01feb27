"""Models: over HTTP a pure codec for each vendor and one client that sends for all of them; on this machine a process.

json_fields, sse, answer_parts   read a vendor's JSON, its stream of events, and its answer
vendor_errors                    which error a vendor's refusal is
billed_usage                     token counts, with an estimate for each count that the vendor did not give
tool_calls                       ids and arguments of tool calls, and their results
http_client                      the HTTP client of all vendors, on aiohttp
http_backend                     encode, send once, decode, or raise the right error
anthropic/  openai_compatible/  ollama/    a vendor each: request.py, answer.py, backend.py
local/                           a small real model, in a process of its own
processes/                       the programs `claude` and `codex`, one run for each call
scripted/                        no model at all: answers from a script
image_fetch                      a picture from an address that a user sent, only if it is public
"""

from hermes.backends.anthropic.backend import AnthropicBackend
from hermes.backends.local.backend import LocalBackend
from hermes.backends.ollama.backend import OllamaBackend
from hermes.backends.openai_compatible.backend import OpenAICompatibleBackend
from hermes.backends.openai_compatible.dialect import DIALECTS, LLAMA_CPP, OPENAI, PLAIN, SGLANG, VLLM, Dialect
from hermes.backends.processes.claude import ClaudeLocal
from hermes.backends.processes.codex import CodexLocal
from hermes.backends.scripted.backend import ScriptedBackend
from hermes.backends.scripted.script import BadScript, Script
from hermes.http_client import HttpClient

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
