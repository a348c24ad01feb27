"""Images that come with messages: their type, what the user wants, and how a model sees them.

message_images  the port Images: fetches and checks the images, and tells the model what to do
captions        what the user wants of an image, read from the caption in sixteen languages
headers         the type and size of an image, read from its bytes"""

from hermes.tools.images.message_images import MAX_BYTES, MessageImages

__all__ = ["MAX_BYTES", "MessageImages"]
