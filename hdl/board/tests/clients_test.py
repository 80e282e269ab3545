#!/usr/bin/env python3
"""Tests the board's model with common programs: proxies in front of it, load generators,
HTTP libraries.

usage: clients_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import asyncio
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from client import URL, Answers, alive, connect, curl, metrics, request
from harness import BOARD_IP, LOGS, LONGEST_BODY, PATIENCE_S, ROOT, Board, enter_namespace, run

PROXY = ("127.0.0.1", 8080)
SIZES = [0, 1, 8, 63, 64, 1000, 1460, 1461, 20000, 200000]


@contextlib.contextmanager
def proxy(name, configuration, *command):
    """A reverse proxy in front of the board, from its configuration; ended afterwards."""
    directory = LOGS / name
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.conf"
    path.write_text(configuration.replace("DIRECTORY", str(directory)))
    with open(directory / "log", "w") as log:
        process = subprocess.Popen([*command, str(path)], stdout=log, stderr=log)
        try:
            for _ in range(100):
                if process.poll() is not None:
                    raise RuntimeError(
                        f"{name} ended with {process.returncode}, see {directory}/log"
                    )
                with contextlib.suppress(OSError), socket.create_connection(PROXY, 1):
                    break
                time.sleep(0.05)
            else:
                raise RuntimeError(f"{name} does not listen, see {directory}/log")
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


NGINX = """
daemon off;
worker_processes 1;
pid DIRECTORY/pid;
error_log stderr;
events { worker_connections 256; }
http {
  access_log off;
  client_max_body_size 2m;
  client_body_temp_path DIRECTORY/body;
  proxy_temp_path DIRECTORY/proxy;
  fastcgi_temp_path DIRECTORY/fastcgi;
  uwsgi_temp_path DIRECTORY/uwsgi;
  scgi_temp_path DIRECTORY/scgi;
  upstream board { server BOARD:80; keepalive 8; }
  server {
    listen 127.0.0.1:8080;
    location / { proxy_pass http://board; proxy_http_version 1.1; proxy_set_header Connection ""; }
    # nginx' default: HTTP/1.0, and a connection for each request.
    location /plain/ { proxy_pass http://board/; }
  }
}
""".replace("BOARD", BOARD_IP)

HAPROXY = """
global
  maxconn 256
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  http-reuse always
frontend front
  bind 127.0.0.1:8080
  default_backend board
backend board
  option httpchk GET /healthz
  http-check send hdr Host board
  server board BOARD:80 check inter 500 maxconn 8
""".replace("BOARD", BOARD_IP)


def through_the_proxy(path="/function"):
    """Bodies of many sizes, then many clients at once; all replies are correct."""
    connection = http.client.HTTPConnection(*PROXY, timeout=PATIENCE_S)
    for size in SIZES:
        body = random.Random(size).randbytes(size)
        connection.request("POST", f"{path}/echo", body)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, body), (path, size, answer.status)
    connection.request("GET", f"{path}/none")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (404, b"not found\n"), answer.status

    def client(i):
        draw = random.Random(i)
        connection = http.client.HTTPConnection(*PROXY, timeout=PATIENCE_S)
        for _ in range(10):
            body = draw.randbytes(draw.choice([1, 64, 1460, 10000]))
            connection.request("POST", f"{path}/uppercase", body)
            expect = bytes(b - 32 if 97 <= b <= 122 else b for b in body)
            if connection.getresponse().read() != expect:
                return False
        return True

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert all(pool.map(client, range(24)))


def test_nginx_in_front():
    with Board(log="nginx"), proxy("nginx", NGINX, "nginx", "-e", "stderr", "-c"):
        through_the_proxy()
        # It keeps connections: there are far fewer than requests.
        numbers = metrics()
        assert numbers["connections_total"] < numbers["requests_total"] / 4, numbers
        through_the_proxy("/plain/function")
        alive()


def test_haproxy_in_front():
    with Board(log="haproxy"), proxy("haproxy", HAPROXY, "haproxy", "-db", "-f"):
        through_the_proxy()
        alive()


def test_ab():
    body = LOGS / "ab.body"
    with Board(log="ab"):
        body.write_bytes(b"x" * 64)
        for options in (["-k"], []):
            text = subprocess.run(
                [
                    "ab",
                    "-q",
                    "-n",
                    "600",
                    "-c",
                    "8",
                    *options,
                    "-p",
                    body,
                    "-T",
                    "application/octet-stream",
                    f"{URL}/function/echo",
                ],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            ).stdout
            number = lambda what: int(re.search(rf"{what}:\s+(\d+)", text)[1])
            assert number("Complete requests") == 600 and number("Failed requests") == 0, text
            assert "Non-2xx" not in text and number("HTML transferred") == 600 * 64, text
            if options:  # HTTP/1.0 with Connection: keep-alive
                assert number("Keep-Alive requests") == 600, text
        alive()


def test_h2load_in_http_1_1():
    with Board(log="h2load"):
        text = subprocess.run(
            ["h2load", "--h1", "-n", "800", "-c", "8", f"{URL}/healthz"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        ).stdout
        assert re.search(r"800 done, 800 succeeded, 0 failed, 0 errored", text), text
        alive()


def test_wrk():
    script = LOGS / "wrk.lua"
    with Board(log="wrk"):
        # Each request has a distinct body, and each reply is checked.
        script.write_text(
            "local n = 0\n"
            'request = function() n = n + 1 return wrk.format("POST", "/function/uppercase", nil, '
            '"request " .. n) end\n'
            "response = function(status, headers, body) if status ~= 200 or not "
            'body:match("^REQUEST %d+$") then wrong = (wrong or 0) + 1 end end\n'
            "local all = {}\n"
            "setup = function(thread) table.insert(all, thread) end\n"
            'done = function() for _, t in ipairs(all) do print("wrong: " .. (t:get("wrong") or '
            "0)) end end\n"
        )
        text = subprocess.run(
            ["wrk", "-t2", "-c12", "-d3s", "-s", script, URL],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        ).stdout
        assert (
            text.count("wrong: 0\n") == 2 and "Socket errors" not in text and "Non-2xx" not in text
        ), text
        done = int(re.search(r"(\d+) requests in", text)[1])
        assert done > 100 and metrics()["requests_total"] >= done, text
        alive()


@contextlib.contextmanager
def chromium():
    """Headless Chromium, driven by WebDriver: a function that posts a command."""
    port = 9515
    with open(LOGS / "chromium.log", "w") as log:
        process = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=log, stderr=log)
        try:

            def command(path, value):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
                connection.request("POST", path, json.dumps(value))
                answer = json.loads(connection.getresponse().read())["value"]
                if isinstance(answer, dict) and "error" in answer:
                    raise RuntimeError(answer["message"])
                return answer

            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            arguments = [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ]
            options = {"goog:chromeOptions": {"args": arguments}, "timeouts": {"script": 60000}}
            session = command("/session", {"capabilities": {"alwaysMatch": options}})["sessionId"]
            yield lambda path, value: command(f"/session/{session}{path}", value)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


FETCHES = """
const done = arguments[0], answers = [];
const call = async (name, body) => new Uint8Array(await (await fetch("/function/" + name, {method: "POST", body})).arrayBuffer());
(async () => {
  const body = Uint8Array.from({length: 150000}, (_, i) => (i * 7919) >> 3 & 255);
  const back = await call("echo", body);
  answers.push(back.length === body.length && back.every((byte, i) => byte === body[i]));
  const texts = await Promise.all(Array.from({length: 40}, (_, i) => call("uppercase", "browser " + i)));
  answers.push(texts.every((text, i) => new TextDecoder().decode(text) === "BROWSER " + i));
  answers.push((await fetch("/function/none", {method: "POST", body: "x"})).status);
  answers.push((await (await fetch("/system/functions")).json()).length);
  done(answers);
})().catch(error => done(String(error)));
"""


def test_chromium():
    with Board(log="chromium"), chromium() as browser:
        browser("/url", {"url": f"{URL}/healthz"})
        assert (
            browser(
                "/execute/sync", {"script": "return document.body.innerText", "args": []}
            ).strip()
            == "ok"
        )
        answers = browser("/execute/async", {"script": FETCHES, "args": []})
        assert answers == [True, True, 404, 8], answers
        alive()


def test_aiohttp():
    import aiohttp

    async def calls():
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=12)) as session:

            async def one(i):
                draw = random.Random(i)
                body = draw.randbytes(draw.choice([0, 1, 64, 1460, 5000, 40000]))
                async with session.post(
                    f"{URL}/function/echo", data=body, expect100=i % 5 == 0
                ) as answer:
                    assert answer.status == 200 and await answer.read() == body, i

            await asyncio.gather(*(one(i) for i in range(240)))
            async with session.get(f"{URL}/system/functions") as answer:
                assert answer.content_type == "application/json" and "echo" in await answer.text()

    with Board(log="aiohttp"):
        asyncio.run(asyncio.wait_for(calls(), 60))
        alive()


def test_http_client_with_a_dropped_connection():
    """A client that leaves within its body affects no others, and may reconnect."""
    with Board(log="dropped"):
        for size in (100, 5000, 100000):
            connection = http.client.HTTPConnection(BOARD_IP, timeout=PATIENCE_S)
            connection.putrequest("POST", "/function/echo")
            connection.putheader("Content-Length", str(size))
            connection.endheaders()
            connection.send(b"x" * (size // 2))
            connection.close()
            connection.request("POST", "/function/echo", b"again")
            assert connection.getresponse().read() == b"again"
        alive()


def test_a_body_of_ten_megabytes():
    body = random.Random(12).randbytes(10 << 20)
    digest = hashlib.sha256(body).digest()
    post = ("-w", "%{http_code}", "--data-binary", "@-")
    with Board(log="ten") as board:
        for framing in ("Content-Type: application/octet-stream", "Transfer-Encoding: chunked"):
            for expect in ("Expect: 100-continue", "Expect:"):
                out = curl(
                    "-H",
                    framing,
                    "-H",
                    expect,
                    *post,
                    f"{URL}/function/echo",
                    body=body,
                )
                assert out == body + b"200", (framing, expect, len(out))
            out = curl("-H", framing, *post, f"{URL}/function/sha256", body=body)
            assert out == digest + b"200", (framing, out)
        # The longest ones and short ones on one connection, so that its rings wrap around.
        connection = http.client.HTTPConnection(BOARD_IP, timeout=PATIENCE_S)
        for size in (10 << 20, 1, 64, LONGEST_BODY):
            connection.request("POST", "/function/echo", (body * 2)[:size])
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, (body * 2)[:size]), size
        # Memory of the rings is allocated only as far as it was used.
        resident = int(
            re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{board.process.pid}/status").read_text())[
                1
            ]
        )
        assert resident < 400_000, resident
        alive()


def test_a_body_that_is_too_long():
    with Board(log="too-long"):
        # With a length it is refused by its head; in chunks, once they exceed the limit.
        for size in (LONGEST_BODY + 1, 16 << 20, 20 << 20):
            for expect in ("Expect: 100-continue", "Expect:"):
                out = curl(
                    "-i",
                    "-H",
                    expect,
                    "--data-binary",
                    "@-",
                    f"{URL}/function/echo",
                    body=bytes(size),
                )
                assert out.startswith(b"HTTP/1.1 413 ") and out.endswith(
                    b"\r\n\r\ncontent too large\n"
                ), (size, expect, out)
        s = connect()
        with contextlib.suppress(ConnectionError):
            s.sendall(
                b"POST /function/echo HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            for _ in range(13):
                s.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
        assert Answers(s).next() == (413, b"content too large\n")
        alive()


def typed(text):
    """The input of a person at a telnet client: a line's characters one by one,
    each in a segment."""
    s = socket.create_connection((BOARD_IP, 80), PATIENCE_S)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in text:
        s.sendall(bytes([byte]))
        time.sleep(0.002)
    s.shutdown(socket.SHUT_WR)
    return b"".join(iter(lambda: s.recv(4096), b""))


def test_many_typists_at_once():
    text = request(b"typed by hand", "uppercase")
    with Board(log="typists"):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for answer in pool.map(typed, [text] * 16):
                assert answer.endswith(b"TYPED BY HAND"), answer
        alive()


if __name__ == "__main__":
    # aiohttp is in the environment created by scripts/setup.sh.
    python = ROOT / "target" / "venv" / "bin" / "python"
    if sys.prefix == sys.base_prefix and python.exists():
        import os

        os.execv(python, [str(python), *sys.argv])
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
