"""Describes the settings for people: the reference page. All texts come from the declarations."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hermes.config.console import ConsoleSettings
from hermes.config.declarations import alert_variables, backend_variables, keys_of, known_settings, sections, table_of, tables, words_of
from hermes.config.models import BackendSettings
from hermes.config.operations import WorkSettings
from hermes.config.settings import Settings


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """One setting as a reader sees it: `web.port`, `HERMES_WEB_PORT`, the values that it takes, its default as TOML writes it, its meaning.

    In a table that the operator names, NAME stands for the name, and most settings have no variable: `models.NAME.id`."""

    name: str
    env: str
    type: str
    default: str
    doc: str


def describe() -> list[SettingDescription]:
    """Describe every setting, in the order of its declaration, without those of the tables that the operator names.

    Reads Hermes' own source code, so it is slow: not for the path of a message."""
    modules = [sys.modules[declared.__module__] for declared in (Settings, WorkSettings, ConsoleSettings)]
    docs = {place: text for module in modules for place, text in attribute_docstrings(inspect.getsource(module)).items()}
    return [
        SettingDescription(
            setting.name,
            setting.variable,
            words_of(setting.hint, has_variable=True),
            default_as_toml(setting.default),
            docs.get((setting.owner.__name__, setting.key), ""),
        )
        for setting in known_settings()
    ]


def describe_table(place: str, owner: type[Any]) -> list[SettingDescription]:
    """Describe every key of a table that the operator names, `[models.NAME]`, or of one within it, `[[models.NAME.prices]]`."""
    docs = attribute_docstrings(inspect.getsource(sys.modules[BackendSettings.__module__]))
    variables = {setting.name: setting.variable for setting in (*backend_variables([NAME]), *alert_variables([NAME]))}
    return [
        SettingDescription(
            f"{place}.{key.key}",
            variables.get(f"{place}.{key.key}", ""),
            words_of(key.hint),
            "required" if key.default is MISSING else default_as_toml(key.default),
            docs.get((owner.__name__, key.key), ""),
        )
        for key in keys_of(owner).values()
    ]


def attribute_docstrings(source: str) -> dict[tuple[str, str], str]:
    """Return the text below each field of each class, on one line, by the names of class and field."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {
        (declared.name, target.id): " ".join(text.split())
        for declared in classes
        for above, below in zip(declared.body, declared.body[1:], strict=False)
        if isinstance(above, ast.AnnAssign) and isinstance(target := above.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(text := below.value.value, str)
    }


def default_as_toml(default: object) -> str:
    """Return a default as it is written in a file; "not set" for None and for an empty list."""
    match default:
        case None | ():
            return "not set"
        case bool():
            return str(default).lower()
        case int() if default >= 10_000:
            return f"{default:_}"
        case str() | StrEnum() | Path():
            return f'"{default}"'
        case tuple():
            return f"[{', '.join(default_as_toml(item) for item in default)}]"
    return str(default)


# --- the reference page

NAME = "NAME"
"""Stands for the name that the operator gives to a table."""

OPENING = """\
# Reference: settings

Settings come from one TOML file and from `HERMES_*` variables. A variable wins over the file, the file over the default.
This page is generated from the declarations in `src/hermes/config`.

```toml
environment = "production"
database_url = "postgresql://hermes:password@db.internal/hermes"

[web]
host = "0.0.0.0"
port = 8080

[log]
format = "json"

[tiers.free]
chain = ["claude-haiku"]
```

**The file** is the one that `--config` names, else the one that `HERMES_CONFIG` names, else `hermes.toml` in the working directory, else
`hermes.toml` in the data folder. Hermes reads one file, never two; a file that is named must exist. A relative path counts from the folder
of the file that it stands in.

**The variable** of a setting is `HERMES_`, its section and its key in upper case: `port` in `[web]` is `HERMES_WEB_PORT`, `database_url` at
the top is `HERMES_DATABASE_URL`. Of the tables that you name yourself, only a backend's `api_key` and `base_url` have variables, and the
`url`, `token`, `chat` and `secret` of a destination of alerts: those of `[backends.my-gpu]` are `HERMES_BACKENDS_MY_GPU_API_KEY` and
`HERMES_BACKENDS_MY_GPU_BASE_URL`. True and false may be written as
`true`/`false`, `1`/`0`, `yes`/`no` or `on`/`off`; lists are separated by commas. White space around a value is ignored, and an empty
variable counts as not set.

**Variables with other names** count if neither the file nor a `HERMES_*` variable sets the value: `ANTHROPIC_API_KEY`,
`ANTHROPIC_BASE_URL`, `OPENAI_API_KEY` and `OPENAI_BASE_URL` for the backends `anthropic` and `openai`, and `LLM_GLOBAL_DAILY_BUDGET_USD`.

**Hermes refuses mistakes** before anything starts, one line each: a setting or variable that does not exist (the line names the nearest
one), a value of the wrong kind or out of range, two values that contradict each other. In Kubernetes a service whose name begins with
`hermes` puts variables such as `HERMES_PORT` or `HERMES_WEB_PORT` into every pod; `enableServiceLinks: false` keeps them out.

**Hermes never prints secrets** (addresses with passwords, master keys, keys of backends, addresses and tokens of alerts): not in errors,
not in logs, not where it shows settings.
"""


def settings_page() -> str:
    """Return the reference page, in Markdown: a table for each section."""
    return "\n".join([OPENING, *page_sections()])


def page_sections() -> Iterator[str]:
    described = describe()
    top: dict[str, type[Any]] = {"": Settings}
    for section, owner in (top | dict(sections())).items():
        heading = f"`[{section}]`" if section else "At the top of the file"
        yield from page_section(heading, owner, [setting for setting in described if setting.name.rpartition(".")[0] == section])
    for section, owner in tables().items():
        yield from table_sections(f"[{section}.{NAME}]", f"{section}.{NAME}", owner)


def table_sections(heading: str, place: str, owner: type[Any]) -> Iterator[str]:
    """Describe a table that the operator names, and then the tables within it."""
    yield from page_section(f"`{heading}`", owner, describe_table(place, owner))
    for key in keys_of(owner).values():
        if (inner := table_of(key.hint)) is not None:
            inside = f"{place}.{key.key}"
            yield from table_sections(f"[{inside}]" if key.hint is inner else f"[[{inside}]]", inside, inner)


def page_section(heading: str, owner: type[Any], described: list[SettingDescription]) -> Iterator[str]:
    yield f"## {heading}\n"
    yield f"{inspect.getdoc(owner)}\n"
    yield "| setting | variable | takes | default | meaning |"
    yield "|---|---|---|---|---|"
    for setting in described:
        key = setting.name.rpartition(".")[2]
        variable = f"`{setting.env}`" if setting.env else "none"
        default = setting.default if setting.default in ("not set", "required") else f"`{setting.default}`"
        yield f"| `{key}` | {variable} | {setting.type} | {default} | {setting.doc.replace('|', '&#124;')} |"
    yield ""
