"""The commands of `hermes`: the module of each, the extra that it needs, and its line in `hermes --help`.

Importing the service takes seconds, and `hermes --help` and `hermes graph` need none of it. So this module loads only the module of the
command that the user typed, by its name. Besides it, only packs are loaded by name (`packs.find_pack`, `pack_commands`)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.markup import escape

from hermes.cli.commands import LazyParts, app, new_app
from hermes.cli.output import complain, fail, missing_package
from hermes.event_log import FirstLine

if TYPE_CHECKING:
    from hermes.trajectories.engines import ChunkEngine
    from hermes.trajectories.source import ExportSource


class CommandModule(NamedTuple):
    """Commands that live in one module and need one extra. The module registers them in `commands.app` when it is imported."""

    module: str
    extra: str
    commands: Mapping[str, str]
    """The line of each command in `hermes --help`: the first one of its own help."""
    subcommands: Collection[str] = ()
    """Of a module with `further` ones: the subcommands that this module alone can run."""
    further: Mapping[str, Collection[str]] = MappingProxyType({})
    """Further modules of the same command, each with its subcommands: loading them takes as long as a short command may."""

    def modules_for(self, subcommand: str | None) -> Sequence[str]:
        """Return what is loaded for this subcommand; for None or an unknown one, as for its help, everything."""
        if subcommand in self.subcommands:
            return (self.module,)
        wanted = [module for module, names in self.further.items() if subcommand in names]
        return (self.module, *(wanted or self.further))


COMMAND_MODULES = (
    CommandModule(
        "hermes.cli.graph",
        "cli",
        {
            "demo": "Play a guided tour of the message graph: a chat, an edit, a compaction, a subagent, a drawing of the graph.",
            "graph": "Draw a graph with its versions, from a file or from the store, and check that its ids match its content.",
        },
    ),
    CommandModule(
        "hermes.cli.trajectories",
        "export",
        {
            "export": "Export graphs as training data, with a ledger that accounts for every sampled token.",
            "verify": "Check an export: every sample is trained exactly once and in its own context, or listed with a reason.",
            "import": "Read trajectories that other programs wrote (ShareGPT, hermes-agent, OpenAI fine-tuning) into graphs.",
        },
    ),
    CommandModule(
        "hermes.cli.compress",
        "export",
        {
            "compress": "Shorten long trajectories to a token target: the first and last turns stay, and as little as possible of the "
            "middle is summarised."
        },
    ),
    CommandModule(
        "hermes.cli.up",
        "serve",
        {"up": "Run everything: stores, web and workers, in one process tree. Ctrl-C stops it; no acknowledged message is lost."},
    ),
    CommandModule(
        "hermes.cli.service",
        "serve",
        {
            "serve": "Answer HTTP: webhooks, the API, the chat page, /health, /ready and /metrics. Messages also need a `hermes worker`.",
            "worker": "Answer messages. Run as many workers as you like, on any number of machines.",
        },
    ),
    CommandModule(
        "hermes.cli.setup",
        "serve",
        {"setup": "Make hermes.toml: asks for a model, a channel, the port and the public address, and tests each answer at once."},
    ),
    CommandModule(
        "hermes.cli.doctor",
        "serve",
        {"doctor": "Check every part of Hermes on this machine, and say what to do. Exit code 1 when something must be done."},
    ),
    CommandModule(
        "hermes.cli.migrate",
        "serve",
        {"migrate": "Bring the database to this version's schema. Every start does it too; do it first in a rolling upgrade."},
    ),
    CommandModule(
        "hermes.cli.chat", "serve", {"chat": 'Chat in the terminal. Hermes answers piped input line by line:  echo "hello" | hermes chat'}
    ),
    CommandModule(
        "hermes.cli.batch",
        "serve",
        {"batch": "Run many prompts through an agent loop with tools, several rollouts each, and keep every rollout as a message graph."},
    ),
    CommandModule(
        "hermes.cli.keys",
        "serve",
        {"keys": "API keys: create, list, show, set, revoke. Master keys: new-master, rewrap; data keys: rotate."},
    ),
    CommandModule("hermes.cli.local", "cli", {"local": "The small model that runs on this machine: install."}),
    CommandModule(
        "hermes.cli.health", "cli", {"health": "Exit with 0 if a process of Hermes on this machine is well, with 1 if not: a probe."}
    ),
    CommandModule(
        "hermes.cli.fleet",
        "serve",
        {"fleet": "Agents, their adapters and spend caps, and the processes of Hermes: list, swap, events, add, cap, processes, leader."},
        ("events", "processes", "leader"),
        {"hermes.cli.fleet_list": ("list",), "hermes.cli.fleet_agents": ("swap", "add", "cap")},
    ),
    CommandModule(
        "hermes.cli.models",
        "serve",
        {"models": "Models: list, plan, set, swap, share, rollback. Without one of these words, list."},
        ("list",),
        {"hermes.cli.model_plan": ("plan", "set", "swap", "share", "rollback")},
    ),
    CommandModule("hermes.cli.chores", "serve", {"chores": "Work by the clock, such as dreams and reminders: list, run."}),
    CommandModule("hermes.cli.dream", "serve", {"dream": "Conclude from what is known about a user: now."}),
    CommandModule(
        "hermes.cli.costs",
        "serve",
        {"costs": "Show what model calls cost, by user, tier, channel, agent, key, model, tool, purpose or day."},
    ),
    CommandModule(
        "hermes.cli.turns",
        "serve",
        {"turns": "Turns: list, tail, show, why."},
        ("list", "tail"),
        {"hermes.cli.turn_show": ("show", "why")},
    ),
    CommandModule("hermes.cli.conversation", "serve", {"conversation": "Conversations: list, show."}),
    CommandModule(
        "hermes.cli.replay",
        "serve",
        {
            "replay": "Ask a model again what a turn asked: a dry run. Nothing is sent, charged to the user, remembered or written into "
            "the conversation."
        },
    ),
    CommandModule(
        "hermes.cli.events",
        "serve",
        {
            "events": "Show what Hermes did: classified intents, model calls, tools, deliveries, swaps of adapters, restarts. "
            "No words of users or models."
        },
    ),
    CommandModule(
        "hermes.cli.users",
        "serve",
        {"users": "Users: create, activate, credit, tier, training, language, link, show, list, memory, forget."},
        ("list", "create", "activate", "credit", "tier", "training", "language", "link"),
        {"hermes.cli.user_data": ("show", "memory", "forget")},
    ),
    CommandModule("hermes.cli.tools", "serve", {"tools": "Tools of MCP servers: list, accept."}),
    CommandModule("hermes.cli.kill_switch", "serve", {"kill-switch": "Stop all model calls: on, off, status."}),
    CommandModule(
        "hermes.cli.channels",
        "serve",
        {"channels": "Accounts at platforms: add telegram, whatsapp or instagram; list, sent, remove."},
    ),
    CommandModule("hermes.cli.alerts", "serve", {"alerts": "Alerts to the operator: test, list, events, mute, unmute, mutes, end."}),
    CommandModule("hermes.cli.console", "serve", {"console": "The console at /console: link, operators, token, tokens, sessions, revoke."}),
    CommandModule(
        "hermes.cli.audit",
        "serve",
        {"audit": "Show what operators did, opened and were refused, the newest first. No words of users or models."},
    ),
    CommandModule("hermes.cli.platforms", "serve", {"platforms": "Fake platforms to try Hermes with: fake."}),
    CommandModule(
        "hermes.cli.copies",
        "serve",
        {
            "backup": "Write the whole database to one file, as it is at this moment. Hermes may run and answer meanwhile.",
            "restore": "Restore a backup into an empty database: the hashes first, then all of it or nothing. Stop Hermes before.",
            "move": "Move from the embedded stores to servers: copy the database, compare every row, and mark the old home as moved. "
            "Stop Hermes before.",
            "upgrade": "Bring the embedded PostgreSQL to the major version that this Hermes has. Stop Hermes before; the old data is kept.",
        },
    ),
    CommandModule(
        "hermes.cli.queues", "serve", {"queues": "Show what waits in Hermes and why, what is on its way, and what was given up."}
    ),
    CommandModule("hermes.cli.messages", "serve", {"messages": "Messages that were given up: revive."}),
    CommandModule(
        "hermes.cli.workers",
        "serve",
        {"workers": "Show the processes of Hermes, how each is, and the turns that it drives; give the turns of a stalled one away."},
    ),
    CommandModule(
        "hermes.cli.dead_letters",
        "serve",
        {"dead-letters": "Messages that could not be delivered: list, show, requeue, drop."},
    ),
)
APP = "hermes.app"
"""`root` is the whole Hermes, which commands that only need rows never load; `mcp_tools` are the MCP servers, which few operators have."""
AUDITED, LOGS = "hermes.cli.audited", "hermes.ops.logs"
"""What a command that only reads never loads: the audit log, and the log."""
LOCAL_CHAT = "hermes.cli.local_chat"
"""A Hermes in this process, for `hermes chat` where none runs."""
STORED_SESSIONS = "hermes.cli.stored_sessions"
"""Sessions of a store, for commands that also read files: with files they need neither this module nor its extra."""
CONVERSATION = "hermes.cli.conversation"
"""Conversations of the store, for `hermes graph`, which mostly reads files."""
COMPRESS_SERVICE, DAFT_ENGINE = "hermes.cli.compress_service", "hermes.trajectories.engines.daft"
"""Models and the store for `hermes compress`, and the engine of many machines: both need a further extra."""
TRACES = "hermes.ops.trace_export"
"""OpenTelemetry, which only an operator needs who switches traces on."""
PACK_LIST, PACKS, PACK_COMMANDS = "hermes.packs", "hermes.cli.packs", "hermes.cli.pack_commands"
"""The packs that come with Hermes, which commands the packs of the settings bring, and those commands."""
EXTRA_PACKAGES = {"cli": "rich", "export": "pyarrow", "serve": "psycopg"}
"""A package of each extra. If it is not installed, `hermes --help` says that the command needs the extra."""
ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def build_app(arguments: Sequence[str] | None = None) -> typer.Typer:
    """Return the command line with the command that these arguments name; without arguments (None), with all commands.

    If they name no command, as for `--help`, return one that only describes the commands: that takes no module of theirs."""
    parts = LazyParts(
        load_app_module,
        lambda: importlib.import_module(AUDITED),
        lambda: importlib.import_module(LOGS),
        lambda: importlib.import_module(LOCAL_CHAT),
        open_stored_sessions,
        load_conversation,
        load_compress_service,
        new_daft_engine,
        load_traces,
    )
    app.info.context_settings = {"obj": parts}
    typed, subcommand = [*(word for word in arguments or () if not word.startswith("-")), None, None][:2]
    chosen = [part for part in COMMAND_MODULES if arguments is None or typed in part.commands]
    for part in chosen:
        try:
            for module in part.modules_for(subcommand):
                importlib.import_module(module)
        except ModuleNotFoundError as error:
            return describe_commands({part.extra: missing_package(error)})
    # The settings say which packs there are, and to read them takes longer than all the rest: the version needs neither.
    if arguments is not None and (chosen or "--version" in arguments):
        return app if chosen else describe_commands({})
    missing = {extra: package for extra, package in EXTRA_PACKAGES.items() if importlib.util.find_spec(package) is None}
    brought, faults = read_pack_commands(typed, arguments or (), missing)
    if not faults and (arguments is None or typed in brought):
        try:
            pack_commands = importlib.import_module(PACK_COMMANDS)
        except ModuleNotFoundError as error:
            faults = [advise_serve(typed, missing_package(error))]
        else:
            pack_commands.add_pack_commands(app, arguments or ())
            return app
    return app if chosen else describe_commands(missing, brought, {typed: faults} if typed is not None and faults else {})


def load_app_module(name: str) -> ModuleType:
    """Return a module of `hermes.app`. Such modules may write log lines in their own way, so the log must not wait any longer."""
    FirstLine.configure()
    return importlib.import_module(f"{APP}.{name}")


def read_pack_commands(typed: str | None, arguments: Sequence[str], missing: Mapping[str, str]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the commands of the packs that are on, each with its line; none without the extra `serve`, as its own commands say.

    Also return why the typed command cannot run, if it is, or may be, a command of a pack: wrong settings hide which packs are on."""
    pack = next((name for name, shipped in importlib.import_module(PACK_LIST).SHIPPED_PACKS.items() if typed in shipped.commands), None)
    if "serve" in missing:
        return {}, [advise_serve(typed, missing["serve"])] if pack is not None else []
    lines, faults = importlib.import_module(PACKS).describe_pack_commands(arguments)
    if not faults and pack is not None and typed not in lines:
        faults = [f"{typed} is a command of the pack {pack}, which is off; add it to packs.enabled"]
    return lines, faults


