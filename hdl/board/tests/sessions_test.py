#!/usr/bin/env python3
"""Tests hundreds of connections at once with the model with 256 sessions (make -C hdl/board many).

usage: sessions_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import asyncio
import random
import sys

from client import alive, metrics
from harness import BOARD_IP, PATIENCE_S, Board, enter_namespace, run

MODEL = "board-256-sessions"
SESSIONS = 256


class Client:
    """A connection that stays open; `call` is one request on it."""

    def __init__(self, name):
        self.name = name

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection(BOARD_IP, 80)
        return self

    async def call(self, body, function="echo"):
        head = f"POST /function/{function} HTTP/1.1\r\nHost: board\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        status = await self.reader.readuntil(b"\r\n\r\n")
        assert status.startswith(b"HTTP/1.1 200"), (self.name, status)
        length = int(status.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return await self.reader.readexactly(length)

    async def close(self):
        self.writer.close()
        await self.writer.wait_closed()


def play(course):
    asyncio.run(asyncio.wait_for(course, PATIENCE_S))


def test_many_at_once():
    """All connections are open and call in turn; each gets its own replies."""

    async def course():
        clients = await asyncio.gather(*(Client(i).open() for i in range(SESSIONS - 16)))

        async def talk(c):
            draw = random.Random(c.name)
            for turn in range(6):
                body = f"{c.name} {turn} ".encode() + draw.randbytes(draw.randrange(2000))
                assert await c.call(body) == body, c.name

        await asyncio.gather(*(talk(c) for c in clients))
        now = await asyncio.to_thread(metrics)
        assert now["connections"] >= len(clients), now
        await asyncio.gather(*(c.close() for c in clients))

    with Board(log="many", model=MODEL):
        play(course())
        alive()


def test_come_and_go():
    """Connections open and close while others are active,
    so that the table of sessions changes permanently."""

    async def course():
        async def live(i):
            draw = random.Random(i)
            for round in range(5):
                c = await Client(i).open()
                for turn in range(draw.randrange(1, 4)):
                    body = f"{i} {round} {turn}".encode()
                    assert await c.call(body, "uppercase" if i % 2 else "echo") == body, i
                await c.close()

        await asyncio.gather(*(live(i) for i in range(120)))

    with Board(log="many-come", model=MODEL):
        play(course())
        alive()
        now = metrics()
        assert now["connections_total"] >= 600, now


def test_more_than_there_are():
    """A connection beyond the limit waits, or closes an idle one; no connection is stuck."""

    async def course():
        async def one(i):
            for _ in range(8):
                try:
                    c = await Client(i).open()
                    body = f"caller {i}".encode()
                    assert await asyncio.wait_for(c.call(body), 30) == body
                    await asyncio.sleep(0.5)
                    await c.close()
                    return
                except (ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                    await asyncio.sleep(0.5)
            raise AssertionError(f"caller {i} was not served")

        await asyncio.gather(*(one(i) for i in range(SESSIONS + 100)))

    with Board(log="many-more", model=MODEL):
        play(course())
        alive()


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
