"""References to files: they name the account, and what is none is left to the web."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.webhook_values import FileReference, reference_of
from hermes.ports.channels import Media
from hermes.turn import Platform


@given(platform=st.sampled_from([Platform.TELEGRAM, Platform.WHATSAPP]), account=st.text(min_size=1), file_id=st.text(min_size=1))
def test_what_is_written_is_what_is_read(platform: Platform, account: str, file_id: str) -> None:
    media = Media(reference=f"{platform}:{file_id}", kind="image")
    written = reference_of(media, account)
    assert written is not None
    read = FileReference.read(written)
    assert read == FileReference(platform, account, file_id)
    assert read.bare == media.reference


def test_a_reference_names_platform_account_and_file() -> None:
    assert reference_of(Media(reference="telegram:AgAC", kind="image"), "bali") == "telegram:bali/AgAC"
    assert reference_of(Media(reference="https://cdn.example/x", kind="image"), "bali") == "https://cdn.example/x"
    assert reference_of(None, "bali") is None


@pytest.mark.parametrize(
    "text", ["", "telegram:", "telegram:AgAC", "telegram:bali/", "telegram:/AgAC", "rest:bali/1", "https://cdn.example/x", "bali/AgAC"]
)
def test_everything_else_is_none(text: str) -> None:
    assert FileReference.read(text) is None
