"""What somebody names on a command line: `module`, or `module:name`, looked for in the folder they stand in too."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from hermes.trajectories.errors import TrajectorySettingsError


def import_object(text: str, what: str) -> Any:
    """Return the module, or what it has under a name. Raises SettingsError; `what` says what it was wanted for."""
    module, _, name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # a command that is installed does not look where one stands, and that is where one's own modules are
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = f"there is no module {error.name!r}" if error.name else str(error)
        raise TrajectorySettingsError(f"{what} {text!r}: {missing}; looked for it in {here} and among the installed packages") from None
    except Exception as error:  # somebody's module: whatever it raises when it is loaded is said in one line
        raise TrajectorySettingsError(f"{what} {text!r}: {module} cannot be loaded: {type(error).__name__}: {error}") from error
    for part in name.split(".") if name else ():
        if not hasattr(found, part):
            raise TrajectorySettingsError(f"{what} {text!r}: {module} has no {part!r}")
        found = getattr(found, part)
    return found
