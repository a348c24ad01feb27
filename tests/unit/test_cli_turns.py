"""`hermes turns` with an id that is none: one line, before any database is opened."""

import pytest
from typer.testing import CliRunner

from hermes.cli import build_app


@pytest.mark.parametrize("command", ["show", "why"])
def test_a_word_that_is_no_id_is_refused_in_one_line(command: str) -> None:
    told = CliRunner().invoke(build_app(), ["turns", command, "nonsense"])
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("hermes: 'nonsense' is no turn's id; ")
