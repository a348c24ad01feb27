"""Pictures that come with messages: what they are, what they are for, and how a model is shown them.

pictures  the port Images: fetched, checked, shown, with what the model is to do
captions  what somebody wants of a picture, by their own words in sixteen languages
headers   what a picture is, by its own bytes"""

from hermes.tools.images.message_images import MAX_BYTES, MessageImages

__all__ = ["MAX_BYTES", "MessageImages"]
