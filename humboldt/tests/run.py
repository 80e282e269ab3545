#!/usr/bin/env python3
"""Runs the library's tests: tests/run.py target/humboldt [parts of a test's name …]

Each test runs with its ranks on one node (shared memory, with and without single copies) and on
several (TCP). The last line counts the tests in the format of cargo's test runner.
"""

import os
import random
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import boards  # noqa: E402
from job import PATIENCE_S, Job  # noqa: E402

OUT = Path(sys.argv[1])
TESTS = []
KEY = "00112233445566778899aabbccddeeff"


def test(function):
    TESTS.append((function.__name__, function))
    return function


def case(name, function):
    TESTS.append((name, function))


def program(name, *arguments):
    return [str(OUT / "tests" / name), *arguments]


def want(condition, what):
    if not condition:
        raise AssertionError(what)


# Programs that must succeed. (name, ranks, node of each rank or None, environment)
PLACES = {
    "shm": (None, {}),
    "shm-fragments": (None, {"HUM_PULL": "0"}),
    "shm-small-eager": (None, {"HUM_EAGER_MAX": "100"}),
    "tcp": ("each", {}),
    "mixed": ("halves", {}),
}


def nodes_of(place, size):
    return {
        None: None,
        "each": list(range(size)),
        "halves": [rank * 2 // size for rank in range(size)],
    }[PLACES[place][0]]


def good(name, size, place):
    def run():
        ends = Job(program(name), size, nodes_of(place, size), PLACES[place][1]).wait()
        for rank, end in enumerate(ends):
            want(end.code == 0 and re.match(r"\d+ checks", end.out), f"rank {rank}: {end}")

    case(f"{name}_{size}_ranks_{place}", run)


for place in PLACES:
    good("messages", 3, place)
    good("collectives", 4 if place != "tcp" else 3, place)
    good("streams", 3, place)
good("sort", 4, "shm")
good("sort", 3, "tcp")
good("messages", 2, "shm")
good("collectives", 1, "shm")
good("collectives", 2, "shm")
good("collectives", 7, "shm")
good("collectives", 5, "mixed")


# Faults: (name, ranks, ranks that must fail with their messages, environment).
# All must end in time.
FAULTS = [
    (
        "dies-receiving",
        3,
        {0: r"HUM_Recv: from rank 1, tag 7: rank 1 has (died|closed its connection)"},
        {},
    ),
    (
        "dies-any-source",
        3,
        {
            0: r"HUM_Recv: from any rank, tag 7: rank 1 has (died|closed)|rank 2 ended the job|rank 2 has (died|closed)"
        },
        {},
    ),
    ("dies-sending", 2, {0: r"HUM_Send: to rank 1, tag 7: rank 1 has (died|closed)"}, {}),
    ("dies-collective", 2, {0: r"HUM_Barrier: from rank 1, tag \d+: rank 1 has (died|closed)"}, {}),
    (
        "leaves",
        2,
        {0: r"HUM_Recv: from rank 1, tag 7: waits for rank 1, tag 7, but it has left the job"},
        {},
    ),
    (
        "truncated",
        2,
        {
            1: r"rank 1: HUM_Recv: from rank 0, tag 7: the message from rank 0, tag 7, has 120 bytes, but the receive buffer holds 12"
        },
        {},
    ),
    (
        "truncated-large",
        2,
        {
            1: r"rank 1: HUM_Recv: from any rank, any tag: the message from rank 0, tag 7, has 400000 bytes, but the receive buffer holds 12"
        },
        {},
    ),
    (
        "mistyped",
        2,
        {
            1: r"HUM_Recv: from rank 0, tag 7: the message from rank 0, tag 7, has type INT32, the receive has FLOAT"
        },
        {},
    ),
    ("mistyped-large", 2, {1: r"has type INT32, the receive has DOUBLE"}, {}),
    (
        "unmatched",
        2,
        {
            1: r"rank 1: HUM_Finalize: 1 message was not received, the first from rank 0, tag 7, of 16 bytes"
        },
        {},
    ),
    (
        "no-rank",
        2,
        {0: r"HUM_Send: to rank 99, tag 7: there is no such rank, the communicator has 2"},
        {},
    ),
    (
        "deadlock-sends",
        2,
        {
            0: r"deadlock: rank 0 is in HUM_Send and waits for rank 1, tag 7; rank 1 is in HUM_Send and waits for rank 0, tag 7"
        },
        {"HUM_DEADLOCK_MS": "600"},
    ),
    (
        "deadlock-ring",
        3,
        {
            0: r"deadlock: rank 0 is in HUM_Recv and waits for rank 1, tag 7; rank 1 is in HUM_Recv and waits for rank 2, tag 7; rank 2"
        },
        {"HUM_DEADLOCK_MS": "600"},
    ),
    (
        "deadlock-collective",
        3,
        {
            0: r"deadlock: rank 0 is in HUM_Recv and waits for any rank, tag 7; rank 1 is in HUM_Barrier"
        },
        {"HUM_DEADLOCK_MS": "600"},
    ),
    (
        "queue-full",
        2,
        {
            1: r"HUM_Recv: from rank 0, tag 8: its receive queue is full: \d+ bytes of unmatched messages arrived"
        },
        {"HUM_UNEXPECTED_MAX": "300000", "HUM_DEADLOCK_MS": "600"},
    ),
    ("abort", 3, {1: r"HUM_Abort: code 7"}, {}),
    (
        "never-starts",
        2,
        {0: r"HUM_Init: (rank 1 has not started|no connection with rank 1)"},
        {"HUM_START_MS": "400"},
    ),
]


def fault(name, size, words, environment, place):
    def run():
        ends = Job(
            program("faults", name),
            size,
            nodes_of(place, size),
            {**PLACES[place][1], **environment},
        ).wait()
        errors = "".join(end.err for end in ends)
        for rank, pattern in words.items():
            others = "deadlock" in name or name.startswith("dies")
            want(ends[rank].code not in (0, None), f"rank {rank} did not fail: {ends}")
            # The first rank that detects a deadlock reports it, and ends the others.
            want(
                re.search(pattern, errors if others else ends[rank].err),
                f"{pattern} is not in: {errors}",
            )
        want(all(end.code is not None for end in ends), f"a rank hung: {ends}")

    case(f"fault_{name}_{place}", run)


for each in FAULTS:
    for place in ("shm", "tcp"):
        fault(*each, place)
fault(*next(each for each in FAULTS if each[0] == "deadlock-ring"), "mixed")

for name, environment in (
    ("returned", {}),
    ("no-deadlock", {"HUM_DEADLOCK_MS": "600"}),
    ("queue-slow", {}),
):
    for place in ("shm", "tcp"):

        def run(name=name, environment=environment, place=place):
            ends = Job(program("faults", name), 3, nodes_of(place, 3), environment).wait()
            want(all(end.code == 0 and end.out == "ended\n" for end in ends), f"{ends}")

        case(f"{name}_{place}", run)


@test
def abort_code_is_everybodys():
    ends = Job(program("faults", "abort"), 3).wait()
    want([end.code for end in ends] == [7, 7, 7], f"{ends}")


@test
def a_program_by_itself_is_a_job_of_one():
    ended = subprocess.run(program("collectives"), capture_output=True, timeout=PATIENCE_S)
    want(ended.returncode == 0 and b"checks" in ended.stdout, ended)


@test
def communicators_do_not_run_out():
    for end in Job(program("communicators"), 2).wait(900):
        want(end.code == 0 and re.match(r"\d+ checks", end.out), end)


@test
def sixty_four_ranks():
    ends = Job(program("ring"), 64).wait()
    want(all(end.code == 0 for end in ends), f"{ends}")


# Hostile bytes: the test itself is rank 1, or an unauthenticated peer.
def pack(
    kind, source=1, destination=0, size=0, tag=7, code=6, flag=1, context=0, words=(), payload=b""
):
    low = (
        destination
        | source << 8
        | kind << 16
        | (size & 0xFFFFFF) << 24
        | (tag & 0xFF) << 48
        | (tag >> 8 & 0xF) << 20
        | code << 56
        | flag << 60
    )
    more = (tag & 0xFFFFFFFF) | context << 32 | (size >> 24) << 48
    return struct.pack("<QQ", low, more) + struct.pack(f"<{len(words)}Q", *words) + payload


EAGER, ENVELOPE, CLEAR, DATA, ERROR, DONE, BYE, WAIT = 3, 0, 1, 2, 4, 5, 6, 7
GOOD = pack(EAGER, size=16, payload=struct.pack("<4i", 1234, 0, 0, 0))


class Victim:
    """Rank 0 of two, on a node of its own."""

    def __init__(self, environment=None):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        words = {
            "HUM_RANK": "0",
            "HUM_SIZE": "2",
            "HUM_PEERS": "-,127.0.0.1:1",
            "HUM_KEY": KEY,
            "HUM_LISTEN": str(self.listener.fileno()),
            "HUM_START_MS": "600000",
        }
        # A bound on memory: hostile sizes must not become allocations.
        self.process = subprocess.Popen(
            ["prlimit", "--as=" + str(1 << 30), *program("peer")],
            env={**os.environ, **words, **(environment or {})},
            pass_fds=[self.listener.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.listener.close()

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def join(self, source=1, key=KEY, size=2, destination=0, version=1):
        connection = self.connect()
        connection.sendall(
            b"HUMBOLDT"
            + struct.pack("<4I", version, source, destination, size)
            + bytes.fromhex(key)
        )
        return connection

    def joined(self):
        connection = self.join()
        answer = b""
        while len(answer) < 40:
            piece = connection.recv(40 - len(answer))
            want(piece, "no hello was received")
            answer += piece
        want(answer.startswith(b"HUMBOLDT"), answer)
        return connection

    def end(self, seconds=PATIENCE_S):
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out.decode(), err.decode()


def play_on(connection):
    """A correct rank: a small message, a large one in fragments, BYE."""
    connection.sendall(GOOD)
    connection.sendall(pack(ENVELOPE, size=400000, tag=8, words=(77, 0)))
    answer = b""
    while len(answer) < 32:
        answer += connection.recv(32 - len(answer))
    low, _, own, theirs = struct.unpack("<4Q", answer)
    want(low >> 16 & 0xFF == CLEAR and own == 77, f"no clear to send: {answer}")
    data = struct.pack("<100000i", *range(100000))
    for at in range(0, 400000, 100000):
        connection.sendall(pack(DATA, words=(theirs, at, 100000), payload=data[at : at + 100000]))
    return theirs


@test
def a_rank_made_of_bytes_is_understood():
    victim = Victim()
    connection = victim.joined()
    play_on(connection)
    # Finalize's barrier, then BYE: DONE, then rank 0's message comes back.
    connection.sendall(pack(EAGER, tag=1, code=0, context=1))
    answer = b""
    while len(answer) < 24 + 16:
        answer += connection.recv(64)
    want(answer[2] == DONE and answer[26] == EAGER, answer)
    connection.sendall(pack(BYE))
    code, out, err = victim.end()
    want(code == 0 and out == "started\ngot 1234\ngot 99999\n", (code, out, err))


@test
def strangers_do_not_keep_ranks_apart():
    victim = Victim()
    chance = random.Random(1)
    strangers = [victim.connect() for _ in range(30)]
    for stranger in strangers[:20]:
        stranger.sendall(chance.randbytes(chance.randrange(1, 200)))
    refused = [
        victim.join(key="f" * 32),
        victim.join(source=0),
        victim.join(source=7),
        victim.join(size=3),
        victim.join(destination=1),
        victim.join(version=9),
    ]
    for connection in refused:
        want(connection.recv(40) == b"", "an unauthenticated peer got a reply")
    connection = victim.joined()
    again = victim.connect  # no connections are accepted after the start
    want(victim.process.stdout.readline() == b"started\n", "rank 0 did not start")
    try:
        again()
        want(False, "the listening socket is still open")
    except ConnectionError:
        pass
    connection.close()
    code, _, err = victim.end()
    want(code == 1 and "rank 1 has closed its connection" in err, (code, err))


MALFORMED = {
    "type": pack(99),
    "source": pack(EAGER, source=0, size=4, payload=b"1234"),
    "destination": pack(EAGER, destination=1, size=4, payload=b"1234"),
    "flag": pack(EAGER, flag=0, size=4, payload=b"1234"),
    "eager-too-long": pack(EAGER, size=1 << 20),
    "eager-huge": pack(EAGER, size=(1 << 40) - 1),
    "clear": pack(CLEAR, tag=0, words=(0, 0)),
    "clear-far": pack(CLEAR, tag=0, words=(2**64 - 1, 2**63)),
    "data": pack(DATA, tag=0, words=(1 << 32, 0, 100), payload=b"x" * 100),
    "data-huge": pack(DATA, tag=0, words=(1 << 32, 0, 2**63)),
    "done": pack(DONE, tag=0, words=(1 << 32,)),
    "error": pack(ERROR, tag=0, words=(5, 2**32)),
    "wait": pack(WAIT, tag=0, size=5, payload=b"12345"),
    "size-where-none-belongs": pack(BYE, tag=0, size=5, payload=b"12345"),
}


def malformed(name, bytes_):
    def run():
        victim = Victim()
        victim.joined().sendall(bytes_)
        code, _, err = victim.end()
        want(code == 1 and "rank 1 sent a malformed packet" in err, (code, err))

    case(f"malformed_{name}", run)


for each in MALFORMED.items():
    malformed(*each)


@test
def data_beyond_the_message_is_refused():
    victim = Victim()
    connection = victim.joined()
    theirs = play_on_until_clear(connection)
    connection.sendall(pack(DATA, words=(theirs, 0, 200000), payload=b"x" * 200000))
    connection.sendall(pack(DATA, words=(theirs, 200000, 200001), payload=b"x" * 200001))
    code, _, err = victim.end()
    want(code == 1 and "data without a receive" in err, (code, err))


def play_on_until_clear(connection):
    connection.sendall(GOOD + pack(ENVELOPE, size=400000, tag=8, words=(77, 0)))
    answer = b""
    while len(answer) < 32:
        answer += connection.recv(32 - len(answer))
    return struct.unpack("<4Q", answer)[3]


@test
def a_connection_reset_in_the_middle_of_a_message():
    victim = Victim()
    connection = victim.joined()
    theirs = play_on_until_clear(connection)
    connection.sendall(pack(DATA, words=(theirs, 0, 200000), payload=b"x" * 1000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    code, _, err = victim.end()
    want(code == 1 and "rank 1 has closed its connection without finalizing" in err, (code, err))


@test
def a_full_receive_queue_stays_bounded():
    victim = Victim({"HUM_UNEXPECTED_MAX": "1000000", "HUM_DEADLOCK_MS": "600"})
    connection = victim.joined()
    connection.settimeout(5)
    try:
        for _ in range(3000):
            connection.sendall(pack(EAGER, size=60000, tag=9, payload=b"x" * 60000))
    except (TimeoutError, ConnectionError):
        pass
    code, _, err = victim.end()
    want(code == 1 and "receive queue is full" in err, (code, err))


@test
def random_packets():
    seconds, count = float(os.environ.get("HUM_FUZZ_SECONDS", "5")), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        chance = random.Random(count)
        victim = Victim({"HUM_DEADLOCK_MS": "400"})
        connection = victim.joined()
        try:
            for _ in range(chance.randrange(1, 40)):
                if chance.random() < 0.2:
                    connection.sendall(chance.randbytes(chance.randrange(1, 300)))
                    continue
                kind = chance.randrange(9)
                size = (
                    chance.choice([0, 0, 4, 16, 100, 70000, 1 << 30])
                    if kind in (0, 3)
                    else chance.choice([0, 0, 0, 9])
                )
                words = [
                    chance.choice([0, 1, 1 << 32, 77, 400000, 2**64 - 1])
                    for _ in range({0: 2, 1: 2, 2: 3, 4: 2, 5: 1}.get(kind, 0))
                ]
                payload = chance.randbytes(min(size, 70000)) if kind == 3 else b""
                connection.sendall(
                    pack(
                        kind,
                        size=size,
                        tag=chance.choice([7, 8, 9]),
                        code=chance.choice([0, 6, 10]),
                        words=words,
                        payload=payload,
                    )
                )
        except ConnectionError:
            pass
        connection.close()
        code, _, err = victim.end()
        want(code == 1 and "humboldt: rank 0" in err, f"seed {count}: {code} {err}")
        count += 1
    want(count > 0, "no packet was sent")
    print(f"({count} seeds) ", end="")


@test
def a_frame_that_is_lost_is_said():
    code, _, err = boards.frames(program("peer"), lambda all: all[:20] + all[21:])
    want(
        code == 1
        and "HUM_Recv: from rank 1, tag 8: rank 1 sent 1 packet that was lost on the wire" in err,
        (code, err),
    )


@test
def the_last_frame_that_is_lost_is_found_by_a_question():
    code, _, err = boards.frames(program("peer"), lambda all: all[:-1])
    want(
        code == 1
        and "HUM_Recv: from rank 1, tag 8: rank 1 sent a packet that was lost on the wire" in err,
        (code, err),
    )


@test
def frames_out_of_order_are_said():
    code, _, err = boards.frames(
        program("peer"), lambda all: all[:20] + [all[21], all[20]] + all[22:]
    )
    want(code == 1 and "rank 1 sent 1 packet that was lost on the wire" in err, (code, err))


@test
def frames_that_come_twice_do_no_harm():
    code, out, err = boards.frames(
        program("peer"), lambda all: [each for frame in all for each in (frame, frame)]
    )
    want(code == 0 and "got 99999" in out, (code, out, err))


@test
def a_board_whose_connection_is_reset_in_the_middle_of_a_message():
    boards.reset_by_peer(program("peer"))


for way in (boards.Frames, boards.Stream):
    name = way.__name__.lower()
    case(f"a_board_by_{name}", lambda way=way: boards.plays_on(way, program("peer")))
    case(
        f"random_packets_of_a_board_by_{name}",
        lambda way=way: boards.hostile(
            way, program("peer"), float(os.environ.get("HUM_FUZZ_SECONDS", "5"))
        ),
    )


def main():
    words = sys.argv[2:]
    passed = failed = 0
    for name, function in TESTS:
        if words and not any(word in name for word in words):
            continue
        began = time.monotonic()
        print(f"test {name} ... ", end="", flush=True)
        try:
            function()
            passed += 1
            print(f"ok ({time.monotonic() - began:.1f} s)")
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            failed += 1
            print(f"FAILED\n{error}")
    print(
        f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored"
    )
    sys.exit(1 if failed or not passed else 0)


main()
