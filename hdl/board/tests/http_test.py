#!/usr/bin/env python3
"""Tests features of the board's HTTP: API keys, ids of requests, chunked bodies.

usage: http_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import http.client
import random
import re
import socket
import sys

from client import URL, Answers, alive, connect, curl, request
from harness import BOARD_IP, PATIENCE_S, Board, enter_namespace, functions, image, run

KEY = "open-Sesame.0123456789_abcdefghi"  # 32 characters, the most


def status(*args, body=None):
    return int(curl("-o", "/dev/null", "-w", "%{http_code}", *args, body=body))


def test_api_key():
    with Board("--api-key", KEY, log="key"):
        echo = f"{URL}/function/echo"
        assert curl("-H", f"X-API-Key: {KEY}", "-d", "let me in", echo) == b"let me in"
        assert curl("-H", f"x-api-key:{KEY} ", "-d", "let me in", echo) == b"let me in"
        for wrong in ["", KEY[:-1], KEY + "j", KEY.upper(), KEY[::-1], f"{KEY} {KEY}"]:
            assert status("-H", f"X-API-Key: {wrong}", "-d", "x", echo) == 401, wrong
        assert status("-H", f"X-API-Key: {KEY}", "-H", "X-API-Key: other", "-d", "x", echo) == 401
        assert status("-d", "x", echo) == 401
        assert (
            status("-d", "x", f"{URL}/function/none") == 401
        )  # without a key, the existence of functions is not revealed
        assert status(f"{URL}/metrics") == 401 and status(f"{URL}/system/functions") == 401
        assert curl(f"{URL}/healthz") == b"ok\n"
        assert b"WWW-Authenticate: X-API-Key" in curl("-i", "-d", "x", echo)
        # A refusal keeps the connection: the body is skipped,
        # and the next request may have the key.
        s = connect()
        s.sendall(
            request(b"b" * 3000) + request(b"again", head=f"X-API-Key: {KEY}\r\n") + request(b"c")
        )
        answers = Answers(s)
        assert [answers.next()[0], answers.next(), answers.next()[0]] == [401, (200, b"again"), 401]


def test_without_a_key_none_is_asked():
    with Board(log="keyless"):
        assert curl("-H", "X-API-Key: whatever", "-d", "x", f"{URL}/function/echo") == b"x"


def test_request_ids():
    with Board(log="ids"):
        for name, path in [
            ("a function", "/function/echo"),
            ("the board's own", "/healthz"),
            ("an error", "/nothing"),
        ]:
            post = ["-d", "x"] if "function" in path else []
            for value in ["550e8400-e29b-41d4-a716-446655440000", "7", "i" * 40]:
                head = curl("-i", "-H", f"X-Request-Id: {value}", *post, f"{URL}{path}").split(
                    b"\r\n\r\n"
                )[0]
                assert head.count(f"\r\nX-Request-Id: {value}".encode()) == 1, (name, value, head)
            head = curl("-i", "-H", "X-Request-Id: " + "i" * 41, *post, f"{URL}{path}")
            assert b"X-Request-Id" not in head, (name, head)
            assert b"X-Request-Id" not in curl("-i", *post, f"{URL}{path}")
        # An id applies to its own request only, with every form of a head's end.
        s = connect()
        one = b"POST /function/echo HTTP/1.%d\r\nHost: b\r\nContent-Length: 2\r\n%s\r\nab"
        s.sendall(
            one % (1, b"X-Request-Id: first\r\n")
            + one % (1, b"")
            + one % (0, b"Connection: keep-alive\r\nX-Request-Id: third\r\n")
        )
        s.sendall(one % (1, b"Connection: close\r\nX-Request-ID: fourth\r\n"))
        text = b"".join(iter(lambda: s.recv(4096), b""))
        parts = text.split(b"HTTP/1.1 ")[1:]
        assert len(parts) == 4 and all(part.endswith(b"\r\n\r\nab") for part in parts), text
        ids = [
            next(
                (line[14:] for line in part.split(b"\r\n") if line.startswith(b"X-Request-Id: ")),
                None,
            )
            for part in parts
        ]
        assert ids == [b"first", None, b"third", b"fourth"], ids
        alive()


def chunks(body, draw, most=5000):
    """The body in chunks of any size, some with extensions, and perhaps a trailer."""
    text = b""
    while body:
        n = draw.choice([1, 7, 8, draw.randrange(1, most)])
        part, body = body[:n], body[n:]
        size = draw.choice(["%x", "%X", "%06x"]) % len(part)
        text += (
            size.encode() + draw.choice([b"", b"", b";ext", b'; a="b" ']) + b"\r\n" + part + b"\r\n"
        )
    return text + b"0\r\n" + draw.choice([b"", b"", b"X-Trailer: t\r\nAnother: u\r\n"]) + b"\r\n"


def chunked(text, name="echo", head=""):
    return (
        f"POST /function/{name} HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n{head}\r\n".encode()
        + text
    )


def test_chunked_bodies():
    draw = random.Random(1)
    with Board(log="chunked"):
        for size in [0, 1, 100, 5000, 100000, 1 << 20]:
            body = draw.randbytes(size)
            # curl 7.88 without a body waits indefinitely after a 100.
            for expect in ["Expect:", "Expect: 100-continue"][: 1 + (size > 0)]:
                out = curl(
                    "-H",
                    "Transfer-Encoding: chunked",
                    "-H",
                    expect,
                    "--data-binary",
                    "@-",
                    f"{URL}/function/echo",
                    body=body,
                )
                assert out == body, (size, expect, len(out))
        connection = http.client.HTTPConnection(BOARD_IP, timeout=PATIENCE_S)
        for _ in range(20):
            parts = [draw.randbytes(draw.randrange(1, 3000)) for _ in range(draw.randrange(1, 12))]
            connection.request("POST", "/function/echo", iter(parts), encode_chunked=True)
            assert connection.getresponse().read() == b"".join(parts)


def test_chunks_in_any_pieces():
    draw = random.Random(2)
    with Board(log="pieces"):
        s = connect()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = Answers(s)
        for _ in range(30):
            # Chunked, plain and refused requests in sequence on one connection.
            stream, expect = b"", []
            for _ in range(6):
                body = draw.randbytes(draw.choice([0, 1, 8, 64, 700, 4000]))
                kind = draw.randrange(3)
                if kind == 0:
                    stream += request(body)
                else:
                    stream += chunked(chunks(body, draw), "echo" if kind == 1 else "none")
                expect.append((200, body) if kind < 2 else (404, b"not found\n"))
            while stream:
                n = draw.choice([1, 2, 5, 50, 1460, 3000])
                s.sendall(stream[:n])
                stream = stream[n:]
            for i, want in enumerate(expect):
                got = answers.next()
                assert got == want, (i, got[0], want[0], len(got[1]), len(want[1]))


def test_one_chunk_a_byte():
    body = random.Random(3).randbytes(60000)
    with Board(log="bytes"):
        s = connect()
        s.sendall(chunked(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"))
        assert Answers(s).next() == (200, body)


def test_chunks_that_are_refused():
    cases = [
        (400, chunked(b"3\r\nabc\r\n0\r\n\r\n", head="Content-Length: 3\r\n")),
        (400, chunked(b"3\r\nabc\r\n0\r\n\r\n").replace(b"HTTP/1.1", b"HTTP/1.0")),
        (501, chunked(b"3\r\nabc\r\n0\r\n\r\n").replace(b": chunked", b": gzip")),
        (501, chunked(b"3\r\nabc\r\n0\r\n\r\n").replace(b": chunked", b": gzip, chunked")),
        (501, chunked(b"3\r\nabc\r\n0\r\n\r\n").replace(b": chunked", b": chunked, chunked")),
        (501, chunked(b"3\r\nabc\r\n0\r\n\r\n", head="Transfer-Encoding: chunked\r\n")),
        (501, chunked(b"3\r\nabc\r\n0\r\n\r\n").replace(b": chunked", b": xchunked")),
        (400, chunked(b"g\r\n")),
        (400, chunked(b"\r\n")),
        (400, chunked(b"-1\r\n")),
        (400, chunked(b"3\nabc\n0\n\n")),
        (400, chunked(b"3\r\nabcd\r\n")),
        (400, chunked(b"3\r\nabc0\r\n")),
        (413, chunked(b"c00001\r\n" + b"x" * 3000)),
        (413, chunked(b"1000000000000000\r\n")),
        (413, chunked(b"80000\r\n" + b"x" * 0x80000 + b"\r\nb80001\r\n" + b"x" * 0x80000)),
        (431, chunked(b"3;" + b"e" * 9000)),
        (431, chunked(b"0\r\nT: " + b"t" * 9000)),
        (
            200,
            chunked(b"0003;x=y\r\nabc\r\n0\r\n\r\n").replace(
                b"Transfer-Encoding: chunked", b"transfer-ENCODING:\tChunked "
            ),
        ),
    ]
    with Board(log="refused"):
        for status, text in cases:
            s = connect()
            try:
                s.sendall(text)
            except ConnectionError:
                pass  # the reply has arrived before the whole request was sent
            answer = Answers(s).next()
            assert answer and answer[0] == status, (status, answer, text[:120])
            s.close()
        # An end within a request is an error: closed without a reply.
        s = connect()
        s.sendall(chunked(b"5\r\nabc"))
        s.shutdown(socket.SHUT_WR)
        assert s.recv(100) == b""
        alive()


def answered(text, count, closes):
    """([(status, head, body)], whether the board closes the connection) for these bytes, of which
    `count` answers and the end, if it `closes`, are waited for; a second for anything else.
    """
    s = connect()
    s.sendall(text)
    got, ended = b"", False
    while True:
        s.settimeout(PATIENCE_S if closes or got.count(b"HTTP/1.") < count else 1)
        try:
            part = s.recv(65536)
        except TimeoutError:
            break
        if not part:
            ended = True
            break
        got += part
    s.close()
    answers = []
    while got:
        head, _, got = got.partition(b"\r\n\r\n")
        length = int((re.search(rb"(?i)content-length: *(\d+)", head) or [b"", b"0"])[1])
        body, got = (b"", got) if text.startswith(b"HEAD ") else (got[:length], got[length:])
        answers.append((int(head.split()[1]), head, body))
    return answers, ended


def test_requests_by_the_rfcs():
    """Requests are accepted or refused as RFC 9110 and RFC 9112 require."""
    host, post = b"Host: b\r\n", b"POST /function/echo HTTP/1.1\r\nHost: b\r\n"
    chunked, three = post + b"Transfer-Encoding: chunked\r\n\r\n", b"Content-Length: 3\r\n"
    closed = True
    cases = [
        # Chunk sizes with junk; the second one smuggles a request past a proxy that reads 0x22 as
        # 34.
        ([400], closed, chunked + b"3zz\r\nabc\r\n0\r\n\r\n"),
        (
            [400],
            closed,
            chunked + b"0x22\r\n\r\nGET /healthz HTTP/1.1\r\nHost: b\r\n\r\n\r\n0\r\n\r\n",
        ),
        ([400], closed, chunked + b"3,\r\nabc\r\n0\r\n\r\n"),
        ([400], closed, chunked + b"3 \r\nabc\r\n0\r\n\r\n"),
        ([400], closed, chunked + b"3\r\nabc\r\n0\r\nno colon\r\n\r\n"),
        # Targets.
        (
            [404],
            not closed,
            b"POST http://b?/function/uppercase HTTP/1.1\r\n" + host + three + b"\r\nabc",
        ),
        ([404], not closed, b"GET http://b HTTP/1.1\r\n" + host + b"\r\n"),
        ([400], closed, b"GET http:///healthz HTTP/1.1\r\n" + host + b"\r\n"),
        ([400], closed, b"GET http://u@b/healthz HTTP/1.1\r\n" + host + b"\r\n"),
        ([400], closed, b"GET healthz HTTP/1.1\r\n" + host + b"\r\n"),
        ([400], closed, b"GET * HTTP/1.1\r\n" + host + b"\r\n"),
        ([200], not closed, b"POST /function/%65cho HTTP/1.1\r\n" + host + three + b"\r\nabc"),
        (
            [200],
            not closed,
            b"POST /%66unction/%65%63ho? HTTP/1.1\r\nX-Request-Id: 7\r\n"
            + host
            + three
            + b"\r\nabc",
        ),
        ([404], not closed, b"POST /function/echo%00 HTTP/1.1\r\n" + host + three + b"\r\nabc"),
        ([404], not closed, b"POST /function%2fecho HTTP/1.1\r\n" + host + three + b"\r\nabc"),
        # Expectations.
        (
            [],
            not closed,
            b"POST /function/echo HTTP/1.0\r\n" + three + b"Expect: 100-continue\r\n\r\n",
        ),
        (
            [200],
            closed,
            b"POST /function/echo HTTP/1.0\r\n" + three + b"Expect: 100-continue\r\n\r\nabc",
        ),
        ([100], not closed, post + three + b"Expect: 100-Continue \r\n\r\n"),
        ([417], closed, post + three + b"Expect: 100-continueXYZ\r\n\r\n"),
        # Fields.
        ([400], closed, b"GET /healthz HTTP/1.1\r\nHost: a b/c?@\r\n\r\n"),
        ([400], closed, b"GET /healthz HTTP/1.1\r\n" + host + b"X: a\0b\r\n\r\n"),
        ([400], closed, b"GET /healthz HTTP/1.1\r\n" + host + b"A(b): x\r\n\r\n"),
        ([400], closed, b"HEAD /healthz HTTP/1.1\r\n" + host + b"Bad Header: x\r\n\r\n"),
        # Methods and versions.
        ([400], closed, b"G@T( /healthz HTTP/1.1\r\n" + host + b"\r\n"),
        ([501], not closed, b"BREW /healthz HTTP/1.1\r\n" + host + b"\r\n"),
        ([405], not closed, b"PUT /healthz HTTP/1.1\r\n" + host + three + b"\r\nabc"),
        ([200], not closed, b"OPTIONS * HTTP/1.1\r\n" + host + b"\r\n"),
        ([200], not closed, b"OPTIONS /function/echo HTTP/1.1\r\n" + host + b"\r\n"),
        ([404], not closed, b"OPTIONS /nothing HTTP/1.1\r\n" + host + b"\r\n"),
        ([505], closed, b"GET /healthz HTTP/2.0\r\n" + host + b"\r\n"),
    ]
    allowed = {b"*": b"GET, HEAD, POST, OPTIONS", b"/function/echo": b"POST, OPTIONS"}
    with Board(log="rfcs"):
        for statuses, closes, text in cases:
            answers, ended = answered(text, len(statuses), closes)
            assert [answer[0] for answer in answers] == statuses and ended == closes, (
                answers,
                ended,
                text,
            )
            target = text.split(b" ")[1]
            if text.startswith(b"OPTIONS") and target in allowed:
                assert b"\r\nAllow: " + allowed[target] + b"\r\n" in answers[0][1], answers
            if statuses == [200] and text.startswith(b"POST"):
                assert answers[0][2] == b"abc", answers
            assert not text.startswith(b"HEAD ") or answers[0][2] == b"", answers
        alive()


def test_an_answer_longer_than_its_ring():
    with functions(
        flood=(image("flood", 256), "timeout=60000000"), echo=(image("echo"), "")
    ) as directory:
        with Board("--functions", directory, log="flood"):
            s = connect()
            s.sendall(request(b"water", "flood") + request(b"next"))
            answers = Answers(s)
            status, text = answers.next()
            assert status == 500 and b"does not fit its ring" in text, (status, text)
            assert answers.next() == (200, b"next")


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
