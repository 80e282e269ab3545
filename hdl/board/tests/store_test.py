#!/usr/bin/env python3
"""Tests images that the board fetches from a store when a function is called: real servers,
and failing stores.

usage: store_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import concurrent.futures
import contextlib
import functools
import http.server
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from client import call, cold_starts, connect
from harness import HOST_IP, PATIENCE_S, Board, enter_namespace, image, run

SLOTS, SLOT_BYTES = 8, 2 << 20


@contextlib.contextmanager
def table(**functions):
    """A directory for --functions: NAME='options of its line'; all are in the store,
    except `local`, an echo."""
    with tempfile.TemporaryDirectory() as directory:
        lines = [f"{name} @store {options}\n" for name, options in functions.items()]
        (Path(directory) / "local.img").write_bytes(image("echo"))
        (Path(directory) / "functions.conf").write_text("".join(lines) + "local local.img\n")
        yield directory


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.paths.append(self.path)
        super().do_GET()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def python_store():
    """Python's own server on a directory: the directory, its address, and the requested paths."""
    with tempfile.TemporaryDirectory() as directory:
        server = http.server.ThreadingHTTPServer(
            (HOST_IP, 0), functools.partial(Handler, directory=directory)
        )
        server.paths = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Path(directory), f"{HOST_IP}:{server.server_address[1]}/", server.paths
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@contextlib.contextmanager
def rude_store(behave):
    """A server that calls `behave` for each connection after reading its request."""
    listener = socket.create_server((HOST_IP, 0))
    over = threading.Event()

    def serve():
        with contextlib.suppress(OSError):
            while True:
                s, _ = listener.accept()
                threading.Thread(target=attend, args=(s,), daemon=True).start()

    def attend(s):
        with s, contextlib.suppress(OSError):
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                request += s.recv(4096)
            behave(s, over)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"{HOST_IP}:{listener.getsockname()[1]}/"
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def answers_still():
    assert call("local", b"here") == (200, b"here")


def test_fetched_once():
    with python_store() as (root, address, paths), table(up="", echo="") as directory:
        (root / "up.img").write_bytes(image("uppercase"))
        with Board("--functions", directory, "--store", address, log="store"):
            assert paths == []
            assert call("up", b"first") == (200, b"FIRST")
            for _ in range(3):
                assert call("up", b"again") == (200, b"AGAIN")
            assert paths == ["/up.img"], paths
            assert cold_starts() == 1
            # An image that was missing can be added later.
            assert call("echo", b"x")[0] == 502
            (root / "echo.img").write_bytes(image("echo", 300000))
            assert call("echo", b"x") == (200, b"x")
            assert paths == ["/up.img", "/echo.img", "/echo.img"], paths


def test_nginx_and_a_path():
    with tempfile.TemporaryDirectory() as work, table(sha256="", up="") as directory:
        root = Path(work) / "images" / "v1"
        root.mkdir(parents=True)
        (root / "sha256.img").write_bytes(image("sha256", 100000))
        Path(work).chmod(0o755)
        (Path(work) / "nginx.conf").write_text(
            f"daemon off; pid {work}/pid; error_log {work}/errors; events {{}}\n"
            f"http {{ access_log off; client_body_temp_path {work}/b; proxy_temp_path {work}/p; "
            f"fastcgi_temp_path {work}/f;\n"
            f"uwsgi_temp_path {work}/u; scgi_temp_path {work}/s; server {{ listen {HOST_IP}:8099; "
            f"root {work}; }} }}\n"
        )
        nginx = subprocess.Popen(["nginx", "-c", f"{work}/nginx.conf", "-e", f"{work}/errors"])
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection((HOST_IP, 8099), 1):
                    break
                time.sleep(0.05)
            with Board(
                "--functions", directory, "--store", f"{HOST_IP}:8099/images/v1", log="store-nginx"
            ):
                status, digest = call("sha256", b"abc")
                assert status == 200 and digest.hex().startswith("ba7816bf"), (status, digest)
                assert call("up", b"x")[0] == 502
                answers_still()
        finally:
            nginx.terminate()
            nginx.wait(PATIENCE_S)


