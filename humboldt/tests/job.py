#!/usr/bin/env python3
"""Starts the ranks of a job, as `baltra cluster run` does,
for the library's tests and for bench/messages.

On one node, with shared memory:

    job = Job(["./program", "argument"], size=4)

Ranks 0 and 1, and ranks 2 and 3, on separate nodes, with TCP between the nodes:

    job = Job(["./program"], size=4, nodes=[0, 0, 1, 1])
    for rank in job.wait(): rank.code, rank.out, rank.err
"""

import os
import secrets
import socket
import subprocess
import threading
import time

# Bounds a test that hangs; no load reaches it.
PATIENCE_S = 600


class Rank:
    """An ended rank: its exit status, stdout and stderr; code is None if it had to be killed."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"code {self.code}\n{self.out}{self.err}"


class Job:
    def __init__(self, command, size, nodes=None, environment=None, key=None, capture=True):
        nodes = nodes or [0] * size
        commands = command if isinstance(command[0], list) else [command] * size
        segments = {node: os.memfd_create("humboldt") for node in set(nodes)}
        bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(size)]
        listeners = [None] * size
        self.addresses = ["-"] * size
        if len(segments) > 1:
            for rank in range(size):
                listeners[rank] = socket.create_server(("127.0.0.1", 0), backlog=256)
                self.addresses[rank] = "127.0.0.1:%d" % listeners[rank].getsockname()[1]
        self.key = key or secrets.token_hex(16)
        self.processes = []
        for rank in range(size):
            here = [other for other in range(size) if nodes[other] == nodes[rank]]
            descriptors = [segments[nodes[rank]]] + [bells[other] for other in here]
            words = {
                "HUM_RANK": str(rank),
                "HUM_SIZE": str(size),
                "HUM_PEERS": ",".join(
                    "-" if other in here else self.addresses[other] for other in range(size)
                ),
                "HUM_SEGMENT": str(segments[nodes[rank]]),
                "HUM_BELLS": ",".join(str(bells[other]) for other in here),
                "HUM_KEY": self.key,
                "HUM_LAUNCHER": str(os.getpid()),
            }
            if listeners[rank]:
                descriptors.append(listeners[rank].fileno())
                words["HUM_LISTEN"] = str(listeners[rank].fileno())
            pipe = subprocess.PIPE if capture else None
            self.processes.append(
                subprocess.Popen(
                    commands[rank],
                    env={**os.environ, **words, **(environment or {})},
                    pass_fds=descriptors,
                    # Started by hand, rank 0 reads the standard input of this program.
                    stdin=subprocess.DEVNULL if capture or rank > 0 else None,
                    stdout=pipe,
                    stderr=pipe,
                )
            )
        for descriptor in [*segments.values(), *bells]:
            os.close(descriptor)
        for listener in listeners:
            if listener:
                listener.close()

    def wait(self, seconds=PATIENCE_S):
        """Waits for all ranks; kills those that have not ended in time."""
        ends = [None] * len(self.processes)
        until = time.monotonic() + seconds

        def collect(rank, process):
            try:
                out, err = process.communicate(timeout=max(0.1, until - time.monotonic()))
                code = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                code = None
            ends[rank] = Rank(
                code, (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace")
            )

        threads = [
            threading.Thread(target=collect, args=each) for each in enumerate(self.processes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ends


if __name__ == "__main__":
    import sys

    # job.py SIZE PROGRAM …: runs a job by hand.
    job = Job(sys.argv[2:], int(sys.argv[1]), capture=False)
    sys.exit(max(abs(process.wait()) for process in job.processes))