def advise_serve(command: str | None, package: str) -> str:
    return f"{command} needs {package}; install it: pip install 'hermes-graph[serve]'"


def typed_words(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the words after `hermes`: the arguments, or the words that the shell wants completed."""
    if "_HERMES_COMPLETE" not in environ:
        return list(arguments)
    line = environ.get("_TYPER_COMPLETE_ARGS") or environ.get("COMP_WORDS", "")
    return line.replace("'", "").replace('"', "").split()[1:]


def describe_commands(
    missing: Mapping[str, str], brought: Mapping[str, str] | None = None, refused: Mapping[str, Sequence[str]] | None = None
) -> typer.Typer:
    """Return a command line that describes every command. The commands of a missing extra say which package to install.

    `missing` has a missing package of each missing extra; `brought`, the commands of packs with their lines; `refused`, why a command of a
    pack cannot run."""
    described = new_app()

    def refuse(context: typer.Context) -> None:
        [extra] = (part.extra for part in COMMAND_MODULES if context.info_name in part.commands)
        fail(f"{context.info_name} needs {missing[extra]}; install it: pip install 'hermes-graph[{extra}]'")

    def refuse_pack_command(context: typer.Context) -> None:
        *others, last = (refused or {})[context.info_name or ""]
        for fault in others:
            complain(fault)
        fail(last)

    for part in COMMAND_MODULES:
        advice = f"(needs the extra {part.extra}: pip install 'hermes-graph[{part.extra}]')" if part.extra in missing else None
        for name, line in part.commands.items():
            described.command(name, context_settings=ANY_ARGUMENTS, help=escape(advice or line))(refuse)
    for name, line in (brought or {}).items():
        described.command(name, context_settings=ANY_ARGUMENTS, help=escape(line))(refuse_pack_command)
    for name in refused or ():
        described.command(name, context_settings=ANY_ARGUMENTS, hidden=True)(refuse_pack_command)
    return described


def open_stored_sessions(
    names: Sequence[str], since: str | None, account: str | None, config: Path | None
) -> AbstractContextManager[ExportSource]:
    """Open sessions of the store: `stored_sessions` of cli/stored_sessions.py, loaded now."""
    try:
        module = importlib.import_module(STORED_SESSIONS)
    except ModuleNotFoundError as error:
        fail(f"export from the store needs {missing_package(error)}; install it: pip install 'hermes-graph[serve]'")
    opened: AbstractContextManager[ExportSource] = module.stored_sessions(names, since, account, config)
    return opened


def load_conversation() -> ModuleType:
    """Return the module that reads conversations of the store. If a package is missing, say what to install and exit."""
    try:
        return importlib.import_module(CONVERSATION)
    except ModuleNotFoundError as error:
        fail(f"a stored conversation needs {missing_package(error)}; install it: pip install 'hermes-graph[serve]'")


def load_compress_service(what: str) -> ModuleType:
    """Return the module that opens models and the store. If a package is missing, say what to install and exit."""
    try:
        return importlib.import_module(COMPRESS_SERVICE)
    except ModuleNotFoundError as error:
        fail(f"{what} {missing_package(error)}; install it: pip install 'hermes-graph[serve]'")


def load_traces() -> ModuleType:
    """Return the module that sends traces. If a package is missing, say what to install and exit."""
    try:
        return importlib.import_module(TRACES)
    except ModuleNotFoundError as error:
        fail(f"traces.enabled needs {missing_package(error)}; install it: pip install 'hermes-graph[otel]'")


def new_daft_engine(address: str | None) -> ChunkEngine:
    """Return Daft as an engine, on the Ray cluster of this address if there is one."""
    engine: ChunkEngine = importlib.import_module(DAFT_ENGINE).DaftEngine(address)
    return engine
