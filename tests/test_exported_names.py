"""The public door: everything promised is there, comes from hermes, and nothing else sticks out."""

import pytest

import hermes
import hermes.graph


def test_all_is_sorted_and_complete() -> None:
    assert hermes.__all__ == sorted(hermes.__all__)
    names = {*dir(hermes), *hermes.__all__} - {"import_module"}
    public = {name for name in names if not name.startswith("_") and getattr(getattr(hermes, name), "__module__", None)}
    assert public == set(hermes.__all__)


def test_an_unknown_name_is_refused_as_any_module_does() -> None:
    with pytest.raises(AttributeError, match="module 'hermes' has no attribute 'Nothing'"):
        _ = hermes.Nothing


def test_the_contract_names_are_there() -> None:
    promised = {"MessageGraph", "Message", "CallRecord", "GraphError", "MessageError", "CodecError", "StaleItemError", "FrozenError"}
    assert promised <= set(hermes.__all__)


def test_the_door_shows_the_rooms_own_objects() -> None:
    assert set(hermes.__all__) == set(hermes.graph.__all__)
    assert all(getattr(hermes, name) is getattr(hermes.graph, name) for name in hermes.__all__)


def test_every_error_has_its_docstring_as_default_message() -> None:
    errors = [getattr(hermes, name) for name in hermes.__all__ if isinstance(getattr(hermes, name), type)]
    errors = [error for error in errors if issubclass(error, Exception)]
    assert len(errors) == 10
    assert all(issubclass(error, hermes.GraphError) and error.__doc__ for error in errors)
    assert str(hermes.StaleItemError()) == hermes.StaleItemError.__doc__


def test_every_public_thing_says_what_it_is() -> None:
    for name in hermes.__all__:
        assert getattr(hermes, name).__doc__, name
