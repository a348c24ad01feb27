"""Import what the user names on the command line: `module` or `module:name`. The current folder is searched too."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from hermes.trajectories.errors import TrajectorySettingsError


def import_object(text: str, what: str) -> Any:
    """Return the module, or its object with the given name. Raises TrajectorySettingsError; `what` says in it what the object is for."""
    module, _, name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # Python does not search the current folder for an installed command, but the user's modules are there
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = f"there is no module {error.name!r}" if error.name else str(error)
        raise TrajectorySettingsError(f"{what} {text!r}: {missing}; looked for it in {here} and among the installed packages") from None
    except Exception as error:  # a module of the user: any error while it is loaded becomes one line
        raise TrajectorySettingsError(f"{what} {text!r}: {module} cannot be loaded: {type(error).__name__}: {error}") from error
    for part in name.split(".") if name else ():
        if not hasattr(found, part):
            raise TrajectorySettingsError(f"{what} {text!r}: {module} has no {part!r}")
        found = getattr(found, part)
    return found
