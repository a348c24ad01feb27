"""What benchmarks/gateway.py measures with: every part that takes time is a process of its own.

asking          the requests, the same for everybody
upstream_paths  the addresses of the upstream's behaviours, and the faults that are compared
upstream        a model's server that costs nearly nothing: canned answers, faults, counts
load            a closed loop of clients on raw sockets
bare_proxy      what a Python proxy costs that does nothing
targets           the servers under test: Hermes, the bare proxy, LiteLLM's proxy
calls           one client library in a fresh process: speed and faults
clients/        Hermes' gateway, LiteLLM's router, LangChain, pydantic-ai, each behind the same two methods
peers           the environments that they are installed into
served          all targets under the same loads, in turns
process         all libraries, in turns
soak            many requests of every kind through Hermes' target
machine         processes, processor time, memory, and who else is using the machine
tables          Markdown

asking, upstream_paths, calls and the peers' clients run in the peers' environments: there they have the standard library and that peer, and
not Hermes."""
