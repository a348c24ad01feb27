"""JSON with what was said. A model, or a client of the completions API, can write half of a character, which no UTF-8 has."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse


class ConsoleJson(JSONResponse):
    """JSON in UTF-8; with escapes for all that is not ASCII, if there is half of a character."""

    def render(self, content: Any) -> bytes:
        try:
            return super().render(content)
        except UnicodeEncodeError:
            return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
