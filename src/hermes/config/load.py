"""Read the settings: find the file, check it and the variables against the declarations, and report all faults together.

A variable wins over the file, the file over the default. Variables of other programs (`ANTHROPIC_API_KEY`) count only if neither the file
nor a HERMES_* variable sets the value. A fault is one line with its place and the values that are expected. No fault shows a secret."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes.config.declarations import BACKENDS_SECTION, DeclaredSetting, backend_variables, known_settings, sections, tables
from hermes.config.faults import nearest, one_line, shown_value, wrong_kind_fault
from hermes.config.named_tables import NamedTables
from hermes.config.settings import Settings, contradictions
from hermes.config.table_reader import SettingsFile, read_tables
from hermes.config.value_kinds import PathKind, WrongKind

FILE_NAME = "hermes.toml"
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
    home = read_variables({HOME_VARIABLE: environ.get(HOME_VARIABLE, "")}, here).values.get("home")
    written = read_file(environ, file, here, home=home)
    variables = read_variables(environ, here, backends=written.names.get(BACKENDS_SECTION, ()))
    foreign = read_foreign_variables(environ, here, but={*written.values, *variables.values})
    if faults := written.faults + variables.faults + foreign.faults:
        raise SettingsError(*faults)
    settings = assemble(foreign.values | written.values | variables.values, written.names)
    if faults := list(contradictions(settings)):
        raise SettingsError(*faults)
    return settings


@dataclass(slots=True)
class SettingValues:
    """What one source holds: values by the names of their settings, and faults."""

    values: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)
    """The names of the tables that the operator names, by section; such a table may be empty."""

    def take(self, setting: DeclaredSetting, read: Callable[[Any], object], given: object, place: str, folder: Path) -> None:
        """Store the value of one setting, or its fault."""
        try:
            value = read(given)
        except WrongKind:
            self.faults.append(wrong_kind_fault(place, given, setting.kind, setting.kind.words))
        else:
            self.values[setting.name] = folder / value if isinstance(value, Path) else value


# --- variables


def read_variables(environ: Mapping[str, str], here: Path, *, backends: Iterable[str] = ()) -> SettingValues:
    """Read every variable that begins with HERMES_, in the order of their names."""
    known = {setting.variable: setting for setting in [*known_settings(), *backend_variables(backends)]}
    reading = SettingValues()
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        text = environ[variable].strip()
        if (setting := known.get(variable)) is not None:
            if text:
                reading.take(setting, setting.kind.from_text, text, variable, here)
        elif variable != FILE_VARIABLE:
            reading.faults.append(f"unknown variable {one_line(variable)}; did you mean {nearest(variable, [*known, FILE_VARIABLE])}?")
    return reading


def read_foreign_variables(environ: Mapping[str, str], here: Path, *, but: set[str]) -> SettingValues:
    """Read the variables of other programs, without those whose settings are set already (`but`)."""
    known = {setting.name: setting for setting in [*known_settings(), *backend_variables(())]}
    reading = SettingValues()
    for variable, name in FOREIGN_VARIABLES.items():
        if name not in but and (text := environ.get(variable, "").strip()):
            reading.take(known[name], known[name].kind.from_text, text, variable, here)
    return reading


# --- the file


def read_file(environ: Mapping[str, str], named: Path | None, here: Path, *, home: Path | None) -> SettingValues:
    """Read the file that is named, or else the first default file that exists, or else nothing."""
    name = str(named) if named is not None else environ.get(FILE_VARIABLE, "").strip()
    try:
        places = [here / PathKind().from_toml(name)] if name else default_files(environ, here, home)
    except WrongKind:
        return SettingValues(
            faults=[f"{'the settings file' if named else FILE_VARIABLE} is {shown_value(name)}; expected {PathKind.words}"]
        )
    for path in places:
        title = str(path.relative_to(here) if path.is_relative_to(here) else path)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (FileNotFoundError, NotADirectoryError) as error:
            if name:
                return SettingValues(faults=[f"{title}: cannot be read ({error.strerror})"])
        except OSError as error:
            return SettingValues(faults=[f"{title}: cannot be read ({error.strerror})"])
        except (ValueError, RecursionError) as error:  # also for bytes that are no text, and for numbers and lists beyond Python's limits
            return SettingValues(faults=[f"{title}: not valid TOML: {error}"])
        else:
            return read_table(table, title, path.parent)
    return SettingValues()


def default_files(environ: Mapping[str, str], here: Path, home: Path | None) -> list[Path]:
    places = [here / FILE_NAME]
    with suppress(RuntimeError):  # a user of the operating system without a home folder has no file there
        places.append((home or platform_home(environ)) / FILE_NAME)
    return places


def platform_home(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the folder in which this operating system keeps the data of programs.

    XDG_DATA_HOME counts only as an absolute path, as its specification says."""
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "hermes"
    if (data := Path(environ.get("XDG_DATA_HOME", ""))).is_absolute():
        return data / "hermes"
    return Path.home() / ".local" / "share" / "hermes"


