#!/usr/bin/env python3
"""Tests the board's UDP with an echo and Linux' own UDP.

usage: udp_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import random
import socket
import sys

from client import alive
from harness import (
    BOARD_IP,
    PATIENCE_S,
    Board,
    Wire,
    checksum,
    enter_namespace,
    ethernet,
    ipv4,
    run,
)

PORT = 7007


def udp(payload, port=PORT, source="10.99.0.77", spoil=0, without=False):
    head = (
        (5000).to_bytes(2, "big") + port.to_bytes(2, "big") + (8 + len(payload)).to_bytes(2, "big")
    )
    pseudo = (
        socket.inet_aton(source)
        + socket.inet_aton(BOARD_IP)
        + b"\0\x11"
        + (8 + len(payload)).to_bytes(2, "big")
    )
    total = checksum(pseudo + head + b"\0\0" + payload) or 0xFFFF
    return ethernet(
        ipv4(head + (0 if without else total ^ spoil).to_bytes(2, "big") + payload, 17, source)
    )


def received(wire, seconds=0.5):
    """Payload of the next datagram from the board; its checksums are checked here,
    because Linux has not checked them."""
    while (frame := wire.receive(seconds)) is not None:
        if frame[12:14] == b"\x08\0" and frame[23] == 17:
            packet = frame[14 : 14 + int.from_bytes(frame[16:18], "big")]
            assert checksum(packet[:20]) == 0 and packet[26:28] != b"\0\0"
            assert checksum(packet[12:20] + b"\0\x11" + packet[24:26] + packet[20:]) == 0
            return packet[28:]
    return None


def test_echo():
    draw = random.Random(1)
    with (
        Board("--udp-echo", PORT, log="udp"),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s,
    ):
        s.settimeout(PATIENCE_S)
        s.connect((BOARD_IP, PORT))
        for length in [*range(70), 1000, 1471, 1472, *(draw.randrange(1473) for _ in range(200))]:
            body = draw.randbytes(length)
            s.send(body)
            assert s.recv(2000) == body, length
        alive()


def test_what_is_not_taken():
    with Board("--udp-echo", PORT, log="udp-bad"), Wire() as wire:
        wire.clear()
        wire.send(udp(b"another port", PORT + 1))
        wire.send(udp(b"a wrong checksum", spoil=1))
        assert received(wire) is None
        wire.send(udp(b"no checksum", without=True))
        assert received(wire) == b"no checksum"
        wire.send(udp(b"a right one"))
        assert received(wire) == b"a right one"
        alive()


def test_closed_unless_asked_for():
    with Board(log="udp-closed"), Wire() as wire:
        wire.clear()
        wire.send(udp(b"nobody"))
        assert received(wire) is None
        alive()


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
