#!/usr/bin/env python3
"""The board's host port: functions pushed into a running board, calls by DMA and over HTTP,
hostile programs.

usage: [BOARD=board-2-regions] host_test.py [PART OF A NAME …]     (no root: the board is behind a port of this host)
"""

import array
import contextlib
import mmap
import os
import random
import socket
import struct
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from harness import BUILT_IN, PATIENCE_S, REGIONS, UserBoard, functions, image, run

HELLO, DEFINE, REMOVE, LOAD, UNLOAD, CALL = range(1, 7)
REGION = 14
OK, KILLED, ROOM, IMAGE, WRONG, FULL, UNKNOWN = 0, 1, 2, 16, 64, 65, 66
REQUEST, REPLY = "=IIQQQQ4I4I16s32s", "=IIIIQ8IQ56s4IQ"
WINDOW = 1 << 20
ANSWER = WINDOW // 2


class Refused(Exception):
    pass


class Port:
    """A program at the host port (hdl/board/sim/host_protocol.h)."""

    def __init__(self, path, window=WINDOW):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(path))
        self.socket.settimeout(PATIENCE_S)
        self.id = 0
        self.send(HELLO, bytes=window)
        answer, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4))
        self.about = self.decode(answer)
        if self.about["status"] == OK:
            fd = array.array("i", ancillary[0][2])[0]
            self.window = mmap.mmap(fd, window)
            self.fd = fd

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(
        self,
        op,
        offset=0,
        answer=0,
        bytes=0,
        room=0,
        number=0,
        timeout=0,
        cost=0,
        speed=0,
        params=(),
        name=b"",
        scalars=(),
    ):
        self.id += 1
        params = [*params, 0, 0, 0, 0][:4]
        names = b"".join(s.ljust(8, b"\0") for s in scalars)
        self.socket.send(
            struct.pack(
                REQUEST,
                op,
                self.id,
                offset,
                answer,
                bytes,
                room,
                number,
                timeout,
                cost,
                speed,
                *params,
                name,
                names,
            )
        )

    @staticmethod
    def decode(answer):
        if not answer:
            raise Refused("the board closed the connection")
        fields = struct.unpack(REPLY, answer)
        names = (
            "op id status number bytes cycles kernel_cycles region loaded version shell regions clock "
            "memory_free text kernel_status buffer write pad place"
        )
        reply = dict(zip(names.split(), fields))
        reply["text"] = reply["text"].split(b"\0")[0].decode()
        return reply

    def receive(self):
        return self.decode(self.socket.recv(4096))

    def ask(self, op, **fields):
        self.send(op, **fields)
        reply = self.receive()
        assert reply["id"] == self.id and reply["op"] == op, reply
        return reply

    def bring(self, op, content, **fields):
        self.window[: len(content)] = content
        return self.ask(op, bytes=len(content), **fields)

    def call(self, number, body, room=None, timeout=1 << 24, **fields):
        """Status, bytes and fields of the reply."""
        self.window[: len(body)] = body
        room = min(len(body) + 4096, WINDOW - ANSWER) if room is None else room
        reply = self.ask(
            CALL,
            number=number,
            bytes=len(body),
            answer=ANSWER,
            room=room,
            timeout=timeout,
            **fields,
        )
        return reply["status"], self.window[ANSWER : ANSWER + min(reply["bytes"], room)], reply


@contextlib.contextmanager
def board(*options):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "port"
        with UserBoard("--host-port", path, *options) as running:
            running.path = path
            yield running
        assert not path.exists(), "the socket is left behind"


