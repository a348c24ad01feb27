"""Makes a screenshot small: a palette of at most 256 colours. A page has few, so that the eye sees no difference."""

import struct
import zlib

import numpy as np
import numpy.typing as npt

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_COLORS = 256
Bytes = npt.NDArray[np.uint8]


def shrink_png(picture: bytes) -> bytes:
    """Return the picture with a palette. Its colours stay as they are if there are at most 256; rarer ones become the nearest of these."""
    pixels = read_png(picture)
    height, width, _ = pixels.shape
    flat = pixels.reshape(-1, 3).astype(np.uint32)
    colors, which, counts = np.unique(flat[:, 0] << 16 | flat[:, 1] << 8 | flat[:, 2], return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:MAX_COLORS])
    values = np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=1).astype(np.int32)
    distance = ((values[:, None, :] - values[kept][None, :, :]) ** 2).sum(axis=2)
    indexes = distance.argmin(axis=1).astype(np.uint8)[which.reshape(-1)].reshape(height, width)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), indexes], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return (
        SIGNATURE
        + chunk(b"IHDR", head)
        + chunk(b"PLTE", values[kept].astype(np.uint8).tobytes())
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def read_png(picture: bytes) -> Bytes:
    """Return the pixels of a picture of a browser: 8 bits, red, green and blue, with or without transparency, not interlaced."""
    chunks, at = [], len(SIGNATURE)
    while at < len(picture):
        (size,) = struct.unpack_from(">I", picture, at)
        chunks.append((picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]))
        at += size + 12
    width, height, depth, kind = struct.unpack_from(">IIBB", dict(chunks)[b"IHDR"])
    channels = {2: 3, 6: 4}[kind]
    assert depth == 8
    lines = np.frombuffer(zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT")), np.uint8).reshape(height, -1)
    pixels = np.zeros((height, width * channels), np.uint8)
    above = np.zeros(width * channels, np.uint8)
    for row, line in enumerate(lines):
        above = pixels[row] = unfilter(int(line[0]), line[1:], above, channels)
    return pixels.reshape(height, width, channels)[:, :, :3]


def unfilter(kind: int, line: Bytes, above: Bytes, channels: int) -> Bytes:
    """Undo the filter of one line, as the PNG specification numbers them."""
    if kind == 0:
        return line
    if kind == 2:
        return line + above
    out = np.zeros_like(line)
    if kind == 1:
        return np.cumsum(line.reshape(-1, channels), axis=0, dtype=np.uint8).reshape(-1)
    left = np.zeros(channels, np.int32)
    corner = np.zeros(channels, np.int32)
    for at in range(0, len(line), channels):
        up = above[at : at + channels].astype(np.int32)
        guess = (left + up) // 2 if kind == 3 else paeth(left, up, corner)
        left = (line[at : at + channels] + guess) & 255
        out[at : at + channels] = left
        corner = up
    return out


def paeth(left: npt.NDArray[np.int32], up: npt.NDArray[np.int32], corner: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    guess = left + up - corner
    to_left, to_up, to_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
    return np.where((to_left <= to_up) & (to_left <= to_corner), left, np.where(to_up <= to_corner, up, corner))