def read_table(table: Mapping[str, object], title: str, folder: Path) -> SettingValues:
    """Read the values of a file."""
    known = {(setting.section, setting.key): setting for setting in known_settings()}
    reading = SettingValues()
    for section, key, value in flatten_file(table):
        if (setting := known.get((section, key))) is not None:
            reading.take(setting, setting.kind.from_toml, value, f"{title}: {setting.name}", folder)
        elif not section and key in tables():
            read = read_tables(key, tables()[key], value, SettingsFile(title, folder, reading.faults))
            reading.names[key] = list(read)
            reading.values |= {f"{key}.{name}.{inner}": given for name, values in read.items() for inner, given in values.items()}
        else:
            reading.faults.append(f"{title}: {unknown_setting_fault(section, key, value)}")
    return reading


def flatten_file(table: Mapping[str, object]) -> Iterator[tuple[str, str, object]]:
    """Yield section, key and value of everything in a file. An unknown section is one value, so that it causes one fault."""
    for key, value in table.items():
        if key in sections() and isinstance(value, dict):
            yield from ((key, inner_key, inner) for inner_key, inner in value.items())
        else:
            yield "", key, value


def unknown_setting_fault(section: str, key: str, value: object) -> str:
    if not section and key in sections():
        # Its value is not shown: `database = "postgresql://…"` is an easy mistake.
        return f"{key} is a section; write [{key}] above its settings"
    if not section and isinstance(value, dict):
        return f"unknown section [{one_line(key)}]; did you mean [{nearest(key, [*sections(), *tables()])}]?"
    prefix = f"{section}." if section else ""
    guess = nearest(prefix + key, [setting.name for setting in known_settings()])
    return f"unknown setting {prefix}{one_line(key)}; did you mean {guess}?"


# --- the settings object


def assemble(values: Mapping[str, Any], names: Mapping[str, Iterable[str]]) -> Settings:
    """Return the settings with these values, by name; a setting without a value keeps its default.

    `names` are the tables of the file, also empty ones. The name of a table may have dots in it, its section and its keys have none:
    `models.llama3.2.id` is the `id` of `llama3.2`."""

    def values_in(section: str) -> dict[str, Any]:
        return {name.rpartition(".")[2]: value for name, value in values.items() if name.rpartition(".")[0] == section}

    def tables_in(section: str, owner: type[Any]) -> NamedTables[Any]:
        valued = [name.rpartition(".")[0].partition(".")[2] for name in values if name.startswith(f"{section}.")]
        return NamedTables({name: owner(**values_in(f"{section}.{name}")) for name in dict.fromkeys([*names.get(section, ()), *valued])})

    parts: dict[str, Any] = {section: owner(**values_in(section)) for section, owner in sections().items()}
    parts |= {section: tables_in(section, owner) for section, owner in tables().items()}
    return Settings(**values_in(""), **parts)
