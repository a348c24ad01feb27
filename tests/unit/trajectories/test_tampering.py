"""The verifier is tested as code is by mutations: each field of each format is tampered with, the ledger is made anew to go with it,
and `verify --against` must notice. The commit tests one kind for each field; the slow tests, all of them in both places."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.verify import verify
from tests.unit.trajectories.tampering import (
    BARE,
    BEGIN,
    FORMS,
    LEDGER,
    PAGE,
    Kind,
    Workplace,
    all_kinds,
    kinds_of,
    make,
    state_policy,
    table,
    tamper_file,
    tamper_rows,
    whole_kinds,
)

every_format = pytest.mark.parametrize("name", sorted(FORMS))

CONVERSATIONS = ("llamafactory", "openai", "sharegpt", BARE)
TEXT_FORMATS = ("atif", *CONVERSATIONS)
SOURCE_FIELD = "manifest.settings.source"
WITHOUT_EFFECT = {
    "manifest.settings.policies.derived": TEXT_FORMATS,
    "manifest.settings.policies.advantages": CONVERSATIONS,
}
"""Policies that change nothing in some formats: text does not need token ids, and conversations have no advantages."""


def is_unprovable(kind: Kind) -> bool:
    """Whether the graphs cannot tell: a setting that changes nothing in the format. The report then says so."""
    if kind.file == LEDGER and kind.field == SOURCE_FIELD and kind.format not in ("atif", "llamafactory", "sharegpt", BARE):
        return kind.operation in ("change", "empty")
    return kind.file == LEDGER and kind.operation == "state another" and kind.format in WITHOUT_EFFECT.get(kind.field, ())


@pytest.fixture(scope="session")
def workplaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workplace]:
    folder = tmp_path_factory.mktemp("tampering")
    return {name: Workplace(folder / name, name) for name in sorted(FORMS)}


def is_noticed(workplace: Workplace) -> bool:
    """Verify the export against its graphs, put it back in order, and return whether something was wrong."""
    try:
        return not verify(workplace.out, [workplace.source]).ok
    except TrajectoryError:
        return True
    finally:
        workplace.restore()


def unnoticed(workplace: Workplace, kinds: list[Kind], places: int) -> Iterator[str]:
    """Yield the kinds that the verifier does not notice, tried in one place or in two."""
    for kind in kinds:
        for place in kind.places[-places:]:
            if workplace.tamper(kind, place) and not is_noticed(workplace) and not is_unprovable(kind):
                yield f"{kind.name} at {place}"


def one_for_each_field(kinds: list[Kind]) -> list[Kind]:
    """Return one kind for each field, another operation for each of its neighbours."""
    fields: dict[tuple[str, str], list[Kind]] = {}
    for kind in kinds:
        fields.setdefault((kind.file, kind.field), []).append(kind)
    return [choice[number % len(choice)] for number, choice in enumerate(fields.values())]


@every_format
def test_no_field_can_be_tampered_with(name: str, workplaces: dict[str, Workplace]) -> None:
    assert verify(workplaces[name].out, [workplaces[name].source]).problems == ()
    assert list(unnoticed(workplaces[name], one_for_each_field(workplaces[name].kinds), places=1)) == []


@pytest.mark.slow
@every_format
def test_no_field_can_be_tampered_with_in_any_way(name: str, workplaces: dict[str, Workplace]) -> None:
    assert list(unnoticed(workplaces[name], workplaces[name].kinds, places=2)) == []


@every_format
def test_no_row_file_or_policy_can_be_tampered_with(name: str, workplaces: dict[str, Workplace]) -> None:
    workplace = workplaces[name]
    found = []
    for kind in whole_kinds([name]):
        if kind.file == LEDGER:
            state_policy(workplace.out, kind.field.rsplit(".", 1)[1])
        elif kind.file == "rows":
            tamper_rows(workplace.out, name, kind.operation)
        else:
            assert tamper_file(workplace.out, name, kind.operation)
        if not is_noticed(workplace) and not is_unprovable(kind):
            found.append(kind.name)
    assert found == []


@pytest.mark.parametrize("name", ["parquet", "openai"])
def test_a_setting_that_the_format_does_not_write_is_named_as_not_proven(name: str, workplaces: dict[str, Workplace]) -> None:
    report = verify(workplaces[name].out, [workplaces[name].source])
    assert "The setting source, 'hermes-agent': this format does not write it." in report.not_proven
    assert any(sentence.startswith("Policies that change nothing in this export") for sentence in report.not_proven)


def test_the_documentation_has_the_table_of_all_kinds(tmp_path: Path) -> None:
    kinds = all_kinds(tmp_path)
    assert len({kind.name for kind in kinds}) > 5_000
    written = PAGE.read_text("utf-8").split(BEGIN)[1]
    assert written == table(kinds), "write it anew: python -m tests.unit.trajectories.tampering"


def test_a_field_that_a_file_gains_is_tampered_with_too(tmp_path: Path) -> None:
    out, _ = make(tmp_path, "verl")
    text = (out / "rows.jsonl").read_text("ascii")
    before = {kind.name for kind in kinds_of("verl", out)}
    (out / "rows.jsonl").write_text(text.replace('{"extra_fields"', '{"data_source":"x","extra_fields"', 1), "ascii")
    new = {kind.operation for kind in kinds_of("verl", out) if kind.name not in before}
    assert new == {"change", "drop", "empty", "null"}
