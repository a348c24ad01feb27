"""A process that holds the stores of a home until its input ends. Says on one line where they are.

    python holder.py HOME [UID]

With a uid it becomes that user first. It does so after its imports, because that user may not be able to read them."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from hermes.stores import embedded
from hermes.stores.embedded.home import EmbeddedError


def hold(home: Path, uid: int | None) -> int:
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    try:
        with embedded.run_servers(home) as stores:
            sys.stdout.write(json.dumps(asdict(stores) | asdict(embedded.status(home))) + "\n")
            sys.stdout.flush()
            sys.stdin.read()
    except EmbeddedError as error:
        sys.stdout.write(json.dumps({"error": type(error).__name__, "message": str(error)}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(hold(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
