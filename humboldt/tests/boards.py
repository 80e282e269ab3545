"""Tests a rank whose only peer is a kernel on a board, which the test simulates and which may send
any bytes. Run by run.py.
"""

import os
import random
import socket
import struct
import subprocess
import tempfile
import time

from job import PATIENCE_S

KEY = "00112233445566778899aabbccddeeff"
ENVELOPE, CLEAR, DATA, EAGER, ERROR, DONE, BYE, WAIT, PROBE, STATE = range(10)
MORE = 2
INT32 = 6
MAC, OWN = bytes([2, 0, 0, 0, 0, 1]), bytes([2, 0, 0, 0, 0, 2])


def envelope(kind, size=0, tag=0, code=0, flag=0, source=1, destination=0):
    return struct.pack(
        "<Q",
        destination
        | source << 8
        | kind << 16
        | (size & 0xFFFFFF) << 24
        | (tag & 0xFF) << 48
        | (tag >> 8) << 20
        | code << 56
        | flag << 60,
    )


def kind_of(packet):
    return packet[2]


class Frames:
    """Rank 1 over raw Ethernet."""

    def __init__(self, command):
        self.folder = tempfile.TemporaryDirectory()
        rank, self.socket = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        rank.bind(self.folder.name + "/0")
        self.socket.bind(self.folder.name + "/1")
        self.socket.connect(self.folder.name + "/0")
        self.socket.settimeout(PATIENCE_S)
        self.count = self.came = 0
        peers = f"-,fab:{OWN.hex(':')}@{self.folder.name}/1"
        self.process = start(
            command,
            {"HUM_PEERS": peers, "HUM_WIRE": str(rank.fileno()), "HUM_MAC": MAC.hex(":")},
            [rank.fileno()],
        )
        rank.close()
        while kind_of(self.packet()) != PROBE:
            pass
        self.answer()

    def packet(self):
        packet = self.socket.recv(2000)[16:]
        self.came += kind_of(packet) not in (PROBE, STATE)
        return packet

    def answer(self):
        """The payload of a STATE: the numbers of received and sent packets."""
        self.send(
            envelope(STATE, 8) + struct.pack("<HHI", self.came & 0xFFFF, self.count & 0xFFFF, 0),
            number=0,
        )

    def send(self, packet, number=None):
        if number is None:
            number, self.count = self.count, self.count + 1
        frame = MAC + OWN + b"\x74\x00" + struct.pack("<H", number & 0xFFFF) + packet
        self.raw(frame + bytes(max(64 - len(frame), -len(frame) % 8)))

    def raw(self, data):
        self.socket.send(data)

    def end(self):
        # A number that is ahead of any expected one.
        for number in range(0, 1 << 16, 1 << 13):
            self.send(envelope(CLEAR), number=number)


class Stream:
    """Rank 1 over TCP."""

    def __init__(self, command):
        listener = socket.create_server(("127.0.0.1", 0))
        self.process = start(
            command, {"HUM_PEERS": "-,fab:127.0.0.1:%d" % listener.getsockname()[1]}, []
        )
        listener.settimeout(PATIENCE_S)
        self.socket, _ = listener.accept()
        listener.close()
        self.socket.settimeout(PATIENCE_S)
        hello = self.exactly(24)
        assert hello == b"HUMFAB\x01\x00" + bytes.fromhex(KEY), hello
        assert kind_of(self.packet()) == PROBE
        self.answer()

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            assert piece, "the rank has closed its connection"
            data += piece
        return data

    def packet(self):
        return self.exactly(8)

    def answer(self):
        self.send(envelope(STATE, 8) + bytes(8))

    def send(self, packet, number=None):
        self.raw(packet + bytes(-len(packet) % 8))

    def raw(self, data):
        self.socket.sendall(data)

    def end(self):
        self.socket.close()


