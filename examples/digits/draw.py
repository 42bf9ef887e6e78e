"""Draws small grey pictures in a terminal: two pixels a character, in greys where the terminal has
colours and in shades of ink where it has not. And large ones into files."""

import os
import struct
import sys
import zlib

SHADES = " .:-=+*#%@"


def has_colour():
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and \
        "NO_COLOR" not in os.environ


def grey(level):
    """0..1 to one of the 24 greys of the 256-colour palette."""
    return 232 + min(23, max(0, round(level * 23)))


def rows_in_colour(picture):
    """Upper half block: the foreground is the upper pixel, the background the lower."""
    for upper, lower in zip(picture[0::2], picture[1::2]):
        cells = (f"\x1b[38;5;{grey(a)};48;5;{grey(b)}m▀▀" for a, b in zip(upper, lower))
        yield "".join(cells) + "\x1b[0m"


def rows_in_ink(picture):
    for row in picture:
        yield "".join(SHADES[min(9, int(value * 9.99))] * 2 for value in row)


def rows(picture):
    """The lines of a picture (rows of numbers from 0 to 1), all of the same visible width."""
    return list(rows_in_colour(picture) if has_colour() else rows_in_ink(picture))


def png(picture, zoom):
    """A picture (rows of numbers from 0 to 1), each pixel so many wide and high, as a PNG file."""
    def chunk(name, data):
        return struct.pack("!I", len(data)) + name + data + struct.pack("!I", zlib.crc32(name + data))
    lines = [bytes([round(value * 255) for value in row for _ in range(zoom)]) for row in picture]
    data = b"".join(b"\0" + line for line in lines for _ in range(zoom))
    head = struct.pack("!IIBBBBB", len(lines[0]), len(lines) * zoom, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data))
            + chunk(b"IEND", b""))


def bold(text):
    return f"\x1b[1m{text}\x1b[0m" if has_colour() else text


def dim(text):
    return f"\x1b[2m{text}\x1b[0m" if has_colour() else text


def good(text):
    return f"\x1b[32m{text}\x1b[0m" if has_colour() else text


def bad(text):
    return f"\x1b[1;31m{text}\x1b[0m" if has_colour() else text
