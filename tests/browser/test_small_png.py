"""Pictures of the documentation keep their colours when they are made small."""

import struct
import zlib

import numpy as np
import numpy.typing as npt
import pytest

from tests.browser.small_png import SIGNATURE, chunk, paeth, read_png, shrink_png

Pixels = npt.NDArray[np.uint8]


def write_png(pixels: Pixels, filters: list[int]) -> bytes:
    """The picture as a browser could write it, with a filter for each row."""
    height, width, channels = pixels.shape
    rows, above = [], np.zeros(width * channels, np.int32)
    for row, kind in zip(pixels.reshape(height, -1).astype(np.int32), filters, strict=True):
        left = np.concatenate([np.zeros(channels, np.int32), row[:-channels]])
        corner = np.concatenate([np.zeros(channels, np.int32), above[:-channels]])
        guess = [np.zeros_like(row), left, above, (left + above) // 2, paeth(left, above, corner)][kind]
        rows.append(bytes([kind]) + ((row - guess) & 255).astype(np.uint8).tobytes())
        above = row
    head = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")


def read_palette(picture: bytes) -> Pixels:
    """The pixels of a picture that shrink_png wrote."""
    width, height = struct.unpack_from(">II", picture, 16)
    palette_at, body_at = picture.index(b"PLTE"), picture.index(b"IDAT")
    palette = np.frombuffer(picture[palette_at + 4 : body_at - 8], np.uint8).reshape(-1, 3)
    return palette[np.frombuffer(zlib.decompress(picture[body_at + 4 : -16]), np.uint8).reshape(height, width + 1)[:, 1:]]


@pytest.mark.parametrize("channels", [3, 4])
def test_few_colours_stay_exactly_as_they_are(channels: int) -> None:
    random = np.random.default_rng(1)
    colors = random.integers(0, 256, (200, channels), np.uint8)
    pixels = colors[random.integers(0, 200, (10, 30))]
    picture = write_png(pixels, [0, 1, 2, 3, 4] * 2)
    assert np.array_equal(read_png(picture), pixels[:, :, :3])
    assert np.array_equal(read_palette(shrink_png(picture)), pixels[:, :, :3])


def test_of_many_colours_the_frequent_stay_and_the_others_come_near() -> None:
    pixels = np.zeros((11, 250, 3), np.uint8)
    pixels[:, :, 0] = np.arange(250)
    pixels[10, :, 1] = 1  # each of these colours is there once, the others ten times
    small = read_palette(shrink_png(write_png(pixels, [0] * 11)))
    assert np.array_equal(small[:10], pixels[:10])
    assert abs(small[10].astype(int) - pixels[10]).max() == 1
    assert len(np.unique(small.reshape(-1, 3), axis=0)) == 256
