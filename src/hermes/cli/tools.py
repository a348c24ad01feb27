"""`hermes tools`: the tools of MCP servers as they are pinned, and what of them changed; accept a change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hermes.app.tables import Tables
from hermes.app.tool_pins import accept_change, read_pins
from hermes.cli.actor import command_actor
from hermes.cli.audited import audit_command
from hermes.cli.commands import app
from hermes.cli.options import Config, Json
from hermes.cli.output import fail, print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.ports.tools import ToolPin
from hermes.terminal import one_line

DIGEST_CHARS = 16
tools = typer.Typer(
    no_args_is_help=True,
    help="Tools of MCP servers: list, accept.\n\n"
    "    hermes tools accept maps route\n\n"
    "Hermes pins each tool of an MCP server as it is at its first use: its name, description, schema and hints. A changed tool is not "
    "offered to any model until you accept the change. Exit code 0 when it is done, 2 when there is nothing to accept.",
)
app.add_typer(tools, name="tools")


@tools.command(name="list")
def list_pins(*, is_json: Json = False, config: Config = None) -> None:
    """List the pinned tools, and say which of them changed."""

    found = run(with_tables(config, lambda tables: read_pins(tables.database)))
    if is_json:
        print_json([pin_json(pin) for pin in found])
        return
    rows = [
        (
            pin.server,
            one_line(pin.tool),
            pin.digest[:DIGEST_CHARS],
            pin.pinned_by or "first use",
            f"{pin.pinned_at:%Y-%m-%d %H:%M}",
            change_text(pin),
        )
        for pin in found
    ]
    print_table(("SERVER", "TOOL", "PINNED AS", "BY", "SINCE (UTC)", "CHANGE"), rows)
    for pin in found:
        for line in difference(pin):
            typer.echo(line)


@tools.command()
def accept(
    server: Annotated[str, typer.Argument(help="The name of the server in the settings.")],
    tool: Annotated[str, typer.Argument(help="The tool, by the server's own name.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Accept the change of a tool that `hermes tools list` shows: the tool is offered again, as it is now."""

    async def change(tables: Tables) -> ToolPin | None:
        pin = next((pin for pin in await read_pins(tables.database) if (pin.server, pin.tool) == (server, tool)), None)
        if pin is None or pin.waiting is None:
            return None
        await audit_command(tables.settings, tables.database, "tool.accept", "tool", f"{server}/{tool}", digest=pin.waiting[:DIGEST_CHARS])
        return pin if await accept_change(tables.database, pin, by=command_actor().operator.name) else None

    accepted = run(with_tables(config, change))
    if accepted is None:
        fail(f"no change of {server} {tool} waits; `hermes tools list` shows those that do")
    if is_json:
        print_json({"server": server, "tool": tool, "digest": accepted.waiting})
    else:
        typer.echo(f"Accepted: {server} {one_line(tool)}. Running processes offer it again within a minute.")


def change_text(pin: ToolPin) -> str:
    if pin.waiting is None or pin.changed_at is None:
        return ""
    return f"waits since {pin.changed_at:%Y-%m-%d %H:%M}"


def difference(pin: ToolPin) -> list[str]:
    """The parts of a tool that changed, each as it was and as it is."""
    if pin.waiting_definition is None:
        return []
    before, after = pin.definition, pin.waiting_definition
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    lines = [(f"  {name} was: {part_text(before, name)}", f"  {name} is:  {part_text(after, name)}") for name in changed]
    return ["", f"{pin.server} {one_line(pin.tool)}", *(line for pair in lines for line in pair)]


def part_text(definition: Mapping[str, Any], name: str) -> str:
    return one_line(json.dumps(definition.get(name), ensure_ascii=False))


def pin_json(pin: ToolPin) -> dict[str, Any]:
    return {
        "server": pin.server,
        "tool": pin.tool,
        "digest": pin.digest,
        "definition": dict(pin.definition),
        "pinned_at": pin.pinned_at.isoformat(),
        "pinned_by": pin.pinned_by or None,
        "waiting": pin.waiting,
        "waiting_definition": pin.waiting_definition,
        "changed_at": pin.changed_at.isoformat() if pin.changed_at else None,
    }
