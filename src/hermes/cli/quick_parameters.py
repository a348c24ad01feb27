"""Values of the command line that need no conversion skip pydantic, which typer loads for every parameter: to load it takes a good part of
the time of a short command. A text that is wanted as a text, and a default, stay what they are; typer converts every other value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any


class QuickParameter:
    """Stands where typer's own converter of a parameter would, and makes that one for the first value that needs it."""

    def __init__(self, make_converter: Callable[[], Any]) -> None:
        self._make_converter = make_converter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        wanted = param.type_descriptor
        is_plain = type(value) is wanted.annotation and wanted.parameter_info.parser is None
        if is_plain and (wanted.annotation is str or value is param.default):
            return value
        return self._make_converter().coerce(value, param=param, ctx=ctx)


def quicken(command: Any) -> None:
    """Let the parameters of a command, and of the commands below it, do so. A typer that converts in another way is left as it is."""
    list_parameters = command.get_params

    def list_quick_parameters(ctx: Any) -> list[Any]:
        found: list[Any] = list_parameters(ctx)
        for parameter in found:  # `--help` is among them, which a command makes only now
            make_converter = getattr(parameter, "get_runtime_param", None)
            if inspect.ismethod(make_converter):
                parameter.get_runtime_param = partial(QuickParameter, make_converter)
        return found

    command.get_params = list_quick_parameters
    for below in getattr(command, "commands", {}).values():
        quicken(below)
