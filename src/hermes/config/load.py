"""Read the settings: find the file, check it and the variables against the declarations, and report all faults together.

A variable wins over the file, the file over the default. Variables of other programs (`ANTHROPIC_API_KEY`) count only if neither the file
nor a HERMES_* variable sets the value. value_reader.py checks the values against their types, the file and each variable by itself, so that
a fault is known with its place."""

from __future__ import annotations

import copy
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes.config.declarations import (
    ALERTS_SECTION,
    BACKENDS_SECTION,
    DeclaredSetting,
    alert_variables,
    backend_variables,
    known_settings,
    words_of,
)
from hermes.config.faults import file_faults, find_contradictions, nearest, one_line, shown_value, wrong_value_fault
from hermes.config.settings import Settings
from hermes.config.value_reader import WrongValues, read_declared, read_text
from hermes.config.values import expand_path

FILE_NAME = "hermes.toml"
MAX_FILE_BYTES = 2**20
FILE_VARIABLE = "HERMES_CONFIG"
HOME_VARIABLE = "HERMES_HOME"
PREFIX = "HERMES_"

FOREIGN_VARIABLES: Mapping[str, str] = {
    "LLM_GLOBAL_DAILY_BUDGET_USD": "llm.global_daily_budget_usd",
    "ANTHROPIC_API_KEY": "backends.anthropic.api_key",
    "ANTHROPIC_BASE_URL": "backends.anthropic.base_url",
    "OPENAI_API_KEY": "backends.openai.api_key",
    "OPENAI_BASE_URL": "backends.openai.base_url",
}
"""Variables of other programs, which many operators have set already. They count if neither file nor variable sets the value."""


class SettingsError(ValueError):
    """The settings cannot be used. `faults` has one line for each fault; the message is these lines."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def load(environ: Mapping[str, str], *, file: Path | None = None, cwd: Path | None = None) -> Settings:
    """Return the settings of this process, from one file and the variables of `environ`, which win.

    The file is `file`, else what HERMES_CONFIG names, else `hermes.toml` in `cwd` (by default the working directory), else `hermes.toml`
    in the data folder. Only the first two must exist. A relative path counts from the folder of the file that it stands in, in a variable
    from `cwd`. A variable that is empty counts as not set. Raises SettingsError with all faults, not just the first."""
    here = cwd or Path.cwd()
    return combine_settings(environ, read_file(environ, file, here), here)


def combine_settings(environ: Mapping[str, str], written: SettingsFile, here: Path) -> Settings:
    """Return the settings from a file that was read, which is changed, and the variables. Raises SettingsError."""
    variables = read_variables(environ, here, written)
    if faults := written.faults + variables.faults:
        raise SettingsError(*faults)
    for path, value in variables.values.items():
        table = written.table
        for section in path[:-1]:
            table = table.setdefault(section, {})
        table[path[-1]] = value
    settings = read_declared(Settings, written.table, written.folder)
    if faults := list(find_contradictions(settings)):
        raise SettingsError(*faults)
    return settings


# --- the file


@dataclass(slots=True)
class SettingsFile:
    """The file that is read: its values as TOML has them, the folder that its paths count from, and its faults."""

    folder: Path = field(default_factory=Path)
    table: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    path: Path | None = None
    """None if there is no file."""

    @classmethod
    def checked(cls, path: Path, table: Mapping[str, Any]) -> SettingsFile:
        """Return a copy of a table as if this file held it, with its faults."""
        own = copy.deepcopy(dict(table))
        return cls(path.parent, own, [f"{path.name}: {fault}" for fault in check_table(own, path.parent)], path)

    def find(self, path: tuple[str, ...]) -> Any:
        """Return the value at this place, None if there is none."""
        found: Any = self.table
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return found


def read_file(environ: Mapping[str, str], named: Path | None, here: Path) -> SettingsFile:
    """Read the file that is named, or else the first default file that exists, or else nothing."""
    name = str(named) if named is not None else environ.get(FILE_VARIABLE, "").strip()
    try:
        places = [expand_path(name, here)] if name else default_files(environ, here)
    except ValueError:
        return SettingsFile(faults=[f"{'the settings file' if named else FILE_VARIABLE} is {shown_value(name)}; expected a path"])
    for path in places:
        title = str(path.relative_to(here) if path.is_relative_to(here) else path)
        try:
            table = tomllib.loads(read_limited(path))
        except (FileNotFoundError, NotADirectoryError) as error:
            if name:
                return SettingsFile(faults=[f"{title}: cannot be read ({error.strerror})"])
        except OSError as error:
            return SettingsFile(faults=[f"{title}: cannot be read ({error.strerror})"])
        except (ValueError, RecursionError) as error:  # also for bytes that are no text, and for numbers and lists beyond Python's limits
            return SettingsFile(faults=[f"{title}: not valid TOML: {error}"])
        else:
            return SettingsFile(path.parent, table, [f"{title}: {fault}" for fault in check_table(table, path.parent)], path)
    return SettingsFile()


def read_limited(path: Path) -> str:
    """Return the text of a file. Raises ValueError for one that is no settings file by its size: some, such as /dev/zero, have no end."""
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES // 2**20} MB")
    return content.decode("utf-8-sig")


def check_table(table: dict[str, Any], folder: Path) -> list[str]:
    try:
        read_declared(Settings, table, folder)
    except WrongValues as error:
        return file_faults(error.faults, table)
    return []


def default_files(environ: Mapping[str, str], here: Path) -> list[Path]:
    places = [here / FILE_NAME]
    with suppress(RuntimeError, ValueError):  # a user of the operating system without a home folder has no file there
        home = environ.get(HOME_VARIABLE, "").strip()
        places.append((expand_path(home, here) if home else platform_home(environ)) / FILE_NAME)
    return places


def platform_home(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the folder in which this operating system keeps the data of programs.

    XDG_DATA_HOME counts only as an absolute path, as its specification says."""
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "hermes"
    if (data := Path(environ.get("XDG_DATA_HOME", ""))).is_absolute():
        return data / "hermes"
    return Path.home() / ".local" / "share" / "hermes"


