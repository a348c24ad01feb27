"""Every name that other programs rely on, in one list: `contract_names.txt`. A change of one is a change of the list, seen in a review.

Names are taken from where they are declared: the command line, the settings and the metrics from the running objects, the others from the
source. `python -m tests.test_contract_names` writes the list anew."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from hermes.cli import build_app
from hermes.config.declarations import known_settings
from hermes.ops.metrics import metric_families
from hermes.ports.timeline import STEP_EVENT_NAMES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hermes"
LIST = Path(__file__).parent / "contract_names.txt"
VERBS = {"get", "post", "put", "patch", "delete"}
CODE = re.compile(r"[a-z]+(?:_[a-z]+)*")
EVENTS = frozenset(
    {
        *("adapter_rolled_back", "adapter_swapped", "breaker_opened", "budget_threshold"),
        *("attempt_cut_off", "credit_posted", "credit_voided", "llm_called", "tool_invoked"),
        *("process_started", "process_stopped", "process_died", "process_stalled", "process_recovered", "process_silent"),
        *("process_restarted", "process_crash_loop"),
    }
)
"""Events that are written by way of a variable: they are known by their words."""
TABLE = re.compile(r"^\s*create table (?:if not exists )?(\w+)", re.IGNORECASE | re.MULTILINE)


@cache
def names() -> dict[str, set[str]]:
    """All names, by their kind."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    web = [tree for path, tree in trees.items() if path.is_relative_to(SOURCE / "web")]
    return {
        "command": set(commands(get_command(build_app()), "hermes")),
        "error": {code for tree in web for code in error_codes(tree)},
        "event": {event for tree in trees.values() for event in events(tree)} | set(STEP_EVENT_NAMES.values()),
        "metric": {metric.name for metric in metric_families() if metric.name.startswith("hermes_")},
        "route": {route for tree in web for route in routes(tree)},
        "setting": {setting.name for setting in known_settings()},
        "step": {path.stem for path in (SOURCE / "router" / "steps").glob("[a-z]*.py")},
        "table": {table for path in SOURCE.rglob("migrations/*.sql") for table in TABLE.findall(path.read_text(encoding="utf-8"))},
        "task": {task for tree in trees.values() for task in tasks(tree)},
    }


def commands(command: Any, path: str) -> Iterator[str]:
    """A command with its flags, and those under it."""
    if not hasattr(command, "commands"):
        flags = sorted(
            flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts) if flag.startswith("--")
        )
        yield " ".join([path, *flags])
        return
    for name, inner in command.commands.items():
        yield from commands(inner, f"{path} {name}")


def routes(tree: ast.Module) -> Iterator[str]:
    """`GET /v1/models`: from decorators such as `@routes.get("/v1/models")`."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr in VERBS and is_named(call.func.value, "routes"):
            [first, *_] = call.args
            path = constants.get(first.id) if isinstance(first, ast.Name) else text_of(first)
            yield f"{call.func.attr.upper()} {path}"


def error_codes(tree: ast.Module) -> Iterator[str]:
    """What stands behind an HTTP status: `Refused(404, "not_found", …)`, and the same in tables."""
    for node in ast.walk(tree):
        pair = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
        if len(pair) < 2 or not isinstance(pair[0], ast.Constant) or not isinstance(pair[0].value, int) or not 400 <= pair[0].value < 600:
            continue
        code = text_of(pair[1])
        if code and CODE.fullmatch(code):
            yield code


def events(tree: ast.Module) -> Iterator[str]:
    """What is written to the journal: `journal.add(tx, turn_id, "memory_saved", …)` and `steps.end("fallback_used", …)`."""
    yield from (text for node in ast.walk(tree) if (text := text_of(node)) in EVENTS and text)
    for call in calls(tree):
        if not isinstance(call.func, ast.Attribute):
            continue
        place = {("add", "journal"): 2, ("note", "steps"): 0, ("end", "steps"): 0}.get((call.func.attr, last_name(call.func.value)))
        event = text_of(call.args[place]) if place is not None and len(call.args) > place else None
        if event:
            yield event


def tasks(tree: ast.Module) -> Iterator[str]:
    """The names under which work waits in the database."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            tasks_of_worker = (key for key, value in zip(node.keys, node.values, strict=True) if is_job_task(value))
            yield from (name for key in tasks_of_worker if key is not None and (name := text_of(key)))
    for call in calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "configure_task" and call.args and (name := text_of(call.args[0])):
            yield name


def is_job_task(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "JobTask"


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def text_of(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_named(node: ast.AST, name: str) -> bool:
    return last_name(node) == name


def written(found: dict[str, set[str]]) -> str:
    return "".join(f"{kind} {name}\n" for kind in sorted(found) for name in sorted(found[kind]))


def test_no_name_that_other_programs_rely_on_changes_unseen() -> None:
    now, listed = set(written(names()).splitlines()), set(LIST.read_text(encoding="utf-8").splitlines())
    changes: dict[str, Any] = {"gone": sorted(listed - now), "new": sorted(now - listed)}
    assert changes == {"gone": [], "new": []}, "write the list anew with: python -m tests.test_contract_names"


def test_every_kind_of_name_is_found() -> None:
    found = names()
    assert {kind for kind, of_kind in found.items() if len(of_kind) < 4} == set()
    assert "POST /v1/chat/completions" in found["route"]
    assert {"store_unavailable", "context_length_exceeded", "wrong_channel"} <= found["error"]
    assert {"fallback_used", "response_delivered", "user_resolved", *EVENTS} <= found["event"]
    assert found["task"] == {"turn", "delivery", "news", "memory"}
    assert {"resolve_user", "record"} <= found["step"]


if __name__ == "__main__":
    LIST.write_text(written(names()), encoding="utf-8")
