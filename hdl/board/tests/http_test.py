#!/usr/bin/env python3
"""What the board's HTTP does beyond the plain call: API keys, requests' ids, chunked bodies.

usage: http_test.py [PART OF A NAME …]     (root: it makes a network namespace and a TAP device)
"""

import http.client
import random
import socket
import sys

from board_test import URL, Answers, alive, connect, curl, request
from harness import BOARD_IP, Board, enter_namespace, run

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
        assert status("-d", "x", f"{URL}/function/none") == 401  # who may not call is not told what there is
        assert status(f"{URL}/metrics") == 401 and status(f"{URL}/system/functions") == 401
        assert curl(f"{URL}/healthz") == b"ok\n"
        assert b"WWW-Authenticate: X-API-Key" in curl("-i", "-d", "x", echo)
        # Refused is not closed: the body is passed over, and the next request may know the key.
        s = connect()
        s.sendall(request(b"b" * 3000) + request(b"again", head=f"X-API-Key: {KEY}\r\n") + request(b"c"))
        answers = Answers(s)
        assert [answers.next()[0], answers.next(), answers.next()[0]] == [401, (200, b"again"), 401]


def test_without_a_key_none_is_asked():
    with Board(log="keyless"):
        assert curl("-H", "X-API-Key: whatever", "-d", "x", f"{URL}/function/echo") == b"x"


def test_request_ids():
    with Board(log="ids"):
        for name, path in [("a function", "/function/echo"), ("the board's own", "/healthz"), ("an error", "/nothing")]:
            post = ["-d", "x"] if "function" in path else []
            for value in ["550e8400-e29b-41d4-a716-446655440000", "7", "i" * 40]:
                head = curl("-i", "-H", f"X-Request-Id: {value}", *post, f"{URL}{path}").split(b"\r\n\r\n")[0]
                assert head.count(f"\r\nX-Request-Id: {value}".encode()) == 1, (name, value, head)
            head = curl("-i", "-H", "X-Request-Id: " + "i" * 41, *post, f"{URL}{path}")
            assert b"X-Request-Id" not in head, (name, head)
            assert b"X-Request-Id" not in curl("-i", *post, f"{URL}{path}")
        # One request's id is not the next one's, and every way to end a head has its place.
        s = connect()
        one = b"POST /function/echo HTTP/1.%d\r\nHost: b\r\nContent-Length: 2\r\n%s\r\nab"
        s.sendall(one % (1, b"X-Request-Id: first\r\n") + one % (1, b"") + one % (0, b"Connection: keep-alive\r\nX-Request-Id: third\r\n"))
        s.sendall(one % (1, b"Connection: close\r\nX-Request-ID: fourth\r\n"))
        text = b"".join(iter(lambda: s.recv(4096), b""))
        parts = text.split(b"HTTP/1.1 ")[1:]
        assert len(parts) == 4 and all(part.endswith(b"\r\n\r\nab") for part in parts), text
        ids = [next((line[14:] for line in part.split(b"\r\n") if line.startswith(b"X-Request-Id: ")), None) for part in parts]
        assert ids == [b"first", None, b"third", b"fourth"], ids
        alive()


def chunks(body, draw, most=5000):
    """The body in chunks of any size, some with extensions, and perhaps a trailer."""
    text = b""
    while body:
        n = draw.choice([1, 7, 8, draw.randrange(1, most)])
        part, body = body[:n], body[n:]
        size = draw.choice(["%x", "%X", "%06x"]) % len(part)
        text += size.encode() + draw.choice([b"", b"", b";ext", b'; a="b" ']) + b"\r\n" + part + b"\r\n"
    return text + b"0\r\n" + draw.choice([b"", b"", b"X-Trailer: t\r\nAnother: u\r\n"]) + b"\r\n"


def chunked(text, name="echo", head=""):
    return f"POST /function/{name} HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n{head}\r\n".encode() + text


def test_chunked_bodies():
    draw = random.Random(1)
    with Board(log="chunked"):
        for size in [0, 1, 100, 5000, 100000, 1 << 20]:
            body = draw.randbytes(size)
            # curl 7.88 with nothing to send waits for ever after a 100.
            for expect in ["Expect:", "Expect: 100-continue"][: 1 + (size > 0)]:
                out = curl("-H", "Transfer-Encoding: chunked", "-H", expect, "--data-binary", "@-", f"{URL}/function/echo", body=body, seconds=30)
                assert out == body, (size, expect, len(out))
        connection = http.client.HTTPConnection(BOARD_IP, timeout=20)
        for _ in range(20):
            parts = [draw.randbytes(draw.randrange(1, 3000)) for _ in range(draw.randrange(1, 12))]
            connection.request("POST", "/function/echo", iter(parts), encode_chunked=True)
            assert connection.getresponse().read() == b"".join(parts)


def test_chunks_in_any_pieces():
    draw = random.Random(2)
    with Board(log="pieces"):
        s = connect(20)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = Answers(s)
        for _ in range(30):
            # Chunked requests, plain ones and refused ones behind one another on one connection.
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
        s = connect(20)
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
        (200, chunked(b"0003;x=y\r\nabc\r\n0\r\n\r\n").replace(b"Transfer-Encoding: chunked", b"transfer-ENCODING:\tChunked ")),
    ]
    with Board(log="refused"):
        for status, text in cases:
            s = connect(10)
            try:
                s.sendall(text)
            except ConnectionError:
                pass  # the answer has come before all was sent
            answer = Answers(s).next()
            assert answer and answer[0] == status, (status, answer, text[:120])
            s.close()
        # An end in the middle is no end: closed without an answer.
        s = connect()
        s.sendall(chunked(b"5\r\nabc"))
        s.shutdown(socket.SHUT_WR)
        assert s.recv(100) == b""
        alive()


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
