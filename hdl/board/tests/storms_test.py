#!/usr/bin/env python3
"""Tests storms, after each of which a new client gets correct replies; and replays of recordings.

usage: storms_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import concurrent.futures
import contextlib
import hashlib
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from client import URL, Answers, alive, call, connect, curl, echo, metrics, patient, request
from harness import (
    ACK,
    BOARD_IP,
    BOARD_MAC,
    FIN,
    LOGS,
    MODEL,
    PATIENCE_S,
    PSH,
    ROOT,
    RST,
    SYN,
    Board,
    RawConnection,
    Wire,
)
from harness import enter_namespace, ethernet, frames_of, functions, image, ipv4, run, tcp

SCANNER = "10.99.0.66"


def unharmed(seed=1):
    """A new client gets a reply with all of its bytes."""
    alive()
    body = random.Random(seed).randbytes(100000)
    assert echo(body) == body
    assert (
        curl("-H", "Expect:", "--data-binary", "@-", f"{URL}/function/sha256", body=body)
        == hashlib.sha256(body).digest()
    )


def answers_of(wire, source, frames):
    """Sends these segments; returns the flags received at each of the source's ports."""
    got = {}

    def take(seconds):
        while (frame := wire.receive(seconds)) is not None:
            if (
                frame[12:14] == b"\x08\0"
                and frame[23] == 6
                and frame[30:34] == socket.inet_aton(source)
            ):
                got.setdefault(struct.unpack("!H", frame[34:36])[0], set()).add(frame[47])

    for i, frame in enumerate(frames):
        wire.send(frame)
        if i % 64 == 63:  # the device's queue drops frames that the model does not accept in time
            take(0.02)
    take(1)
    return got


def test_port_scans():
    ports = random.Random(1).sample(range(1, 65536), 1500) + [22, 79, 80, 81, 443]
    with Board(log="scans"), Wire() as wire:

        def scan(flags, all_answer=False, **more):
            got, missing = {}, set(ports)
            for _ in range(4 if all_answer else 1):  # like scanners: silent ports are probed again
                frames = [
                    ethernet(
                        ipv4(tcp(SCANNER, 4000, 7, 9, flags, to_port=port, **more), 6, SCANNER)
                    )
                    for port in sorted(missing)
                ]
                got |= answers_of(wire, SCANNER, frames)
                missing -= set(got)
                if missing <= {80}:
                    break
            assert not all_answer or missing <= {80}, f"{len(missing)} ports did not reply"
            return got

        got = scan(SYN, all_answer=True, options=b"\x02\x04\x05\xb4")
        assert got.pop(80) == {SYN | ACK} and all(flags == {RST | ACK} for flags in got.values())
        # Unsolicited; at the open port it may be the end of a handshake, and gets no reply.
        got = scan(ACK, all_answer=True)
        assert all(flags == {RST} for flags in got.values())
        for flags in (FIN, 0, FIN | PSH | 32):  # FIN, null and Xmas scans
            got = scan(flags)
            assert all(flags & RST for answers in got.values() for flags in answers), got
        assert scan(RST) == {}, "a reset got a reply"
        for port in ports:
            wire.send(ethernet(ipv4(struct.pack("!HHHH", 4000, port, 8, 0), 17, SCANNER)))
        # Connections that were opened and abandoned have left no state.
        assert metrics()["connections"] == 1
        unharmed()


