#!/usr/bin/env python3
"""Tests the board's model over links that lose, delay and damage frames, and with hand-made frames.

usage: frames_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import concurrent.futures
import random
import socket
import struct
import sys
import time

from client import (
    FAULTY,
    LESS_FAULTY,
    URL,
    Answers,
    alive,
    call,
    connect,
    curl,
    echo,
    metrics,
    patient,
    request,
)
from harness import (
    ACK,
    BOARD_IP,
    FIN,
    ISLANDS,
    PATIENCE_S,
    PSH,
    RST,
    SYN,
    Board,
    RawConnection,
    Wire,
    enter_namespace,
    ethernet,
    ipv4,
    run,
    tcp,
)


def test_faulty_link():
    def client(i):
        draw = random.Random(i)
        for size in [10, 1000, 20000, 60000]:
            body = draw.randbytes(size)
            out = patient(lambda: echo(body, seconds=40))
            if out != body:
                return False
        return True

    with Board("--seed", 7, *FAULTY, log="faulty"):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(pool.map(client, range(8)))
        assert patient(metrics)["segments_retransmitted_total"] > 0


def test_faulty_link_bulk():
    body = random.Random(5).randbytes(300000)
    # A board without islands has everything after a gap retransmitted, and Linux waits for a timer,
    # twice as long each time, whenever part of that is lost,
    # too (docs/board.md has the measured times).
    with Board("--seed", 8, *(FAULTY if ISLANDS else LESS_FAULTY), log="faulty-bulk"):
        assert (
            patient(
                lambda: echo(body, seconds=30),
                10,
            )
            == body
        )


def test_long_link():
    body = random.Random(6).randbytes(200000)
    with Board("--delay", 50, log="delay"):
        assert curl("--data-binary", "@-", f"{URL}/function/echo", body=body) == body


def test_closed_window():
    body = random.Random(7).randbytes(1 << 20)
    with Board():
        s = connect(20, receive_buffer=4096)
        s.sendall(request(body)[: -len(body)])
        with concurrent.futures.ThreadPoolExecutor() as pool:
            sent = pool.submit(s.sendall, body)
            sent.result()
            time.sleep(2)  # the window is closed, and probed
            assert Answers(s).next() == (200, body)
        alive()


def test_keep_alive_probes():
    with Board():
        s = connect()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
        time.sleep(5)
        s.sendall(request(b"there"))
        assert Answers(s).next() == (200, b"there")


def test_refused_ports():
    with Board():
        for port in [1, 22, 79, 81, 443, 65535]:
            s = socket.socket()
            s.settimeout(PATIENCE_S)
            try:
                s.connect((BOARD_IP, port))
            except ConnectionRefusedError:
                continue
            raise AssertionError(f"port {port} is open")


def test_syn_flood():
    draw = random.Random(9)
    with Board(), Wire() as wire:
        for i in range(20000):
            source = f"10.99.{draw.randrange(1, 250)}.{draw.randrange(1, 250)}"
            segment = tcp(
                source,
                draw.randrange(1024, 65536),
                draw.randrange(1 << 32),
                0,
                SYN,
                options=b"\x02\x04\x05\xb4",
            )
            wire.send(ethernet(ipv4(segment, 6, source)))
            if i % 5000 == 4999:
                alive()
        alive()


def test_ack_and_reset_floods():
    draw = random.Random(10)
    with Board(), Wire() as wire:
        s = connect()
        for flags in (ACK, RST, FIN | ACK, SYN | ACK, 0, 0x3F):
            for _ in range(1500):
                source = f"10.99.{draw.randrange(1, 250)}.{draw.randrange(1, 250)}"
                segment = tcp(
                    source,
                    draw.randrange(65536),
                    draw.randrange(1 << 32),
                    draw.randrange(1 << 32),
                    flags,
                    b"x" * draw.randrange(30),
                )
                wire.send(ethernet(ipv4(segment, 6, source)))
        s.sendall(request(b"unharmed"))
        assert Answers(s).next() == (200, b"unharmed")
        alive()


def test_bad_checksums_are_ignored():
    with Board(), Wire() as wire:
        good = lambda **c: ethernet(
            ipv4(tcp("10.99.0.77", 5000, 1, 0, SYN, **c.pop("tcp", {})), 6, "10.99.0.77", **c)
        )
        echo = lambda spoil: ethernet(
            ipv4(struct.pack("!BBHHH", 8, 0, (0xF7FF - 2) ^ spoil, 1, 1), 1, "10.99.0.77")
        )
        for frame in [
            good(tcp=dict(spoil=1)),
            good(spoil=0x100),
            good(fragment=0x2000),
            good(fragment=1),
            good(version=0x46),
            good(length=39),
            good(length=2000),
            echo(1),
        ]:
            wire.clear()
            wire.send(frame)
            answer = wire.receive(0.1)
            assert answer is None, answer.hex()
        for frame in [good(), echo(0)]:
            wire.clear()
            wire.send(frame)
            assert wire.receive(PATIENCE_S) is not None
        alive()


def test_truncated_and_random_frames():
    draw = random.Random(11)
    source = "10.99.0.77"
    with Board(), Wire() as wire:
        whole = ethernet(
            ipv4(tcp(source, 5000, 1, 1, ACK | PSH, b"GET /healthz HTTP/1.1\r\n\r\n"), 6, source)
        )
        for n in range(14, len(whole)):
            wire.send(whole[:n])
        for _ in range(4000):
            frame = bytearray(whole)
            for _ in range(draw.randrange(1, 6)):
                frame[draw.randrange(12, len(frame))] = draw.randrange(256)
            wire.send(bytes(frame))
        for _ in range(1000):
            wire.send(
                ethernet(
                    draw.randbytes(draw.randrange(1, 1500)),
                    draw.choice([0x0800, 0x0806, 0x86DD, 5]),
                )
            )
        alive()


def test_segments_out_of_order_overlapping_and_stale():
    body = bytes(range(256)) * 4
    with Board(), Wire() as wire:
        c = RawConnection(wire).open()
        start = c.seq
        text = request(body)

        def part(a, b, **change):
            c.send(ACK, text[a:b], seq=start + a, **change)

        part(100, 200)  # a gap: the expected position is acknowledged at once
        assert c.receive(PATIENCE_S)[2] == start
        part(0, 50)
        part(0, 50)  # again
        part(30, 120)  # half of it already received
        part(90, 300, spoil=1)  # damaged
        part(110, 1000)
        part(1000, len(text))
        got, seen = b"", c.ack
        while (answer := c.receive(PATIENCE_S)) is not None:
            flags, seq, ack, _, payload = answer
            if payload and seq == seen & 0xFFFFFFFF:
                got += payload
                seen += len(payload)
            c.send(ACK, seq=start + len(text), ack=seen)
            if got.endswith(body):
                break
        assert got.endswith(body), got[-40:]
        # A blind reset in the window gets a challenge ACK, an exact one works (RFC 5961).
        wire.clear()
        c.send(RST, seq=start + len(text) + 5, ack=seen)
        challenge = c.receive(PATIENCE_S)
        assert challenge and challenge[0] == ACK, challenge
        c.send(SYN, seq=start + len(text) + 5, ack=seen)
        assert c.receive(PATIENCE_S)[0] == ACK
        # A keep-alive probe gets an acknowledgment.
        c.send(ACK, seq=start + len(text) - 1, ack=seen)
        answer = c.receive(PATIENCE_S)
        assert answer and answer[2] == (start + len(text)) & 0xFFFFFFFF
        assert metrics()["connections"] == 2
        c.send(RST, seq=start + len(text), ack=seen)
        assert metrics()["connections"] == 1
        alive()


def test_lost_answers_are_sent_again():
    with Board(), Wire() as wire:
        call("echo")  # from here on it is loaded, and replies before a separate ACK is due
        c = RawConnection(wire).open()
        text = request(b"again")
        c.send(ACK | PSH, text)
        first = c.receive(PATIENCE_S)
        # Without acknowledgments the same bytes are retransmitted, with growing intervals.
        started = time.monotonic()
        second, third = c.receive(PATIENCE_S), c.receive(PATIENCE_S)
        assert first[1] == second[1] == third[1] and first[4] == second[4] == third[4]
        assert time.monotonic() - started > 1


def test_fast_retransmit():
    with Board(), Wire() as wire:
        call("echo")
        # A busy machine delays some retransmissions; the timer delays all by RTO_LEAST_MS, 200.
        assert min(retransmission_s(wire) for _ in range(5)) < 0.15


def retransmission_s(wire):
    """Seconds from three duplicate acknowledgments to the retransmission of a lost segment."""
    c = RawConnection(wire).open()
    text = request(b"y" * 8000)
    for at in range(0, len(text), 1460):
        c.send(ACK, text[at : at + 1460], seq=c.seq + at)
    c.seq += len(text)
    first = None
    while (answer := c.receive(0.05)) is not None:
        first = first or (answer if answer[4] else None)
    # All but the second segment have arrived: one ACK and three duplicates trigger its
    # retransmission at once.
    lost = first[1] + len(first[4])
    started = time.monotonic()
    for _ in range(4):
        c.send(ACK, ack=lost)
    answer = c.receive(PATIENCE_S)
    assert answer and answer[1] == lost and len(answer[4]) == 1460, answer
    return time.monotonic() - started


def test_simultaneous_close():
    with Board(), Wire() as wire:
        c = RawConnection(wire).open()
        text = request(b"end", head="Connection: close\r\n")
        c.send(ACK | PSH, text)
        payload, fin_seq = b"", None
        while fin_seq is None:
            flags, seq, ack, _, data = c.receive(PATIENCE_S)
            payload += data
            if flags & FIN:
                fin_seq = seq + len(data)
        # Both FINs cross: neither acknowledges the other's yet.
        c.send(FIN | ACK, seq=c.seq + len(text), ack=fin_seq)
        answer = c.receive(PATIENCE_S)
        assert answer[2] == (c.seq + len(text) + 1) & 0xFFFFFFFF
        c.send(ACK, seq=c.seq + len(text) + 1, ack=fin_seq + 1)
        alive()


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
