#!/usr/bin/env python3
"""Tests the board's model with connections of Linux' own TCP: bodies and requests in any form, and clients
that hold their connections.

usage: connections_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import concurrent.futures
import http.client
import random
import socket
import struct
import subprocess
import sys
import threading
import time

from client import URL, Answers, alive, call, cold_starts, connect, curl, metrics, patient, request
from harness import BOARD_IP, PATIENCE_S, Board, enter_namespace, functions, image, run


def test_megabyte_with_expect():
    body = random.Random(1).randbytes(1 << 20)
    with Board():
        for head in ["Expect: 100-continue", "Expect:"]:
            out = curl("-H", head, "--data-binary", "@-", f"{URL}/function/echo", body=body)
            assert out == body, (head, len(out))


def test_megabyte_sent_before_reading():
    body = random.Random(2).randbytes(1 << 20)
    with Board():
        connection = http.client.HTTPConnection(BOARD_IP, timeout=PATIENCE_S)
        for _ in range(3):
            connection.request("POST", "/function/echo", body)
            assert connection.getresponse().read() == body


def test_head():
    with Board():
        out = curl("--head", f"{URL}/healthz", f"{URL}/metrics").decode()
        assert out.count("200 OK") == 2 and "Content-Length: 3" in out, out


def test_keep_alive():
    with Board():
        done = subprocess.run(
            ["curl", "-sSv", "-m", "5"] + [f"{URL}/healthz"] * 5, capture_output=True, text=True
        )
        assert (
            done.stdout == "ok\n" * 5 and done.stderr.count("Re-using existing connection") == 4
        ), done.stderr
        connection = http.client.HTTPConnection(BOARD_IP, timeout=PATIENCE_S)
        for i in range(300):
            connection.request("POST", "/function/uppercase", f"call {i}")
            assert connection.getresponse().read() == f"CALL {i}".encode()


def test_http_1_0():
    with Board():
        assert curl("--http1.0", f"{URL}/healthz") == b"ok\n"
        s = connect()
        s.sendall(
            b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n"
        )
        text = b"".join(iter(lambda: s.recv(4096), b""))
        assert text.count(b"200 OK") == 2 and text.count(b"Connection: keep-alive") == 1, text
        assert text.count(b"Connection: close") == 1, text


def test_connection_close():
    with Board():
        s = connect()
        s.sendall(request(b"bye", head="Connection: Close\r\n"))
        text = b"".join(iter(lambda: s.recv(4096), b""))
        assert text.endswith(b"bye") and b"Connection: close" in text, text


def test_byte_by_byte():
    with Board():
        s = connect()
        answers = Answers(s)
        for body in [b"typed slowly", b"", b"once more"]:
            for byte in request(body, "uppercase", "X-Other: ignored, \t really\r\n"):
                s.sendall(bytes([byte]))
            assert answers.next() == (200, body.upper())


def test_random_segmentation():
    draw = random.Random(3)
    with Board():
        s = connect()
        answers = Answers(s)
        for _ in range(40):
            bodies = [draw.randbytes(draw.randrange(300)) for _ in range(5)]
            stream = b"".join(request(b) for b in bodies)
            while stream:
                n = draw.randrange(1, 200)
                s.sendall(stream[:n])
                stream = stream[n:]
            for body in bodies:
                assert answers.next() == (200, body)


def test_pipelining_in_order():
    with Board():
        s = connect()
        calls = [
            (name, f"request {i}".encode()) for i in range(500) for name in ("uppercase", "echo")
        ]
        s.sendall(b"".join(request(b, n) for n, b in calls))
        answers = Answers(s)
        for name, body in calls:
            assert answers.next() == (200, body.upper() if name == "uppercase" else body)


def test_pipelining_without_reading():
    body = random.Random(4).randbytes(3000)
    calls = 3000
    with Board():
        s = connect(30, receive_buffer=8192)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            sent = pool.submit(s.sendall, request(body) * calls)
            time.sleep(1.5)
            alive()
            answers = Answers(s)
            for i in range(calls):
                assert answers.next() == (200, body), i
            sent.result()


def test_errors():
    cases = [
        (400, b"NONSENSE\r\n\r\n"),
        (505, b"GET /healthz HTTP/2.0\r\n\r\n"),
        (400, b"GET /healthz HTTP/1.1\r\n\r\n"),  # no Host
        (400, b"GET  /healthz HTTP/1.1\r\nHost: b\r\n\r\n"),
        (400, b"POST /function/echo HTTP/1.1\r\nHost: b\r\nContent-Length: 3x\r\n\r\n"),
        (400, b"POST /function/echo HTTP/1.1\r\nHost: b\r\nContent-Length : 3\r\n\r\nabc"),
        (
            400,
            b"POST /function/echo HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\nContent-Length: "
            b"4\r\n\r\nabc",
        ),
        (400, b"POST /function/echo HTTP/1.1\r\nHost: b\r\n folded\r\n\r\n"),
        (400, b"POST /function/checksum?hex=1&hex=2 HTTP/1.1\r\nHost: b\r\n\r\n"),
        (400, b"POST /function/checksum?hex=-1 HTTP/1.1\r\nHost: b\r\n\r\n"),
        (400, b"POST /function/checksum?hex=4294967296 HTTP/1.1\r\nHost: b\r\n\r\n"),
        (400, b"POST /function/checksum?width=1 HTTP/1.1\r\nHost: b\r\n\r\n"),
        (404, b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"),
        (404, b"POST /function/none HTTP/1.1\r\nHost: b\r\n\r\n"),
        (404, b"POST /function/echoecho HTTP/1.1\r\nHost: b\r\n\r\n"),
        (404, b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: b\r\n\r\n"),
        (405, b"GET /function/echo HTTP/1.1\r\nHost: b\r\n\r\n"),
        (405, b"DELETE /healthz HTTP/1.1\r\nHost: b\r\n\r\n"),
        (405, b"PUT /function/echo HTTP/1.1\r\nHost: b\r\n\r\n"),
        (501, b"BREW /function/echo HTTP/1.1\r\nHost: b\r\n\r\n"),
        (
            501,
            b"POST /function/echo HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: "
            b"gzip\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (413, b"POST /function/echo HTTP/1.1\r\nHost: b\r\nContent-Length: 99999999999\r\n\r\n"),
        (431, b"GET /healthz HTTP/1.1\r\nHost: b\r\nX-Long: " + b"x" * 9000),
        (200, b"\r\nGET http://board/healthz?all=1 HTTP/1.1\nhOsT: b\n\n"),
        (200, b"POST /function/echo HTTP/1.1\r\nhost:b\r\ncontent-LENGTH:\t 0003 \r\n\r\nabc"),
    ]
    with Board():
        for status, text in cases:
            s = connect(5)
            s.sendall(text)
            answer = Answers(s).next()
            assert answer and answer[0] == status, (status, answer, text[:80])
            s.close()
        # An error that leaves the stream intact leaves the connection open, with the body skipped.
        s = connect()
        s.sendall(request(b"body" * 100, "none") + request(b"next", "uppercase"))
        answers = Answers(s)
        assert answers.next()[0] == 404
        assert answers.next() == (200, b"NEXT")
        alive()


def test_half_close():
    with Board():
        s = connect()
        s.sendall(request(b"a" * 5000) + request(b"b" * 10))
        s.shutdown(socket.SHUT_WR)
        text = b"".join(iter(lambda: s.recv(65536), b""))
        assert text.count(b"200 OK") == 2 and text.endswith(b"b" * 10)
        s = connect()
        s.sendall(request(b"a" * 5000)[:-1])
        s.shutdown(socket.SHUT_WR)
        assert s.recv(100) == b""  # never complete: closed without a reply


def test_resets_at_every_state():
    reset = struct.pack("ii", 1, 0)
    with Board():
        for i in range(120):
            s = connect(5)
            text = request(b"z" * 20000)
            step = i % 6
            if step >= 1:
                s.sendall(text[: [0, 5, 60, 10000, len(text), len(text)][step]])
            if step == 5:
                s.recv(1000)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            s.close()
        alive()


def test_more_sessions_than_fit():
    with Board():
        idle = [connect() for _ in range(16)]
        for s in idle:
            s.sendall(request(b"x"))
            assert Answers(s).next() == (200, b"x")
        # All sessions are in use by idle clients: the next client waits until one of them is
        # closed.
        alive()

        def client(i):
            body = random.Random(i).randbytes(5000)
            return (
                patient(
                    lambda: curl(
                        "--data-binary", "@-", f"{URL}/function/echo", body=body, seconds=30
                    )
                )
                == body
            )

        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            assert all(pool.map(client, range(80)))


def test_who_waits_for_a_call_is_not_idle():
    """A call gets its reply although it takes longer than the idle limit under contention."""
    with functions(
        stuck=(image("stuck", 256), "timeout=6000000"), echo=(image("echo"), "")
    ) as directory:
        with Board("--functions", directory):
            s = connect()
            s.sendall(request(b"for long", "stuck"))
            while cold_starts() < 1:
                pass
            started = time.monotonic()
            idle = [connect() for _ in range(15)]
            for i in idle:
                i.sendall(request(b"x"))
                assert Answers(i).next() == (200, b"x")
            # All sessions are in use: the next client waits until one that is idle is closed.
            assert call("echo", b"last") == (200, b"last")
            assert Answers(s).next()[0] == 503
            assert time.monotonic() - started > 1.5, "the call was too short for this test"


def test_half_requests_do_not_hold_the_board():
    with Board():
        stuck = [connect() for _ in range(16)]
        for s in stuck:
            s.sendall(request(b"never complete" * 10)[:-5])
        alive()


def trickle(first, byte, stop, again):
    """Sixteen connections that send `first`, then `byte` every 0.4 s;
    with `again` each reconnects after a reset."""
    held = []
    while not stop.wait(0.4):
        for s in list(held):
            try:
                s.sendall(byte)
                if s.recv(1, socket.MSG_DONTWAIT) == b"":
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                s.close()
                held.remove(s)
        while len(held) < 16 and (again or not stop.begun.is_set()):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex((BOARD_IP, 80))
            held.append(s)
            stop.wait(0.02)
            try:
                s.sendall(first)
            except OSError:
                pass
        stop.begun.set()
    for s in held:
        s.close()


def test_bytes_that_trickle_hold_no_session():
    """Connections that never complete a request do not shut out others."""
    post = b"POST /function/echo HTTP/1.1\r\nHost: b\r\n"
    heads = {
        "head": (b"GET /healthz HTTP/1.1\r\nX-Slow: ", b"x"),
        "body": (post + b"Content-Length: 100000\r\n\r\n", b"x"),
        "chunks": (post + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n", b"x"),
        "empty lines": (b"\r\n", b"\n"),
    }
    with Board(log="trickle"):
        for name, (first, byte) in heads.items():
            for again in (False, True):
                stop = threading.Event()
                stop.begun = threading.Event()
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    attack = pool.submit(trickle, first, byte, stop, again)
                    try:
                        assert stop.begun.wait(PATIENCE_S)
                        for _ in range(3):
                            time.sleep(1.5)  # every session may be evicted by now
                            patient(lambda: alive(60))
                    finally:
                        stop.set()
                    attack.result()
                resets = metrics()["connections_reset_total"]
                print(
                    f"    {name}, {'again' if again else 'once'}: {resets} reset so far", flush=True
                )


def busy_client(first, part, every, answers, stop, again):
    """A connection that sends `part` every `every` seconds, after `first`, and counts its replies;
    with `again` it reconnects when the board has closed it."""
    while not stop.is_set():
        s = socket.socket()
        s.settimeout(0.05)
        try:
            s.connect((BOARD_IP, 80))
            s.sendall(first)
            while not stop.wait(every - 0.05):
                s.sendall(part)
                try:
                    while data := s.recv(65536):
                        answers.append(data)
                    break  # the board has closed the connection
                except TimeoutError:
                    pass
        except OSError:
            pass
        finally:
            s.close()
        if not again:
            return


def test_busy_connections_make_room_for_others():
    """Connections that always make progress, at a low rate, do not shut out others."""
    echo = request(b"small")
    upload = b"POST /function/echo HTTP/1.1\r\nHost: b\r\nContent-Length: 8000000\r\n\r\n"
    with Board(log="busy"):
        for name, first, part, every in (
            ("requests", b"", echo, 0.9),
            ("bodies", upload, bytes(4096), 0.9),
        ):
            for again in (False, True):
                stop, answers = threading.Event(), []
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    held = [
                        pool.submit(busy_client, first, part, every, answers, stop, again)
                        for _ in range(16)
                    ]
                    try:
                        time.sleep(6)  # a request of 5 s has to give way
                        for _ in range(3):
                            patient(lambda: alive(60))
                    finally:
                        stop.set()
                    for client in held:
                        client.result()
                # A session closes after a reply that announces it, and no reply is cut off.
                text = b"".join(answers)
                assert text.count(b"HTTP/1.1 200 OK") == text.count(b"small"), text[-200:]
                closed = text.count(b"Connection: close")
                assert closed > 0 or name != "requests", "no connection was closed"
                resets = metrics()["connections_reset_total"]
                print(
                    f"    {name}, {'again' if again else 'once'}: {closed} closed after a reply, "
                    f"{resets} reset so far",
                    flush=True,
                )


def test_busy_readers_make_room_for_others():
    """Replies that are read steadily, but at a low rate, do not shut out others."""
    body = random.Random(8).randbytes(1 << 20)

    def reader(stop):
        s = connect(receive_buffer=8192)
        s.sendall(request(body))
        try:
            while not stop.wait(0.3) and s.recv(8192):
                pass
        except OSError:
            pass
        s.close()

    with Board(log="readers"):
        stop = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            held = [pool.submit(reader, stop) for _ in range(16)]
            try:
                time.sleep(3)  # all replies are being read
                for _ in range(2):
                    patient(lambda: alive(60))
            finally:
                stop.set()
            for client in held:
                client.result()


def test_busy_connections_stay_while_sessions_are_free():
    """Without connections that wait, a connection may stay and take its time."""
    with Board():
        clients = [connect() for _ in range(15)]
        answers = [Answers(s) for s in clients]
        body = random.Random(7).randbytes(9 * 4096)
        clients[0].sendall(request(body)[: -len(body)])
        for i in range(9):
            clients[0].sendall(body[4096 * i : 4096 * (i + 1)])
            for s, answer in zip(clients[1:], answers[1:]):
                s.sendall(request(b"small"))
                assert answer.next() == (200, b"small")
            alive()  # in the session that is left
            time.sleep(0.8)
        assert answers[0].next() == (200, body)


def test_mixed_load():
    def client(i):
        draw = random.Random(i)
        connection = http.client.HTTPConnection(BOARD_IP, timeout=PATIENCE_S)
        for _ in range(20):
            body = draw.randbytes(draw.choice([0, 1, 64, 1460, 10000, 60000]))
            connection.request("POST", "/function/echo", body)
            if connection.getresponse().read() != body:
                return False
        return True

    with Board():
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert all(pool.map(client, range(16)))


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