def collect(c, until):
    """Receives segments and acknowledges their data until the condition holds;
    returns the flags of the last."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        answer = c.receive(max(0.01, end - time.monotonic()))
        if answer is None:
            break
        flags, seq, _, _, payload = answer
        if seq == c.ack & 0xFFFFFFFF:
            c.ack += len(payload) + bool(flags & FIN)
        if until(flags, payload):
            return flags
    raise AssertionError("the condition did not become true")


def state_established(c):
    pass


def state_half_a_request(c):
    c.send(ACK | PSH, request(b"z" * 1000)[:500])
    c.seq += 500


def state_answer_not_acknowledged(c):
    text = request(b"z" * 1000)
    c.send(ACK | PSH, text)
    c.seq += len(text)
    got = []
    while sum(map(len, got)) < 1000:
        got.append(c.receive(PATIENCE_S)[4])
    # For the board, its bytes are still in flight: `ack` stays.


def state_close_wait(c):
    # The client has ended; a reply that it does not acknowledge keeps the board's side open, too.
    text = request(b"z" * 1000)
    c.send(ACK | PSH | FIN, text)
    c.seq += len(text) + 1
    while not c.receive(PATIENCE_S)[4]:
        pass


def close_of_the_board(c):
    text = request(b"z", head="Connection: close\r\n")
    c.send(ACK | PSH, text)
    c.seq += len(text)
    collect(c, lambda flags, payload: flags & FIN)


def state_fin_wait_1(c):
    close_of_the_board(c)


def state_fin_wait_2(c):
    close_of_the_board(c)
    c.send(ACK)


def state_closing(c):
    close_of_the_board(c)
    c.send(FIN | ACK, ack=c.ack - 1)
    c.seq += 1


def state_last_ack(c):
    c.send(FIN | ACK)
    c.seq += 1
    collect(c, lambda flags, payload: flags & FIN)


def state_time_wait(c):
    close_of_the_board(c)
    c.send(FIN | ACK)
    c.seq += 1


def test_resets_in_every_state():
    states = {name: make for name, make in globals().items() if name.startswith("state_")}
    assert len(states) == 9
    with Board(log="states"), Wire() as wire:
        for name, make in states.items():
            for flags in (RST, RST | ACK):
                call("echo")  # it is loaded, and replies at once
                before = metrics()["connections"]
                c = RawConnection(wire).open()
                make(c)
                c.send(flags)
                deadline = time.monotonic() + PATIENCE_S
                while metrics()["connections"] > before and time.monotonic() < deadline:
                    pass
                assert metrics()["connections"] <= before, f"{name}: the session is still there"
                wire.clear()
                c.send(ACK | PSH, b"x")  # further data is not accepted
                answer = c.receive(0.05)
                assert answer is None or answer[0] & RST, (name, answer)
        # Without a session: a handshake that was reset leaves the port open to others.
        c = RawConnection(wire)
        c.send(SYN, options=b"\x02\x04\x05\xb4")
        assert c.receive(PATIENCE_S)[0] == SYN | ACK
        c.seq += 1
        c.send(RST)
        unharmed()


def test_what_was_lost_is_sent_again_while_others_wait():
    """A connection that the board has to close, whose acknowledgments are lost,
    while clients wait for a session."""
    with Board(log="wanted"), Wire() as wire:
        call("echo")
        idle = [connect() for _ in range(15)]
        for s in idle:
            s.sendall(request(b"x"))
            assert Answers(s).next() == (200, b"x")
        c = RawConnection(wire).open()
        text = request(b"w" * 1000, head="Connection: close\r\n")
        wire.clear()
        c.send(ACK | PSH, text)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            newcomers = [pool.submit(patient, lambda: alive(20)) for _ in range(3)]
            sent = {}
            deadline = time.monotonic() + PATIENCE_S
            while max(sent.values(), default=0) < 2:
                answer = c.receive(max(0.01, deadline - time.monotonic()))
                assert answer is not None and not answer[0] & RST, (
                    f"closed before the retransmission: {answer}"
                )
                if answer[4]:
                    sent[answer[1]] = sent.get(answer[1], 0) + 1
            for newcomer in newcomers:
                newcomer.result()


def test_overlapping_retransmissions():
    draw = random.Random(2)
    with Board(log="overlaps"), Wire() as wire:
        for size in (3000, 20000):
            body = draw.randbytes(size)
            text = request(body)
            c = RawConnection(wire).open()
            start, first = c.seq, c.ack
            acknowledged, pieces = 0, {}
            deadline = time.monotonic() + PATIENCE_S
            while b"".join(joined(pieces, first))[-size:] != body:
                assert time.monotonic() < deadline, (acknowledged, len(text))
                for _ in range(12):
                    # Near the missing bytes, of any length, some damaged,
                    # the same bytes many times.
                    at = max(0, min(len(text) - 1, acknowledged + draw.randrange(-2000, 6000)))
                    piece = text[at : at + draw.randrange(1, 1461)]
                    seen = sum(map(len, joined(pieces, first)))
                    c.send(
                        ACK,
                        piece,
                        seq=start + at,
                        ack=first + seen,
                        spoil=draw.choice([0, 0, 0, 1]),
                    )
                while (answer := c.receive(0.02)) is not None:
                    flags, seq, ack, _, payload = answer
                    assert not flags & RST
                    acknowledged = max(acknowledged, (ack - start) & 0xFFFFFFFF)
                    if payload:
                        offset = (seq - first) & 0xFFFFFFFF
                        # Data sent before is retransmitted unchanged.
                        common = min(len(payload), len(pieces.get(offset, b"")))
                        assert payload[:common] == pieces.get(offset, b"")[:common]
                        if common < len(payload):
                            pieces[offset] = payload
            assert acknowledged == len(text)
            c.send(RST, seq=start + len(text), ack=first)
        unharmed()


def joined(pieces, first):
    """The received bytes without a gap."""
    parts, at = [], 0
    for offset in sorted(pieces):
        if offset > at:
            break
        parts.append(pieces[offset][at - offset :])
        at = max(at, offset + len(pieces[offset]))
    return parts


def test_a_link_of_200_ms_each_way():
    body = random.Random(8).randbytes(100000)
    with Board("--delay", 200, log="far"):
        assert echo(body) == body


def test_sessions_come_and_go():
    """Far more connections than fit, opened and abandoned in every way,
    from many clients at once."""

    def client(i):
        draw = random.Random(i)
        for _ in range(8):
            with contextlib.suppress(OSError), connect(5) as s:
                text = request(draw.randbytes(draw.choice([0, 64, 3000])))
                s.sendall(text[: draw.choice([0, 1, len(text) // 2, len(text), len(text)])])
                if draw.random() < 0.3:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif draw.random() < 0.5:
                    s.shutdown(socket.SHUT_WR)
                if draw.random() < 0.5:
                    s.recv(100)

    with Board(log="crowd"):
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(client, range(32)))
        unharmed()


def fuzzed(seed, count):
    """Frames with random malformed fields, many of them with lengths and checksums corrected by
    scapy."""
    from scapy.all import ARP, ICMP, IP, TCP, UDP, Ether, Raw, fuzz
    from scapy.config import conf
    from scapy.volatile import RandNum

    conf.verb = 0
    random.seed(seed)  # what scapy draws from
    draw = random.Random(seed)
    ether = Ether(dst=BOARD_MAC.hex(":"), src="02:00:00:00:00:66")
    ip = lambda **more: IP(src=f"10.99.0.{draw.randrange(60, 250)}", dst=BOARD_IP, **more)
    text = lambda: Raw(
        draw.choice(
            [b"", b"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n", draw.randbytes(draw.randrange(200))]
        )
    )
    kinds = [
        lambda: ether / ip() / fuzz(TCP(dport=80)) / text(),
        lambda: ether / ip() / fuzz(TCP(dport=80, dataofs=5, options=[], chksum=None)) / text(),
        lambda: (
            ether
            / ip()
            / TCP(
                dport=80,
                flags=RandNum(0, 255),
                seq=RandNum(0, 2**32 - 1),
                ack=RandNum(0, 2**32 - 1),
                options=[
                    ("MSS", draw.randrange(65536)),
                    ("WScale", draw.randrange(256)),
                    ("SAckOK", b""),
                ],
            )
        ),
        lambda: (
            ether
            / fuzz(IP(dst=BOARD_IP, chksum=None, version=4, ihl=5, len=None, frag=0, options=[]))
            / TCP(dport=80, flags="S")
        ),
        lambda: ether / fuzz(IP(dst=BOARD_IP)) / text(),
        lambda: ether / ip() / fuzz(ICMP()) / text(),
        lambda: ether / ip() / fuzz(UDP()) / text(),
        lambda: ether / fuzz(ARP(pdst=BOARD_IP)),
        lambda: (
            ether
            / ARP(op=draw.randrange(4), pdst=BOARD_IP, psrc="10.99.0.77", hwsrc="02:00:00:00:00:77")
        ),
        lambda: fuzz(Ether(dst=BOARD_MAC.hex(":"))) / text(),
    ]
    for _ in range(count):
        try:
            frame = bytes(draw.choice(kinds)())
        except (struct.error, ValueError, OverflowError, TypeError):
            continue  # a field that scapy itself cannot write
        yield frame[: draw.choice([1514, 1514, draw.randrange(14, 200)])]


def test_fuzzed_frames():
    for seed in (1, 2, 3):
        sent = 0
        with Board(log="fuzz"), Wire() as wire:
            s = connect()
            answers = Answers(s)
            for frame in fuzzed(seed, 1200):
                wire.send(frame)
                sent += 1
                if sent % 200 == 0:  # existing connections are not affected
                    s.sendall(request(b"meanwhile %d" % sent, "uppercase"))
                    assert answers.next() == (200, b"MEANWHILE %d" % sent), (seed, sent)
            assert sent > 1000, f"scapy could write only {sent} frames"
            unharmed(seed)


def replayed(recording, *options):
    return subprocess.run(
        [MODEL, "--replay", recording, *map(str, options)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_recordings_play_again():
    """A run with a faulty link and hostile frames: in a replay,
    the same frames leave in the same cycles."""
    first, again = LOGS / "first.pcap", LOGS / "again.pcap"
    seeded = ("--seed", 5, "--api-key", "sesame")
    faults = ("--loss", "0.02", "--reorder", "0.03", "--duplicate", "0.03", "--corrupt", "0.02")
    with Board("--pcap", first, *seeded, *faults, log="recorded"), Wire() as wire:
        key = ("-H", "X-API-Key: sesame")
        for name in ("echo", "uppercase", "sha256", "echo"):
            with contextlib.suppress(AssertionError):  # over such a link a client may give up
                curl(
                    *key,
                    "-H",
                    "Expect:",
                    "--data-binary",
                    "@-",
                    f"{URL}/function/{name}",
                    body=random.Random(3).randbytes(20000),
                )
        for frame in fuzzed(4, 200):
            wire.send(frame)
        time.sleep(0.3)
        with contextlib.suppress(AssertionError):
            curl(*key, f"{URL}/metrics")
    frames = frames_of(first)
    assert sum(kind == 2 for kind, _, _ in frames) > 50, len(frames)
    text = subprocess.run(
        ["tcpdump", "-nn", "-r", first], capture_output=True, text=True, check=True
    ).stdout
    assert len(text.splitlines()) >= len(frames), "tcpdump does not read the whole recording"
    for _ in range(2):
        done = replayed(first, *seeded, "--pcap", again)
        assert done.returncode == 0, done.stderr
        assert frames_of(again) == frames
    # The recording determines the run, and differences are reported.
    done = replayed(first, "--seed", 6, "--api-key", "sesame")
    assert done.returncode == 1 and "not as recorded" in done.stderr, done.stderr
    data = bytearray(first.read_bytes())
    requested = data.index(b"POST /function/uppercase")
    with tempfile.TemporaryDirectory() as directory:
        other = Path(directory) / "other.pcap"
        data[requested] ^= 1  # its checksum is wrong now: the board must not answer
        other.write_bytes(data)
        done = replayed(other, *seeded)
        assert done.returncode == 1 and "not as recorded" in done.stderr, done.stderr
        data[requested] ^= 1
        # Invalid files are reported without a crash.
        draw = random.Random(6)
        for _ in range(60):
            spoilt = bytearray(data[: draw.choice([0, 10, 40, len(data) // 3, len(data)])])
            for _ in range(draw.randrange(1, 4)):
                if spoilt:
                    spoilt[draw.randrange(min(len(spoilt), 3000))] = draw.randrange(256)
            other.write_bytes(spoilt)
            done = subprocess.run(
                [MODEL, "--replay", other, *map(str, seeded)],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            assert done.returncode in (0, 1, 2), (done.returncode, done.stderr)
        assert replayed("/nowhere").returncode == 2
        assert "cannot be combined with --tap or --net" in replayed(first, "--net", "user").stderr
        assert (
            "cannot be combined with --host-port"
            in replayed(first, "--host-port", Path(directory) / "host").stderr
        )


def signals_of(path):
    """Names, changes and time of a VCD."""
    names, changes, now, scope, times = {}, {}, 0, [], []
    with open(path) as file:
        for line in file:
            words = line.split()
            if not words:
                continue
            if words[0] == "$scope":
                scope.append(words[2])
            elif words[0] == "$upscope":
                scope.pop()
            elif words[0] == "$var":
                names.setdefault(words[3], []).append(".".join([*scope, words[4]]))
            elif words[0][0] == "#":
                now = int(words[0][1:])
                times.append(now)
            elif words[0][0] in "01":
                changes.setdefault(words[0][1:], []).append((now, int(words[0][0])))
            elif words[0][0] == "b":
                changes.setdefault(words[1], []).append(
                    (now, int(words[0][1:].replace("x", "0").replace("z", "0"), 2))
                )
    return {name: changes.get(code, []) for code, all in names.items() for name in all}, times


def stages_of(text):
    lines = [line.rsplit(None, 1) for line in text.splitlines() if line[-1:].isdigit()]
    return {name.strip(): int(cycles) for name, cycles in lines}


def rises(changes):
    return [at for at, value in changes if value == 1]


def check_waveform(path, stages, cold):
    signals, times = signals_of(path)
    find = lambda end: next(changes for name, changes in signals.items() if name.endswith(end))
    for stream in ("rx", "tx"):
        assert find(f"board_model.{stream}_valid"), stream
    for handshake in ("request_valid", "request_ready", "grant", "finish_valid", "finish_ready"):
        assert any(name.endswith(f"u_functions.{handshake}") for name in signals), handshake
    # The printed cycles equal those of the signals.
    granted = rises(find("board_model.call_granted"))
    requested = rises(find("board_model.call_requested"))
    assert granted and requested, path
    assert (granted[-1] - requested[-1]) // 10 == stages["the region is granted"] - stages[
        "the call is requested"
    ]
    assert bool(rises(find("board_model.swap"))) == cold
    assert times == sorted(times) and len(times) > 100


def test_waveforms():
    trace = MODEL.with_name("trace")
    checksum, uppercase = (image("checksum", 256), "scalars=hex"), (image("uppercase", 256), "")
    with (
        functions(checksum=checksum, uppercase=uppercase) as directory,
        tempfile.TemporaryDirectory() as results,
    ):
        out, own = Path(results) / "call.vcd", ("--functions", directory)
        for cold in (False, True):
            done = subprocess.run(
                [
                    trace,
                    "checksum?hex=1",
                    "--body",
                    "some words",
                    "--out",
                    out,
                    *own,
                    *["--cold"] * cold,
                ],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            assert done.returncode == 0 and "200 OK" in done.stdout, done.stderr
            stages = stages_of(done.stdout)
            order = [
                stages[name]
                for name in (
                    "its first byte",
                    "the call is requested",
                    "the region is granted",
                    "the reply is in its ring",
                    "its first byte leaves the board",
                    "and its last",
                )
            ]
            assert order == sorted(order) and order[0] < 0 < order[1], stages
            assert ("the region has the new kernel" in stages) == cold, stages
            check_waveform(out, stages, cold)
        # One request of a recorded run, among others.
        recorded = LOGS / "traced.pcap"
        seeded = (*own, "--seed", "9")
        with Board("--pcap", recorded, *seeded, log="traced"):
            for i in range(5):
                call("uppercase", b"request %d" % i)
        done = subprocess.run(
            [trace, "--replay", recorded, *seeded, "--request", "1", "--out", out],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        check_waveform(out, stages_of(done.stdout), True)
        cold_size = out.stat().st_size
        done = subprocess.run(
            [trace, "--replay", recorded, *seeded, "--request", "4", "--out", out],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        check_waveform(out, stages_of(done.stdout), False)
        assert out.stat().st_size < cold_size
        for options, why in {
            ("--replay", str(recorded), *seeded, "--request", "99"): "has ",
            ("--replay", str(recorded)): "--request",
            ("echo", "--out", "/nowhere/x.vcd"): "cannot be written",
            (): "--help",
        }.items():
            done = subprocess.run(
                [trace, *options], capture_output=True, text=True, timeout=PATIENCE_S
            )
            assert done.returncode == 2 and why in done.stderr, (
                options,
                done.returncode,
                done.stderr,
            )


if __name__ == "__main__":
    # scapy is in the environment created by scripts/setup.sh.
    python = ROOT / "target" / "venv" / "bin" / "python"
    if sys.prefix == sys.base_prefix and python.exists():
        os.execv(python, [str(python), *sys.argv])
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
