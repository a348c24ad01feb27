"""The lock, the extras and the readers' lists install together."""

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.requirements import PROJECT, ROOT, disagreements, listed, pins, required


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_the_lock_pins_what_every_extra_allows(extra: str) -> None:
    asked = list(required(extra))
    assert asked
    assert disagreements(asked, pins()) == []


@pytest.mark.parametrize("extra", ["all", "dev"])
def test_the_lock_holds_everything_that_a_user_and_a_developer_need(extra: str) -> None:
    assert {canonicalize_name(requirement.name) for requirement in required(extra)} <= pins().keys()


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "readers").glob("requirements*.txt")), ids=lambda path: path.stem)
def test_the_readers_use_what_is_locked_so_that_they_say_what_users_will_see(path: object) -> None:
    asked = listed(path)  # type: ignore[arg-type]
    assert len(asked) > 5
    assert disagreements(asked, pins()) == []


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "readers").glob("requirements*.txt")), ids=lambda path: path.stem)
def test_a_readers_list_names_all_that_an_export_needs_so_that_no_other_library_has_to_bring_it(path: object) -> None:
    named = {canonicalize_name(requirement.name) for requirement in listed(path)}  # type: ignore[arg-type]
    assert {canonicalize_name(requirement.name) for requirement in required("export")} - named == set()


def test_finds_a_pin_that_an_extra_does_not_allow() -> None:
    locked = {"pyarrow": [Version("25.0.1"), Version("26.0.1")], "tqdm": [Version("4.70")]}
    asked = [Requirement("PyArrow>=16,<26"), Requirement("tqdm"), Requirement("daft[ray]>=0.7")]
    assert disagreements(asked, locked) == ["PyArrow<26,>=16: the lock pins 26.0.1"]
