"""The settings in words, for people: the reference page and whoever asks on the command line. All of it is read from the declarations."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import hermes.config.settings as declarations
from hermes.config.known import known_settings, sections


@dataclass(frozen=True, slots=True)
class Described:
    """One setting as a reader sees it: `web.port`, `HERMES_WEB_PORT`, what it takes, its default as TOML writes it, what it means."""

    name: str
    env: str
    type: str
    default: str
    doc: str


def describe() -> list[Described]:
    """Every setting, in the order of its declaration. Reads Hermes' own source: for where a person asks, not on the way to an answer."""
    docs = attribute_docstrings(inspect.getsource(declarations))
    return [
        Described(
            setting.name,
            setting.variable,
            setting.kind.words,
            written(setting.default),
            docs.get((setting.owner.__name__, setting.key), ""),
        )
        for setting in known_settings()
    ]


def attribute_docstrings(source: str) -> dict[tuple[str, str], str]:
    """The text below each field of each class, by the names of both, on one line."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {
        (declared.name, target.id): " ".join(text.split())
        for declared in classes
        for above, below in zip(declared.body, declared.body[1:], strict=False)
        if isinstance(above, ast.AnnAssign) and isinstance(target := above.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(text := below.value.value, str)
    }


def written(default: object) -> str:
    """A default as one would write it in a file; "not set" for what is left out."""
    match default:
        case None | ():
            return "not set"
        case bool():
            return str(default).lower()
        case int() if default >= 10_000:
            return f"{default:_}"
        case str() | StrEnum() | Path():
            return f'"{default}"'
    return str(default)


# --- the reference page

OPENING = """\
# Reference: settings

Settings come from one TOML file and from `HERMES_*` variables. A variable wins over the file, the file over the default.
This page is made from the declarations in `src/hermes/config/settings.py`.

```toml
environment = "production"
database_url = "postgresql://hermes:password@db.internal/hermes"

[web]
host = "0.0.0.0"
port = 8080

[log]
format = "json"
```

**The file** is the one that `--config` names, else the one that `HERMES_CONFIG` names, else `hermes.toml` in the working directory, else
`hermes.toml` in the data folder. One file is read, never two; a file that is named must exist. A relative path counts from the folder of
the file that it stands in.

**The variable** of a setting is `HERMES_`, its section and its key in upper case: `port` in `[web]` is `HERMES_WEB_PORT`, `database_url` at
the top is `HERMES_DATABASE_URL`. True and false may be written as `true`/`false`, `1`/`0`, `yes`/`no` or `on`/`off`; lists are separated
by commas. White space around a value is ignored, and an empty variable counts as not set.

**Mistakes are refused** before anything starts, one line each: a setting or variable that does not exist (the nearest known one is named),
a value of the wrong kind or out of range, two values that contradict each other. In Kubernetes a service whose name begins with `hermes`
puts variables such as `HERMES_PORT` or `HERMES_WEB_PORT` into every pod; `enableServiceLinks: false` keeps them out.

**Secrets** (addresses with passwords, master keys) are never printed: not in errors, not in logs, not where settings are shown.
"""


def settings_page() -> str:
    """The reference page, in Markdown: a table for each section."""
    return "\n".join([OPENING, *tables()])


def tables() -> Iterator[str]:
    described = describe()
    for section, owner in {"": declarations.Settings, **sections()}.items():
        yield f"## `[{section}]`\n" if section else "## At the top of the file\n"
        yield f"{inspect.getdoc(owner)}\n"
        yield "| setting | variable | takes | default | meaning |"
        yield "|---|---|---|---|---|"
        for setting in described:
            place, _, key = setting.name.rpartition(".")
            if place == section:
                default = setting.default if setting.default == "not set" else f"`{setting.default}`"
                yield f"| `{key}` | `{setting.env}` | {setting.type} | {default} | {setting.doc.replace('|', '&#124;')} |"
        yield ""