def start(command, words, descriptors):
    environment = {
        **os.environ,
        "HUM_RANK": "0",
        "HUM_SIZE": "2",
        "HUM_KEY": KEY,
        "HUM_START_MS": "600000",
        "HUM_DEADLOCK_MS": "400",
        **words,
    }
    # A bound on memory: hostile sizes must not become allocations.
    return subprocess.Popen(
        ["prlimit", f"--as={1 << 30}", *command],
        env=environment,
        pass_fds=descriptors,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(board):
    out, err = board.process.communicate(timeout=PATIENCE_S)
    return board.process.returncode, out.decode(), err.decode()


def until(board, kind):
    """The rank's packets up to one of a kind; replies to PROBE packets."""
    while True:
        got = kind_of(board.packet())
        if got == PROBE:
            board.answer()
        if got == kind:
            return


def begins(board):
    """The rank sends four ints, and a message of 400,000 bytes until it is cleared to send."""
    board.send(envelope(EAGER, 16, 7, INT32) + struct.pack("<4i", 42, 0, 0, 0))
    board.send(envelope(ENVELOPE, 400000, 8, INT32))
    until(board, CLEAR)


def plays_on(way, command):
    """A correct board: four ints, and 400,000 bytes in packets."""
    board = way(command)
    begins(board)
    data = struct.pack("<100000i", *range(100000))
    for at in range(0, len(data), 1448):
        piece = data[at : at + 1448]
        board.send(envelope(DATA, len(piece), flag=MORE if at + 1448 < len(data) else 0) + piece)
        time.sleep(0.0002 if way is Frames else 0)  # a wire's queue is short
    until(board, DONE)
    code, out, err = ended(board)
    assert code == 0 and "got 42" in out and "got 99999" in out, f"{code} {out} {err}"


def frames(command, disturb):
    """Sends a message of three packets whose frames `disturb` has changed: [(number, packet), …] to
    another list. Returns the outcome."""
    board = Frames(command)
    begins(board)
    data = struct.pack("<100000i", *range(100000))
    pieces = [data[at : at + 1400] for at in range(0, len(data), 1400)]
    packets = [
        envelope(DATA, len(piece), flag=MORE if at + 1 < len(pieces) else 0) + piece
        for at, piece in enumerate(pieces)
    ]
    all = list(enumerate(packets, board.count))
    board.count += len(all)
    board.socket.settimeout(3)  # a rank that has ended sends nothing
    try:
        for number, packet in disturb(all):
            board.send(packet, number=number)
            time.sleep(0.0002)
        until(board, DONE)
    except (ConnectionError, TimeoutError):
        pass  # it has ended
    return ended(board)


def reset_by_peer(command):
    """A board's TCP is reset in the middle of a message."""
    board = Stream(command)
    begins(board)
    board.raw(envelope(DATA, 1400, flag=MORE) + bytes(1000))
    board.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    board.socket.close()
    code, _, err = ended(board)
    assert code == 1 and "HUM_Recv: from rank 1, tag 8: rank 1 has closed its connection" in err, (
        f"{code} {err}"
    )


def hostile(way, command, seconds):
    """Sends random packets for a while, each of which causes an error. Returns their number."""
    count, stop = 0, time.monotonic() + seconds
    while time.monotonic() < stop:
        chance = random.Random(count)
        board = way(command)
        try:
            for _ in range(chance.randrange(1, 60)):
                if chance.random() < 0.2:
                    board.raw(chance.randbytes(chance.randrange(1, 1504)))
                    continue
                size = chance.choice([0, 8, 16, 100, 1448, 1449, 70000, 0xFFFFFF])
                packet = envelope(
                    chance.randrange(12),
                    size,
                    chance.choice([0, 4, 7, 8, 9, 255, 4095]),
                    chance.choice([0, 6, 10, 15]),
                    chance.randrange(16),
                    chance.choice([1, 1, 1, 0, 2, 255]),
                    chance.choice([0, 0, 0, 1, 255]),
                )
                board.send(packet + chance.randbytes(chance.choice([0, min(size, 1448)])))
            board.end()
        except (ConnectionError, AssertionError):
            board.socket.close()
        code, _, err = ended(board)
        assert code == 1 and "humboldt: rank 0" in err, f"seed {count}: {code} {err}"
        count += 1
    assert count > 0, "no packet was sent"
    print(f"({count} seeds) ", end="")
