"""The fields that an unknown one is compared with are those that there are."""

from hermes.web.chat_page import PageMessage
from hermes.web.errors import MESSAGE_FIELDS, suggest_field
from hermes.web.messages import NewMessage


def test_every_field_can_be_suggested() -> None:
    assert set(MESSAGE_FIELDS) == {*NewMessage.model_fields, *PageMessage.model_fields}


def test_the_nearest_field_is_suggested_and_a_far_one_is_not() -> None:
    assert [suggest_field(unknown) for unknown in ("txt", "media-url", "banana")] == [
        "; did you mean text?",
        "; did you mean media_url?",
        "",
    ]