def test_least_recently_used_makes_room():
    names = [f"f{i}" for i in range(SLOTS + 2)]
    with python_store() as (root, address, paths), table(**dict.fromkeys(names, "")) as directory:
        for i, name in enumerate(names):
            (root / f"{name}.img").write_bytes(image("uppercase" if i % 2 else "echo"))
        right = lambda name: (200, b"X" if int(name[1:]) % 2 else b"x")
        with Board("--functions", directory, "--store", address, log="store-full"):
            for name in names[:SLOTS]:
                assert call(name, b"x") == right(name), name
            assert call("f0", b"x") == right("f0")  # now f1 is the oldest
            assert call("f8", b"x") == right("f8")
            paths.clear()
            for name in ("f0", "f8", "f2"):
                assert call(name, b"x") == right(name), name
            assert paths == [], paths
            assert call("f1", b"x") == right("f1")
            assert paths == ["/f1.img"], paths


def test_many_callers_one_fetch():
    with python_store() as (root, address, paths), table(up="", echo="") as directory:
        (root / "up.img").write_bytes(image("uppercase", 500000))
        (root / "echo.img").write_bytes(image("echo", 200000))
        with Board("--functions", directory, "--store", address, log="store-many"):
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                ups = [pool.submit(call, "up", f"caller {i}".encode()) for i in range(8)]
                echoes = [pool.submit(call, "echo", b"e") for _ in range(4)]
                for i, up in enumerate(ups):
                    assert up.result() == (200, f"CALLER {i}".encode())
                assert all(e.result() == (200, b"e") for e in echoes)
            assert sorted(paths) == ["/echo.img", "/up.img"], paths


def test_images_that_are_no_good():
    whole = image("uppercase", 20000)
    damaged = bytearray(whole)
    damaged[9000] ^= 4
    with python_store() as (root, address, _), table(up="") as directory:
        with Board("--functions", directory, "--store", address, log="store-damaged"):
            for content, status in (
                (bytes(damaged), 500),
                (whole[:8000], 500),  # the file is complete, the image in it is not
                (b"no image at all", 500),
                (b"", 502),
                (image("uppercase", SLOT_BYTES), 502),  # longer than a slot, according to its head
            ):
                (root / "up.img").write_bytes(content)
                assert call("up", b"x")[0] == status, (len(content), status)
                answers_still()
            # The largest that fits; and refused images are not kept.
            (root / "up.img").write_bytes(image("uppercase", SLOT_BYTES - 32))
            assert call("up", b"x") == (200, b"X")


def test_stores_that_answer_badly():
    body = image("uppercase", 20000)
    length = f"Content-Length: {len(body)}\r\n".encode()
    good = b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + body
    for name, answer in {
        "closes at once": b"",
        "closes in the head": b"HTTP/1.1 200 OK\r\nContent-Le",
        "closes in the body": good[:-1000],
        "closes within a word": good[:-5],
        "no length": b"HTTP/1.1 200 OK\r\n\r\n" + body,
        "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n" + body,
        "both": b"HTTP/1.1 200 OK\r\n" + length + b"Transfer-Encoding: chunked\r\n\r\n" + body,
        "two lengths": b"HTTP/1.1 200 OK\r\n" + length + length + b"\r\n" + body,
        "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + body,
        "a huge length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n" + body,
        "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: /up.img\r\nContent-Length: 0\r\n\r\n",
        "an error": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\n\r\nno\n",
        "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n" * 3,
        "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X-Header: more and more\r\n" * 1000,
    }.items():
        with rude_store(lambda s, over: s.sendall(answer)) as address, table(up="") as directory:
            with Board("--functions", directory, "--store", address, log="store-rude"):
                status, text = call("up", b"x")
                assert status == 502 and b"store" in text, (name, status, text)
                answers_still()
    # Other spellings of the same reply.
    odd = (
        b"HTTP/1.0 200 fine\r\nserver: x\r\ncONTENT-lENGTH:   %d  \r\nX-Content-Length: 5\r\n\r\n"
        % len(body)
        + body
        + b"more"
    )

    def slowly(s, over):
        for at in range(0, 400, 7):
            s.sendall(odd[at : at + 7])
            time.sleep(0.001)
        s.sendall(odd[406:])

    with rude_store(slowly) as address, table(up="") as directory:
        with Board("--functions", directory, "--store", address, log="store-odd"):
            assert call("up", b"x") == (200, b"X")


