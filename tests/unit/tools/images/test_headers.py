"""What a picture is, by its own bytes, and what is none."""

import struct
import time
import zlib

import pytest

from hermes.ports.tools import ImageUnreadable
from hermes.tools.image_headers import ImageHeader, read_header
from tests.unit.tools.images.samples import HEIGHT, JPEG, PICTURES, PNG, WIDTH

ALL = pytest.mark.parametrize("name", PICTURES)


@ALL
def test_a_picture_says_what_it_is_and_how_large(name: str) -> None:
    media_type, body = PICTURES[name]
    assert read_header(body) == ImageHeader(media_type, WIDTH, HEIGHT)
    assert read_header(body + b"what a phone adds behind it") == ImageHeader(media_type, WIDTH, HEIGHT)


@ALL
def test_half_a_picture_is_none_wherever_it_is_cut(name: str) -> None:
    body = PICTURES[name][1]
    # Of an animation the first frame is the picture: what stands behind that one of a GIF is not missed.
    end = 55 if "gif" in name else len(body)
    assert [at for at in range(len(body)) if is_readable(body[:at])] == list(range(end, len(body)))


def is_readable(body: bytes) -> bool:
    try:
        read_header(body)
    except ImageUnreadable:
        return False
    return True


@ALL
def test_damage_is_an_answer_and_never_an_accident(name: str) -> None:
    body = PICTURES[name][1]
    for at in range(len(body)):
        for value in (0x00, 0x7F, 0xFF):
            is_readable(body[:at] + bytes([value]) + body[at + 1 :])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xd8",
        b"GIF89",
        b"<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>",
        b"<!doctype html><title>Not found</title>",
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        b"\0\0\0\x1cftypavif\0\0\0\0avifmif1",
        b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0",
        b"II*\0\x08\0\0\0",
        b"%PDF-1.7\n",
        b"RIFF\x24\0\0\0WAVEfmt ",
        b"\0" * 4_000,
        b"data:image/png;base64,iVBORw0KGgo=",
    ],
)
def test_what_is_none_of_the_four_kinds_is_refused(body: bytes) -> None:
    with pytest.raises(ImageUnreadable):
        read_header(body)


def png(width: int, height: int) -> bytes:
    """A picture of a few bytes that claims a size."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return PNG[:12] + header + struct.pack(">I", zlib.crc32(header)) + PNG[33:]


def jpeg(width: int, height: int) -> bytes:
    at = JPEG.index(b"\xff\xc2") + 5
    return JPEG[:at] + struct.pack(">HH", height, width) + JPEG[at + 4 :]


@pytest.mark.parametrize("make", [png, jpeg])
def test_a_few_bytes_that_claim_millions_of_pixels_are_refused(make: object) -> None:
    assert callable(make)
    assert read_header(make(8_000, 8_000)).width == 8_000
    assert read_header(make(8_000, 8_000)).height == 8_000
    for width, height in ((8_001, 1), (1, 8_001), (65_535, 65_535), (0, 5), (5, 0)):
        with pytest.raises(ImageUnreadable, match=f"says that it is {width} by {height} pixels"):
            read_header(make(width, height))
    with pytest.raises(ImageUnreadable):
        read_header(make(101, 1), max_side=100)


def test_a_frame_that_is_larger_than_its_screen_counts() -> None:
    body = bytearray(PICTURES["gif"][1])
    at = body.index(b"\x2c", 20)
    body[at + 5 : at + 9] = struct.pack("<HH", 9_000, 7)
    with pytest.raises(ImageUnreadable, match="9000 by 7"):
        read_header(bytes(body))


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xd8\xff" + b"\xff" * 3_900_000,
        b"\xff\xd8" + b"\xff\xe0\0\2" * 970_000,
        b"\xff\xd8" + b"\xff\xd0" * 1_900_000,
        PNG[:33] + (b"\0\0\0\0teXt" + b"\0" * 4) * 320_000,
        b"GIF89a\1\0\1\0\0\0\0" + b"\x21\xfe\0" * 1_300_000,
        b"GIF89a\1\0\1\0\0\0\0" + b"\x21\xfe" + b"\1a" * 1_900_000,
        b"GIF89a\1\0\1\0\0\0\0" + (b"\x21\xfe" + b"\1a" * 900 + b"\0") * 2_000,
        b"GIF89a\1\0\1\0\0\0\0\x2c" + b"\0\0\0\0\1\0\1\0\0\2" + b"\1a" * 1_900_000,
    ],
)
def test_a_picture_made_to_keep_its_reader_busy_does_not(body: bytes) -> None:
    began = time.process_time()
    assert not is_readable(body)
    assert time.process_time() - began < 0.2
