#!/usr/bin/env python3
"""Tests the options that the board's TCP negotiates: window scaling,
segment by segment and with Linux.

usage: tcp_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import random
import re
import struct
import subprocess
import sys

from client import Answers, alive, connect, echo, request
from harness import (
    ACK,
    DEVICE,
    ISLANDS,
    LOGS,
    PATIENCE_S,
    PSH,
    RING_BYTES,
    RST,
    SYN,
    Board,
    RawConnection,
    Wire,
    enter_namespace,
    ethernet,
    frames_of,
    ipv4,
    run,
    tcp,
)

LINUX = bytes.fromhex("020405b40402080a000000010000000001030307")  # MSS, SACK, timestamps, scale 7
OWN_SHIFT = 9  # a receive ring of 16 MB


def opened(wire, options):
    """A connection whose SYN has these options, and the options of the reply."""
    c = RawConnection(wire)
    wire.clear()
    c.send(SYN, options=options)
    while (frame := wire.receive(PATIENCE_S)) is not None:
        if frame[23] == 6 and frame[36:38] == struct.pack("!H", c.port):
            break
    assert frame is not None and frame[47] == SYN | ACK, frame
    seq, ack, offset = struct.unpack("!IIB", frame[38:47])
    c.seq = (c.seq + 1) & 0xFFFFFFFF
    assert ack == c.seq
    c.ack = (seq + 1) & 0xFFFFFFFF
    return c, frame[54 : 34 + (offset >> 4) * 4]


def received(c):
    """The unacknowledged data, in order, until no more arrives; and the last window."""
    data, window, patience = b"", None, 10
    while (segment := c.receive(patience)) is not None:
        _, seq, _, window, payload = segment
        if payload and (seq - c.ack) & 0xFFFFFFFF == len(data):
            data += payload
            patience = 0.15  # less than the first retransmission timeout
        elif data and payload:
            break
    return data, window


def test_scaled_windows():
    with Board(log="scaled"), Wire() as wire:
        c, options = opened(wire, LINUX)
        assert options == bytes.fromhex("020405b4010303") + bytes([OWN_SHIFT]), options.hex()
        c.send(ACK, window=8)  # 1,024 bytes
        text = request(random.Random(1).randbytes(6000))
        for at in range(0, len(text), 1000):
            c.send(ACK | PSH, text[at : at + 1000], seq=c.seq + at, window=8)
        c.seq += len(text)
        data, window = received(c)
        assert len(data) == 1024, len(data)
        # The free part of the ring: more than 16 bits can represent.
        assert RING_BYTES - 8000 <= window << OWN_SHIFT <= RING_BYTES, window
        c.ack += 1024
        c.send(ACK, window=23)  # two full segments, and 24 bytes, too few for a third
        data += received(c)[0]
        assert len(data) == 1024 + 2 * 1460, len(data)
        c.ack += 2 * 1460
        c.send(ACK, window=1000)
        data += received(c)[0]
        assert data.endswith(text[-6000:])


def test_windows_are_not_scaled_unasked():
    with Board(log="unscaled"), Wire() as wire:
        c, options = opened(wire, bytes.fromhex("020405b4"))
        assert options == bytes.fromhex("020405b4"), options.hex()
        c.send(ACK, window=700)
        text = request(b"z" * 900)
        c.send(ACK | PSH, text, window=700)
        c.seq += len(text)
        data, window = received(c)
        assert len(data) == 700 and window == 65535, (len(data), window)


def test_options_that_lie():
    draw = random.Random(2)
    with Board(log="options"), Wire() as wire:
        for _ in range(300):
            words = draw.randrange(1, 11)
            options = bytearray(LINUX + LINUX)[: 4 * words]
            for _ in range(draw.randrange(4)):
                options[draw.randrange(len(options))] = draw.randrange(256)
            _, answer = opened(wire, bytes(options))
            assert answer[:4] == bytes.fromhex("020405b4") and len(answer) in (4, 8), answer.hex()
        alive()


def test_linux_scales():
    with Board(log="linux"):
        s = connect()
        s.sendall(request(b"there"))
        assert Answers(s).next() == (200, b"there")
        text = subprocess.run(
            ["ss", "-tin", "dport", "=", ":80"], capture_output=True, text=True, check=True
        ).stdout
        assert re.search(rf"wscale:{OWN_SHIFT},", text), text


def test_a_long_fat_link():
    """More than 64 KB are in flight in each direction, also with losses."""
    body = random.Random(3).randbytes(900000)
    lossy = ["--delay", 10, "--seed", 4, "--loss", "0.01", "--reorder", "0.01"]
    # Without islands each loss and each reordering causes the retransmission of a whole window
    # (docs/board.md).
    for options in [["--delay", 40], *([lossy] if ISLANDS else [])]:
        with Board(*options, log="fat"):
            assert echo(body) == body


def test_frames_of_9000_bytes():
    body = random.Random(5).randbytes(900000)
    pcap = LOGS / "jumbo.pcap"
    subprocess.run(["ip", "link", "set", DEVICE, "mtu", "9000"], check=True)
    try:
        with Board("--pcap", pcap, log="jumbo", model="board-jumbo"):
            out = echo(body)
            assert out == body
            alive()
        lengths = frame_lengths(pcap)
        # In each direction most data was sent in frames of the maximum size.
        assert lengths[True].count(9014) > 50 and lengths[False].count(9014) > 50, {
            k: sorted(v)[-5:] for k, v in lengths.items()
        }
        # A peer with an MTU of 1,500 gets frames that it accepts.
        subprocess.run(["ip", "link", "set", DEVICE, "mtu", "1500"], check=True)
        with Board("--pcap", pcap, log="jumbo", model="board-jumbo"):
            out = echo(body)
            assert out == body
        assert max(frame_lengths(pcap)[True]) == 1514
    finally:
        subprocess.run(["ip", "link", "set", DEVICE, "mtu", "1500"], check=True)


def test_frames_longer_than_the_board_takes():
    draw = random.Random(15)
    source, body = "10.99.0.77", random.Random(16).randbytes(100000)
    subprocess.run(["ip", "link", "set", DEVICE, "mtu", "9000"], check=True)
    try:
        with Board(log="long"), Wire() as wire:
            s = connect()
            answers = Answers(s)
            for length in (1515, 1516, 1523, 2048, 4097, 9014):
                payload = draw.randbytes(length - 54)
                for flags in (ACK, ACK | PSH, SYN, RST):
                    wire.send(ethernet(ipv4(tcp(source, 5000, 1, 1, flags, payload), 6, source)))
                wire.send(
                    ethernet(ipv4(draw.randbytes(length - 34), draw.choice([1, 6, 17]), source))
                )
                wire.send(ethernet(draw.randbytes(length - 14), draw.choice([0x0800, 0x0806, 5])))
                # Existing connections are not affected.
                s.sendall(request(b"after %d" % length, "uppercase"))
                assert answers.next() == (200, b"AFTER %d" % length), length
            alive()
            assert echo(body) == body
    finally:
        subprocess.run(["ip", "link", "set", DEVICE, "mtu", "1500"], check=True)


def frame_lengths(pcap):
    """The lengths of the frames that the board sent (True) and received (False)."""
    lengths = {True: [], False: []}
    for direction, _, frame in frames_of(pcap):
        lengths[direction == 2].append(len(frame))
    return lengths


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
