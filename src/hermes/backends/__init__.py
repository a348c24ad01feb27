"""Models: over HTTP a pure codec for each vendor and one client that sends for all of them; on this machine a process.

vendor_answers                   read a vendor's JSON, its stream of events and its answer; the usage to bill
vendor_errors                    which error a vendor's refusal is
tool_calls                       ids and arguments of tool calls, and their results
http_backend                     encode, send once (`hermes.http_client`), decode, or raise the right error
anthropic  anthropic_request     Claude: the backend with its answers, and its requests
openai_compatible  openai_answer OpenAI and servers like it: the backend with its requests, and its answers
ollama                           Ollama
local  local_weights  local_engine   a small real model, in a process of its own
processes/                       the programs `claude` and `codex`, one run for each call
scripted/                        no model at all: answers from a script
embeddings                       the embedding model of the memory, for clients that want vectors
image_fetch                      a picture from an address that a user sent, only if it is public
"""

from hermes.backends.anthropic import AnthropicBackend
from hermes.backends.local import LocalBackend
from hermes.backends.ollama import OllamaBackend
from hermes.backends.openai_compatible import DIALECTS, LLAMA_CPP, OPENAI, PLAIN, SGLANG, VLLM, Dialect, OpenAICompatibleBackend
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
