#!/usr/bin/env python3
"""Creates the image of a region for the reconfiguration controller (README.md has the format).

usage: image.py --kernel NUMBER [--bytes N | --body FILE] [--shell ID] [--region N]
                [--name NAME [--scalars NAME[,NAME…]] [--timeout CYCLES] [--speed N]] OUT

The live model finds a kernel's logic by its number and ignores the body, whose bytes represent a
partial bitstream of that size: without --body they are pseudo-random, drawn from the kernel's
number. With --name the image contains the name of its kernel and its scalars, which a program that
uploads it over the host port needs.
"""

import argparse
import pathlib
import random
import re
import struct
import sys
import zlib

MAGIC, VERSION, ANY_REGION, ALIGNMENT = b"BLRG", 1, 0xFFFFFFFF, 256
DESCRIPTION, NAME_BYTES, SCALAR_BYTES, SCALARS, TIMEOUT = b"BLRN", 15, 8, 4, 1 << 24


def image(kernel, body, shell=1, region=ANY_REGION):
    if not body or len(body) % 4:
        raise ValueError("a body must have a multiple of four bytes, and must not be empty")
    head = MAGIC + struct.pack("<6I", VERSION, shell, region, len(body), zlib.crc32(body), kernel)
    whole = head + struct.pack("<I", zlib.crc32(head)) + body
    return whole + bytes(-len(whole) % ALIGNMENT)


def description(name, scalars=(), timeout=TIMEOUT, speed=0):
    plain = lambda text, most: re.fullmatch(f"[A-Za-z0-9_-]{{1,{most}}}", text)
    if (
        not plain(name, NAME_BYTES)
        or len(scalars) > SCALARS
        or not all(plain(s, SCALAR_BYTES) for s in scalars)
    ):
        raise ValueError(
            f"a name must have 1 to {NAME_BYTES} letters, digits, - and _, and up to {SCALARS} "
            f"scalars of up to {SCALAR_BYTES}"
        )
    names = b"".join(s.encode().ljust(SCALAR_BYTES, b"\0") for s in scalars).ljust(
        SCALARS * SCALAR_BYTES, b"\0"
    )
    head = (
        DESCRIPTION
        + struct.pack("<I16s", VERSION, name.encode())
        + names
        + struct.pack("<II", timeout, speed)
    )
    return (head + struct.pack("<I", zlib.crc32(head))).ljust(ALIGNMENT, b"\0")


def stand_in(kernel, size):
    return random.Random(kernel).randbytes(size)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--kernel", type=int, required=True, help="number of the kernel")
    body = arguments.add_mutually_exclusive_group()
    body.add_argument("--bytes", type=int, default=131072, help="size of a generated body (131072)")
    body.add_argument("--body", type=pathlib.Path, help="file with the body")
    arguments.add_argument(
        "--shell", type=lambda t: int(t, 0), default=1, help="id of the shell (1)"
    )
    arguments.add_argument(
        "--region", type=int, default=ANY_REGION, help="the region for the image (any)"
    )
    arguments.add_argument(
        "--name", help="name of the kernel: letters, digits, - and _, up to 15 (none)"
    )
    arguments.add_argument("--scalars", default="", help="names of its scalars, with commas")
    arguments.add_argument(
        "--timeout",
        type=int,
        default=TIMEOUT,
        help=f"maximum cycles of a call ({TIMEOUT}; 0: unlimited)",
    )
    arguments.add_argument(
        "--speed", type=int, default=0, help="log2 of the cycles for 8 bytes (0)"
    )
    arguments.add_argument("out", type=pathlib.Path)
    options = arguments.parse_args()
    content = options.body.read_bytes() if options.body else stand_in(options.kernel, options.bytes)
    try:
        whole = image(options.kernel, content, options.shell, options.region)
        if options.name:
            scalars = [name for name in options.scalars.split(",") if name]
            whole += description(options.name, scalars, options.timeout, options.speed)
        options.out.write_bytes(whole)
    except (ValueError, struct.error) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