def test_stores_that_answer_anything():
    body = image("uppercase", 1000)
    good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nServer: x\r\n\r\n" % len(body) + body
    draw = random.Random(7)
    seen = set()

    def anything(s, over):
        answer = bytearray(good)
        for _ in range(draw.randrange(3)):
            at = draw.randrange(80)
            match draw.randrange(4):
                case 0:
                    answer[at] = draw.randrange(256)
                case 1:
                    del answer[at : at + draw.randrange(20)]
                case 2:
                    answer[at:at] = draw.randbytes(draw.randrange(20))
                case 3:
                    del answer[draw.randrange(len(answer)) :]
                    answer.extend(b"\r\n" * 40)
        for at in range(0, len(answer), n := draw.randrange(1, 400)):
            s.sendall(answer[at : at + n])

    # Twenty functions, more than there are slots, so that each call fetches.
    names = [f"f{i}" for i in range(20)]
    with rude_store(anything) as address, table(**dict.fromkeys(names, "")) as directory:
        with Board("--functions", directory, "--store", address, log="store-anything"):
            for turn in range(200):
                status, text = call(names[turn % 20], b"x")
                assert status in (200, 500, 502) and (status != 200 or text == b"X"), (
                    turn,
                    status,
                    text,
                )
                seen.add(status)
                if turn % 50 == 0:
                    answers_still()
            answers_still()
    assert seen == {200, 500, 502}, seen


def test_stores_that_are_down_or_silent():
    def silent(s, over):
        over.wait(PATIENCE_S)

    with rude_store(silent) as mute:
        for name, address in {
            "refuses": f"{HOST_IP}:9/",
            "has no host": "10.99.0.200:80/",
            "sends nothing": mute,
        }.items():
            with table(up="", other="") as directory:
                with Board("--functions", directory, "--store", address, log="store-down"):
                    with concurrent.futures.ThreadPoolExecutor(8) as pool:
                        waiting = [
                            pool.submit(call, "up" if i % 2 else "other", b"x") for i in range(6)
                        ]
                        # Others are served meanwhile.
                        for _ in range(5):
                            answers_still()
                        for w in waiting:
                            status, text = w.result()
                            assert status == 504 and b"store" in text, (name, status, text)
                    answers_still()


def test_a_slow_store_is_not_idle():
    """A store that takes longer than the idle limit under contention,
    and still supplies its image."""
    content = image("uppercase", 100000)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content)
    requested, over = threading.Event(), threading.Event()

    def slow(s, _):
        requested.set()
        time.sleep(
            4
        )  # below http_fetch's QUIET_MS, above what closes an idle session and then resets it
        s.sendall(head + content[:50000])
        time.sleep(4)
        s.sendall(content[50000:])

    def want_in():
        # Reconnects repeatedly: there is always a client without a session.
        while not over.is_set():
            with contextlib.suppress(OSError), connect(1) as s:
                s.recv(1)

    with rude_store(slow) as address, table(up="") as directory:
        with Board("--functions", directory, "--store", address, log="store-slow"):
            with concurrent.futures.ThreadPoolExecutor(41) as pool:
                up = pool.submit(call, "up", b"x")
                assert requested.wait(PATIENCE_S)
                crowd = [pool.submit(want_in) for _ in range(40)]
                try:
                    assert up.result() == (200, b"X"), up.result()
                finally:
                    over.set()
                for one in crowd:
                    one.result()
            answers_still()


def test_over_a_faulty_link():
    with python_store() as (root, address, _), table(up="") as directory:
        (root / "up.img").write_bytes(image("uppercase", 400000))
        faults = ("--loss", "0.03", "--reorder", "0.02", "--duplicate", "0.02", "--corrupt", "0.02")
        for seed in (1, 2):
            with Board(
                "--functions",
                directory,
                "--store",
                address,
                "--seed",
                seed,
                *faults,
                log="store-faulty",
            ):
                for _ in range(3):  # a fetch may take longer than the board waits
                    status, out = call("up", b"x")
                    if status == 200:
                        break
                assert (status, out) == (200, b"X"), (status, out)


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