# --- variables


@dataclass(frozen=True, slots=True)
class SettingVariables:
    """What the variables hold: values by their places in a file, and faults."""

    folder: Path
    values: dict[tuple[str, ...], Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def take(self, variable: str, setting: DeclaredSetting, text: str) -> None:
        """Store the value of one setting, or its fault."""
        try:
            self.values[setting.path] = read_text(setting.hint, text, self.folder)
        except WrongValues:
            self.faults.append(wrong_value_fault(variable, text, setting.hint, words_of(setting.hint, has_variable=True)))


def read_variables(environ: Mapping[str, str], here: Path, written: SettingsFile) -> SettingVariables:
    """Read every variable that begins with HERMES_, in the order of their names, and then those of other programs if they count."""
    backends = written.find((BACKENDS_SECTION,))
    destinations = written.find((ALERTS_SECTION,))
    settings = [
        *known_settings(),
        *backend_variables(backends if isinstance(backends, dict) else ()),
        *alert_variables(destinations if isinstance(destinations, dict) else ()),
    ]
    known, by_name = {setting.variable: setting for setting in settings}, {setting.name: setting for setting in settings}
    texts = {variable: text.strip() for variable, text in environ.items()}
    reading = SettingVariables(here)
    for variable in sorted(name for name in texts if name.startswith(PREFIX)):
        if variable not in known and variable != FILE_VARIABLE:
            reading.faults.append(f"unknown variable {one_line(variable)}; did you mean {nearest(variable, [*known, FILE_VARIABLE])}?")
        elif variable in known and texts[variable]:
            reading.take(variable, known[variable], texts[variable])
    for variable, name in FOREIGN_VARIABLES.items():
        path = by_name[name].path
        if texts.get(variable) and written.find(path) is None and path not in reading.values:
            reading.take(variable, by_name[name], texts[variable])
    return reading
