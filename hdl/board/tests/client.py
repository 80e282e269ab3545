"""Clients of the live board: calls with curl or over sockets, and the board's metrics."""

import http.client
import socket
import subprocess

from harness import BOARD_IP, PATIENCE_S

URL = f"http://{BOARD_IP}"
FAULTY = ("--loss", "0.05", "--reorder", "0.03", "--duplicate", "0.03", "--corrupt", "0.03")
LESS_FAULTY = ("--loss", "0.01", "--reorder", "0.006", "--duplicate", "0.006", "--corrupt", "0.006")


def curl(*args, body=None, seconds=PATIENCE_S):
    done = subprocess.run(
        ["curl", "-sS", "-m", str(seconds), *args],
        input=body,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 0, f"curl {args}: {done.stderr.decode()}"
    return done.stdout


def echo(body, seconds=PATIENCE_S):
    """The reply of the function echo, for a body that is sent without waiting for 100 Continue."""
    args = ["-H", "Expect:", "--data-binary", "@-", f"{URL}/function/echo"]
    return curl(*args, body=body, seconds=seconds)


def metrics():
    lines = curl(f"{URL}/metrics").decode().splitlines()
    return {
        name.removeprefix("baltra_board_"): int(n)
        for name, n in (x.split() for x in lines if x[0] != "#")
    }


def alive(seconds=PATIENCE_S):
    """A new connection gets a reply."""
    assert curl("-d", "still here", f"{URL}/function/uppercase", seconds=seconds) == b"STILL HERE"


def call(name, body=b"", query="", seconds=PATIENCE_S):
    """Status and body of one call, over a new connection."""
    connection = http.client.HTTPConnection(BOARD_IP, timeout=seconds)
    connection.request("POST", f"/function/{name}{query}", body)
    answer = connection.getresponse()
    out = answer.status, answer.read()
    connection.close()
    return out


def cold_starts():
    return sum(n for name, n in metrics().items() if name.startswith("cold_starts_total"))


def connect(seconds=PATIENCE_S, receive_buffer=None):
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(seconds)
    s.connect((BOARD_IP, 80))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def request(body, name="echo", head=""):
    return (
        f"POST /function/{name} HTTP/1.1\r\nHost: board\r\nContent-Length: "
        f"{len(body)}\r\n{head}\r\n".encode()
        + body
    )


class Answers:
    """Reads replies from a socket, one after another."""

    def __init__(self, s):
        self.file = s.makefile("rb")

    def next(self):
        line = self.file.readline()
        if not line:
            return None
        length = 0
        while (field := self.file.readline().rstrip()) != b"":
            name, value = field.split(b":", 1)
            if name.lower() == b"content-length":
                length = int(value)
        return int(line.split()[1]), self.file.read(length)


def patient(call, tries=5):
    """Over a lossy link a connection may fail permanently; a client then tries again."""
    for left in range(tries, 0, -1):
        try:
            return call()
        except (OSError, AssertionError):
            if left == 1:
                raise
