#!/usr/bin/env python3
"""Sends the requests of one function over one connection when they are due, like hey -c 1 -q RATE.

usage: load.py URL BODY_FILE DUE_FILE BEGIN SECONDS [KEY]

DUE_FILE is a JSON list of seconds after BEGIN, a time of the monotonic clock. A request that
becomes due before the reply to the previous one is sent right after the reply; further requests
that become due meanwhile are not sent. Prints JSON: the time of each request (seconds after BEGIN),
its latency in milliseconds, and the numbers of unsent and failed requests. KEY is the tenant's, for
servers that require one.
"""

import bisect
import json
import socket
import sys
import time
import urllib.parse


class Connection:
    """A keep-alive connection, without buffering or locks of a library between the clock and the
    socket."""

    def __init__(self, url, body, key):
        parts = urllib.parse.urlsplit(url)
        self.address = (parts.hostname, parts.port)
        head = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: "
            "application/octet-stream\r\n"
            f"Accept: application/octet-stream\r\nContent-Length: {len(body)}\r\n"
            + (f"X-API-Key: {key}\r\n" if key else "")
            + "\r\n"
        )
        self.request = head.encode() + body
        self.socket = None

    def call(self):
        """(status, body), or None when the connection broke."""
        try:
            if self.socket is None:
                self.socket = socket.create_connection(self.address, timeout=60)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.sendall(self.request)
            data = b""
            while b"\r\n\r\n" not in data:
                data += self.more()
            head, body = data.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            fields = dict(line.lower().split(":", 1) for line in lines[1:])
            parts, length, have = [body], int(fields["content-length"]), len(body)
            while have < length:
                parts.append(self.more())
                have += len(parts[-1])
            return int(lines[0].split()[1]), b"".join(parts)
        except OSError:
            if self.socket:
                self.socket.close()
            self.socket = None
            return None

    def more(self):
        data = self.socket.recv(1 << 18)
        if not data:
            raise OSError("the server closed the connection")
        return data


def drive(url, body, due, begin, seconds, key=""):
    connection = Connection(url, body, key)
    sent, latency, unsent, failed = [], [], 0, 0
    following = 0
    while following < len(due) and due[following] < seconds:
        now = time.monotonic()
        if now < begin + due[following]:
            time.sleep(begin + due[following] - now)
            now = time.monotonic()
        if now >= begin + seconds:
            break
        answer = connection.call()
        done = time.monotonic()
        if answer and answer[0] == 200:
            sent.append(round(now - begin, 6))
            latency.append(round((done - now) * 1e3, 4))
        else:
            failed += 1
        # Of the requests that have become due, only the last one is sent.
        passed = bisect.bisect_right(due, min(done - begin, seconds), following + 1)
        unsent += max(0, passed - following - 2)
        following = max(following + 1, passed - 1)
    return {"sent_s": sent, "latency_ms": latency, "unsent": unsent, "failed": failed}


if __name__ == "__main__":
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    with open(sys.argv[2], "rb") as body_file, open(sys.argv[3]) as due_file:
        print(
            json.dumps(
                drive(
                    sys.argv[1],
                    body_file.read(),
                    json.load(due_file),
                    float(sys.argv[4]),
                    float(sys.argv[5]),
                    *sys.argv[6:],
                )
            )
        )