def http(running, name, body, query=""):
    """Status and body of a call over HTTP."""
    request = urllib.request.Request(
        f"{running.url}/function/{name}{query}", data=body, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def is_well(running):
    with Port(running.path) as port:
        number = port.bring(LOAD, image("echo"))["number"]
        body = os.urandom(1000)
        assert port.call(number, body)[:2] == (OK, body)
    assert http(running, "echo", b"words") == (200, b"words")


def test_what_the_board_says_of_itself():
    with board() as running, Port(running.path) as port:
        assert (
            port.about["version"] == 4
            and port.about["shell"] == 1
            and port.about["regions"] == REGIONS
        ), port.about
        assert port.about["clock"] == 156250 and 0 < port.about["memory_free"] < 1 << 25
        assert os.stat(running.path).st_mode & 0o777 == 0o600


def test_a_pushed_function_answers_at_once():
    with (
        functions(only=(image("echo"), "")) as directory,
        board("--functions", directory) as running,
        Port(running.path) as port,
    ):
        assert http(running, "shout", b"words")[0] == 404
        first = port.bring(DEFINE, image("uppercase"), name=b"shout", timeout=1 << 20)
        assert first["status"] == OK, first
        assert http(running, "shout", b"words") == (200, b"WORDS")
        # The same name with another image: the region that holds the old one is loaded again.
        free = []
        for kernel, answer in (("echo", b"words"), ("uppercase", b"WORDS")) * 3:
            assert (
                port.bring(DEFINE, image(kernel), name=b"shout", timeout=1 << 20)["number"]
                == first["number"]
            )
            assert http(running, "shout", b"words") == (200, answer)
            assert port.call(first["number"], b"words")[:2] == (OK, answer)
            free.append(Port(running.path).about["memory_free"])
        assert len(set(free)) == 1, f"board memory is lost: {free}"
        assert port.ask(REMOVE, name=b"shout")["status"] == OK
        assert port.ask(REMOVE, name=b"shout")["status"] == UNKNOWN
        assert http(running, "shout", b"words")[0] == 404
        assert port.call(first["number"], b"words")[0] == UNKNOWN
        # The table also stores names of scalars.
        assert port.bring(DEFINE, image("sobel"), name=b"edges", scalars=[b"wide"])["status"] == OK
        assert http(running, "edges", bytes(64), "?wide=8")[0] == 200
        assert http(running, "edges", bytes(64), "?width=8")[0] == 400


def test_the_same_bytes_by_dma_and_over_http():
    width, height = 97, 31
    picture = random.Random(5).randbytes(width * height)
    with board() as running, Port(running.path) as port:
        sobel = port.bring(LOAD, image("sobel"))["number"]
        status, edges, report = port.call(sobel, picture, params=[width])
        assert status == OK and http(running, "sobel", picture, f"?width={width}") == (200, edges)
        assert report["loaded"] and report["kernel_cycles"] > width * height / 8, report
        status, again, report = port.call(sobel, picture, params=[width])
        assert (status, again, report["loaded"]) == (OK, edges, 0), report
        assert report["cycles"] < report["kernel_cycles"] + 600, report
        hashed = port.bring(LOAD, image("sha256"))["number"]
        for size in (0, 1, 7, 8, 63, 64, 65, 1000, 5000):
            body = os.urandom(size)
            assert http(running, "sha256", body) == (200, port.call(hashed, body)[1]), size


def test_dma_and_http_at_once():
    with board() as running:
        failures = []

        def over_http(kernel, expected):
            for i in range(40):
                body = random.Random(i).randbytes(random.Random(i).randrange(3000))
                if http(running, kernel, body) != (200, expected(body)):
                    failures.append(f"HTTP {kernel} {i}")

        def by_dma(kernel, expected):
            with Port(running.path) as port:
                number = port.bring(LOAD, image(kernel))["number"]
                for i in range(60):
                    body = random.Random(i).randbytes(random.Random(i).randrange(3000))
                    if port.call(number, body)[:2] != (OK, expected(body)):
                        failures.append(f"DMA {kernel} {i}")

        upper = lambda body: bytes(c - 32 if 97 <= c <= 122 else c for c in body)
        work = [
            (over_http, "echo", bytes),
            (over_http, "uppercase", upper),
            (by_dma, "echo", bytes),
            (by_dma, "uppercase", upper),
        ]
        # More programs than regions: they are loaded repeatedly.
        work += [(by_dma, "echo", bytes), (by_dma, "uppercase", upper)]
        threads = [threading.Thread(target=target, args=rest) for target, *rest in work]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not failures, failures


def test_images_that_the_board_refuses():
    with board() as running, Port(running.path) as port:
        damaged = bytearray(image("echo"))
        damaged[100] ^= 1
        magic, header = bytearray(image("echo")), bytearray(image("echo"))
        magic[0] ^= 1
        header[24] ^= 1
        cases = [
            (damaged, 8),
            (magic, 1),
            (header, 3),
        ]
        for content, reason in cases:
            number = port.bring(LOAD, bytes(content))["number"]
            status, answer, _ = port.call(number, b"words")
            assert (status, answer) == (IMAGE + reason, b""), (status, reason)
        # An image for another board is refused at once, and takes no memory.
        free = Port(running.path).about["memory_free"]
        for content, reason in [
            (image("echo", shell=2), "the image is for shell 0x2, the board has 0x1"),
            (image("echo", region=7), f"the image is for region 7, the board has {REGIONS}"),
        ]:
            for op, fields in ((LOAD, {}), (DEFINE, {"name": b"other"})):
                reply = port.bring(op, content, **fields)
                assert (reply["status"], reply["text"]) == (WRONG, reason), reply
        assert http(running, "other", b"words")[0] == 404
        assert Port(running.path).about["memory_free"] == free
        assert port.bring(DEFINE, bytes(damaged), name=b"broken")["status"] == OK
        assert http(running, "broken", b"words")[0] == 500
        is_well(running)


def held(port):
    """Of each region: the checksum of its image's header, and the function; or None."""
    replies = [port.ask(REGION, number=r) for r in range(REGIONS)]
    assert all(reply["status"] == OK for reply in replies), replies
    return [(r["place"], r["text"]) if r["loaded"] else None for r in replies]


def test_images_for_one_region_run_there():
    checksum = lambda content: struct.unpack_from("<I", content, 28)[0]
    kernels = ["uppercase", "echo", "checksum", "sha256"][:REGIONS]
    images = [image(kernel, region=r) for r, kernel in enumerate(kernels)]
    body = b"words"
    with (
        functions(anywhere=(image("echo"), "")) as directory,
        board("--functions", directory) as running,
        Port(running.path) as port,
    ):
        assert held(port) == [None] * REGIONS
        assert port.ask(REGION, number=REGIONS)["status"] == UNKNOWN
        # As programs of this connection, in an order that would give each another region.
        answers, numbers = {}, {}
        for r in reversed(range(REGIONS)):
            numbers[r] = port.bring(LOAD, images[r])["number"]
            status, answers[r], reply = port.call(numbers[r], body)
            assert (status, reply["region"]) == (OK, r), (r, status, reply)
            assert held(port)[r] == (checksum(images[r]), ""), held(port)
        assert answers[0] == b"WORDS" and answers[1] == body, answers
        # As functions: over HTTP and by DMA, at once with a function that runs anywhere.
        for r, content in enumerate(images):
            reply = port.bring(DEFINE, content, name=b"f%d" % r, timeout=1 << 20)
            assert reply["status"] == OK, reply
        failures = []

        def calls(name, expected):
            for _ in range(15):
                if (answer := http(running, name, body)) != (200, expected):
                    failures.append((name, answer))

        work = [(f"f{r}", answers[r]) for r in range(REGIONS)] + [("anywhere", body)]
        threads = [threading.Thread(target=calls, args=each) for each in work]
        [t.start() for t in threads]
        for _ in range(10):
            for r in range(REGIONS):
                status, answer, reply = port.call(numbers[r], body)
                assert (status, answer, reply["region"]) == (OK, answers[r], r), (r, reply)
        [t.join() for t in threads]
        assert not failures, failures
        # A region's report is of the image that it holds, even if the table names another one.
        assert http(running, "f0", body) == (200, answers[0])
        assert held(port)[0] == (checksum(images[0]), "f0"), held(port)
        assert port.ask(REMOVE, name=b"f0")["status"] == OK
        assert held(port)[0] == (checksum(images[0]), ""), held(port)


def test_a_kernel_that_never_ends_is_cut():
    with board() as running, Port(running.path) as port:
        stuck = port.bring(LOAD, image("stuck"))["number"]
        assert port.call(stuck, b"words" * 100, timeout=5000)[0] == KILLED
        is_well(running)


def test_answers_stay_in_their_room():
    with board() as running, Port(running.path) as port:
        echo = port.bring(LOAD, image("echo"))["number"]
        body = os.urandom(1000)
        port.window[ANSWER : ANSWER + 2000] = b"\xaa" * 2000
        status, answer, report = port.call(echo, body, room=333)
        assert status == ROOM and report["bytes"] == 1000 and answer == body[:333], report
        assert port.window[ANSWER + 333 : ANSWER + 2000] == b"\xaa" * 1667
        is_well(running)


def test_board_memory_and_programs_run_out():
    large = image("echo", size=(1 << 22) - 256)
    with board() as running:
        before = Port(running.path).about["memory_free"]
        with Port(running.path, window=1 << 24) as port:
            count = 0
            while (reply := port.bring(LOAD, large))["status"] == OK:
                count += 1
            assert reply["status"] == FULL and "bytes left" in reply["text"] and count > 1, (
                reply,
                count,
            )
            numbers = []
            while (reply := port.bring(LOAD, image("echo", size=256)))["status"] == OK:
                numbers.append(reply["number"])
            assert (
                reply["status"] == FULL
                and "programs" in reply["text"]
                and len(numbers) + count == 64
            ), reply
            assert port.ask(UNLOAD, number=numbers[0])["status"] == OK
            assert port.ask(UNLOAD, number=numbers[0])["status"] == UNKNOWN
            assert port.bring(LOAD, image("uppercase", size=256))["number"] == numbers[0]
            assert port.call(numbers[0], b"words")[:2] == (OK, b"WORDS")
        # The resources of a program are free when it has ended.
        for _ in range(100):
            if Port(running.path).about["memory_free"] == before:
                break
            time.sleep(0.05)
        else:
            raise AssertionError("board memory is lost")
        with Port(running.path) as port:
            names = 0
            while (reply := port.bring(DEFINE, image("echo", size=256), name=f"n{names}".encode()))[
                "status"
            ] == OK:
                names += 1
            assert reply["status"] == FULL and "table" in reply["text"] and names > 8, reply
        is_well(running)


def test_programs_reach_nothing_of_others():
    with board() as running, Port(running.path) as port, Port(running.path) as other:
        own = port.bring(LOAD, image("echo"))["number"]
        assert other.call(own, b"words")[0] == UNKNOWN
        assert other.ask(UNLOAD, number=own)["status"] == UNKNOWN
        # Functions that the table had from the start belong to HTTP:
        # their numbers are neither returned nor accepted.
        assert all(
            other.call(n, b"words")[0] == UNKNOWN
            for n in (*range(64), 64, 127, 192, 255, 256, 1 << 31)
        )
        with open(f"/proc/self/fd/{port.fd}", "r+b") as window:
            for size in (0, WINDOW // 2, 2 * WINDOW):
                with contextlib.suppress(OSError):
                    os.ftruncate(window.fileno(), size)
                    raise AssertionError("a window can be resized")
        assert port.call(own, b"words")[:2] == (OK, b"words")


def test_requests_that_cannot_be():
    with board() as running, Port(running.path) as port:
        echo = port.bring(LOAD, image("echo"))["number"]
        top, ok = (1 << 64) - 8, dict(number=echo, bytes=8, answer=ANSWER, room=8)
        wrong = [
            dict(offset=4),
            dict(offset=WINDOW),
            dict(offset=top),
            dict(bytes=WINDOW + 1),
            dict(bytes=top),
            dict(answer=ANSWER + 1),
            dict(answer=WINDOW),
            dict(answer=top),
            dict(room=WINDOW),
            dict(room=top),
            dict(offset=WINDOW - 8, bytes=9),
        ]
        for change in wrong:
            assert port.ask(CALL, **{**ok, **change})["status"] == WRONG, change
        for change in (
            dict(bytes=0),
            dict(bytes=255),
            dict(bytes=WINDOW + 256),
            dict(offset=8, bytes=WINDOW),
            dict(offset=1, bytes=256),
        ):
            assert port.ask(LOAD, **change)["status"] == WRONG, change
        for name in (b"", b"a/b", b"a b", b"\xff", b"n" * 16, b'"'):
            assert port.ask(DEFINE, bytes=256, name=name)["status"] == WRONG, name
        assert port.ask(DEFINE, bytes=256, name=b"n", scalars=[b"a=b"])["status"] == WRONG
        assert port.ask(DEFINE, bytes=256, name=b"n", speed=8)["status"] == WRONG
        for op in (0, 7, 1 << 31):
            assert port.ask(op)["status"] == WRONG
        assert port.call(echo, b"words")[:2] == (OK, b"words")
        is_well(running)


def test_programs_that_talk_nonsense_are_cut_off():
    draw = random.Random(9)
    with board() as running:

        def hangs_up(*packets):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(PATIENCE_S)
                s.connect(str(running.path))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    for packet in packets:
                        s.send(packet)
                    while s.recv(4096):
                        pass

        size = struct.calcsize(REQUEST)
        hello = struct.pack(REQUEST, HELLO, 1, 0, 0, 4096, *[0] * 9, b"", b"")
        hangs_up(b"x")
        hangs_up(b"x" * (size + 1))
        hangs_up(b"x" * 60000)
        hangs_up(hello, hello)
        hangs_up(hello, b"short")
        hangs_up(struct.pack(REQUEST, CALL, 1, 0, 0, 4096, *[0] * 9, b"", b""))
        for wanted in (0, (1 << 28) + 1, (1 << 64) - 1):
            hangs_up(struct.pack(REQUEST, HELLO, 1, 0, 0, wanted, *[0] * 9, b"", b""))
        for _ in range(200):
            with Port(running.path) as port:
                for _ in range(draw.randrange(4)):
                    packet = bytearray(draw.randbytes(size))
                    packet[:4] = struct.pack("=I", draw.randrange(2, 8))
                    port.socket.send(packet)
        is_well(running)


def test_programs_that_do_not_listen_or_vanish():
    with board() as running:
        # Replies that are not read end their own connection, and others are served meanwhile.
        with Port(running.path) as deaf:
            deaf.socket.setblocking(False)
            for _ in range(3000):
                try:
                    deaf.send(UNLOAD, number=1)
                except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                    time.sleep(0.001)
            is_well(running)
        for _ in range(20):
            with Port(running.path) as port:
                number = port.bring(LOAD, image("stuck" if _ % 4 == 0 else "echo"))["number"]
                port.send(
                    CALL,
                    number=number,
                    bytes=WINDOW // 2,
                    answer=ANSWER,
                    room=WINDOW // 2,
                    timeout=20000,
                )
        crowd = []
        for _ in range(80):
            with contextlib.suppress(OSError):
                s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                s.settimeout(0.2)
                s.connect(str(running.path))
                crowd.append(s)
        [s.close() for s in crowd]
        is_well(running)


def test_images_that_come_with_the_board_can_be_pushed():
    with (
        functions(only=(image("echo"), "")) as directory,
        board("--functions", directory) as running,
        Port(running.path) as port,
    ):
        file = (BUILT_IN / "uppercase.img").read_bytes()
        assert (
            port.bring(DEFINE, file[:-256], name=b"up")["status"] == OK
            and file[-256:-252] == b"BLRN"
        )
        assert http(running, "up", b"words") == (200, b"WORDS")


if __name__ == "__main__":
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
