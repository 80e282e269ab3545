#!/usr/bin/env python3
"""Makes the image of a region, as the reconfiguration controller takes it (README.md has the format).

usage: image.py --kernel NUMBER [--bytes N | --body FILE] [--shell ID] [--region N] OUT

The live model finds a kernel's logic by its number and never looks into the body, whose bytes stand for a partial
bitstream of that size: without --body they are pseudo-random, drawn from the kernel's number.
"""

import argparse
import pathlib
import random
import struct
import sys
import zlib

MAGIC, VERSION, ANY_REGION, ALIGNMENT = b"BLRG", 1, 0xFFFFFFFF, 256


def image(kernel, body, shell=1, region=ANY_REGION):
    if not body or len(body) % 4:
        raise ValueError("a body is a multiple of four bytes, and not empty")
    head = MAGIC + struct.pack("<6I", VERSION, shell, region, len(body), zlib.crc32(body), kernel)
    whole = head + struct.pack("<I", zlib.crc32(head)) + body
    return whole + bytes(-len(whole) % ALIGNMENT)


def stand_in(kernel, size):
    return random.Random(kernel).randbytes(size)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--kernel", type=int, required=True, help="number of the kernel")
    body = arguments.add_mutually_exclusive_group()
    body.add_argument("--bytes", type=int, default=131072, help="size of a body that stands for a bitstream (131072)")
    body.add_argument("--body", type=pathlib.Path, help="file with the body")
    arguments.add_argument("--shell", type=lambda t: int(t, 0), default=1, help="id of the shell (1)")
    arguments.add_argument("--region", type=int, default=ANY_REGION, help="the region that it is for (any)")
    arguments.add_argument("out", type=pathlib.Path)
    options = arguments.parse_args()
    content = options.body.read_bytes() if options.body else stand_in(options.kernel, options.bytes)
    try:
        options.out.write_bytes(image(options.kernel, content, options.shell, options.region))
    except (ValueError, struct.error) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
