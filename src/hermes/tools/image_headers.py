"""Read from the bytes of an image its type, its size in pixels, and whether it is complete.

Nothing is decoded: the vendor of the model does that, and gets only images that it accepts. Four types are accepted, because every vendor
accepts these four."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from hermes.ports.tools import ImageUnreadable

MAX_SIDE_PIXELS = 8_000
"""Vendors refuse larger images, and a few bytes can claim millions of pixels."""
MAX_CHUNKS = 50_000
"""The most segments, chunks or blocks that are read. A real image has a fraction of that; an attack with empty chunks has millions."""

MAX_GIF_EXTENSIONS = 50
"""The most extensions before the first frame of a GIF."""

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The type and size of an image, as its bytes declare them."""

    media_type: str
    width: int
    height: int


def read_header(body: bytes, *, max_side: int = MAX_SIDE_PIXELS) -> ImageHeader:
    """Read the header of an image. Raises ImageUnreadable if it is none of the four types, cut off, damaged, or too wide or high."""
    for signature, media_type, size_of in KINDS:
        if body.startswith(signature):
            try:
                width, height = size_of(body)
            except (IndexError, struct.error):
                raise ImageUnreadable(f"the {media_type} is cut off") from None
            if not (0 < width <= max_side and 0 < height <= max_side):
                raise ImageUnreadable(f"the {media_type} says that it is {width} by {height} pixels")
            return ImageHeader(media_type, width, height)
    raise ImageUnreadable("it is neither JPEG, PNG, WebP nor GIF")


def jpeg_size(body: bytes) -> Size:
    """Read the size from the frame header before the first scan. A JPEG without an end marker after it is cut off."""
    at, size = 2, None
    for _ in range(MAX_CHUNKS):
        filled = FILLING.match(body, at)
        if filled is None:
            break
        marker, at = body[filled.end()], filled.end() + 1
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:  # these have no length
            continue
        [length] = struct.unpack_from(">H", body, at)
        if marker in FRAMES:
            height, width = struct.unpack_from(">HH", body, at + 3)
            size = (width, height)
        at += length
        if marker == 0xDA:
            if size is None:
                break
            if body.find(b"\xff\xd9", at) < 0:
                raise IndexError
            return size
    raise ImageUnreadable("the image/jpeg is damaged")


FILLING = re.compile(rb"\xff+")
"""Fill bytes before a marker; their number is free."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The markers of frame headers of every compression; the other markers of that range are tables."""


def png_size(body: bytes) -> Size:
    """Read the size from the header. Its checksum must match, and all chunks up to the last one must be present."""
    length, name = struct.unpack_from(">I4s", body, 8)
    width, height = struct.unpack_from(">II", body, 16)
    [checksum] = struct.unpack_from(">I", body, 29)
    at, has_data = 8, False
    if (length, name, checksum) == (13, b"IHDR", zlib.crc32(body[12:29])):
        for _ in range(MAX_CHUNKS):
            length, name = struct.unpack_from(">I4s", body, at)
            at += 12 + length
            if at > len(body):
                raise IndexError
            has_data = has_data or name == b"IDAT"
            if name == b"IEND" and has_data:
                return width, height
    raise ImageUnreadable("the image/png is damaged")


def gif_size(body: bytes) -> Size:
    """Read the size from the screen and the first frame, which must be complete. Models do not see the later frames."""
    width, height, flags = struct.unpack_from("<HHB", body, 6)
    at = 13 + colour_table_bytes(flags)
    for _ in range(MAX_GIF_EXTENSIONS):
        match body[at]:
            case 0x21:
                at = blocks_end(body, at + 2, max_blocks=MAX_CHUNKS // MAX_GIF_EXTENSIONS)
            case 0x2C:
                left, top, wide, high, flags = struct.unpack_from("<HHHHB", body, at + 1)
                blocks_end(body, at + 11 + colour_table_bytes(flags), max_blocks=MAX_CHUNKS)
                return max(width, left + wide), max(height, top + high)
            case _:
                break
    raise ImageUnreadable("the image/gif is damaged")


def colour_table_bytes(flags: int) -> int:
    """Return the length of a colour table in bytes."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def blocks_end(body: bytes, at: int, *, max_blocks: int) -> int:
    """Return the position after a series of data blocks."""
    for _ in range(max_blocks):
        if body[at] == 0:
            return at + 1
        at += 1 + body[at]
    raise ImageUnreadable("the image/gif is damaged")


def webp_size(body: bytes) -> Size:
    """Read the size from the first chunk: of a lossy image, a lossless one, or the canvas of an extended one."""
    length, kind, name, first = struct.unpack_from("<I4s4sI", body, 4)
    if 8 + length > len(body) or 12 + first > length:
        raise IndexError
    match kind, name:
        case b"WEBP", b"VP8 " if body[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", body, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"WEBP", b"VP8L" if body[20] == 0x2F:
            [bits] = struct.unpack_from("<I", body, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"WEBP", b"VP8X" if first >= 10 and 20 + first < 8 + length:
            return 1 + int.from_bytes(body[24:27], "little"), 1 + int.from_bytes(body[27:30], "little")
    raise ImageUnreadable("the image/webp is damaged")


KINDS: tuple[tuple[bytes, str, Callable[[bytes], Size]], ...] = (
    (b"\xff\xd8\xff", "image/jpeg", jpeg_size),
    (b"\x89PNG\r\n\x1a\n", "image/png", png_size),
    (b"RIFF", "image/webp", webp_size),
    (b"GIF87a", "image/gif", gif_size),
    (b"GIF89a", "image/gif", gif_size),
)
