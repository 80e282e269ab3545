#!/usr/bin/env python3
"""Colors a gray picture (binary PGM) from black through red and yellow to white:
heat_picture.py in.pgm out.png"""

import struct
import sys
import zlib

with open(sys.argv[1], "rb") as source:
    kind, size, _ = source.readline(), source.readline(), source.readline()
    gray = source.read()
if kind != b"P5\n":
    sys.exit(f"error: {sys.argv[1]} is not a binary PGM (it must begin with P5)")
width, height = map(int, size.split())


# Spreads small values, because most of a plate is cold.
def color(value):
    heat = (value / 255) ** 0.5
    return bytes(min(255, max(0, int(255 * (3 * heat - shift)))) for shift in (0, 1, 2))


colors = [color(value) for value in range(256)]
rows = b"".join(
    b"\0" + b"".join(colors[v] for v in gray[y * width : (y + 1) * width]) for y in range(height)
)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


with open(sys.argv[2], "wb") as out:
    out.write(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    )
    out.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
